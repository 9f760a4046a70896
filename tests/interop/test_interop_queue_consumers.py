"""Who gets what of a queue: groups, priorities, exclusive receivers, their number, last values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message
from proton.reactor import Copy
from proton.utils import LinkDetached

from tests.support.node_process import NodeProcess
from tests.support.proton_blocking import ProtonClient

pytestmark = pytest.mark.slow


def bodies(messages: list[Any]) -> list[Any]:
    return [message.body for message in messages]


def grouped(count: int, *, start: int = 0, groups: int = 6) -> list[Message]:
    return [
        Message(body=n, group_id=f"g{n % groups}", group_sequence=n // groups, durable=n % 2 == 0)
        for n in range(start, start + count)
    ]


def by_group(messages: list[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for message in messages:
        found.setdefault(message.group_id, []).append(message.body)
    return found


def test_the_messages_of_a_group_go_to_one_receiver_in_order(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        receivers = [client.receiver(address) for _ in range(3)]
        for receiver in receivers:
            receiver.receiver.link.flow(200)
            receiver.flush()
        client.send(address, *grouped(60))
        found = [by_group(receiver.rest()) for receiver in receivers]
        assert sorted(group for groups in found for group in groups) == [f"g{n}" for n in range(6)]
        assert all(groups for groups in found)
        for groups in found:
            for group, numbers in groups.items():
                assert numbers == list(range(int(group[1:]), 60, 6))


def test_a_group_waits_for_its_receiver_and_holds_up_nobody(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        busy, idle = client.receiver(address), client.receiver(address)
        client.send(address, Message(body="a1", group_id="a"))
        assert bodies(busy.take(1)) == ["a1"]
        client.send(address, Message(body="a2", group_id="a"), "plain", Message(body="b1", group_id="b"))
        assert bodies(idle.rest()) == ["plain", "b1"]
        assert bodies(busy.rest()) == ["a2"]


@pytest.mark.parametrize("leave", ["close", "detach"])
def test_groups_move_when_their_receiver_goes(node: NodeProcess, addresses: Any, leave: str) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        first = client.receiver(address)
        client.send(address, *grouped(12))
        assert bodies(first.take(6)) == list(range(6))
        assert bodies(first.take(2, settle=False)) == [6, 7]
        second = client.receiver(address)
        assert bodies(second.rest()) == []
        getattr(first, leave)()
        moved = second.take(6)
        assert bodies(moved) == list(range(6, 12))
        assert [message.delivery_count for message in moved] == [1, 1, 0, 0, 0, 0]
        client.send(address, *grouped(6, start=12))
        assert bodies(second.take(6)) == list(range(12, 18))


def test_higher_priorities_go_first_and_equal_ones_in_order(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, *[Message(body=n, priority=n % 10, durable=n % 2 == 0) for n in range(30)])
        expected = sorted(range(30), key=lambda n: (-(n % 10), n))
        assert bodies(client.receiver(address, Copy()).rest()) == expected
        receiver = client.receiver(address)
        assert bodies(receiver.take(5)) == expected[:5]
        client.send(address, Message(body="urgent", priority=9))
        assert bodies(receiver.rest()) == ["urgent", *expected[5:]]


def test_one_receiver_of_an_exclusive_queue_gets_everything(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue", exclusive=True)
    with ProtonClient(node.url) as client:
        active, standby = client.receiver(address), client.receiver(address)
        client.send(address, *range(10))
        assert bodies(standby.rest()) == []
        assert bodies(active.take(4)) == [0, 1, 2, 3]
        active.close()
        assert bodies(standby.take(6)) == list(range(4, 10))


@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_only_so_many_receivers_are_let_in(node: NodeProcess, addresses: Any, kind: str) -> None:
    attributes = {"topic": addresses.declare("topic")} if kind == "subscription" else {}
    address = addresses.declare(kind, maxConsumers=2, **attributes)
    with ProtonClient(node.url) as client:
        first, _second = client.receiver(address), client.receiver(address)
        with pytest.raises(LinkDetached, match="2 receivers") as refused:
            client.receiver(address)
        assert refused.value.condition == "amqp:resource-limit-exceeded"
        client.receiver(address, Copy()).close()
        first.close()
        client.receiver(address).close()


@pytest.mark.parametrize("key", ["subject", "device"])
def test_only_the_last_value_of_each_key_is_kept(node: NodeProcess, addresses: Any, key: str) -> None:
    address = addresses.declare("queue", lastValueKey=key)

    def value(device: str, number: int) -> Message:
        named = {"subject": device} if key == "subject" else {"properties": {"device": device}}
        return Message(body=number, durable=number % 2 == 0, **named)

    with ProtonClient(node.url) as client:
        client.send(address, *[value(f"d{n % 3}", n) for n in range(30)], Message(body="without key"))
        assert addresses.read(address)["messagesStored"] == 4
        assert sorted(map(str, bodies(client.receiver(address, Copy()).rest()))) == ["27", "28", "29", "without key"]
        assert len(client.receiver(address).rest()) == 4
        client.send(address, value("d0", 100))
        assert bodies(client.receiver(address).rest()) == [100]


def test_last_values_survive_a_crash(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    address = addresses.declare("queue", lastValueKey="subject")
    with ProtonClient(process.url) as client:
        client.send(address, *[Message(body=n, subject=f"d{n % 2}", durable=True) for n in range(10)])
    process.kill()
    process.start()
    with ProtonClient(process.url) as client:
        client.send(address, Message(body="new", subject="d0", durable=True))
        assert bodies(client.receiver(address).rest()) == [9, "new"]


def test_groups_and_priorities_survive_a_crash(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    address = addresses.declare("queue")
    with ProtonClient(process.url) as client:
        messages = [Message(body=n, priority=n, group_id=f"g{n % 2}", durable=True) for n in range(10)]
        client.send(address, *messages)
    process.kill()
    process.start()
    with ProtonClient(process.url) as client:
        assert bodies(client.receiver(address).rest()) == list(range(9, -1, -1))


def test_rhea_gets_groups_and_priorities(rhea: Callable[..., dict[str, Any]], addresses: Any) -> None:
    address = addresses.declare("queue")
    messages = [{"body": n, "priority": n % 10, "group_id": f"g{n % 3}"} for n in range(20)]
    rhea("exchange", target=address, messages=messages, expect=0)
    report = rhea("exchange", source=address, messages=[], expect=20)
    expected = sorted(range(20), key=lambda n: (-(n % 10), n))
    assert [message["body"] for message in report["received"]] == expected
