"""Periods of what devices may use, and what is counted in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from enmasse.node.devices.tenants import Tenant
from enmasse.node.devices.usage import DATA, DURATION, UsageTeller, period_of


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def limit(since: str, period: dict[str, Any] | None = None, most: int = 310) -> dict[str, Any]:
    return {"effective-since": since, "max-bytes": most, "max-minutes": most, "period": period}


@pytest.mark.parametrize(
    ("document", "now", "since", "most"),
    [
        (limit("2026-01-10T12:00:00Z"), "2026-03-01", "2026-01-10T12:00:00", 310),
        (limit("2026-01-10T12:00:00+02:00"), "2026-03-01", "2026-01-10T10:00:00", 310),
        (limit("2026-01-10T00:00:00Z", {"mode": "days", "no-of-days": 7}), "2026-01-23", "2026-01-17", 310),
        (limit("2026-01-10T00:00:00Z", {"mode": "days", "no-of-days": 7}), "2026-01-24", "2026-01-24", 310),
        (limit("2026-01-22T06:00:00Z", {"mode": "monthly"}), "2026-01-31", "2026-01-22T06:00:00", 100),
        (limit("2026-01-22T06:00:00Z", {"mode": "monthly"}), "2026-02-01", "2026-02-01", 310),
    ],
)
def test_the_present_period_of_a_limit(document: dict[str, Any], now: str, since: str, most: int) -> None:
    assert period_of(document, DATA, at(now)) == (at(since), most)
    assert period_of(document, DURATION, at(now)) == (at(since), most * 60_000)


@pytest.mark.parametrize("document", [None, limit("2026-01-10T00:00:00Z", most=-1), limit("2027-01-01T00:00:00Z")])
def test_without_a_limit_there_is_no_period(document: dict[str, Any] | None) -> None:
    assert period_of(document, DATA, at("2026-06-01")) is None


class Scene:
    """A tenant with both limits, a clock, and what the control process answers."""

    def __init__(self) -> None:
        period = {"mode": "days", "no-of-days": 1}
        limits = {name: limit("2026-01-01T00:00:00Z", period, most=100) for name in (DATA, DURATION)}
        self.tenant = Tenant("a.b", "a/b", {"resource-limits": limits, "minimum-message-size": 10})
        self.now = at("2026-01-05")
        self.others: int | None = 0
        self.told: list[list[Any]] = []

        def ask(question: dict[str, Any], answered: Any) -> bool:
            self.told = question["rows"]
            if self.others is None:
                return False
            answered({"found": [[*row[:3], self.others] for row in self.told]})
            return True

        def clock() -> float:
            return self.now

        self.teller = UsageTeller(lambda: [self.tenant], ask, clock=clock, wall=clock, source="s")
        self.teller.enter_periods(self.tenant)


def test_payloads_are_rounded_up_and_refused_once_all_is_used() -> None:
    scene = Scene()
    usage = scene.tenant.usage
    assert [usage.take(size) for size in (1, 11, 59, 0, 200, 1)] == [True, True, True, True, True, False]
    assert usage.data.used == 10 + 20 + 60 + 0 + 200
    scene.now += 86_400
    scene.teller.tell()
    assert usage.take(1)
    assert usage.data.used == 10


def test_what_others_have_used_counts_and_what_was_not_told_is_told_again() -> None:
    scene = Scene()
    usage = scene.tenant.usage
    usage.take(50)
    scene.others = None
    scene.teller.tell()
    assert usage.data.is_news
    scene.others = 60
    scene.teller.tell()
    assert [row[1:] for row in scene.told if row[1] == DATA] == [[DATA, int(at("2026-01-05")), 50]]
    assert not usage.take(1)
    scene.teller.tell()
    scene.others = 40
    scene.teller.tell(everything=True)
    assert usage.take(1)


def test_connections_are_counted_as_long_as_they_last() -> None:
    scene = Scene()
    usage = scene.tenant.usage
    usage.connect(1, scene.now)
    usage.connect(1, scene.now + 10)
    usage.connect(-1, scene.now + 20)
    usage.connect(-1, scene.now + 25)
    usage.connect(0, scene.now + 1_000)
    assert usage.duration.used == 35_000
    assert usage.may_connect
    usage.connect(1, scene.now)
    usage.connect(-1, scene.now + 6_000)
    assert not usage.may_connect
