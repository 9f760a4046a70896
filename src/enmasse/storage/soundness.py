"""The check that the trees of a data file are sound, done before a journal is written on.

It takes the branch and leaf pages and the first page of each large value: some microseconds a page. What
lies inside of values is not read, as frames have checksums of their own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from enmasse.storage.errors import JournalDamagedError, PageError
from enmasse.storage.pages import PageFile, rank_of_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.storage.pages import Meta, Tree

MAX_START_PAGES = 1 << 15
"""Leaf pages above which a start does not check: half a second, and 128 MiB to read from the disk."""


def advise(directory: str, reason: str) -> str:
    """The sentence that refuses a damaged journal."""
    return (
        f"the journal in {directory} is damaged: {reason}. Nothing was changed. "
        f"`enmasse journal check {directory}` tells how much is damaged, "
        f"`enmasse journal salvage {directory} TARGET` keeps what can be read"
    )


def check_pages(directory: str) -> None:
    """Check the pages of a journal that is about to be opened.

    Raises:
        JournalDamagedError: they do not hold together.
    """
    path = os.path.join(directory, "data.mdb")  # noqa: PTH118 - see lock.py
    try:
        if not os.stat(path).st_size:  # noqa: PTH116 - see lock.py
            return
        file = PageFile(path)
    except FileNotFoundError:
        return
    except PageError as error:
        raise JournalDamagedError(advise(directory, str(error))) from error
    try:
        meta = file.metas[0]
        if meta.main.leaf_pages <= MAX_START_PAGES:
            check_trees(file, meta)
    except PageError as error:
        raise JournalDamagedError(advise(directory, str(error))) from error
    finally:
        file.close()


def check_trees(file: PageFile, meta: Meta) -> None:
    """See that both trees have the pages and records that the meta page counts, and no page twice.

    Raises:
        PageError: a page is damaged, or an old one lies in its place.
    """
    used = _check_tree(file, meta.main, "records") | {0, 1}
    of_free = _check_tree(file, meta.free, "free pages", rank_of_number)
    if not used.isdisjoint(of_free):
        raise PageError(min(used & of_free), "is in use twice")
    used |= of_free
    end = file.file_bytes // file.page_bytes
    free = free_beyond = 0
    for pages in file.free_lists(meta):
        if not used.isdisjoint(pages):
            raise PageError(min(used.intersection(pages)), "is in use and free")
        free += len(pages)
        free_beyond += sum(map(end.__le__, pages)) if meta.last_page >= end else 0
    # Pages that were never written may lie beyond the end of the file, as long as nobody uses them.
    if free_beyond < meta.last_page + 1 - end:
        raise PageError(meta.last_page, f"or one before it lies beyond the end of the file ({file.file_bytes} bytes)")
    total = len(used) + free + meta.main.overflow_pages + meta.free.overflow_pages
    if total != meta.last_page + 1:
        raise PageError(meta.free.root, f"leads to {total} pages, but there are {meta.last_page + 1}")


def _check_tree(file: PageFile, tree: Tree, what: str, rank: Callable[[bytes], bytes] = bytes) -> set[int]:
    """The numbers of a tree's branch and leaf pages; ``rank`` orders its keys."""
    used: set[int] = set()
    bounds: dict[int, tuple[bytes, bytes | None]] = {tree.root: (b"", None)}
    branches = 0
    for number, children in file.branches(tree):
        branches += 1
        used.add(number)
        low, high = bounds[number]
        for index, (key, child) in enumerate(children):
            end = rank(children[index + 1][0]) if index + 1 < len(children) else high
            bounds[child] = (rank(key) if index else low, end)
    entries = leaves = overflow = 0
    for number, data in file.leaves(tree):
        ends = file.ends(number, data)
        leaves += 1
        used.add(number)
        entries += ends.records
        low, high = bounds[number]
        if ends.records and (rank(ends.first) < low or (high is not None and rank(ends.last) >= high)):
            raise PageError(number, "holds records that belong elsewhere")
        for node in file.large_nodes(number, data):
            overflow += file.overflow_pages(node)
    if (branches, leaves, entries) != (tree.branch_pages, tree.leaf_pages, tree.entries):
        raise PageError(
            tree.root,
            f"leads to {leaves} pages with {entries} {what}, "
            f"but there should be {tree.leaf_pages} with {tree.entries}: some pages are old ones",
        )
    if overflow != tree.overflow_pages:
        raise PageError(tree.root, f"leads to {overflow} pages of large {what}, not to {tree.overflow_pages}")
    return used
