"""The pages of an LMDB data file, read with ``pread``: damage is an error here, never a signal.

LMDB itself trusts every page: a wrong one may give wrong records, or end the process. What must not
happen to the tools, and must be noticed before a journal is written on. The format is that of LMDB 0.9
(data version 1): pages with a header that names their own number and kind; two meta pages of which the
one with the higher transaction counts; one tree of free pages and one of records.
"""

from __future__ import annotations

import os
import struct
from array import array
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from enmasse.storage.errors import PageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1

_HEADER = struct.Struct("<QHHHH")
_OVERFLOW = struct.Struct("<QHHI")
HEADER_BYTES = _HEADER.size
_NODE = struct.Struct("<HHHH")
_PGNO = struct.Struct("<Q")
_META = struct.Struct("<IIQQ")
_TREE = struct.Struct("<IHHQQQQQ")
_META_END = struct.Struct("<QQ")

BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8
_BIG = 1
_NONE = (1 << 64) - 1

MAX_DEPTH = 32
_MAX_PAGES = 1 << 47
"""Of the largest file that a system has: the offset of a later one is no number that it takes."""
_PAGE_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768)


def rank_of_number(key: bytes) -> bytes:
    """Return the sort key of a numeric key, kept with its least byte first as the tree of free pages has them."""
    return key[::-1]


class Tree(NamedTuple):
    """The entry of one tree in a meta page."""

    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


class Meta(NamedTuple):
    """One of the two states that the file offers."""

    transaction: int
    last_page: int
    free: Tree
    main: Tree


class Node(NamedTuple):
    """One record of a leaf page."""

    key: bytes
    size: int
    inline: bytes | None
    overflow: int
    """The first page of the value, where it does not lie inline."""
    key_at: int
    """The place in its page where its key begins, from which an inline value follows."""


class Ends(NamedTuple):
    """The outermost keys of a leaf page."""

    first: bytes
    last: bytes
    records: int


