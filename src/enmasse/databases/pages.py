"""The pages of a database's file: which of them cannot be as they were written, and where a bit of them may be wrong.

The format is that of https://www.sqlite.org/fileformat2.html#b_tree_pages.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FIRST_HEADER_BYTES = 100
"""Of the file, before the header of its first page."""
_HEADER_BYTES = 12
_CELL_HEAD_BYTES = 16
_SCHEMA_CELL_HEAD_BYTES = 100
"""With the names of tables and indexes, which come before the text."""
_INNER_INDEX, _INNER_TABLE, _LEAF_INDEX, _LEAF_TABLE = 2, 5, 10, 13
_KINDS = (_INNER_INDEX, _INNER_TABLE, _LEAF_INDEX, _LEAF_TABLE)
_INNER = (_INNER_INDEX, _INNER_TABLE)
_MIN_CELL_BYTES = 4
_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768)


def page_size(data: bytes) -> int:
    """Return the size of a file's pages; 4096, SQLite's own, where its header names none."""
    size = int.from_bytes(data[16:18], "big")
    return size if size in _SIZES else 4096


def inner_pages(data: bytes) -> list[int]:
    """Return the numbers of pages that lead to others."""
    size = page_size(data)
    return [at // size + 1 for at in range(0, len(data), size) if data[at] in _INNER]


def schema_pages(data: bytes) -> list[int]:
    """Return the pages of the schema: the first one, and before it those below it, which have the text then."""
    header = data[FIRST_HEADER_BYTES : FIRST_HEADER_BYTES + _HEADER_BYTES]
    if header[0] != _INNER_TABLE:
        return [1]
    count = min(int.from_bytes(header[3:5], "big"), page_size(data) // 2)
    cells = struct.unpack_from(f">{count}H", data, FIRST_HEADER_BYTES + _HEADER_BYTES)
    below = [int.from_bytes(data[place : place + 4], "big") for place in cells]
    return [*below, int.from_bytes(header[8:], "big"), 1]


def implausible_pages(data: bytes) -> list[int]:
    """Return the numbers of pages of trees whose cells cannot be as they were written.

    A page of another kind, which holds the rest of a long row or is free, may begin as one of a tree does.
    """
    size = page_size(data)
    numbers = range(1, len(data) // size + 1)
    return [number for number in numbers if not _is_plausible(data[(number - 1) * size : number * size], number)]


def _is_plausible(page: bytes, number: int) -> bool:
    start = FIRST_HEADER_BYTES if number == 1 else 0
    kind = page[start]
    if kind not in _KINDS:
        return number > 1
    count, content = struct.unpack_from(">HH", page, start + 3)
    pointers = start + (_HEADER_BYTES if kind in _INNER else _HEADER_BYTES - 4)
    if pointers + 2 * count > (content or len(page)):
        return False
    cells = sorted(struct.unpack_from(f">{count}H", page, pointers))
    try:
        ends = [at + max(_cell_bytes(page, at, kind), _MIN_CELL_BYTES) for at in cells]
    except IndexError:
        return False
    following = [*cells[1:], len(page)][: len(cells)]
    is_apart = all(end <= next_one for end, next_one in zip(ends, following, strict=True))
    return is_apart and (not cells or cells[0] >= content)


def _cell_bytes(page: bytes, at: int, kind: int) -> int:
    """Return how long a cell is.

    Raises:
        IndexError: it cannot be one.
    """
    here = at + (4 if kind in _INNER else 0)
    if kind == _INNER_TABLE:
        return _varint(page, here)[1] - at
    size, here = _varint(page, here)
    usable = len(page)
    most = usable - 35 if kind == _LEAF_TABLE else (usable - 12) * 64 // 255 - 23
    if kind == _LEAF_TABLE:
        _, here = _varint(page, here)
    if size > most:
        least = (usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (usable - 4)
        return here - at + (local if local <= most else least) + 4
    if size and _record_bytes(page, here) != size:
        raise IndexError
    return here - at + size


def _record_bytes(page: bytes, at: int) -> int:
    """Return how long a row is, by the types in its header."""
    header, here = _varint(page, at)
    total = header
    while here < at + header:
        kind, here = _varint(page, here)
        total += (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind] if kind < 10 else (kind - 12) // 2
    if here != at + header:
        raise IndexError
    return total


def _varint(page: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    value = 0
    for index in range(8):
        byte = page[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    return value << 8 | page[at + 8], at + 9


def places(data: bytes, pages: Iterable[int]) -> Iterator[int]:
    """Yield the bytes of pages, those of all first that hold the tree together: headers, and how cells begin."""
    seen: set[int] = set()
    numbers = [number for number in pages if 0 < number <= len(data) // page_size(data)]
    for parts in (_structure, _all):
        for number in numbers:
            for at in parts(data, number):
                if at not in seen:
                    seen.add(at)
                    yield at


def _structure(data: bytes, number: int) -> list[int]:
    size = page_size(data)
    start, end = (number - 1) * size, number * size
    at = start + (FIRST_HEADER_BYTES if number == 1 else 0)
    pointers = at + (_HEADER_BYTES if data[at] in _INNER else _HEADER_BYTES - 4)
    count = min(int.from_bytes(data[at + 3 : at + 5], "big"), (end - pointers) // 2)
    found = [*range(start, pointers + 2 * count)]
    head = _SCHEMA_CELL_HEAD_BYTES if number in schema_pages(data) else _CELL_HEAD_BYTES
    for cell in struct.unpack_from(f">{count}H", data, pointers):
        found += range(start + cell, min(start + cell + head, end))
    return found


def _all(data: bytes, number: int) -> range:
    size = page_size(data)
    return range((number - 1) * size, number * size)
