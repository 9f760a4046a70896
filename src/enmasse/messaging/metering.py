"""Rates as credit: a token bucket is one more receiver, whose credit senders share.

Rules:
1. What senders sent is accounted by counters they have anyway, when the meter has its turn; nothing is
   decided per message. Bytes are added to one sum, for metered links only.
2. The credit that senders of a bucket hold unused is at most what the bucket has. It is shared as receivers'
   credit is (``credit``): equally among those who use it, and called in from those who do not.
3. A link's credit is the least of what its address grants it and what each of its buckets does. The address
   sees what it granted itself.
4. Bytes become credit by the size of recent messages. A bucket that went into debt grants nothing until it
   has paid, so that the mean rate is kept whatever the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from enmasse.messaging.credit import CreditShare

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.delivery import ProducerPort


BURST_S = 1.0
"""A bucket holds what may be sent in this time; after a pause so much may come at once."""

TICK_S = 0.02
"""Seconds between two checks that give waiting senders what has come into the bucket."""

SENDER_S = 20e-6
"""Seconds for each sender where there are many: checks take a twentieth of a node's time at most."""

FEW = 100
"""Up to this many senders have their first credit at once; with more, a check takes longer than it saves."""

FIRST_BYTES = 16 << 10
"""Bytes that a message is assumed to have before one has come."""

UNLIMITED = 1 << 62


class _Share:
    """One link's part of one bucket, which ``CreditShare`` uses as a producer, and as its port."""

    __slots__ = ("counted", "is_user", "limit", "metered", "seen")

    def __init__(self, metered: MeteredPort) -> None:
        self.metered = metered
        self.is_user = True
        self.counted = self.seen = metered.received
        """Deliveries that the bucket has paid for, and those at the last check of credit use."""
        self.limit = self.counted

    @property
    def port(self) -> _Share:
        return self

    @property
    def received(self) -> int:
        return self.metered.link.received

    @property
    def credit(self) -> int:
        return self.limit - self.metered.link.received

    def grant(self, credit: int) -> None:
        self.limit = self.metered.link.received + credit
        self.metered.apply()


class Meter:
    """The messages, or bytes, or both, that a space or an address takes per second.

    Args:
        core: the core whose turn it takes part in.
        name: the name of it in a report.
        messages: per second; 0 is without limit.
        octets: per second; 0 is without limit.
    """

    __slots__ = (
        "_byte_tokens",
        "_checked",
        "_is_full_turn",
        "_mean_bytes",
        "_share",
        "_shares",
        "_tokens",
        "byte_rate",
        "bytes_in",
        "core",
        "guests_in",
        "is_due",
        "message_rate",
        "name",
    )  # fmt: skip

    def __init__(self, core: Core, name: str, messages: int, octets: int) -> None:
        self.core = core
        self.name = name
        self.is_due = False
        self.bytes_in = 0
        """Bytes that have come since the last check; the sinks add to it."""
        self.guests_in = 0
        """Messages that came since then on links that are not the bucket's own."""
        self.message_rate = messages
        self.byte_rate = octets
        self._tokens = messages * BURST_S
        self._byte_tokens = octets * BURST_S
        self._mean_bytes = float(FIRST_BYTES)
        self._checked: float | None = None
        self._is_full_turn = False
        self._share: CreditShare[_Share] = CreditShare()
        self._shares: dict[MeteredPort, _Share] = {}

    def configure(self, messages: int, octets: int) -> None:
        """Change the rates; what was saved up beyond the new ones is lost."""
        if messages and not self.message_rate:
            self._tokens = messages * BURST_S
        if octets and not self.byte_rate:
            self._byte_tokens = octets * BURST_S
        self.message_rate, self.byte_rate = messages, octets
        self._is_full_turn = True
        self.due()

    # Links

    def join(self, port: MeteredPort) -> _Share:
        """Add a sender's link; it has its first credit at the end of the turn."""
        share = self._shares[port] = _Share(port)
        self._share.add(share)
        self._is_full_turn = len(self._shares) <= FEW
        self.due()
        return share

    def leave(self, port: MeteredPort) -> None:
        """Remove a sender's link; what it sent stays accounted."""
        share = self._shares.pop(port, None)
        if share is not None:
            self.guests_in += share.received - share.counted
            self._share.remove(share)
            self.due()

    def wants(self, port: MeteredPort) -> None:
        """Note that a sender waits for credit of this bucket."""
        share = self._shares[port]
        if not share.is_user:
            share.is_user = True
        self.due()

    def take(self, size: int) -> bool:
        """Account a message that has no credit of its own; false if the bucket has nothing left for it."""
        self.due()
        if (self.message_rate and self._tokens - self.guests_in < 1) or (
            self.byte_rate and self._byte_tokens <= self.bytes_in
        ):
            return False
        self.guests_in += 1
        self.bytes_in += size
        return True

    # The turn

    def due(self) -> None:
        """Have ``on_turn`` called once before the turn of the loop ends."""
        if not self.is_due:
            self.is_due = True
            self.core.due(self)

    def on_turn(self, now: float) -> None:
        """Account what came and share what there is, if that is not too soon after the last time."""
        checked = self._checked
        if (
            checked is None
            or now >= checked + self._tick_s
            or self._is_full_turn
            or (self.byte_rate and self.bytes_in > self._byte_tokens)
        ):
            self._check(now)
        else:
            self.core.schedule(self, checked + self._tick_s)

    def on_deadline(self, _now: float) -> None:
        """Share what has come into the bucket."""
        self.due()

    @property
    def _tick_s(self) -> float:
        return max(TICK_S, SENDER_S * len(self._shares))

    def _check(self, now: float) -> None:
        self._is_full_turn = False
        self._account(now)
        share = self._share
        asked = self._available()
        if share.deadline is not None and now >= share.deadline:
            share.reclaim(asked)
        share.share(now, asked, asked, 0)
        if self._tokens < self.message_rate * BURST_S or self._byte_tokens < self.byte_rate * BURST_S:
            # Once the bucket is full, only a sender that uses its credit can change anything.
            waits = any(port.is_withheld for port in self._shares)
            self.core.schedule(self, now + (max(self._tick_s, self._wait_s()) if waits else BURST_S))
        if share.deadline is not None:
            self.core.schedule(self, share.deadline)

    def _account(self, now: float) -> None:
        passed = 0.0 if self._checked is None else max(0.0, now - self._checked)
        self._checked = now
        messages, self.guests_in = self.guests_in, 0
        for share in self._shares.values():
            received = share.metered.link.received
            messages += received - share.counted
            share.counted = received
        octets, self.bytes_in = self.bytes_in, 0
        if messages:
            mean = octets / messages
            # What is larger is believed at once, what is smaller by and by: debt is worse than a small delay.
            self._mean_bytes = max(1.0, mean if mean > self._mean_bytes else (self._mean_bytes + mean) / 2)
        rate = self.message_rate
        self._tokens = min(rate * BURST_S, self._tokens + rate * passed) - messages
        rate = self.byte_rate
        self._byte_tokens = min(rate * BURST_S, self._byte_tokens + rate * passed) - octets

    def _available(self) -> int:
        """Return the credit that the bucket is worth."""
        most = UNLIMITED
        if self.message_rate:
            most = max(0, int(self._tokens))
        if self.byte_rate:
            most = min(most, 0 if self._byte_tokens <= 0 else max(1, int(self._byte_tokens / self._mean_bytes)))
        return most

    def _wait_s(self) -> float:
        """Return the seconds until the bucket has something again."""
        wait = 0.0
        if self.message_rate and self._tokens < 1:
            wait = (1 - self._tokens) / self.message_rate
        if self.byte_rate and self._byte_tokens <= 0:
            wait = max(wait, (1 - self._byte_tokens) / self.byte_rate)
        return wait


