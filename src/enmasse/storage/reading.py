"""Requests and answers as they cross the socket pair between a node and its reader process.

Pure: bytes in, values out. Answers come in the order of the requests. Little-endian:

    request  size u32, table u8, reserved u8, length of first u16, length of last u16, reserved u16,
             limit u64, first, last
    answer   size u32, kind u8, reserved u8, damaged u16, length of end u16, reserved u16, end,
             then each damaged key with its length as u16 before it
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["READY", "WARM", "ReadAnswer", "ReadRequest", "encode_read", "encode_request", "split_reads",
           "split_requests"]  # fmt: skip

READY = 1
"""The reader has opened the environment; comes once, before any answer."""
WARM = 2
"""The records up to ``end`` are in memory and sound but for the damaged ones."""
FAILED = 3
"""The first record could not be read; ``end`` is the reason as UTF-8, ``damaged`` its key if that is known."""

_REQUEST = struct.Struct("<IBBHHHQ")
_ANSWER = struct.Struct("<IBBHHH")
_LENGTH = struct.Struct("<H")

MAX_DAMAGED = 4_096
"""A request stops after so many: they are named one by one."""


class ReadRequest(NamedTuple):
    """One range of records that are wanted in memory."""

    table: int
    first: bytes
    last: bytes
    limit_bytes: int


class ReadAnswer(NamedTuple):
    """The result of a request."""

    kind: int
    end: bytes
    """The last key that was read; empty if there was none. A failure's reason."""
    found: bool
    """True if there was any record."""
    damaged: tuple[bytes, ...]


def encode_request(request: ReadRequest) -> bytes:
    """One request as it goes over the socket pair."""
    table, first, last, limit = request
    size = _REQUEST.size + len(first) + len(last)
    return _REQUEST.pack(size, table, 0, len(first), len(last), 0, min(limit, (1 << 64) - 1)) + first + last


def split_requests(data: bytes) -> tuple[list[ReadRequest], bytes]:
    """Cut complete requests off the front of what was received; also returns the rest."""
    requests: list[ReadRequest] = []
    at = 0
    while len(data) - at >= _REQUEST.size:
        size, table, _, first_length, last_length, _, limit = _REQUEST.unpack_from(data, at)
        if len(data) - at < size:
            break
        middle = at + _REQUEST.size + first_length
        requests.append(
            ReadRequest(table, data[at + _REQUEST.size : middle], data[middle : middle + last_length], limit)
        )
        at += size
    return requests, data[at:]


def encode_read(kind: int, end: bytes = b"", damaged: tuple[bytes, ...] = (), *, found: bool = False) -> bytes:
    """One answer as it goes over the socket pair."""
    parts = b"".join([_LENGTH.pack(len(key)) + key for key in damaged])
    size = _ANSWER.size + len(end) + len(parts)
    return _ANSWER.pack(size, kind, found, len(damaged), len(end), 0) + end + parts


def split_reads(data: bytes) -> tuple[list[ReadAnswer], bytes]:
    """Cut complete answers off the front of what was received; also returns the rest."""
    answers: list[ReadAnswer] = []
    at = 0
    while len(data) - at >= _ANSWER.size:
        size, kind, found, count, end_length, _ = _ANSWER.unpack_from(data, at)
        if len(data) - at < size:
            break
        key_at = at + _ANSWER.size + end_length
        end = data[at + _ANSWER.size : key_at]
        damaged = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(data, key_at)
            key_at += 2
            damaged.append(data[key_at : key_at + length])
            key_at += length
        answers.append(ReadAnswer(kind, end, bool(found), tuple(damaged)))
        at += size
    return answers, data[at:]
