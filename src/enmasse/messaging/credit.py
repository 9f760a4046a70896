"""Sharing receivers' credit among senders, without ever promising it twice.

Rules (architecture, idea 2):
1. Whenever credit is granted, the senders' unused credit plus the backlog is at most what receivers
   have asked for; with no receiver there is none.
2. Shares are equal among the senders that use them.
3. When a sender without credit waits, what others leave unused is called in 10 ms later, by a lower
   link-credit and without awaiting an answer. That doubles to 1 s while no sender sends, once each
   had a turn, and stays short where there are many, so that all have theirs within seconds.
   A message that was on its way meanwhile takes what receivers still take, and others hold less.
4. Senders that were found idle are probed with single credits in turn, so that they can send when
   they wake up and do not starve others meanwhile.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

FIRST_CHECK_S = 0.010
LAST_CHECK_S = 1.0

ROUND_S = 10.0
"""Every sender has a turn within this time, as far as checks every 10 ms can do that."""

PROBE_SHARE = 8
"""One in this many credits goes to senders that were found idle."""

PROBES_PER_ROUND = 100
"""If idle senders are too many to hold a credit each, this many checks give each of them one: while
a sender is active, that is about a second."""


class CreditPort(Protocol):
    """The account of one sender's credit."""

    @property
    def limit(self) -> int:
        """Messages that the sender may send in all."""

    @property
    def received(self) -> int:
        """Messages that have come from it."""

    def grant(self, credit: int) -> None:
        """Let the sender send so many messages from now on, fewer than before too."""


class CreditHolder(Protocol):
    """A sender among whom credit is shared."""

    is_user: bool
    """True if it uses the credit it is given."""
    seen: int
    """Messages that had come at the last check."""

    @property
    def port(self) -> CreditPort:
        """The account of its credit."""

    @property
    def credit(self) -> int:
        """Messages that it may still send."""


HolderT = TypeVar("HolderT", bound=CreditHolder)


