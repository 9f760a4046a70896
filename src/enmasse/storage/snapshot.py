"""One state of a journal, read page by page: beside a writer, and through damage."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from enmasse.storage.checksums import FORMAT_KEY, has_checksums, without_checksum
from enmasse.storage.environment import DEFAULT_MAP_BYTES
from enmasse.storage.errors import PageError, ToolError
from enmasse.storage.pages import LEAF, PageFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from enmasse.storage.pages import Meta, Node

DATA_NAME = "data.mdb"
LOCK_NAME = "lock.mdb"
"""The lock file: where it is missing nobody has the journal open."""

_TRIES = 1_000


class Snapshot:
    """The last commit of a journal; a context manager.

    A read transaction keeps a running journal from using its pages again. LMDB is asked for nothing else:
    everything is read by ``PageFile``.

    Args:
        directory: the directory of the journal.

    Raises:
        ToolError: there is no journal.
        PageError: neither meta page is sound.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = directory / DATA_NAME
        if not path.is_file():
            raise ToolError(
                f"{directory} holds no journal: there is no {DATA_NAME}. "
                "Name the directory that has it, in an installation DATA/nodes/NAME/journal"
            )
        self._environment: lmdb.Environment | None = None
        self._transaction: lmdb.Transaction | None = None
        self.file = PageFile(str(path))
        self.meta: Meta = self.file.metas[0]
        try:
            if (directory / LOCK_NAME).exists():
                self._pin()
        except lmdb.Error:
            self._unpin()  # a directory that cannot be written, or damage: whoever writes then is no journal
        except BaseException:
            self.close()
            raise

    def _pin(self) -> None:
        self._environment = lmdb.open(
            str(self.directory), map_size=DEFAULT_MAP_BYTES, readonly=True, max_dbs=0, create=False
        )
        for _ in range(_TRIES):
            self._transaction = self._environment.begin()
            found = [meta for meta in self.file.metas if meta.transaction == self._transaction.id()]
            if found:
                self.meta = found[0]
                return
            self._transaction.abort()
            self.file.close()
            self.file = PageFile(str(self.directory / DATA_NAME))
            self.meta = self.file.metas[0]

    def _unpin(self) -> None:
        if self._transaction is not None:
            self._transaction.abort()
        if self._environment is not None:
            self._environment.close()
        self._transaction = self._environment = None

    def close(self) -> None:
        """Let go of it."""
        self._unpin()
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def entries(self) -> int:
        """The number of records that there should be."""
        return self.meta.main.entries

    @cached_property
    def has_checksums(self) -> bool:
        """True if it is of a format whose records have checksums, and where damage hides that."""
        for number, data in self.file.leaves(self.meta.main, lambda _problem: None):
            try:
                first = next(self.file.records(number, data), None)
            except PageError:
                return True
            return first is None or first.key != FORMAT_KEY or has_checksums(first.inline or b"")
        return True

    def value(self, key: bytes, stored: bytes) -> bytes | None:
        """Return the value of a record as it is stored; ``None`` if its checksum is wrong."""
        return without_checksum(key, stored) if self.has_checksums and key != FORMAT_KEY else stored

    def nodes(
        self, report: Callable[[PageError], None] | None = None, seen: set[int] | None = None
    ) -> Iterator[Node]:
        """Every record in the order of keys, its value not read yet.

        Args:
            report: called for damaged pages, which are passed over; without it the first one is raised.
            seen: takes up the leaf pages that were read.

        Raises:
            PageError: a page is damaged.
        """
        for number, data in self.file.leaves(self.meta.main, report):
            try:
                nodes = self.file.nodes(number, data)
            except PageError as error:
                if report is None:
                    raise
                report(error)
                continue
            if seen is not None:
                seen.add(number)
            yield from nodes

    def strays(self, known: set[int]) -> Iterator[Node]:
        """Records on leaf pages that are in use, though nothing leads to them any more.

        Args:
            known: pages that were found otherwise.

        Raises:
            PageError: the free pages are not known, so neither those in use.
        """
        file = self.file
        passed = known | file.free_pages(self.meta)
        passed |= {number for number, _ in file.leaves(self.meta.free)}
        for number in range(2, min(self.meta.last_page + 1, file.file_bytes // file.page_bytes)):
            if number in passed:
                continue
            try:
                nodes = file.nodes(number, file.page(number, LEAF))
            except PageError:
                continue
            yield from nodes