class MeteredPort:
    """A sender's link behind the buckets that it has to keep to; an address sees what it granted itself.

    Args:
        link: the sender's link.
        meters: the buckets.
    """

    __slots__ = ("_shares", "_wanted", "link", "meters", "settle")

    def __init__(self, link: ProducerPort, meters: Sequence[Meter]) -> None:
        self.link = link
        self.meters = tuple(meters)
        self.settle: Callable[[int, Any], None] = link.settle
        self._wanted = link.limit
        self._shares: tuple[tuple[Meter, _Share], ...] = ()
        self._shares = tuple((meter, meter.join(self)) for meter in meters)
        self.apply()

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the link, such as how to settle."""
        return getattr(self.link, name)

    @property
    def received(self) -> int:
        """Deliveries that have come."""
        return self.link.received

    @property
    def limit(self) -> int:
        """Deliveries that the address lets come."""
        return max(self._wanted, self.link.received)

    @property
    def highest(self) -> int:
        """The largest limit that was ever sent to the sender."""
        return self.link.highest

    @property
    def is_withheld(self) -> bool:
        """True if the sender has less credit than its address grants."""
        return self._wanted > self.link.limit

    def grant(self, credit: int) -> None:
        """Set the sender's credit, as far as the buckets go along."""
        self._wanted = self.link.received + credit
        self.apply()
        if self._wanted > self.link.limit:
            for meter, share in self._shares:
                if share.limit < self._wanted:
                    meter.wants(self)

    def apply(self) -> None:
        """Give the link the lower one of the limits of address and buckets."""
        limit = self._wanted
        for _, share in self._shares:
            limit = min(limit, share.limit)
        self.link.grant(max(0, limit - self.link.received))

    def take_over(self, before: MeteredPort) -> None:
        """Continue where another port of the same link has been."""
        before.leave()
        self._wanted = before.limit
        self.apply()

    def detach(self, error: Any = None) -> None:
        """Close the link."""
        self.link.detach(error)

    def exhausted(self) -> None:
        """Note that the sender has used all of its credit."""
        for meter in self.meters:
            meter.due()

    def wanted(self) -> None:
        """Note that the sender has messages that wait for credit."""
        for meter in self.meters:
            meter.wants(self)

    def add_bytes(self, size: int) -> None:
        """Account what a message had."""
        for meter in self.meters:
            meter.bytes_in += size
            if not meter.is_due:
                meter.due()

    def leave(self) -> None:
        """Remove the link from its buckets."""
        for meter in self.meters:
            meter.leave(self)
