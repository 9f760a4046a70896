"""The check that the trees of a data file are sound, done before a journal is written on; and its mending.

It takes the branch and leaf pages, large values, and the first page of each large frame: some microseconds a
record. Records have checksums, so that one bit that a disk has changed in a leaf page is found by trying each: it
is changed back in the file. What lies inside of frames is not read: they have checksums of their own, for who
reads them.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from enmasse.storage.batch import TABLE_PREFIX
from enmasse.storage.checksums import FORMAT_KEY, begins_frame, has_checksums, is_sound, is_sound_start
from enmasse.storage.errors import JournalDamagedError, PageError
from enmasse.storage.pages import LEAF, PageFile, rank_of_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.storage.pages import Meta, Tree

MAX_START_PAGES = 1 << 15
"""Leaf pages above which a start does not check: two seconds, and 128 MiB to read from the disk."""

_MAX_COMPARED = 1 << 20
"""Free pages that are compared with all others: more of them are seen to be of no tree, and counted."""

MAX_MENDED_PAGES = 64
"""The most damaged pages that are mended: more are not a bit here and there."""

MAX_MENDED_BYTES = 1 << 16
"""Of a record: in a longer one another bit than the changed one might fit, and to try takes long."""

_BITS = (1, 2, 4, 8, 16, 32, 64, 128)

_FRAME = TABLE_PREFIX[2]
"""Of a large frame a start reads no more than its first page."""


def advise(directory: str, reason: str) -> str:
    """The sentence that refuses a damaged journal."""
    return (
        f"the journal in {directory} is damaged: {reason}. Nothing was changed. "
        f"`enmasse journal check {directory}` tells how much is damaged, "
        f"`enmasse journal salvage {directory} TARGET` keeps what can be read"
    )


def check_pages(directory: str) -> list[str]:
    """Check the pages of a journal that is about to be opened, and mend what one bit each has damaged.

    Returns:
        What was mended, in words.

    Raises:
        JournalDamagedError: they do not hold together.
        OSError: the damage could be mended, but cannot be written.
    """
    path = os.path.join(directory, "data.mdb")  # noqa: PTH118 - see lock.py
    mended: list[str] = []
    while True:
        problem = _first_problem(path)
        if problem is None:
            return mended
        place = _wrong_bit(path, problem.page) if len(mended) < MAX_MENDED_PAGES else None
        if place is None:
            raise JournalDamagedError(advise(directory, str(problem))) from problem
        _flip(path, *place)
        mended.append(f"{problem}: one bit, at byte {place[0]:,} of {path}, was not as written, and is changed back")


def _first_problem(path: str) -> PageError | None:
    try:
        if not os.stat(path).st_size:  # noqa: PTH116 - see lock.py
            return None
        file = PageFile(path)
    except FileNotFoundError:
        return None
    except PageError as error:
        return error
    try:
        meta = file.metas[0]
        if meta.main.leaf_pages <= MAX_START_PAGES:
            check_trees(file, meta)
    except PageError as error:
        return error
    finally:
        file.close()
    return None


def _wrong_bit(path: str, number: int) -> tuple[int, int] | None:
    """Return where in the file the bit lies, and its value, that makes a leaf page sound again; None without one."""
    try:
        file = PageFile(path)
    except PageError:
        return None
    try:
        data = bytearray(file.raw_page(number))
        named, kind = int.from_bytes(data[:8], "little"), int.from_bytes(data[10:12], "little")
        if (named ^ number).bit_count() + (kind ^ LEAF).bit_count() > 1:
            return None  # it is another page, or none
        if not _may_be_checked(file) or _is_sound_leaf(file, number, data):
            return None  # what is wrong is not within the page
        return _wrong_bit_of_record(file, number, bytes(data)) or _wrong_bit_of_layout(file, number, data)
    except PageError:
        return None
    finally:
        file.close()


def _wrong_bit_of_record(file: PageFile, number: int, data: bytes) -> tuple[int, int] | None:
    """Return the bit of the first record with a wrong checksum that makes it right."""
    try:
        file.check_header(number, data, LEAF)
        for node in file.records(number, data):
            stored = file.value(node)
            if not is_sound(node.key, stored):
                break
        else:
            return None
    except PageError:
        return None
    parts = (bytearray(node.key), bytearray(stored))
    places = (number * file.page_bytes + node.key_at, file.place_of(number, node))
    for part, part_at in zip(parts, places, strict=True):
        for at in range(min(len(part), MAX_MENDED_BYTES)):
            for bit in _BITS:
                part[at] ^= bit
                if is_sound(bytes(parts[0]), bytes(parts[1])):
                    return part_at + at, bit
                part[at] ^= bit
    return None


def _wrong_bit_of_layout(file: PageFile, number: int, data: bytearray) -> tuple[int, int] | None:
    """Return the bit of all that is no record's value which makes the page sound."""
    for at in file.layout_places(bytes(data)):
        for bit in _BITS:
            data[at] ^= bit
            if _is_sound_leaf(file, number, data):
                return number * file.page_bytes + at, bit
            data[at] ^= bit
    return None


