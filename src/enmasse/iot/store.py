"""The file of the registry, in SQLite: its connections and transactions.

Rules:
1. Every write is a transaction, on disk when it returns. Reads see one moment, and wait for no write.
2. A connection is used by one thread at a time: one writes, a few read. A read that takes too long is ended.
"""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

from enmasse.databases.checksums import connect, protect
from enmasse.databases.soundness import check_database
from enmasse.errors import ConfigError
from enmasse.iot.commands import COMMANDS_SCHEMA
from enmasse.iot.documents import RegistryFullError, RegistryUnavailableError
from enmasse.iot.tables import (
    AUTHORITIES_UPDATE,
    COSTS_SCHEMA,
    FORMAT,
    SCHEMA,
    SEEN_SCHEMA,
    USAGE_SCHEMA,
    Tables,
)
from enmasse.iot.tenant import anchors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_READERS = 4
_BUSY_S = 10.0
READ_S: Final = 10.0
"""A look at each of a million rows takes a few seconds."""

_STEPS = 10_000  # of SQLite's machine between two looks at the clock: half a millisecond
_CACHE_KIB = 32 * 1024
_PRIMARY = 0xFF
_CLOSED = "the device registry is closed"


class DeviceStore:
    """The file of one installation's registry; its methods may be called from any thread.

    Args:
        path: the file; made when there is none, readable by its owner alone.
        read_s: the seconds that a read may take.

    Raises:
        ConfigError: when the file cannot be used.
    """

    def __init__(self, path: Path, *, read_s: float = READ_S) -> None:
        self._path = path
        self._read_s = read_s
        self._lock = threading.Lock()
        self._opened = 0
        self._readers: queue.SimpleQueue[sqlite3.Connection | None] = queue.SimpleQueue()
        self._writer: sqlite3.Connection | None = None
        try:
            check_database(path)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._writer = self._open()
            self._prepare(self._writer)
            for _ in range(_READERS):
                self._readers.put(self._open())
                self._opened += 1
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise ConfigError(f"{path} cannot be opened as a device registry: {error}") from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, as soon as nobody uses it; a call that comes later is refused."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        for _ in range(self._opened):
            if (reader := self._readers.get()) is not None:
                reader.close()
        self._opened = 0
        self._readers.put(None)

    @contextmanager
    def writing(self) -> Iterator[Tables]:
        """The tables for one transaction, which is committed when the block ends without an error.

        Raises:
            RegistryFullError: there is no room.
            RegistryUnavailableError: the file cannot be used now.
        """
        with self._lock, self._translated():
            writer = self._writer
            if writer is None:
                raise RegistryUnavailableError(_CLOSED)
            writer.execute("BEGIN IMMEDIATE")
            try:
                yield Tables(writer)
                writer.execute("COMMIT")
            except BaseException:
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        """The tables as they are at one moment.

        Raises:
            RegistryUnavailableError: it takes too long, or the file cannot be used now.
        """
        database = self._readers.get()
        if database is None:
            self._readers.put(None)  # for who comes next
            raise RegistryUnavailableError(_CLOSED)
        try:
            end = time.monotonic() + self._read_s
            database.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
            with self._translated():
                database.execute("BEGIN")
                try:
                    yield Tables(database)
                finally:
                    if database.in_transaction:
                        database.execute("ROLLBACK")
        finally:
            database.set_progress_handler(None, 0)
            self._readers.put(database)

    def sweep(self, has_ended: Callable[[], bool] = lambda: False) -> None:
        """Remove all that belonged to tenants that are gone, in many short transactions.

        Args:
            has_ended: asked between these; when it is true, the rest is left for later.
        """
        is_left = True
        while is_left and not has_ended():
            with self.writing() as tables:
                is_left = tables.sweep()

    def _open(self) -> sqlite3.Connection:
        database = connect(self._path, timeout=_BUSY_S, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return database

    def _prepare(self, writer: sqlite3.Connection) -> None:
        (found,) = writer.execute("PRAGMA user_version").fetchone()
        if found > FORMAT:
            raise ConfigError(f"{self._path} was written by a newer version of EnMasse: update this one")
        if not found:
            writer.executescript(SCHEMA)
        elif found == 1:
            self._update(writer)
        writer.executescript(COMMANDS_SCHEMA + SEEN_SCHEMA + USAGE_SCHEMA)
        if not writer.execute("SELECT 1 FROM sqlite_master WHERE name = 'costs'").fetchone():
            writer.executescript(COSTS_SCHEMA)
        protect(writer)
        if found < FORMAT:
            writer.execute(f"PRAGMA user_version = {FORMAT}")

    def _update(self, writer: sqlite3.Connection) -> None:
        """Give the authorities of tenants tables of their own; what one tenant alone has counts as proved."""
        writer.execute("BEGIN IMMEDIATE")
        for statement in AUTHORITIES_UPDATE.split(";"):
            writer.execute(statement)
        tables = Tables(writer)
        for number, body in tables.bodies():
            tables.authorities.put(number, anchors_of(json.loads(body)))
        tables.authorities.presume(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        writer.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
            if code == sqlite3.SQLITE_INTERRUPT:
                advice = "search by id, enabled, via, viaGroups or memberOf, which have an index, or for less"
                raise RegistryUnavailableError(f"the search takes longer than {self._read_s:g} s: {advice}") from None
            if code == sqlite3.SQLITE_FULL:
                raise RegistryFullError("the disk with the device registry is full: nothing was written") from None
            raise RegistryUnavailableError(f"the device registry cannot be used: {error}") from None
