"""Checksums of rows: SQLite has none, so a bit that a disk has changed would be taken for what was written.

Rules:
1. Every table has a column ``checksum``, which SQLite computes from all others whenever it writes a row; so no
   statement has to name it. Who writes must have made the connection by ``connect``; who only reads need not.
2. The text of the schema has a checksum, too, in a table of its own.
3. A table of a file that an older version wrote gets its column when the file is opened.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence

_FUNCTION = "row_checksum"
_COLUMN = "checksum"
_SCHEMA_TABLE = "schema_checksum"
_SCHEMA = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name"
_MADE_DIRECTORIES = 3
"""The file's, the data directory, and that in which it lies."""
_END = re.compile(r"\)\s*(WITHOUT ROWID)?\s*$")


def connect(path: Path, *, timeout: float, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open a database, each statement a transaction unless one is begun."""
    database = sqlite3.connect(path, isolation_level=None, timeout=timeout, check_same_thread=check_same_thread)
    database.create_function(_FUNCTION, -1, row_checksum, deterministic=True)
    return database


def row_checksum(*values: Any) -> int:
    """Return the checksum of a row's values; a text has that of its UTF-8."""
    checksum = 0
    for value in values:
        if isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
        elif isinstance(value, bytes):
            data = value
        else:
            data = repr(value).encode()
            checksum = crc32(b"#", checksum)
        checksum = crc32(data, crc32(b"%d:" % len(data), checksum))
    return checksum


def tables(database: sqlite3.Connection) -> list[str]:
    """Return the names of the tables."""
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [_word(name) for (name,) in rows]


def columns(database: sqlite3.Connection, table: str) -> list[str]:
    """Return the names of a table's columns but that of the checksum, which SQLite leaves out as it is computed."""
    return [_word(row[1]) for row in database.execute(f"PRAGMA table_info({table})")]


def has_checksums(database: sqlite3.Connection, table: str) -> bool:
    """Return true if a table has the column."""
    return any(_word(row[1]) == _COLUMN for row in database.execute(f"PRAGMA table_xinfo({table})"))


def explain_other_schema(database: sqlite3.Connection) -> str | None:
    """Return what is wrong with the text of the schema; ``None`` if nothing is, or an older version wrote it."""
    names = tables(database)
    if not any(has_checksums(database, name) for name in names):
        return None
    found = _SCHEMA_TABLE in names and database.execute(f"SELECT value FROM {_SCHEMA_TABLE}").fetchone()  # noqa: S608
    return None if found and found[0] == _schema_checksum(database) else "its schema is not as it was written"


def protect(database: sqlite3.Connection) -> None:
    """Give each table that has none its column; call it when the tables are as this version has them.

    Args:
        database: made by ``connect``.

    Raises:
        sqlite3.Error: the file cannot be written; it is as it was.
    """
    open_tables = [table for table in tables(database) if not has_checksums(database, table)]
    if not open_tables and not explain_other_schema(database) and _SCHEMA_TABLE in tables(database):
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        _rebuild(database, [table for table in tables(database) if not has_checksums(database, table)])
        database.execute(f"CREATE TABLE IF NOT EXISTS {_SCHEMA_TABLE} (value INTEGER NOT NULL)")
        if not has_checksums(database, _SCHEMA_TABLE):
            _rebuild(database, [_SCHEMA_TABLE])
        database.execute(f"DELETE FROM {_SCHEMA_TABLE}")  # noqa: S608  # a constant
        database.execute(f"INSERT INTO {_SCHEMA_TABLE} VALUES (?)", (_schema_checksum(database),))  # noqa: S608  # likewise
        database.execute("COMMIT")
        _sync_names(database)
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _sync_names(database: sqlite3.Connection) -> None:
    """Make the names of a file and of its directories last: SQLite syncs that of its log alone."""
    (_, _, name) = database.execute("PRAGMA database_list").fetchone()
    for directory in list(Path(name).absolute().parents)[:_MADE_DIRECTORIES]:
        with suppress(OSError):  # of others, which are there without us
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _rebuild(database: sqlite3.Connection, names: Sequence[str]) -> None:
    """Make tables anew with the column: SQLite adds no stored one to a table that is there."""
    if not names:
        return
    # Triggers name tables that are not there for a moment.
    triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        database.execute(f"DROP TRIGGER {name}")
    for table in names:
        ((sql,),) = database.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
        indexes = database.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", (table,)
        ).fetchall()
        named = ", ".join(columns(database, table))
        last = None
        if "AUTOINCREMENT" in sql:
            last = database.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        database.execute(f"CREATE TABLE new_{table} {_with_column(sql, named)}")
        database.execute(f"INSERT INTO new_{table} ({named}) SELECT {named} FROM {table}")  # noqa: S608  # names of ours
        database.execute(f"DROP TABLE {table}")
        database.execute(f"ALTER TABLE new_{table} RENAME TO {table}")
        if last is not None:  # a number is never given twice
            database.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            database.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last[0]))
        for (index,) in indexes:
            database.execute(index)
    for _, sql in triggers:
        database.execute(sql)


def _with_column(sql: str, named: str) -> str:
    """Return what follows the name in a statement that creates a table, with the column added."""
    body = sql[sql.index("(") :].rstrip()
    end = _END.search(body)
    assert end is not None, f"a table that is created by {sql}"
    # Constraints of the table stand behind its columns.
    inner = re.split(r",\s*(?=PRIMARY KEY|UNIQUE)", body[: end.start()], maxsplit=1)
    added = f", {_COLUMN} INTEGER AS ({_FUNCTION}({named})) STORED"
    return ", ".join((inner[0].rstrip() + added, *inner[1:])) + end[0]


def wrong_schema_text(database: sqlite3.Connection) -> tuple[bytes, bytes] | None:
    """Return a statement of the schema as it is and as it was written, where they differ in one bit.

    Args:
        database: gives texts as bytes, and takes schemas that make no sense.
    """
    expected = database.execute(f"SELECT value FROM {_SCHEMA_TABLE}").fetchone()[0]  # noqa: S608  # a constant
    texts = [row[0] for row in database.execute(_SCHEMA)]
    for index, text in enumerate(texts):
        changed = bytearray(text)
        for at in range(len(changed)):
            for bit in (1, 2, 4, 8, 16, 32, 64, 128):
                changed[at] ^= bit
                if row_checksum(*texts[:index], bytes(changed), *texts[index + 1 :]) == expected:
                    return text, bytes(changed)
                changed[at] ^= bit
    return None


def _schema_checksum(database: sqlite3.Connection) -> int:
    return row_checksum(*(row[0] for row in database.execute(_SCHEMA)))


def _word(name: str | bytes) -> str:
    """Return a name, of a connection that gives texts as bytes, too."""
    return name if isinstance(name, str) else name.decode("utf-8", "replace")
