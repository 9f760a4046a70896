"""Messages of the simulation, their copies in addresses, and the wall clock that some of them ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.transacting import Exchange

__all__ = ["GONE", "LEAVING", "OUT", "READY", "Copy", "Message", "WallClock"]

FIRST_WALL_US = 1_700_000_000_000_000

READY = "ready"
"""It can be handed out, now or at a time."""
OUT = "out"
"""A receiver has it."""
LEAVING = "leaving"
"""It is on its way to another address, or dropped."""
GONE = "gone"
"""It is settled."""


class WallClock:
    """The wall clock, which is set now and then; the simulation's own clock never is."""

    def __init__(self) -> None:
        self._settings = [(-1.0, 0.0)]
        """When, and by how much from then on."""

    @property
    def shift(self) -> float:
        """By how much it is set now."""
        return self._settings[-1][1]

    @property
    def was_set(self) -> bool:
        """Whether it was ever set."""
        return len(self._settings) > 1

    def set(self, now: float, shift: float) -> None:
        """Set it."""
        self._settings.append((now, shift))

    def us(self, now: float) -> int:
        """What it shows, in microseconds since 1970."""
        return FIRST_WALL_US + int((now + self.shift) * 1_000_000)

    def between(self, first: float, last: float) -> tuple[float, float]:
        """By how much it was set at least and at most."""
        shifts = [shift for when, shift in self._settings if first <= when <= last]
        shifts.append([shift for when, shift in self._settings if when < first][-1])
        return min(shifts), max(shifts)


@dataclass(slots=True)
class Message:
    """One message as its sender knows it; times in seconds of the simulation.

    Attributes:
        number: tells it from all others, and grows with every message that is sent.
        settled: whether its sender wants no answer.
        delay: for how long it is not to be delivered.
        date: until when by the wall clock, if it asks for that in place of the delay.
        key: of the last-value option.
        colour: what selectors select by.
        accepted: whether its sender was told so.
        refused: whether its sender was told that it is not stored.
        is_orphan: whether its sender has gone without an answer.
    """

    number: int
    durable: bool
    settled: bool
    priority: int = 4
    ttl: float = 0.0
    delay: float = 0.0
    date: float = 0.0
    group: str | None = None
    key: str | None = None
    colour: str | None = None
    accepted: bool = False
    accepted_at: float = 0.0
    refused: bool = False
    is_orphan: bool = False


@dataclass(slots=True)
class Copy:
    """One message in one address.

    Attributes:
        came_at: when it was sent.
        shifts: by how much the wall clock was set when it was written, at least and at most; ``None`` is in
            this life of the node.
        life: how long it may wait; 0 is for ever.
        expires: when it may expire at the earliest; 0 is never.
        expires_by: when it must have expired.
        ready_at: when it may be delivered at the earliest.
        ready_by: when it must be among those that can be delivered.
        stamp: when it was settled, by the number of the last batch then.
        attempts: deliveries that failed.
        failures: when those of this life were handed out, by the number of the last batch then.
        out_stamp: when it was handed out last, by the number of the last batch then; the journal says so for certain
            once that is written.
        is_inherited: whether an earlier life of the node left it.
        is_untouched: whether this life has not handed it out.
        may_be_marked: whether the journal may still say that a receiver has it, which gave it back.
        is_back: whether a receiver gave it back, maybe while others were already on their way.
        is_spent: whether its last attempt ended with its node, so that it is a dead letter once anybody asks.
        is_stored: whether it is known to have been on the disk.
        is_doubtful: whether it may be gone without a word.
        is_hit: whether its batch, or another, failed while others had copies too.
        is_unseen: whether nobody saw it when the node started, as its life was over: what is on disk of it counts.
        is_replaced: whether a later message of its key came.
        holder: the receiver that has it.
        avoided: receivers that said they cannot have it.
        origin: the copy that this one may take the place of; it may be that it has not come yet.
        heir: the copy elsewhere that takes its place.
        pending: the transaction that decides what becomes of it.
        is_unordered: whether its place is that of its transaction's end.
    """

    message: Message
    state: str = READY
    stamp: float = 0
    attempts: int = 0
    failures: list[float] = field(default_factory=list)
    out_stamp: float = float("inf")
    is_inherited: bool = False
    is_untouched: bool = False
    may_be_marked: bool = False
    is_back: bool = False
    is_spent: bool = False
    is_stored: bool = False
    is_doubtful: bool = False
    is_hit: bool = False
    is_unseen: bool = False
    is_replaced: bool = False
    came_at: float = 0.0
    shifts: tuple[float, float] | None = None
    life: float = 0.0
    expires: float = 0.0
    expires_by: float = 0.0
    ready_at: float = 0.0
    ready_by: float = 0.0
    holder: Any = None
    avoided: list[Any] = field(default_factory=list)
    origin: Copy | None = None
    heir: Copy | None = None
    pending: Exchange | None = None
    is_unordered: bool = False

    @property
    def is_unsure(self) -> bool:
        """Whether it is on its way to its sender, to another address, or away."""
        message = self.message
        is_open = not (message.accepted or self.is_stored)
        return self.is_replaced or message.refused or (is_open and (message.is_orphan or self.is_hit))
