"""Columns as Spark writes them: ``device STRING, place STRUCT<room: STRING, floor: INT>, ts TIMESTAMP NOT NULL``.

Read without Spark, so that a schema is checked where it is declared.
Types have one name each here, Spark's own: ``INTEGER`` is ``INT``, ``LONG`` is ``BIGINT``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_DDL_CHARACTERS: Final = 100_000
"""Thousands of columns; a longer text is no schema that a person wrote."""

_MAX_DEPTH = 20  # of types in types; Spark and Arrow take more, people do not

_SIMPLE = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "BYTE": "TINYINT",
    "SMALLINT": "SMALLINT",
    "SHORT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "FLOAT": "FLOAT",
    "REAL": "FLOAT",
    "DOUBLE": "DOUBLE",
    "STRING": "STRING",
    "BINARY": "BINARY",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_NESTED = ("ARRAY", "MAP", "STRUCT")
_TOKEN = re.compile(
    r"\s+|(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9]{1,9})"
    r"|(?P<text>'(?:[^'\\]|\\.)*')|(?P<mark>[<>(),:])"
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IN_PATH = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
_PATH = re.compile(rf"(?:{_IN_PATH.pattern})(?:[.](?:{_IN_PATH.pattern}))*")
_MAX_NAME = 255


class DdlError(ValueError):
    """Raised when a text is no list of columns.

    Attributes:
        position: the position of the character where that is seen, from 1.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"character {position}: {message}")
        self.position = position


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column.

    Attributes:
        name: the name as Spark calls it, such as ``BIGINT``, ``DECIMAL``, ``ARRAY``.
        arguments: the arguments of a DECIMAL: precision and scale.
        inner: of an ARRAY its element's type, of a MAP its key's and value's.
        fields: the fields of a STRUCT.
    """

    name: str
    arguments: tuple[int, ...] = ()
    inner: tuple[ColumnType, ...] = ()
    fields: tuple[Column, ...] = ()

    def __str__(self) -> str:
        if self.name == "STRUCT":
            return f"STRUCT<{', '.join(field.written(': ') for field in self.fields)}>"
        if self.inner:
            return f"{self.name}<{', '.join(map(str, self.inner))}>"
        return f"{self.name}({','.join(map(str, self.arguments))})" if self.arguments else self.name


@dataclass(frozen=True, slots=True)
class Column:
    """One column, or one field of a STRUCT."""

    name: str
    type: ColumnType
    is_nullable: bool = True

    def written(self, between: str = " ") -> str:
        """Return the column as Spark takes it."""
        name = self.name if _PLAIN_NAME.fullmatch(self.name) else quote_identifier(self.name)
        return f"{name}{between}{self.type}{'' if self.is_nullable else ' NOT NULL'}"


def quote_identifier(name: str) -> str:
    """Return a name of any characters as it stands in SQL of Spark."""
    return f"`{name.replace('`', '``')}`"


def identifier_of(text: str) -> str:
    """Return the name that a text in backquotes stands for; another text is a name as it is."""
    return text[1:-1].replace("``", "`") if len(text) > 2 and text[0] == text[-1] == "`" else text


def path_of(text: str) -> tuple[str, ...]:
    """Return the names of a path such as ``state.reported.ts``, of which any may stand in backquotes."""
    if not _PATH.fullmatch(text):
        return (text,)
    return tuple(map(identifier_of, _IN_PATH.findall(text)))


def name_problem(name: str) -> str | None:
    """Return why no column can be called so, or None."""
    if len(name) > _MAX_NAME or not name.isprintable():
        return f"expected a name of at most {_MAX_NAME} printable characters"
    return None


def parse_ddl(text: str) -> tuple[Column, ...]:
    """Return the columns that a text lists.

    Raises:
        DdlError: it lists none, or something that is no column of a type known here.
    """
    if len(text) > MAX_DDL_CHARACTERS:
        raise DdlError(f"expected at most {MAX_DDL_CHARACTERS} characters, got {len(text)}", MAX_DDL_CHARACTERS)
    reading = _Reading(text)
    columns = reading.columns("", depth=0)
    if not reading.is_at_end:
        raise reading.wrong("',' and another column")
    return columns


def written(columns: tuple[Column, ...]) -> str:
    """Return columns as Spark takes them."""
    return ", ".join(column.written() for column in columns)


class _Reading:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []  # what it is, how it is written, where
        position = 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise DdlError(f"expected a name or a type, got {text[position]!r}", position + 1)
            if found.lastgroup:
                self._tokens.append((found.lastgroup, found[0], position + 1))
            position = found.end()
        self._next = 0

    @property
    def is_at_end(self) -> bool:
        return self._next == len(self._tokens)

    def wrong(self, expected: str) -> DdlError:
        if self.is_at_end:
            return DdlError(f"expected {expected}, got the end", len(self._text) + 1)
        _, text, position = self._tokens[self._next]
        return DdlError(f"expected {expected}, got {text[:60]!r}", position)

    def columns(self, end: str, depth: int) -> tuple[Column, ...]:
        """Read columns up to a mark, or the end of the text."""
        found: list[Column] = []
        names: set[str] = set()
        while True:
            position = self._position()
            column = self._column(depth)
            if column.name.lower() in names:
                raise DdlError(f"there is another column '{column.name}' before", position)
            names.add(column.name.lower())
            found.append(column)
            if not self._take(","):
                break
        if end:
            self._expect(end)
        return tuple(found)

    def _column(self, depth: int) -> Column:
        kind, text = self._peek()
        if kind not in ("word", "quoted"):
            raise self.wrong("the name of a column")
        name = identifier_of(text)
        if problem := name_problem(name):
            raise DdlError(problem, self._position())
        self._next += 1
        self._take(":")
        column_type = self._type(name, depth)
        is_nullable = True
        if self._take("NOT"):
            self._expect("NULL")
            is_nullable = False
        if self._take("COMMENT"):
            if self._peek()[0] != "text":
                raise self.wrong("a text in single quotes")
            self._next += 1
        return Column(name, column_type, is_nullable)

    def _type(self, column: str, depth: int) -> ColumnType:
        if depth > _MAX_DEPTH:
            raise self.wrong(f"at most {_MAX_DEPTH} types in each other")
        kind, text = self._peek()
        name = text.upper()
        if kind == "word" and name in _SIMPLE:
            self._next += 1
            return ColumnType(_SIMPLE[name])
        if kind == "word" and name in _DECIMALS:
            self._next += 1
            return self._decimal()
        if kind == "word" and name in _NESTED:
            self._next += 1
            self._expect("<")
            if name == "STRUCT":
                return ColumnType(name, fields=self.columns(">", depth + 1))
            inner = [self._type(column, depth + 1)]
            if name == "MAP":
                self._expect(",")
                inner.append(self._type(column, depth + 1))
            self._expect(">")
            return ColumnType(name, inner=tuple(inner))
        raise self.wrong(f"a type of column '{column}', such as STRING, DOUBLE, BIGINT or TIMESTAMP")

    def _decimal(self) -> ColumnType:
        precision, scale = 10, 0  # Spark's defaults
        if self._take("("):
            precision = self._number(1, 38)
            scale = self._number(0, precision) if self._take(",") else 0
            self._expect(")")
        return ColumnType("DECIMAL", (precision, scale))

    def _number(self, low: int, high: int) -> int:
        kind, text = self._peek()
        if kind != "number" or not low <= int(text) <= high:
            raise self.wrong(f"a number from {low} to {high}")
        self._next += 1
        return int(text)

    def _position(self) -> int:
        return len(self._text) + 1 if self.is_at_end else self._tokens[self._next][2]

    def _peek(self) -> tuple[str, str]:
        return ("", "") if self.is_at_end else self._tokens[self._next][:2]

    def _take(self, mark: str) -> bool:
        kind, text = self._peek()
        is_it = kind in ("mark", "word") and text.upper() == mark
        self._next += is_it
        return is_it

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise self.wrong(f"'{mark}'")
