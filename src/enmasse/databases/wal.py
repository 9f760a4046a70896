"""The write-ahead log of a database, whose frames have checksums of SQLite's own.

SQLite takes the first frame with a wrong one for the end, as a crash leaves it: after a bit has changed, all commits
behind it would be gone without a word. Each frame's checksum begins with that of the frame before, so frames behind a
damaged one tell that it is not the end; and as there are two sums, that the bit can be found.

The format is that of https://www.sqlite.org/fileformat2.html#the_write_ahead_log.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682
"""The lowest bit says in which order the bytes of a word are summed."""
_VERSION = 3007000
_CHECKED_HEADER_BYTES = 24
_CHECKED_FRAME_BYTES = 8
_SUMS_AT = 16
"""In the header of a frame."""
_WORD = 0xFFFFFFFF

Sums = tuple[int, int]


def mend_wal(path: Path) -> list[str]:
    """Change back a bit of a write-ahead log that nobody has open; return what was done and what cannot be, in words.

    Raises:
        OSError: it cannot be read or written.
    """
    if not path.exists() or path.stat().st_size <= _HEADER.size:
        return []
    said: list[str] = []
    while True:
        data = path.read_bytes()
        at = _first_wrong_bit(data)
        if at is None:
            return said
        place, bit = at
        if bit == 0:
            said.append(f"{path}: the frame at byte {place:,} is damaged; the commits from there on are lost")
            return said
        fd = os.open(path, os.O_RDWR)
        try:
            os.pwrite(fd, bytes((data[place] ^ bit,)), place)
            os.fsync(fd)
        finally:
            os.close(fd)
        said.append(f"{path}: one bit, at byte {place:,}, was not as written, and is changed back")


def _first_wrong_bit(data: bytes) -> tuple[int, int] | None:
    """Return the place of the first wrong byte and its wrong bit, 0 if not found; None if all frames are sound."""
    header = data[: _HEADER.size]
    if not _is_sound_header(header):
        return next(
            (
                (at, bit)
                for at in range(_HEADER.size)
                for bit in (1, 2, 4, 8, 16, 32, 64, 128)
                if _is_sound_header(header[:at] + bytes((header[at] ^ bit,)) + header[at + 1 :])
            ),
            (0, 0),
        )
    magic, _, page_bytes, _, salt_1, salt_2, first, second = _HEADER.unpack(header)
    size = _FRAME.size + page_bytes
    sums = (first, second)
    is_big = bool(magic & 1)
    for at in range(_HEADER.size, len(data) - size + 1, size):
        frame = data[at : at + size]
        fields = _FRAME.unpack_from(frame)
        found = (fields[4], fields[5])
        expected = _summed(frame, sums, is_big=is_big)
        if found == expected and (fields[2], fields[3]) == (salt_1, salt_2):
            sums = found
            continue
        following = data[at + size : at + 2 * size]
        return _wrong_bit_of(frame, following, expected, (salt_1, salt_2), at, is_big=is_big)
    return None


def _wrong_bit_of(
    frame: bytes, following: bytes, expected: Sums, salts: tuple[int, int], at: int, *, is_big: bool
) -> tuple[int, int] | None:
    fields = _FRAME.unpack_from(frame)
    found = (fields[4], fields[5])
    if found == expected:  # it is all of it here, but for the salts
        return _single_bit(frame[8:16], struct.pack(">2I", *salts), at + 8)
    if (fields[2], fields[3]) != salts:
        return None  # what an earlier round has left
    sums_bit = _single_bit(frame[_SUMS_AT : _FRAME.size], struct.pack(">2I", *expected), at + _SUMS_AT)
    if sums_bit is not None:
        return sums_bit
    place = _changed_bit(frame, found, expected, is_big=is_big)
    if place is not None:
        return at + place[0], place[1]
    is_followed = (
        len(following) == len(frame)
        and _FRAME.unpack_from(following)[2:4] == salts
        and _summed(following, found, is_big=is_big) == _FRAME.unpack_from(following)[4:6]
    )
    return (at, 0) if is_followed else None  # the end, of a commit that was not finished


def _single_bit(found: bytes, expected: bytes, at: int) -> tuple[int, int] | None:
    """Return the one bit in which bytes differ."""
    pairs = enumerate(zip(found, expected, strict=True))
    different = [(index, one ^ other) for index, (one, other) in pairs if one != other]
    if len(different) == 1 and different[0][1].bit_count() == 1:
        return at + different[0][0], different[0][1]
    return None


def _changed_bit(frame: bytes, found: Sums, expected: Sums, *, is_big: bool) -> tuple[int, int] | None:
    """Return which bit of what is summed, changed, explains the difference of both sums."""
    difference = ((found[0] - expected[0]) & _WORD, (found[1] - expected[1]) & _WORD)
    count = (_CHECKED_FRAME_BYTES + len(frame) - _FRAME.size) // 4
    # What one added to a word adds to both sums, from the last word to the first.
    one = (1, 1)  # of the last word but one in a pair: s1 += x; s2 += ... + s1
    pair = [(0, 1), one]  # last word: s2 alone
    for index in range(count - 1, -1, -1):
        weight = pair[0] if (count - 1 - index) % 2 == 0 else pair[1]
        for bit in range(32):
            for sign in (1, -1):
                delta = sign << bit
                if ((weight[0] * delta) & _WORD, (weight[1] * delta) & _WORD) == difference:
                    # The word as it was: by the sign, the bit is set in it or not.
                    at = index * 4 + (3 - bit // 8 if is_big else bit // 8)
                    place = at if at < _CHECKED_FRAME_BYTES else at - _CHECKED_FRAME_BYTES + _FRAME.size
                    mask = 1 << bit % 8
                    if bool(frame[place] & mask) == (sign < 0):
                        return place, mask
        if (count - 1 - index) % 2:
            pair = [_carried(weight) for weight in pair]
    return None


def _carried(sums: Sums) -> Sums:
    """Return what two more words of nothing make of a difference of both sums."""
    first = (sums[0] + sums[1]) & _WORD
    return first, (sums[1] + first) & _WORD


def _is_sound_header(header: bytes) -> bool:
    magic, version, page_bytes, *_, first, second = _HEADER.unpack(header)
    if magic & ~1 != _MAGIC or version != _VERSION or page_bytes & (page_bytes - 1) or page_bytes < 512:
        return False
    return _sum(header[:_CHECKED_HEADER_BYTES], (0, 0), is_big=bool(magic & 1)) == (first, second)


def _summed(frame: bytes, sums: Sums, *, is_big: bool) -> Sums:
    return _sum(frame[:_CHECKED_FRAME_BYTES] + frame[_FRAME.size :], sums, is_big=is_big)


def _sum(data: bytes, sums: Sums, *, is_big: bool) -> Sums:
    first, second = sums
    words = iter(struct.unpack(f"{'>' if is_big else '<'}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second
