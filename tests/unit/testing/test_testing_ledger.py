from __future__ import annotations

import pytest

from tests.support.ledger import Ledger, Name, name_of


@pytest.fixture
def ledger() -> Ledger:
    """Five messages: one without an answer, two accepted, one taken, one taken for good."""
    ledger = Ledger("orders")
    for number in range(5):
        ledger.offered(("p", number))
    for number in (1, 2, 3, 4):
        ledger.accepted(("p", number))
    for number in (3, 4):
        ledger.delivered(("p", number))
        ledger.taken(("p", number))
    ledger.sure([("p", 4)])
    return ledger


def names(*numbers: int) -> list[Name]:
    return [("p", number) for number in numbers]


@pytest.mark.parametrize("body", ["dev:a:7", b"dev:a:7", memoryview(b"dev:a:7")])
def test_a_body_names_its_producer_and_number(body: object) -> None:
    assert name_of(body) == ("dev:a", 7)


@pytest.mark.parametrize("found", [(1, 2), (0, 1, 2), (1, 2, 3), (0, 1, 2, 3)])
def test_what_has_no_answer_or_was_just_taken_may_be_there_or_not(ledger: Ledger, found: tuple[int, ...]) -> None:
    ledger.look([names(*found)], len(found))
    assert ledger.problems == []
    assert ledger.held == len(found)


@pytest.mark.parametrize(
    ("found", "stored", "problem"),
    [
        ((2,), 1, "1 accepted messages are lost: p:1"),
        ((1, 2, 4), 3, "settled for good are back: p:4"),
        ((1, 2, 2), 3, "there twice"),
        ((2, 1), 2, "p:1 comes after p:2"),
        ((1, 2, 9), 3, "nobody sent: p:9"),
        ((1, 2), 3, "3 messages by the node's account, 2 really"),
    ],
)
def test_what_does_not_fit_is_told(ledger: Ledger, found: tuple[int, ...], stored: int, problem: str) -> None:
    ledger.look([names(*found)], stored)
    (told,) = ledger.problems
    assert problem in told


def test_what_a_look_showed_is_the_truth_from_then_on(ledger: Ledger) -> None:
    ledger.look([names(0, 1, 2)], 3)
    ledger.look([names(1, 2)], 2)
    assert ledger.problems == ["orders: 1 accepted messages are lost: p:0"]


def test_what_a_look_did_not_show_must_not_come_back(ledger: Ledger) -> None:
    ledger.look([names(1, 2)], 2)
    ledger.delivered(("p", 3))
    assert ledger.problems == ["orders: p:3 came again though it was settled for good"]


def test_a_receiver_may_be_faster_than_the_answer_to_the_sender() -> None:
    ledger = Ledger("orders")
    ledger.offered(("p", 0))
    ledger.taken(("p", 0))
    ledger.accepted(("p", 0))
    ledger.look([[]], 0)
    assert ledger.problems == []


def test_what_was_refused_must_not_appear() -> None:
    ledger = Ledger("orders")
    ledger.offered(("p", 0))
    ledger.refused(("p", 0))
    ledger.look([names(0)], 1)
    assert ledger.problems == ["orders: 1 messages that nobody sent: p:0"]


def test_partitions_have_an_order_each() -> None:
    ledger = Ledger("log")
    for number in range(4):
        ledger.offered(("p", number))
    ledger.look([names(1, 3), names(0, 2)], 4)
    assert ledger.problems == []


def test_what_is_offered_again_after_a_crash_is_there_once() -> None:
    ledger = Ledger("log")
    ledger.offered(("p", 0))
    ledger.look([[]], 0)
    ledger.offered(("p", 0))
    ledger.accepted(("p", 0))
    ledger.look([names(0)], 1)
    assert ledger.problems == []
