"""rhea, the client of Node.js, against a real node: every address type and what by itself happens there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Rhea = Callable[..., dict[str, Any]]

ALL = ["anycast", "multicast", "queue", "topic", "subscription", "stream"]


def bodies(report: dict[str, Any]) -> list[Any]:
    return [message["body"] for message in report["received"]]


def outcomes(report: dict[str, Any]) -> list[str]:
    """What became of each message, in the order of sending."""
    return [name for _, name, _ in sorted(report["outcomes"], key=lambda outcome: outcome[0])]


@pytest.mark.parametrize("kind", ALL)
def test_messages_pass_through_every_address_type_in_order(rhea: Rhea, addresses: Any, kind: str) -> None:
    source, target = addresses.pair(kind)
    messages = [
        {"body": f"message {n}", "message_id": n, "application_properties": {"n": n}, "durable": n % 2 == 0}
        for n in range(30)
    ]
    report = rhea("exchange", source=source, target=target, messages=messages)
    assert bodies(report) == [f"message {n}" for n in range(30)]
    assert [message["message_id"] for message in report["received"]] == list(range(30))
    assert [message["application_properties"] for message in report["received"]] == [{"n": n} for n in range(30)]
    assert outcomes(report) == ["accepted"] * 30


@pytest.mark.parametrize("kind", ["anycast", "queue", "stream"])
def test_settled_and_large_messages_pass(rhea: Rhea, addresses: Any, kind: str) -> None:
    address = addresses.declare(kind)
    settled = rhea("exchange", source=address, messages=[{"body": n} for n in range(10)], settled=True)
    assert bodies(settled) == list(range(10))
    large = rhea("exchange", source=addresses.declare(kind), messages=[{"size": 1 << 20}, {"size": 100}])
    assert [body["bytes"] for body in bodies(large)] == [1 << 20, 100]
    assert outcomes(large) == ["accepted"] * 2


def test_an_anycast_sender_gets_its_receivers_own_outcome(rhea: Rhea, addresses: Any) -> None:
    report = rhea(
        "exchange",
        source=addresses.declare("anycast"),
        messages=[{"body": n} for n in range(5)],
        answers=["accept", "reject", "release", "modify", "accept"],
        # When it settles several at once, rhea 3.0 tells the first one's outcome for the second too.
        credit=1,
    )
    assert outcomes(report) == ["accepted", "rejected", "released", "modified", "accepted"]
    details = {name: detail for _, name, detail in report["outcomes"]}
    assert details["rejected"] == {"condition": "acme:invalid", "description": "no amount"}
    assert details["modified"] == {"failed": True, "undeliverable": True, "annotations": {"x-opt-why": "tired"}}


def test_a_receiver_may_settle_second(rhea: Rhea, addresses: Any) -> None:
    for kind in ("anycast", "queue"):
        report = rhea(
            "exchange", source=addresses.declare(kind), messages=[{"body": n} for n in range(5)], second=True
        )
        assert bodies(report) == list(range(5))
        assert outcomes(report) == ["accepted"] * 5


def test_a_queue_gives_back_what_was_not_taken(rhea: Rhea, addresses: Any) -> None:
    address = addresses.declare("queue")
    report = rhea(
        "exchange",
        source=address,
        messages=[{"body": n} for n in range(3)],
        answers=["release", "reject", "modify"],
        expect=4,
        credit=1,
    )
    assert outcomes(report) == ["accepted"] * 3
    # 0 is released and then rejected, which ends it; 1 is modified, and not deliverable here any more.
    assert bodies(report) == [0, 0, 1, 2]
    other = rhea("exchange", source=address, messages=[], expect=1)
    assert bodies(other) == [1]
    assert other["received"][0]["delivery_count"] == 1


@pytest.mark.parametrize(("answer", "outcome"), [("accept", "accepted"), ("release", "released")])
@pytest.mark.parametrize("kind", ["anycast", "multicast"])
def test_a_sender_gets_no_credit_before_a_receiver_has_some(
    rhea: Rhea, addresses: Any, kind: str, answer: str, outcome: str
) -> None:
    report = rhea("patience", address=addresses.declare(kind), answer=answer)
    assert report["credit"] == [0, 1]
    assert outcomes(report) == [outcome]


def test_a_thousand_senders_get_through_to_a_receiver_with_a_credit_of_10(rhea: Rhea, addresses: Any) -> None:
    address = addresses.declare("anycast")
    report = rhea("crowd", address=address, senders=1000, connections=10, credit=10)
    assert sorted(report["received"]) == sorted(f"sender-{n}" for n in range(1000))
    account = addresses.read(address)
    assert account["accepted"] == 1000
    assert account["creditExcess"] == 0


@pytest.mark.parametrize("kind", ["anycast", "queue"])
def test_a_request_is_answered_over_a_dynamic_address(rhea: Rhea, addresses: Any, kind: str) -> None:
    report = rhea("request", address=addresses.declare(kind))
    assert report["reply_to"]
    assert report["received"] == [["c-1", "ping pong"]]


def test_an_unknown_address_is_refused_while_the_connection_lives(rhea: Rhea, addresses: Any) -> None:
    report = rhea("unknown", address=addresses.declare("queue"))
    assert sorted(report["errors"]) == [["receiver", "amqp:not-found"], ["sender", "amqp:not-found"]]
    assert outcomes(report) == ["accepted"]


@pytest.mark.parametrize("kind", ALL)
def test_the_anonymous_terminus_reaches_every_address_type(rhea: Rhea, addresses: Any, kind: str) -> None:
    source, target = addresses.pair(kind)
    messages = [{"body": n, "to": target} for n in range(5)]
    report = rhea("exchange", source=source, messages=messages, anonymous=True)
    assert bodies(report) == list(range(5))
    assert outcomes(report) == ["accepted"] * 5


def test_a_queue_is_drained(rhea: Rhea, addresses: Any) -> None:
    address = addresses.declare("queue")
    rhea("exchange", target=address, messages=[{"body": n} for n in range(3)], expect=0)
    report = rhea("drain", address=address, credit=10)
    assert report["received"] == [0, 1, 2]
    assert report["drained"]


def test_a_stream_is_read_from_its_beginning(rhea: Rhea, addresses: Any) -> None:
    address = addresses.declare("stream", partitions=2)
    messages = [{"body": n, "subject": f"device-{n % 3}"} for n in range(30)]
    rhea("exchange", target=address, messages=messages, expect=0)
    report = rhea("exchange", source=address, messages=[], expect=30, filter={"enmasse:start": "first"})
    assert sorted(bodies(report)) == list(range(30))
    for device in range(3):
        mine = [message for message in report["received"] if message["subject"] == f"device-{device}"]
        assert [message["body"] for message in mine] == list(range(device, 30, 3))
        assert len({message["annotations"]["x-opt-partition"] for message in mine}) == 1
