"""What is sent in one go, and what its rows are."""

from __future__ import annotations

from typing import NamedTuple

from enmasse.pipeline.sink.columns import Row

__all__ = ["AddressInfo", "LinkKey", "Numbered", "Parcel", "Refusal"]

DIRECT = frozenset({"anycast", "multicast"})


class AddressInfo(NamedTuple):
    """What a node says of an address."""

    kind: str
    """``anycast``, ``multicast``, ``queue``, ``topic`` or ``stream``."""
    partitions: int
    """Of a stream."""
    max_bytes: int
    """Of a message."""

    @property
    def is_direct(self) -> bool:
        """Whether nothing is stored, so that a receiver has to be there."""
        return self.kind in DIRECT


class LinkKey(NamedTuple):
    """One link to an address."""

    address: str
    producer: str = ""
    """The name under which its messages are numbered; empty: they are not."""
    partition: int = -1
    """The partition that it takes frames for; below 0 it takes messages."""


class Numbered(NamedTuple):
    """A row and its place in its task."""

    place: int
    row: Row
    address: str


class Parcel(NamedTuple):
    """One transfer: a message of one row, or a frame of many."""

    link: LinkKey
    payload: bytes
    first: Numbered
    """The row, or the first of them."""
    rows: int = 1


class Refusal(NamedTuple):
    """A row that an address does not take, or a frame that begins with it."""

    numbered: Numbered
    reason: str
    rows: int = 1
