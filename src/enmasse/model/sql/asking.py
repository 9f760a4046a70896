"""Texts that people ask of a space: queries over versions of tables, and the statements that tell what there is.

Rules:
1. A statement stands for a query, so one check decides about both: ``SHOW TABLES`` for one of ``LISTING``,
   ``DESCRIBE HISTORY t`` for one of the table's history, and ``DESCRIBE t`` for one of the relation, of which the
   columns are told.
2. The syntax of a text is checked without the relations that there are, which are known to Spark's side alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from enmasse.model.sql.ddl import identifier_of, quote_identifier
from enmasse.model.sql.sql import SqlError, check_syntax

LISTING: Final = "tables:"
"""The relation of all tables and addresses that may be asked."""
HISTORY: Final = "history:"
"""The beginning of the name of the relation of a table's versions."""

_NAME: Final = r"(?P<name>\w+|`(?:[^`]|``)+`)"
_STATEMENTS: Final = (
    re.compile(r"SHOW\s+TABLES(?:\s+(?:LIKE\s+)?'(?P<like>[^']*)')?", re.IGNORECASE),
    re.compile(rf"SHOW\s+COLUMNS\s+(?:FROM|IN)\s+{_NAME}", re.IGNORECASE),
    re.compile(rf"DESC(?:RIBE)?\s+(?P<history>HISTORY)\s+{_NAME}", re.IGNORECASE),
    re.compile(rf"DESC(?:RIBE)?\s+(?:TABLE\s+)?{_NAME}", re.IGNORECASE),
)
_FIRST_WORD: Final = re.compile(r"\s*(SHOW|DESCRIBE|DESC)\b", re.IGNORECASE)
_PATTERN: Final = re.compile(r"[\w*|.:/-]*")
_PAST: Final = re.compile(
    _NAME + r"\s+(?:FOR\s+)?(?:(?:SYSTEM_)?VERSION\s+AS\s+OF\s+(?P<version>[0-9]{1,18})"
    r"|(?:SYSTEM_TIME|TIMESTAMP)\s+AS\s+OF\s+(?:TIMESTAMP\s*)?'(?P<moment>[^']{1,60})')",
    re.IGNORECASE,
)
_TEXTS: Final = re.compile(r"('(?:[^'\\]|\\.)*')")


@dataclass(frozen=True, slots=True)
class Asked:
    """A query that stands for what was asked.

    Attributes:
        sql: the query.
        versions: past versions of tables that it reads, as a table and its version, by their names in the query.
        describes: whether the columns of what it gives are the answer.
    """

    sql: str
    versions: dict[str, tuple[str, int | datetime]]
    describes: bool = False


def read_asked(text: str) -> Asked:
    """Return the query that a text is or stands for; only its syntax is checked.

    Raises:
        SqlError: it is none that may be run, whatever relations there are.
    """
    asked = _statement(text) if _FIRST_WORD.match(text) else Asked(*past_versions(text))
    check_syntax(asked.sql)
    return asked


def _statement(text: str) -> Asked:
    bare = text.strip().rstrip(";").rstrip()
    found = next((match for form in _STATEMENTS if (match := form.fullmatch(bare))), None)
    if found is None:
        raise SqlError(
            "expected SHOW TABLES, SHOW TABLES LIKE 'plant*', SHOW COLUMNS FROM name, DESCRIBE name or DESCRIBE "
            f"HISTORY name, got {bare[:60]!r}; a name of other signs than letters, digits and _ stands in backticks"
        )
    groups = found.groupdict()
    if "name" not in groups:
        return Asked(f"SELECT * FROM {quote_identifier(LISTING)}{_like(groups['like'])}", {})  # noqa: S608  # quoted
    name = identifier_of(groups["name"])
    if groups.get("history"):
        return Asked(f"SELECT * FROM {quote_identifier(HISTORY + name)} ORDER BY version DESC", {})  # noqa: S608  # quoted
    return Asked(f"SELECT * FROM {quote_identifier(name)}", {}, describes=True)  # noqa: S608  # quoted


def _like(pattern: str | None) -> str:
    """Return the condition for a pattern of Spark's: ``*`` for any signs, ``|`` between alternatives."""
    if pattern is None:
        return ""
    if not _PATTERN.fullmatch(pattern):
        raise SqlError(f"expected a pattern such as 'plant*' or 'a|b', got {pattern!r}")
    names = "|".join(one.replace(".", "[.]").replace("*", ".*") for one in pattern.split("|"))
    return f" WHERE name RLIKE '(?i)^({names})$'"


def past_versions(text: str) -> tuple[str, dict[str, tuple[str, int | datetime]]]:
    """Return a query in which past versions of tables have names of their own, and what these are.

    ``readings VERSION AS OF 12`` is the relation ``readings@12`` then, and ``readings TIMESTAMP AS OF '2026-01-31'``
    ``readings@2026-01-31``.

    Raises:
        SqlError: a moment is none.
    """
    found: dict[str, tuple[str, int | datetime]] = {}

    def named(match: re.Match[str]) -> str:
        name, said = identifier_of(match["name"]), match["version"] or match["moment"]
        try:
            version = int(said) if match["version"] else datetime.fromisoformat(said)
        except ValueError:
            before = text[: match.start()]
            raise SqlError(
                f"TIMESTAMP AS OF: expected a moment such as '2026-01-31T12:00:00Z', got {said!r}",
                before.count("\n") + 1,
                len(before) - before.rfind("\n"),
            ) from None
        if isinstance(version, datetime) and version.tzinfo is None:
            version = version.replace(tzinfo=UTC)
        found[f"{name}@{said}"] = name, version
        return quote_identifier(f"{name}@{said}")

    # A text in the query may hold the same words; a moment is a text itself.
    at, parts = 0, []
    for match in _PAST.finditer(text):
        if any(start.start() < match.start() < start.end() for start in _TEXTS.finditer(text)):
            continue
        parts += [text[at : match.start()], named(match)]
        at = match.end()
    return "".join([*parts, text[at:]]), found
