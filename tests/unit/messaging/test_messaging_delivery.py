"""The ends of links at an address."""

from __future__ import annotations

from enmasse.messaging.address import Address
from enmasse.messaging.delivery import Producer, add_end, remove_end
from enmasse.testing.ports import CoreHarness, MemoryProducerPort


def producers(count: int) -> list[Producer]:
    address = Address(CoreHarness().core, "a")
    return [Producer(address, MemoryProducerPort(), "a") for _ in range(count)]


def test_ends_keep_the_order_in_which_they_were_added() -> None:
    first, second, third = producers(3)
    ends: list[Producer] = []
    for end in (second, first, third):
        add_end(ends, end)
    assert ends == [second, first, third]
    assert remove_end(ends, first)
    assert ends == [second, third]


def test_an_end_that_is_not_there_is_not_removed() -> None:
    first, second, third = producers(3)
    ends: list[Producer] = []
    for end in (first, third):
        add_end(ends, end)
    assert not remove_end(ends, second)
    assert remove_end(ends, third)
    assert not remove_end(ends, third)
    assert ends == [first]
