"""Sharing receivers' credit among senders, without ever promising it twice.

Rules (architecture, idea 2):
1. Whenever credit is granted, the senders' unused credit plus the backlog is at most what receivers
   have asked for; with no receiver there is none.
2. Shares are equal among the senders that use them.
3. While a sender without credit waits, what others leave unused is called in after 10 ms, doubling to
   1 s while nobody sends, by a lower link-credit and without awaiting an answer; senders that were
   found idle are probed with single credits in turn, so that idle ones starve nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enmasse.messaging.delivery import Producer

__all__ = ["CreditShare"]

FIRST_LOOK_S = 0.010
LAST_LOOK_S = 1.0

PROBE_SHARE = 8
"""One part in so many of the credit goes to senders that were found idle."""


class CreditShare:
    """The senders of one direct address and the credit they hold."""

    __slots__ = ("_interval", "_turn", "deadline", "most_excess", "producers")

    def __init__(self) -> None:
        self.producers: list[Producer] = []
        self.deadline: float | None = None
        """When ``reclaim`` should be called."""
        self.most_excess = 0
        """By how much a grant ever went beyond what receivers asked for: 0, or rule 1 is broken."""
        self._interval = FIRST_LOOK_S
        self._turn = 0

    def add(self, producer: Producer) -> None:
        """A sender has come; it may be the one that everybody waits for, so look soon."""
        self.producers.append(producer)
        self._interval = FIRST_LOOK_S

    def remove(self, producer: Producer) -> None:
        """A sender has gone and its credit is free."""
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
        promised = self.promised
        excess = promised + backlog - asked
        if excess > 0:
            promised -= self._call_in(excess)
        slack = usable - promised - backlog
        if slack > 0:
            promised += self._grant(slack, usable)
            self.most_excess = max(self.most_excess, promised + backlog - asked)
        waits = any(p.port.limit == p.port.received for p in producers)
        if not waits or not promised:
            self.deadline = None
        elif self.deadline is None:
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

    def _call_in(self, excess: int) -> int:
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
        producers = self.producers
        turn = self._turn % len(producers)
        order = producers[turn:] + producers[:turn]
        users = [p for p in order if p.is_user]
        idle = [p for p in order if not p.is_user]
        given = 0
        probes = 0
        last = None
        if users and idle:
            held = sum(1 for p in idle if p.port.limit > p.port.received)
            probes = max(1, usable // PROBE_SHARE)
            for producer in idle:
                if held >= probes or given >= slack:
                    break
                if producer.port.limit == producer.port.received:
                    producer.port.grant(1)
                    given += 1
                    held += 1
                    last = producer
            probes = held
        sharers = users or idle
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
            self._turn = producers.index(last) + 1
        return given

    def reclaim(self, now: float) -> None:
        """Call in what was left unused since the last look; ``share`` is to follow."""
        self.deadline = None
        used_by_any = False
        for producer in self.producers:
            port = producer.port
            used = port.received - producer.seen
            producer.seen = port.received
            credit = port.limit - port.received
            if used:
                used_by_any = True
                producer.is_user = True
            elif credit:
                producer.is_user = False
            if credit > 2 * used:
                port.grant(2 * used)
        self._interval = FIRST_LOOK_S if used_by_any else min(2 * self._interval, LAST_LOOK_S)
