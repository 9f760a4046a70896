"""The blocking client is the same client: every public name and argument is there."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any, assert_type

import pytest

from enmasse import client
from enmasse.client import FullError, Message, Outcome, blocking, management
from enmasse.net.loop import run

PAIRS = [
    (client.connect, blocking.connect),
    (client.Connection, blocking.Connection),
    (client.Sender, blocking.Sender),
    (client.Receiver, blocking.Receiver),
    (client.Delivery, blocking.Delivery),
    (client.Transaction, blocking.Transaction),
    (management.Management, blocking.Management),
]

INTERNAL = {
    "is_granted",
    "adopt", "attach", "attach_again", "before_close", "end", "explain_end", "fail", "forget",
    "give_up", "is_attaching", "move", "open", "open_link", "owner", "redirect", "role", "add", "check", "lost",
    "state", "unknown_outcome", "on_attached", "on_detached", "confirm", "count_available",
}  # fmt: skip
"""What only other parts of the client use."""


def public(kind: Any) -> set[str]:
    names = {name for name in dir(kind) if not name.startswith("_") and not name.startswith("on_")}
    return names - INTERNAL


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_name_and_argument_is_there(ours: Any, theirs: Any) -> None:
    if inspect.isfunction(ours):
        assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()
        return
    if ours is client.Delivery:
        assert public(ours) - {"receiver"} <= public(theirs)
    elif ours is client.Connection:
        assert public(ours) | {"management"} == public(theirs)
    else:
        assert public(ours) - public(theirs) == set()
    for name in public(ours) & public(theirs):
        member = getattr(ours, name)
        if inspect.isfunction(member):
            asked, given = inspect.signature(member).parameters, inspect.signature(getattr(theirs, name)).parameters
            assert list(asked) == list(given), name
            assert [one.default for one in asked.values()] == [one.default for one in given.values()], name


@pytest.fixture
def server(serving: Any) -> Any:
    started, stopped = threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def main() -> None:
        async with serving() as served:
            found[:] = [served, asyncio.get_running_loop()]
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: run(main()))
    thread.start()
    started.wait()
    yield found[0]
    found[1].call_soon_threadsafe(stopped.set)
    thread.join()


def test_sending_goes_on_while_the_program_does(server: Any) -> None:
    with blocking.connect([server.url]) as connection:
        connection.wait_connected()
        assert str(connection) == server.url
        sender = connection.sender("orders")
        assert sender.wait_for_credit() == sender.credit > 0
        futures = [sender.send_nowait(Message(n)) for n in range(5)]
        assert [future.result(5) for future in futures] == [Outcome.ACCEPTED] * 5
        sender.flush()
        assert (sender.pending, sender.pending_bytes, sender.is_attached) == (0, 0, True)
        receiver = connection.receiver("orders", credit=0)
        assert receiver.receive_nowait() is None
        receiver.grant(10)
        assert receiver.drain(timeout=30) == 5
        assert receiver.waiting_bytes > 0
        bodies = []
        while (delivery := receiver.receive_nowait()) is not None:
            assert not delivery.may_be_repeated
            bodies.append(delivery.message.body)
            delivery.accept()
        assert bodies == [0, 1, 2, 3, 4]
        assert receiver.waiting == 0


def test_a_full_sender_says_so(server: Any) -> None:
    with blocking.connect(server.url) as connection:
        sender = connection.sender("full", max_pending=1)
        waiting = sender.send_nowait(Message(b"x"))
        with pytest.raises(FullError):
            sender.send_nowait(Message(b"y"))
        assert not waiting.done()
        sender.close()
        with pytest.raises(client.ClosedError):
            waiting.result(5)


def test_types_are_those_of_the_asynchronous_client(server: Any) -> None:
    """``mypy --strict`` reads these lines too: what the classes derive has no type by chance."""
    with blocking.connect(server.url) as connection:
        assert_type(connection, blocking.Connection)
        sender = assert_type(connection.sender("orders", name="out"), blocking.Sender)
        assert_type(sender.name, str)
        assert_type(sender.send(Message(1), timeout=30), Outcome)
        assert_type(sender.send_nowait(Message(2)).result(5), Outcome)
        receiver = assert_type(connection.receiver("orders"), blocking.Receiver)
        assert_type(receiver.is_ended, bool)
        with pytest.raises(AttributeError):
            receiver.credit = 7  # type: ignore[assignment]
        with pytest.raises(TypeError):
            sender.send(Message(1), within=5)  # type: ignore[call-arg]
        for delivery in receiver:
            assert_type(delivery.message, Message)
            assert_type(delivery.accept(), None)
            break
    assert blocking.Sender.send.__doc__ == client.Sender.send.__doc__
    assert blocking.Sender.credit.__doc__ == client.Sender.credit.__doc__
