"""Delivery through lost connections, full queues and absent receivers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from enmasse.client import LinkDetachedError, LinkRefusedError, Outcome, TooLargeError, UnavailableError
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import AddressFullError, NoConsumerError, StreamUnavailableError, UnansweredError
from enmasse.pipeline.sink.columns import Row
from enmasse.pipeline.sink.connection import Result
from enmasse.pipeline.sink.delivering import Delivering
from enmasse.pipeline.sink.options import SinkOptions
from enmasse.pipeline.sink.packing import AddressInfo, LinkKey, Numbered, Parcel
from enmasse.testing.clock import ManualClock

ROW = Row(b"", None, None, None, None, None, None, None, None)
ACCEPTED, RELEASED = Outcome.ACCEPTED, Outcome.RELEASED
FULL = Outcome("rejected", "amqp:resource-limit-exceeded", "full")
LOST = UnavailableError("lost")

Answer = Callable[[Parcel], Result]


class Network:
    """Answers each round of transfers as told, and keeps what was sent."""

    def __init__(self, *rounds: Answer | Exception, kind: str = "queue", **options: Any) -> None:
        self._rounds = list(rounds)
        self.sent: list[list[str]] = []
        self.credit_s = 0.0
        self.clock = ManualClock()
        self.delivering = Delivering(
            SinkOptions(url="amqp://x", **options),
            lambda: self,
            lambda _: AddressInfo(kind, 1, 1 << 20),
            lambda timeout_s: Backoff(timeout_s, clock=lambda: self.clock.now, sleep=self.sleep),
        )

    def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def ship(self, parcels: Sequence[Parcel], stall_s: float) -> list[Result]:
        self.sent.append([parcel.payload.decode() for parcel in parcels])
        answer = self._rounds.pop(0) if len(self._rounds) > 1 else self._rounds[0]
        if isinstance(answer, Exception):
            raise answer
        return [answer(parcel) for parcel in parcels]

    def ship_direct(self, parcels: Sequence[Parcel], credit_s: float, answer_s: float) -> list[Result]:
        self.credit_s = credit_s
        return self.ship(parcels, answer_s)

    def deliver(self, *names: str) -> list[str]:
        parcels = [Parcel(LinkKey(name), name.encode(), Numbered(0, ROW, name)) for name in names]
        return [f"{refusal.numbered.address}: {refusal.reason}" for refusal in self.delivering.deliver(parcels)]


def by_name(**results: Result) -> Answer:
    return lambda parcel: results.get(parcel.payload.decode(), ACCEPTED)


def all_of(result: Result) -> Answer:
    return lambda _: result


def test_what_is_accepted_is_done() -> None:
    network = Network(all_of(ACCEPTED))
    assert network.deliver("a", "b") == []
    assert network.sent == [["a", "b"]]


def test_what_was_not_answered_is_sent_again_in_its_order() -> None:
    network = Network(LOST, by_name(b=LOST, c=LOST), by_name(c=RELEASED), all_of(ACCEPTED))
    assert network.deliver("a", "b", "c") == []
    assert network.sent == [["a", "b", "c"], ["a", "b", "c"], ["b", "c"], ["c"]]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (Outcome("rejected", "amqp:decode-error", "no message"), "rejected (amqp:decode-error: no message)"),
        (LinkRefusedError("amqp:not-found", "no such address"), "amqp:not-found: no such address"),
        (LinkRefusedError("amqp:unauthorized-access", "not you"), "amqp:unauthorized-access: not you"),
        (LinkDetachedError("amqp:link:message-size-exceeded", "huge"), "amqp:link:message-size-exceeded: huge"),
        (TooLargeError("9 bytes"), "too large: 9 bytes"),
    ],
)
def test_what_is_never_taken_comes_back_with_the_reason(result: Result, reason: str) -> None:
    network = Network(by_name(b=result))
    assert network.deliver("a", "b", "c") == [f"b: {reason}"]
    assert len(network.sent) == 1


def test_a_link_that_was_ended_for_a_passing_reason_is_made_again() -> None:
    network = Network(all_of(LinkDetachedError("amqp:link:detach-forced", "moved")), all_of(ACCEPTED))
    assert network.deliver("a") == []


@pytest.mark.parametrize("lost", [LOST, all_of(LOST)])
def test_a_node_that_stays_away_ends_the_task(lost: Any) -> None:
    with pytest.raises(StreamUnavailableError, match="gave up after 30 s: lost"):
        Network(lost, retry_timeout_s=30.0).deliver("a")


def test_an_address_that_is_full_is_waited_for() -> None:
    network = Network(all_of(FULL), all_of(FULL), all_of(ACCEPTED))
    assert network.deliver("a") == []
    with pytest.raises(AddressFullError, match=r"'a' took no message: gave up after 60 s.*full"):
        Network(all_of(FULL)).deliver("a")


def test_an_address_that_gives_no_credit_ends_the_task() -> None:
    with pytest.raises(AddressFullError, match="'b' took nothing for 60 s"):
        Network(by_name(b=None)).deliver("a", "b")


def test_a_direct_address_without_a_receiver_ends_the_task() -> None:
    with pytest.raises(NoConsumerError, match="nobody received from 'a' for 60 s"):
        Network(all_of(None), kind="anycast").deliver("a")


def test_a_receiver_that_does_not_answer_ends_the_task() -> None:
    with pytest.raises(UnansweredError):
        Network(all_of(UnansweredError("silent")), kind="multicast").deliver("a")


def test_rows_that_nobody_is_there_for_are_skipped_and_counted() -> None:
    network = Network(by_name(b=None), kind="anycast", skips_no_consumer=True)
    assert network.deliver("a", "b", "c") == []
    assert network.delivering.skipped == 1
    assert network.credit_s == 2.0


def test_a_receiver_that_takes_some_gets_the_others_later() -> None:
    """What nobody asked for yet is not skipped as long as the receiver goes on."""
    credit = iter([True, False, True])

    def as_asked(_: Parcel) -> Result:
        return ACCEPTED if next(credit) else None

    network = Network(as_asked, kind="anycast", skips_no_consumer=True)
    assert network.deliver("a", "a") == []
    assert network.sent == [["a", "a"], ["a"]]
    assert network.delivering.skipped == 0
