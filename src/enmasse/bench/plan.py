"""The plan of a measurement, and the share of it that one process has.

Errors of the load command:

EnmasseError
└── BenchError   the load could not be made, or its end could not be reached
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field

from enmasse.errors import EnmasseError

STAMP = struct.Struct(">QIIQ")
"""The head of each body: when the message was due (ns), run, sender, number.

The clock is the machine's monotonic one, which all its processes share; so the senders and receivers of one
measurement run on one machine.
"""

STAMP_BYTES = STAMP.size


class BenchError(EnmasseError):
    """The load could not be made as it was planned; the message says what stood in the way."""


MAX_LINKS = 1000
"""Senders or receivers of one run: each has a connection of its own."""


@dataclass(frozen=True)
class Tls:
    """Trust in the peer, beyond what an ``amqps`` URL says.

    Attributes:
        ca_file: authorities in PEM; ``None`` is those of the system.
        is_trusting: whether any certificate will do.
    """

    ca_file: str | None = None
    is_trusting: bool = False


@dataclass(frozen=True)
class Plan:
    """A measurement.

    Attributes:
        url: the URL of the peer.
        address: the address to which messages go; ``%d`` in it is the number of the sender or receiver, from 0 on.
        receive_address: the address from which they come, if that is another one.
        user: for SASL PLAIN or whatever the client prefers; ``None`` is ANONYMOUS.
        password: goes with ``user``.
        hostname: the host name to ask for, which may name a space.
        tls: the authorities to trust.
        senders: each with a connection of its own.
        receivers: the same; 0 measures acceptance alone.
        size: bytes of each body.
        rate: messages a second of all senders together, due whatever the peer does (open loop);
            0 sends as many as the peer takes (closed loop).
        outstanding: of the closed loop: messages of each sender that wait for their outcome at a time.
        credit: the credit of each receiver.
        duration_s: the seconds that are measured.
        warmup_s: sent before that, and not measured.
        drain_s: the seconds after the end that missing messages are waited for.
        is_durable: whether messages are marked durable.
        is_presettled: whether messages are sent settled.
        is_multicast: whether each receiver gets every message.
        processes: groups of senders, and as many of receivers; 0 is what the cores allow.
        is_plain_allowed: whether the password may be shown to a network without TLS.
    """

    url: str
    address: str
    receive_address: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    hostname: str | None = None
    tls: Tls | None = None
    senders: int = 1
    receivers: int = 1
    size: int = 100
    rate: float = 0.0
    outstanding: int = 1000
    credit: int = 1000
    duration_s: float = 10.0
    warmup_s: float = 1.0
    drain_s: float = 10.0
    is_durable: bool = False
    is_presettled: bool = False
    is_multicast: bool = False
    processes: int = 0
    is_plain_allowed: bool = False

    def check(self) -> None:
        """Raise ``BenchError`` if it cannot be done."""
        if self.size < STAMP_BYTES:
            raise BenchError(f"bodies have at least {STAMP_BYTES} bytes, for the time and the number in each")
        if not self.senders and not self.receivers:
            raise BenchError("there is nothing to measure without senders and without receivers")
        if max(self.senders, self.receivers) > MAX_LINKS:
            raise BenchError(f"one run has at most {MAX_LINKS} senders and as many receivers")
        is_numbered = "%d" in self.address or "%d" in (self.receive_address or "")
        if is_numbered and self.senders and self.receivers and self.senders != self.receivers:
            raise BenchError("with %d in the address there are as many receivers as senders, or none of one kind")

    @property
    def copies(self) -> int:
        """Copies of each message that are to arrive."""
        return self.receivers if self.is_multicast else min(1, self.receivers)

    def jobs(self, run: int) -> list[Job]:
        """Return the job of each process: groups of senders, then groups of receivers."""
        return [*self._group(True, self.senders, run), *self._group(False, self.receivers, run)]

    def _group(self, is_sending: bool, links: int, run: int) -> list[Job]:
        # One core is left to the peer, the others are shared by both ends.
        count = min(links, self.processes or max(1, (len(os.sched_getaffinity(0)) - 1) // 2))
        address = self.address if is_sending else self.receive_address or self.address
        return [
            Job(
                is_sending=is_sending,
                links=[[number, address.replace("%d", str(number))] for number in range(group, links, count)],
                run=run,
                url=self.url,
                user=self.user,
                password=self.password,
                hostname=self.hostname,
                ca_file=self.tls.ca_file if self.tls else None,
                is_trusting=self.tls is not None and self.tls.is_trusting,
                is_plain_allowed=self.is_plain_allowed,
                size=self.size,
                period_ns=1e9 / self.rate if self.rate else 0.0,
                senders=self.senders,
                outstanding=self.outstanding,
                credit=self.credit,
                drain_s=self.drain_s,
                is_durable=self.is_durable,
                is_presettled=self.is_presettled,
            )
            for group in range(count)
        ]


@dataclass(frozen=True)
class Job:
    """The share of one process, as it is written to its standard input.

    Attributes:
        is_sending: whether its links are senders.
        links: number and address of each.
        run: marks this run's messages, apart from what lay in a queue before.
        period_ns: between two messages of all senders together; 0 is the closed loop.
        senders: the senders of all processes.
    """

    is_sending: bool
    links: list[list[int | str]]
    run: int
    url: str
    user: str | None
    password: str | None = field(repr=False)
    hostname: str | None
    ca_file: str | None
    is_trusting: bool
    is_plain_allowed: bool
    size: int
    period_ns: float
    senders: int
    outstanding: int
    credit: int
    drain_s: float
    is_durable: bool
    is_presettled: bool