class PageFile:
    """An LMDB data file.

    Args:
        path: of ``data.mdb``.

    Raises:
        OSError: it cannot be opened.
        PageError: neither meta page is one.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.file_bytes = os.fstat(self._fd).st_size
            self.page_bytes = self._find_page_bytes()
            self.metas = self._find_metas()
            # A running journal writes pages before the meta page that counts them.
            self.file_bytes = os.fstat(self._fd).st_size
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _find_page_bytes(self) -> int:
        start = os.pread(self._fd, HEADER_BYTES + _META.size + 4, 0)
        if len(start) == HEADER_BYTES + _META.size + 4:
            (size,) = struct.unpack_from("<I", start, HEADER_BYTES + _META.size)
            if size in _PAGE_SIZES:
                return int(size)
        return os.sysconf("SC_PAGE_SIZE")

    def _find_metas(self) -> list[Meta]:
        """The sound meta pages, the latest first."""
        metas = []
        self.bad_metas: list[PageError] = []
        for number in (0, 1):
            try:
                metas.append((self._meta(number), number))
            except PageError as error:
                self.bad_metas.append(error)
        if not metas:
            raise self.bad_metas[0]
        metas.sort(reverse=True)
        self.meta_numbers = [number for _, number in metas]
        """Of the pages that the states lie on."""
        return [meta for meta, _ in metas]

    def _meta(self, number: int) -> Meta:
        data = self.page(number, META)
        magic, version, _, _ = _META.unpack_from(data, HEADER_BYTES)
        if magic != _MAGIC or version != _DATA_VERSION:
            raise PageError(number, "is no meta page of LMDB")
        at = HEADER_BYTES + _META.size
        trees = [_TREE.unpack_from(data, at + _TREE.size * index) for index in (0, 1)]
        last_page, transaction = _META_END.unpack_from(data, at + 2 * _TREE.size)
        return Meta(transaction, last_page, *(Tree(*fields[2:]) for fields in trees))

    def page(self, number: int, kinds: int) -> bytes:
        """One page.

        Args:
            number: the number of the page.
            kinds: the kinds that it may be of.

        Raises:
            PageError: it is not what it should be.
        """
        data = self.raw_page(number)
        self.check_header(number, data, kinds)
        return data

    def raw_page(self, number: int) -> bytes:
        """One page as it is.

        Raises:
            PageError: there is none.
        """
        data = os.pread(self._fd, self.page_bytes, number * self.page_bytes) if number < _MAX_PAGES else b""
        if len(data) < self.page_bytes:
            raise PageError(number, f"lies beyond the end of the file ({self.file_bytes} bytes)")
        return data

    def check_header(self, number: int, data: bytes, kinds: int) -> None:
        """See that a page is the one with a number, and of one of these kinds.

        Raises:
            PageError: it is not.
        """
        named, _, flags, lower, upper = _HEADER.unpack_from(data)
        if named != number and not flags & META:
            raise PageError(number, f"says that it is page {named}")
        if flags not in (BRANCH, LEAF, OVERFLOW, META) or not flags & kinds:
            raise PageError(number, f"is of another kind than expected ({flags:#x})")
        if flags & (BRANCH | LEAF) and not HEADER_BYTES <= lower <= upper <= self.page_bytes:
            raise PageError(number, f"has impossible bounds ({lower}, {upper})")

    def leaves(self, tree: Tree, report: Callable[[PageError], None] | None = None) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of every leaf page, in the order of keys.

        Args:
            tree: the tree of a meta page.
            report: called for damaged pages, which are passed over with all that lies below them; without
                it the first one is raised.

        Raises:
            PageError: a page is damaged.
        """
        if tree.root == _NONE:
            return
        seen: set[int] = set()
        stack = [(tree.root, tree.depth)]
        while stack:
            number, depth = stack.pop()
            try:
                data, children = self._step(number, depth, seen)
            except PageError as error:
                if report is None:
                    raise
                report(error)
                continue
            stack += [(child, depth - 1) for child in reversed(children)]
            if depth == 1:
                yield number, data

    def _step(self, number: int, depth: int, seen: set[int]) -> tuple[bytes, list[int]]:
        """A page on the way down, and what lies below it."""
        if number in seen or not 1 <= depth <= MAX_DEPTH:
            raise PageError(number, "is reached twice, or in a tree of impossible depth")
        seen.add(number)
        if depth == 1:
            return self.page(number, LEAF), []
        data = self.page(number, BRANCH)
        return data, self._children(number, data)

    def branches(self, tree: Tree) -> Iterator[tuple[int, list[tuple[bytes, int]]]]:
        """Number, and separators with children, of every branch page.

        Raises:
            PageError: a page is damaged.
        """
        level = [] if tree.root == _NONE else [tree.root]
        for _ in range(tree.depth - 1):
            below: list[int] = []
            for number in level:
                data = self.page(number, BRANCH)
                self.check_layout(number, data)
                children = self._children(number, data)
                keys = [key for key, _ in self._nodes(number, data)]
                yield number, list(zip(keys, children, strict=True))
                below += children
            level = below

    def check_layout(self, number: int, data: bytes) -> None:
        """See that the nodes of a branch or leaf page fill it from where the header says to its end, without a gap.

        Raises:
            PageError: they do not.
        """
        lower, upper = struct.unpack_from("<HH", data, 12)
        places = sorted(struct.unpack_from(f"<{(lower - HEADER_BYTES) // 2}H", data, HEADER_BYTES))
        is_leaf = data[10] & LEAF
        expected = upper
        for at in places:
            if at != expected or at > self.page_bytes - _NODE.size:
                break
            low, high, flags, key_bytes = _NODE.unpack_from(data, at)
            size = _NODE.size + key_bytes
            if is_leaf:
                size += _PGNO.size if flags & _BIG else low | high << 16
            expected = at + size + (size & 1)
        if expected != self.page_bytes or lower & 1 or not places:
            raise PageError(number, "has records that do not fill their place")

    def _nodes(self, number: int, data: bytes) -> Iterator[tuple[bytes, int]]:
        """Keys, and where their nodes lie."""
        lower, upper = struct.unpack_from("<HH", data, 12)
        for at in struct.unpack_from(f"<{(lower - HEADER_BYTES) // 2}H", data, HEADER_BYTES):
            if not upper <= at <= self.page_bytes - _NODE.size:
                raise PageError(number, "has a record outside of its bounds")
            yield self._key(number, data, at), at

    def _children(self, number: int, data: bytes) -> list[int]:
        children = []
        for _, at in self._nodes(number, data):
            low, high, flags, _ = _NODE.unpack_from(data, at)
            children.append(low | high << 16 | flags << 32)
        return children

    def nodes(self, number: int, data: bytes, *, are_numbers: bool = False) -> list[Node]:
        """The records of a leaf page, in the order of keys.

        Args:
            number: the number of the page.
            data: its bytes.
            are_numbers: whether the keys are numbers, as those of free pages are.

        Raises:
            PageError: the page is damaged.
        """
        found: list[Node] = []
        last = b""
        for node in self.records(number, data):
            rank = rank_of_number(node.key) if are_numbers else node.key
            if found and rank <= last:
                raise PageError(number, "has keys out of order")
            last = rank
            found.append(node)
        return found

    def _key(self, number: int, data: bytes, at: int) -> bytes:
        begin = at + _NODE.size
        end: int = begin + _NODE.unpack_from(data, at)[3]
        if end > self.page_bytes:
            raise PageError(number, "has a key outside of its bounds")
        return data[begin:end]

    def records(self, number: int, data: bytes) -> Iterator[Node]:
        """The records of a leaf page as they lie there; their order is not looked at.

        Raises:
            PageError: the page is damaged.
        """
        for key, at in self._nodes(number, data):
            low, high, flags, _ = _NODE.unpack_from(data, at)
            size = low | high << 16
            begin = at + _NODE.size + len(key)
            if flags & ~_BIG or begin + (8 if flags & _BIG else size) > self.page_bytes:
                raise PageError(number, "has a value outside of its bounds")
            if flags & _BIG:
                yield Node(key, size, None, _PGNO.unpack_from(data, begin)[0], at + _NODE.size)
            else:
                yield Node(key, size, data[begin : begin + size], 0, at + _NODE.size)

    def ends(self, number: int, data: bytes) -> Ends:
        """The outermost keys of a leaf page, without reading those between.

        Raises:
            PageError: the page is damaged.
        """
        (lower,) = struct.unpack_from("<H", data, 12)
        count = (lower - HEADER_BYTES) // 2
        if not count:
            return Ends(b"", b"", 0)
        keys = []
        for index in (0, count - 1):
            (at,) = struct.unpack_from("<H", data, HEADER_BYTES + 2 * index)
            if not lower <= at <= self.page_bytes - _NODE.size:
                raise PageError(number, "has a record outside of its bounds")
            keys.append(self._key(number, data, at))
        return Ends(keys[0], keys[1], count)

    def overflow_pages(self, node: Node) -> int:
        """Return how many pages a value takes besides its leaf; a rewritten value may take more than it needs.

        Raises:
            PageError: the first of them is none of a value, or one of another.
        """
        return 0 if node.inline is not None else self.large_value(node)[0]

    def large_value(self, node: Node) -> tuple[int, bytes]:
        """Return how many pages the value of a record takes that does not lie inline, and how it begins.

        Raises:
            PageError: the first of them is none of a value, or one of another.
        """
        data = self.page(node.overflow, OVERFLOW)
        count: int = _OVERFLOW.unpack_from(data)[3]
        needed = (HEADER_BYTES + node.size - 1) // self.page_bytes + 1
        if count < needed:
            raise PageError(node.overflow, f"begins {count} pages, its record takes {needed}")
        return count, data[HEADER_BYTES : HEADER_BYTES + node.size]

    def value(self, node: Node) -> bytes:
        """The value of a record.

        Raises:
            PageError: the pages that it lies on are not its own, or are missing.
        """
        if node.inline is not None:
            return node.inline
        self.overflow_pages(node)
        data = os.pread(self._fd, node.size, node.overflow * self.page_bytes + HEADER_BYTES)
        if len(data) < node.size:
            raise PageError(node.overflow, f"lies beyond the end of the file ({self.file_bytes} bytes)")
        return data

    def place_of(self, number: int, node: Node) -> int:
        """Return the place in the file where the value of a record of a page begins."""
        if node.inline is None:
            return node.overflow * self.page_bytes + HEADER_BYTES
        return number * self.page_bytes + node.key_at + len(node.key)

    def layout_places(self, data: bytes) -> list[int]:
        """Return the places of a leaf page that say where its records lie, and how long they are."""
        (lower,) = struct.unpack_from("<H", data, 12)
        end = min(max(lower, HEADER_BYTES), self.page_bytes) & ~1
        places = [*range(end)]
        for at in struct.unpack_from(f"<{(end - HEADER_BYTES) // 2}H", data, HEADER_BYTES):
            places += range(at, min(at + _NODE.size + _PGNO.size, self.page_bytes))
        return list(dict.fromkeys(places))

    def free_lists(self, meta: Meta) -> Iterator[array[int]]:
        """The numbers of pages that no record uses any more, in lists of bounded length.

        Raises:
            PageError: a page of their tree is damaged.
        """
        for number, data in self.leaves(meta.free):
            for node in self.nodes(number, data, are_numbers=True):
                value = self.value(node)
                count = _PGNO.unpack_from(value)[0] if len(value) >= 8 else -1
                if not 0 <= count <= len(value) // 8 - 1:
                    raise PageError(number, "has an impossible list of free pages")
                pages = array("Q")
                pages.frombytes(value[8 : 8 + 8 * count])
                yield pages

    def free_pages(self, meta: Meta) -> set[int]:
        """The numbers of all pages that no record uses any more.

        Raises:
            PageError: a page of their tree is damaged.
        """
        return set(chain.from_iterable(self.free_lists(meta)))
