"""The report of a measurement: all processes together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from enmasse.bench.histogram import Histogram
from enmasse.bench.plan import Plan

NEVER_ARRIVE = ("rejected", "released", "modified")
SECRETS = ("url", "user", "password", "hostname", "tls")

BUSY_SHARE = 0.9
"""Of a core: a process of ours that used more may have been what could go no faster."""


class Report:
    """Counts of everything that was sent, warming up included, and latencies of the measured part.

    Args:
        plan: the plan of the measurement.
        sending: the reports of each group of senders.
        receiving: the reports of each group of receivers.

    Attributes:
        sent: messages that left.
        accepted: messages that the peer accepted.
        outcomes: all outcomes by name.
        failed: messages whose outcome is not known, as a link ended.
        unsent: messages that were due and got no credit.
        received: messages of this run that arrived.
        foreign: messages of others that arrived.
        disordered: messages that arrived after a later one of their sender, or again.
        accepted_per_s: outcomes that came during the measured part, a second (of settled messages: departures).
        received_per_s: messages that came during the measured part, a second.
        delivery: from when a message was due until it was received.
        outcome: from when a message was due until the sender knew its outcome.
        late: from when a message was due until it left: more than a little is the peer's want of credit,
            or a generator that is too slow.
        busiest: the greatest part of a core that one of our own processes used.
    """

    def __init__(self, plan: Plan, sending: Sequence[dict[str, Any]], receiving: Sequence[dict[str, Any]]) -> None:
        self.plan = plan
        results = [report["result"] for report in sending]
        outcomes: Counter[str] = Counter()
        for result in results:
            outcomes.update(result["outcomes"])
        self.outcomes = dict(outcomes)
        self.sent = sum(int(result["sent"]) for result in results)
        self.accepted = self.outcomes.get("accepted", 0)
        self.failed = sum(int(result["failed"]) for result in results)
        self.unsent = sum(result["unsent"] for result in results)
        self.measured_sent = sum(result["measured"] for result in results)
        self.accepted_per_s = sum(result["in_window"] for result in results) / plan.duration_s
        self.late = Histogram.sum(Histogram.load(result["late"]) for result in results)
        unsent = Histogram.sum(Histogram.load(result["unsent_waits"]) for result in results)
        self.outcome = Histogram.sum(Histogram.load(result["latency"]) for result in results)
        if not plan.is_presettled:
            self.outcome.merge(unsent)
        results = [report["result"] for report in receiving]
        self.received = sum(int(result["received"]) for result in results)
        self.foreign = sum(result["foreign"] for result in results)
        self.disordered = sum(result["disordered"] for result in results)
        self.measured_received = sum(result["measured"] for result in results)
        self.received_per_s = sum(result["in_window"] for result in results) / plan.duration_s
        self.delivery = Histogram.sum(Histogram.load(result["latency"]) for result in results)
        if plan.receivers:
            self.delivery.merge(unsent)
        self.busiest = max((report["cpu"] for report in (*sending, *receiving)), default=0.0)

    @property
    def expected(self) -> int:
        """Messages that ought to have arrived, each copy counted."""
        refused = sum(self.outcomes.get(name, 0) for name in NEVER_ARRIVE)
        return (self.sent - refused - self.failed) * self.plan.copies

    @property
    def missing(self) -> int:
        """Messages that ought to have arrived and did not (below 0: that arrived again)."""
        return self.expected - self.received if self.plan.receivers else 0

    @property
    def remarks(self) -> list[str]:
        """Reasons why the figures are worth less than they seem."""
        found = []
        if self.busiest > BUSY_SHARE:
            found.append(
                f"a process of the generator used {self.busiest:.0%} of a core: the peer may be able to do more "
                "(give --processes, or more cores)"
            )
        if self.unsent:
            found.append(
                f"{self.unsent:,} messages were due and never got credit; their waits are in the percentiles"
            )
        if self.missing > 0:
            found.append(f"{self.missing:,} messages never arrived")
        if self.missing < 0:
            found.append(f"{-self.missing:,} messages arrived more than once")
        if self.failed:
            found.append(f"{self.failed:,} messages have no outcome")
        refused = {name: number for name, number in self.outcomes.items() if name in NEVER_ARRIVE}
        if refused:
            found.append("not accepted: " + ", ".join(f"{number:,} {name}" for name, number in refused.items()))
        if self.foreign:
            found.append(f"{self.foreign:,} messages came that were not of this run")
        return found

    def to_json(self) -> dict[str, Any]:
        """Everything, without whom it was measured as; latencies in microseconds."""
        plan = {name: value for name, value in asdict(self.plan).items() if name not in SECRETS}
        return {
            "plan": plan,
            "sent": self.sent,
            "accepted": self.accepted,
            "received": self.received,
            "outcomes": self.outcomes,
            "failed": self.failed,
            "unsent": self.unsent,
            "missing": self.missing,
            "disordered": self.disordered,
            "foreign": self.foreign,
            "measured": {"sent": self.measured_sent, "received": self.measured_received},
            "accepted_per_s": self.accepted_per_s,
            "received_per_s": self.received_per_s,
            "latency_us": {
                "delivery": self.delivery.figures(),
                "outcome": self.outcome.figures(),
                "late": self.late.figures(),
            },
            "generator_core_share": self.busiest,
            "remarks": self.remarks,
        }
