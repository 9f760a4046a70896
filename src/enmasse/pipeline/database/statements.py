"""The statements by which rows of a batch go into a table of PostgreSQL. Pure.

Rules:
1. Every name is quoted, whoever gave it.
2. Values get the type of their column without its length, so that what is too long is refused and not cut.
3. Staged rows have each key once, so the order of the statements does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from enmasse.model.kinds.pipelines.databases import BATCHES
from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.pipeline.lake.partial_updates import ANEW, ANEW_AT, SET_AT, at_of, set_of

STAGED: Final = "enmasse_rows"
"""The temporary table with the rows of a batch."""

_DEFAULT_SCHEMA: Final = "public"


def quoted(name: str) -> str:
    """Return a name as it stands in a statement."""
    return '"' + name.replace('"', '""') + '"'


def qualified(table: str) -> str:
    """Return a table, ``machines`` or ``plant.machines``, as it stands in a statement."""
    schema, _, name = table.rpartition(".")
    return f"{quoted(schema or _DEFAULT_SCHEMA)}.{quoted(name)}"


def _text(name: str) -> str:
    """Return a name as a text in a statement."""
    return "'" + name.replace("'", "''") + "'"


def batches_of(table: str) -> str:
    """Return the table that says which batches are written, which is in the schema of the table."""
    schema = table.rpartition(".")[0]
    return f"{quoted(schema or _DEFAULT_SCHEMA)}.{quoted(BATCHES)}"


COLUMNS: Final = """\
SELECT attname::text, format_type(atttypid, -1), format_type(atttypid, atttypmod)
FROM pg_catalog.pg_attribute
WHERE attrelid = pg_catalog.to_regclass($1) AND attnum > 0 AND NOT attisdropped
ORDER BY attnum"""
"""Name, type, and type with its length, of each column of a table."""


FINDING_BATCHES: Final = """\
SELECT pg_catalog.to_regclass($1) IS NOT NULL, has_schema_privilege(relnamespace, 'CREATE'), quote_ident(current_user)
FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($2)"""
"""Of the table of batches and the other one: is the first there, may the user make it, and who is that."""

LOCKING_BATCHES: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
"""Lets one transaction at a time make a table; two at once would break an index of PostgreSQL's own."""


def making_batches(table: str) -> str:
    """Return the statement that makes the table of batches."""
    columns = "query text PRIMARY KEY, batch bigint NOT NULL, pipeline text NOT NULL, at timestamptz NOT NULL"
    return f"CREATE TABLE IF NOT EXISTS {batches_of(table)} ({columns})"


def noting_batch(table: str) -> str:
    """Return the statement that notes a batch, of query, number and pipeline; it returns no row if it is written."""
    return (
        f"INSERT INTO {batches_of(table)} AS b (query, batch, pipeline, at) VALUES ($1, $2, $3, now()) "  # noqa: S608  # quoted
        "ON CONFLICT (query) DO UPDATE SET batch = EXCLUDED.batch, at = EXCLUDED.at WHERE b.batch < EXCLUDED.batch "
        "RETURNING batch"
    )