class CreditShare(Generic[HolderT]):
    """The senders of one direct address and the credit they hold."""

    __slots__ = ("_interval", "_owed", "_probe_turn", "_tried", "_turn", "deadline", "most_excess", "producers")

    def __init__(self) -> None:
        self.producers: list[HolderT] = []
        self.deadline: float | None = None
        """The time at which ``reclaim`` should be called."""
        self.most_excess = 0
        """By how much a grant ever went beyond what receivers asked for: 0, or rule 1 is broken."""
        self._interval = FIRST_CHECK_S
        self._turn = 0
        """The index at which the next share starts, so that senders that came short are first."""
        self._probe_turn = 0
        """The same for senders that were found idle."""
        self._owed = 0
        """Credit that checks freed and idle senders had no part of yet. With little credit they get a part at
        some checks only, or active senders would have none."""
        self._tried = 0
        """Senders that left their credit unused since one sent, or since all of them did."""

    def add(self, producer: HolderT) -> None:
        """Add a sender; all others may wait for this one, so check soon."""
        self.producers.append(producer)
        self._interval = FIRST_CHECK_S
        self._tried = 0

    def remove(self, producer: HolderT) -> None:
        """Remove a sender, whose credit is free."""
        self.producers.remove(producer)

    @property
    def promised(self) -> int:
        """The senders' unused credit."""
        return sum(p.port.limit - p.port.received for p in self.producers)

    def share(self, now: float, asked: int, usable: int, backlog: int) -> None:
        """Bring the senders' credit in line with the receivers'.

        Args:
            now: the clock, in seconds.
            asked: the receivers' unused credit.
            usable: the part of it that new promises may draw on, less than ``asked`` while some
                receivers' connections are full.
            backlog: deliveries that wait to be handed out.
        """
        producers = self.producers
        if not producers:
            return
        if len(producers) == 1:
            self._share_with_one(asked, usable, backlog)
            return
        # A sender that uses up its share, however soon it gets more, is to have what others leave unused.
        is_used_up = any(p.port.limit == p.port.received != p.seen for p in producers)
        promised = self.promised
        excess = promised + backlog - asked
        if excess > 0:
            promised -= self.call_in(excess)
        slack = usable - promised - backlog
        if slack > 0:
            promised += self._grant(slack, usable)
            self.most_excess = max(self.most_excess, promised + backlog - asked)
        if not promised:
            self.deadline = None
        elif is_used_up:
            self._interval = FIRST_CHECK_S
            soon = now + FIRST_CHECK_S
            self.deadline = soon if self.deadline is None else min(self.deadline, soon)
        elif self.deadline is None and any(p.port.limit == p.port.received for p in producers):
            self.deadline = now + self._interval

    def _share_with_one(self, asked: int, usable: int, backlog: int) -> None:
        port = self.producers[0].port
        credit = port.limit - port.received
        self.deadline = None
        if credit + backlog > asked:
            port.grant(max(0, asked - backlog))
        elif 2 * credit <= usable - backlog and usable > backlog:
            port.grant(usable - backlog)
            self.most_excess = max(self.most_excess, usable - asked)

    def call_in(self, excess: int) -> int:
        """Take back that much promised credit, from those that hold most; returns what was taken."""
        taken = 0
        for producer in sorted(self.producers, key=lambda p: p.port.received - p.port.limit):
            credit = producer.credit
            take = min(credit, excess - taken)
            if take <= 0:
                break
            producer.port.grant(credit - take)
            taken += take
        return taken

    def _grant(self, slack: int, usable: int) -> int:
        """Give out up to ``slack`` credit; returns what was given."""
        users = [p for p in self._from(self._turn) if p.is_user]
        given = probes = 0
        if users and len(users) < len(self.producers):
            given, probes = self._probe(slack, usable)
        sharers = users or self._from(self._turn)
        last = None
        target = max(1, (usable - probes) // len(sharers))
        for producer in sharers:
            credit = producer.port.limit - producer.port.received
            # A share is topped up when half of it is used: one flow for many messages.
            if 2 * credit > target or credit >= target:
                continue
            more = min(target - credit, slack - given)
            if more <= 0:
                break
            producer.port.grant(credit + more)
            given += more
            last = producer
        if last is not None:
            self._turn = self.producers.index(last) + 1
        return given

    def _from(self, turn: int) -> list[HolderT]:
        """Return the senders in turn."""
        turn %= len(self.producers)
        return self.producers[turn:] + self.producers[:turn]

    def _probe(self, slack: int, usable: int) -> tuple[int, int]:
        """Give single credits to idle senders in turn; returns what was given, and what they hold now."""
        held = 0
        waiting = []
        for producer in self._from(self._probe_turn):
            if not producer.is_user:
                if producer.port.limit > producer.port.received:
                    held += 1
                else:
                    waiting.append(producer)
        idle = held + len(waiting)
        most = max(1, usable // PROBE_SHARE)
        if most < idle:
            most = min(most, 1 + idle // PROBES_PER_ROUND)
        self._owed = min(self._owed, most * PROBE_SHARE)
        chosen = waiting[: max(0, min(most - held, slack, self._owed // PROBE_SHARE))]
        for producer in chosen:
            producer.port.grant(1)
        if chosen:
            self._owed -= PROBE_SHARE * len(chosen)
            self._probe_turn = self.producers.index(chosen[-1]) + 1
        return len(chosen), held + len(chosen)

    def reclaim(self, asked: int) -> None:
        """Call in the credit that was left unused since the last check; ``share`` is to follow.

        Args:
            asked: the receivers' unused credit.
        """
        self.deadline = None
        self._owed += asked
        producers = self.producers
        if not producers:
            return
        used_by_any = False
        tried = 0
        # Probes stay where every idle sender holds one, unless nothing is left for the others then.
        idle = [p.port.limit - p.port.received for p in producers if not p.is_user]
        rotates = 0 in idle or sum(idle) >= asked
        for producer in producers:
            port = producer.port
            used = port.received - producer.seen
            producer.seen = port.received
            credit = port.limit - port.received
            if used:
                used_by_any = True
                producer.is_user = True
            elif credit:
                tried += 1
                if credit == 1 and not rotates and not producer.is_user:
                    continue
                producer.is_user = False
            if credit > 2 * used:
                port.grant(2 * used)
        if used_by_any:
            self._interval = FIRST_CHECK_S
            self._tried = 0
            return
        self._tried += tried
        if self._tried >= len(producers):
            self._tried = 0
            longest = min(LAST_CHECK_S, ROUND_S * tried / len(producers))
            self._interval = max(FIRST_CHECK_S, min(2 * self._interval, longest))