def _is_sound_leaf(file: PageFile, number: int, data: bytearray) -> bool:
    page = bytes(data)
    try:
        file.check_header(number, page, LEAF)
        _check_leaf(file, number, page, bytes, is_checked=True)
    except PageError:
        return False
    return True


def _may_be_checked(file: PageFile) -> bool:
    try:
        return _is_checked(file, file.metas[0])
    except PageError:
        return True  # it may be the very page


def _flip(path: str, at: int, bit: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(fd, bytes((os.pread(fd, 1, at)[0] ^ bit,)), at)
        os.fsync(fd)
    finally:
        os.close(fd)


def check_trees(file: PageFile, meta: Meta) -> None:
    """See that both trees have the pages and records that the meta page counts, and no page twice.

    Raises:
        PageError: a page is damaged, or an old one lies in its place.
    """
    _check_metas(file)
    records = _check_tree(file, meta.main, "records", is_checked=_is_checked(file, meta))
    lists = _check_tree(file, meta.free, "free pages", rank_of_number)
    values = sorted(records.values + lists.values)
    used = {0, 1} | records.pages
    if not used.isdisjoint(lists.pages):
        raise PageError(min(used & lists.pages), "is in use twice")
    used |= lists.pages
    end = file.file_bytes // file.page_bytes
    count = free_beyond = 0
    taken = array("Q", used)
    for pages in file.free_lists(meta):
        if not used.isdisjoint(pages):
            raise PageError(min(used.intersection(pages)), "is in use and free")
        count += len(pages)
        free_beyond += sum(map(end.__le__, pages)) if meta.last_page >= end else 0
        if count <= _MAX_COMPARED:
            taken += pages
    _check_once(sorted(taken), values, meta.last_page)
    # Pages that were never written may lie beyond the end of the file, as long as nobody uses them.
    if free_beyond < meta.last_page + 1 - end:
        raise PageError(meta.last_page, f"or one before it lies beyond the end of the file ({file.file_bytes} bytes)")
    total = len(used) + count + sum(pages for _, pages in values)
    if total != meta.last_page + 1:
        raise PageError(meta.free.root, f"leads to {total} pages, but there are {meta.last_page + 1}")


def _check_once(taken: list[int], values: list[tuple[int, int]], last_page: int) -> None:
    """See that no page is taken twice.

    Args:
        taken: pages of the trees and free ones, in rising order.
        values: first page and number of pages of large values, in rising order.
        last_page: the highest number that there is.
    """
    if taken[-1] > last_page:
        raise PageError(taken[-1], f"is in use or free, but the last one is {last_page}")
    for page, following in pairwise(taken):
        if page == following:
            raise PageError(page, "is in use or free twice")
    end = 0
    for first, pages in values:
        at = bisect_left(taken, max(first, 0))
        if first < end or (at < len(taken) and taken[at] < first + pages):
            raise PageError(first, "has a large value, and is something else besides")
        end = first + pages


def _check_metas(file: PageFile) -> None:
    """See that the two states are those of one commit and of the one before it, each in its place."""
    if file.bad_metas:
        raise file.bad_metas[0]
    latest, former = file.metas
    number = file.meta_numbers[0]
    if latest.transaction != former.transaction + 1 or latest.transaction & 1 != number:
        raise PageError(
            number, f"is the state of transaction {latest.transaction}, beside that of {former.transaction}"
        )


def _is_checked(file: PageFile, meta: Meta) -> bool:
    """Return true if the records have checksums: the first of all tells the format."""
    for number, data in file.leaves(meta.main):
        first = next(file.records(number, data), None)
        return first is not None and first.key == FORMAT_KEY and has_checksums(first.inline or b"")
    return False


class _Found(NamedTuple):
    """The pages of a tree."""

    pages: set[int]
    """Its branch and leaf pages."""
    values: list[tuple[int, int]]
    """First page and number of pages of each large value."""


class _Leaf(NamedTuple):
    first: bytes
    last: bytes
    records: int
    values: list[tuple[int, int]]


def _check_leaf(
    file: PageFile, number: int, data: bytes, rank: Callable[[bytes], bytes], *, is_checked: bool
) -> _Leaf:
    """See that a leaf page is as it was written, and so are its records.

    Raises:
        PageError: it is not.
    """
    file.check_layout(number, data)
    nodes = file.nodes(number, data, are_numbers=rank is rank_of_number)
    values: list[tuple[int, int]] = []
    for node in nodes:
        stored = node.inline
        if stored is None:
            pages, start = file.large_value(node)
            values.append((node.overflow, pages))
            if node.key[:1] == _FRAME and begins_frame(start):
                if is_checked and not is_sound_start(node.key, start, node.size):
                    raise _damaged(number, node.key)
            else:
                stored = file.value(node)
        if is_checked and stored is not None and not is_sound(node.key, stored):
            raise _damaged(number, node.key)
    return _Leaf(nodes[0].key, nodes[-1].key, len(nodes), values)


def _damaged(number: int, key: bytes) -> PageError:
    from enmasse.storage.records import describe  # noqa: PLC0415 - rare, and start is to be quick

    return PageError(number, f"has a record with a wrong checksum: {describe(key)}")


def _check_tree(
    file: PageFile, tree: Tree, what: str, rank: Callable[[bytes], bytes] = bytes, *, is_checked: bool = False
) -> _Found:
    """See that a tree is whole; ``rank`` orders its keys."""
    used: set[int] = set()
    bounds: dict[int, tuple[bytes, bytes | None]] = {tree.root: (b"", None)}
    branches = 0
    for number, children in file.branches(tree):
        branches += 1
        used.add(number)
        low, high = bounds[number]
        for index, (key, child) in enumerate(children):
            end = rank(children[index + 1][0]) if index + 1 < len(children) else high
            if index and end is not None and rank(key) >= end:
                raise PageError(number, "has keys out of order")
            bounds[child] = (rank(key) if index else low, end)
    entries = leaves = 0
    values: list[tuple[int, int]] = []
    for number, data in file.leaves(tree):
        leaf = _check_leaf(file, number, data, rank, is_checked=is_checked)
        leaves += 1
        used.add(number)
        entries += leaf.records
        low, high = bounds[number]
        if rank(leaf.first) < low or (high is not None and rank(leaf.last) >= high):
            raise PageError(number, "holds records that belong elsewhere")
        values += leaf.values
    if (branches, leaves, entries) != (tree.branch_pages, tree.leaf_pages, tree.entries):
        raise PageError(
            tree.root,
            f"leads to {leaves} pages with {entries} {what}, "
            f"but there should be {tree.leaf_pages} with {tree.entries}: some pages are old ones",
        )
    overflow = sum(pages for _, pages in values)
    if overflow != tree.overflow_pages:
        raise PageError(tree.root, f"leads to {overflow} pages of large {what}, not to {tree.overflow_pages}")
    return _Found(used, values)