@dataclass(frozen=True)
class Merge:
    """The change of a table by staged rows.

    Attributes:
        table: ``machines`` or ``plant.machines``.
        types: the types of the columns that are written, by name.
        keys: the columns that name a row; none: rows are added.
        order_by: the column whose greater value wins; None: what comes later.
        is_partial: whether rows change the columns that they set alone; with ``order_by`` and ``SET_AT`` among the
            ``types``, each by its own order.
        is_deleting: whether the column ``DELETED`` says which rows delete.
    """

    table: str
    types: Mapping[str, str]
    keys: Sequence[str] = ()
    order_by: str | None = None
    is_partial: bool = False
    is_deleting: bool = False

    def statements(self) -> list[str]:
        """Return them in order."""
        return [*([self._deletion()] if self.is_deleting else []), self._insertion()]

    def _insertion(self) -> str:
        names = ", ".join(map(quoted, self.types))
        values = ", ".join(map(self._in_part if self.is_partial else self._value, self.types))
        source, asked = f"pg_temp.{STAGED} r", []
        if self.is_partial:
            same = " AND ".join(f"o.{quoted(key)} = {self._value(key)}" for key in self.keys)
            source += f" LEFT JOIN {qualified(self.table)} o ON {same}"
            is_new = f"o.{quoted(self.keys[0])} IS NULL"
            if self.order_by is not None:
                newer = self._newer(self._value(self.order_by), "o")
                asked.append(f"({' OR '.join([is_new, newer, *map(self._wins, self._columns())])})")
            if self.is_deleting:
                # What is still there is newer than the deletion, and may have columns that are older.
                asked.append(f"NOT (r.{quoted(DELETED)} AND {is_new})")
        elif self.is_deleting:
            asked.append(f"NOT r.{quoted(DELETED)}")
        where = f" WHERE {' AND '.join(asked)}" if asked else ""
        text = f"INSERT INTO {qualified(self.table)} AS t ({names}) SELECT {values} FROM {source}{where}"  # noqa: S608  # quoted
        if not self.keys:
            return text
        text += f" ON CONFLICT ({', '.join(map(quoted, self.keys))}) DO "
        rest = [name for name in self.types if name not in self.keys]
        if not rest:
            return f"{text}NOTHING"
        changes = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in rest)
        newer = ""
        if self.order_by is not None and not self.is_partial:
            newer = f" WHERE {self._newer(f'EXCLUDED.{quoted(self.order_by)}')}"
        return f"{text}UPDATE SET {changes}{newer}"

    def _deletion(self) -> str:
        named = [f"t.{quoted(key)} = {self._value(key)}" for key in self.keys]
        if self.order_by is not None:
            by = ANEW_AT if self.is_partial else self.order_by
            named.append(self._newer(self._value(by, self.types[self.order_by])))
        # Of a row that is changed in part nothing stays that is older than a deletion.
        found = " AND ".join([f"r.{quoted(ANEW if self.is_partial else DELETED)}", *named])
        return f"DELETE FROM {qualified(self.table)} t USING pg_temp.{STAGED} r WHERE {found}"  # noqa: S608  # quoted

    def _newer(self, value: str, table: str = "t") -> str:
        assert self.order_by is not None
        there = f"{table}.{quoted(self.order_by)}"
        return f"({there} IS NULL OR {value} >= {there})"

    def _columns(self) -> list[str]:
        """Return the columns that rows may set or not."""
        return [name for name in self.types if name not in (*self.keys, self.order_by, SET_AT)]

    def _in_part(self, name: str) -> str:
        """Return what a column has in the end: the row's value where it sets it and is newer, else what is there."""
        if name in self.keys:
            return self._value(name)
        if name == self.order_by:
            value = self._value(name)
            return f"CASE WHEN {self._newer(value, 'o')} THEN {value} ELSE o.{quoted(name)} END"
        if name == SET_AT:
            each = [
                f"jsonb_build_object({_text(one)}, "
                f"CASE WHEN {self._wins(one)} THEN {self._at(one)} ELSE {self._known(one)} END)"
                for one in self._columns()
            ]
            return " || ".join([f"coalesce(o.{quoted(SET_AT)}, '{{}}')", *each])
        return f"CASE WHEN {self._wins(name)} THEN {self._value(name)} ELSE o.{quoted(name)} END"

    def _wins(self, name: str) -> str:
        is_set = f"r.{quoted(set_of(name))}"
        if self.order_by is None:
            return is_set
        known = self._known(name)
        return f"({is_set} AND ({known} IS NULL OR {self._at(name)} >= {known}))"

    def _at(self, name: str) -> str:
        assert self.order_by is not None
        return self._value(at_of(name), self.types[self.order_by])

    def _known(self, name: str) -> str:
        """Return what ordered the value of a column that is there."""
        assert self.order_by is not None
        by = f"CASE WHEN o.{quoted(name)} IS NOT NULL THEN o.{quoted(self.order_by)} END"
        if SET_AT not in self.types:
            return f"({by})"
        set_at = f"o.{quoted(SET_AT)}"
        known = f"CAST({set_at} ->> {_text(name)} AS {self.types[self.order_by]})"
        return f"(CASE WHEN {set_at} IS NULL THEN {by} ELSE {known} END)"

    def _value(self, name: str, kind: str = "") -> str:
        column, kind = f"r.{quoted(name)}", kind or self.types[name]
        if kind.endswith("[]"):
            # It comes as JSON.
            items = f"ARRAY(SELECT jsonb_array_elements_text({column}::jsonb))"
            return f"CASE WHEN {column} IS NOT NULL THEN CAST({items} AS {kind}) END"
        return f"CAST({column} AS {kind})"
