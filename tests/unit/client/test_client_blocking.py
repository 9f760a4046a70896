"""The blocking client, against a small server that runs in another thread."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from enmasse.client import ClosedError, DeadlineError, LinkRefusedError, UnavailableError
from enmasse.client.background import Background
from enmasse.client.blocking import Connection, Message, Outcome, connect
from enmasse.client.management import ManagementError
from enmasse.errors import LocalError
from enmasse.net.loop import run


class Place:
    """A server in a thread."""

    def __init__(self, serving: Any) -> None:
        self._serving = serving
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: run(self._main()))
        self._thread.start()
        self._started.wait()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        async with self._serving() as self.server:
            self.url: str = self.server.url
            self._started.set()
            await self._stop.wait()

    def drop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.drop(), self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@pytest.fixture
def place(serving: Any) -> Iterator[Place]:
    place = Place(serving)
    yield place
    place.stop()
    assert "enmasse-client" not in [thread.name for thread in threading.enumerate()]


def test_messages_go_and_come(place: Place) -> None:
    with connect(place.url, container_id="me") as connection:
        assert (connection.container_id, connection.remote_container_id) == ("me", "server")
        with connection.sender("orders") as sender:
            assert sender.send(Message("first")) == Outcome.ACCEPTED
            assert sender.send_all(Message(n) for n in range(300)) == [Outcome.ACCEPTED] * 300
            assert sender.send_payload(b"raw", message_format=7) == Outcome.ACCEPTED
            assert sender.address == "orders"
            assert sender.credit > 0
            assert sender.remote_properties == {"seen": None}
        with connection.receiver("orders") as receiver:
            bodies = []
            for delivery in receiver:
                delivery.accept()
                if delivery.message_format:
                    assert delivery.payload == b"raw"
                    break
                bodies.append(delivery.message.body)
            assert bodies == ["first", *range(300)]
    assert connection.is_closed


def test_outcomes_are_told(place: Place) -> None:
    with connect(place.url) as connection:
        connection.sender("orders").send_all(Message(n) for n in range(3))
        receiver = connection.receiver("orders")
        for settle in ("release", "reject", "modify"):
            delivery = receiver.receive(timeout=30)
            assert delivery is not None
            getattr(delivery, settle)()
        # What was settled before goes out before what is asked now.
        connection.sender("other").close()
        assert [type(state).__name__ for state in place.server.seen["orders"]] == ["Released", "Rejected", "Modified"]
        delivery = receiver.receive(timeout=30)
        assert delivery is not None
        assert not delivery.settled


def test_time_outs_and_refusals_are_those_of_the_other_client(place: Place) -> None:
    with connect(place.url) as connection:
        assert connection.receiver("orders").receive(timeout=0.01) is None
        with pytest.raises(DeadlineError):
            connection.sender("full").send(Message(b"x"), timeout=0.01)
        with pytest.raises(LinkRefusedError):
            connection.sender("nowhere")
        with pytest.raises(DeadlineError):
            connection.request("orders", Message(b"x"), timeout=0.01)
    with pytest.raises(UnavailableError):
        connect("amqp+unix:///nonexistent/x.sock")


def test_credit_by_hand_and_dynamic_addresses(place: Place) -> None:
    with connect(place.url) as connection:
        receiver = connection.receiver(dynamic=True, credit=0)
        assert receiver.address == "temporary-1"
        connection.sender(receiver.address).send_all([Message(1), Message(2)])
        assert receiver.receive(timeout=0.01) is None
        receiver.grant(1)
        assert receiver.receive(timeout=30) is not None
        assert receiver.receive(timeout=0.01) is None
        assert receiver.remote_properties == {}


def test_the_peers_end_ends_the_iteration(place: Place) -> None:
    with connect(place.url) as connection:
        receiver = connection.receiver("orders")
        place._loop.call_soon_threadsafe(place.server.links[-1].detach)
        assert list(receiver) == []
        assert receiver.is_ended
        assert receiver.error is None


def test_what_was_fetched_and_not_received_is_given_back(place: Place) -> None:
    with connect(place.url) as connection:
        connection.sender("orders").send_all(Message(n) for n in range(5))
        receiver = connection.receiver("orders")
        first = receiver.receive(timeout=30)
        assert first is not None
        first.accept()
        receiver.close()
        receiver.close()
        assert receiver.receive() is None
        assert len(place.server.messages["orders"]) == 4


def test_the_connection_comes_back(place: Place) -> None:
    with connect(place.url) as connection:
        sender = connection.sender("orders")
        place.drop()
        assert sender.send(Message(b"x"), timeout=30) == Outcome.ACCEPTED
        assert connection.is_connected


def test_management_waits_for_its_answers(place: Place) -> None:
    with connect(place.url) as connection, connect(place.url) as other:
        requests = other.receiver("$management")
        replies = other.sender(None)
        answers: list[tuple[int, Any]] = [(201, {"a": 1}), (200, {"a": 1}), (200, {"a": 2}), (204, {})]
        answers += [(200, {"attributeNames": ["a"], "results": [[2]]}), (404, {})]

        def answer() -> None:
            for status, body in answers:
                delivery = requests.receive(timeout=30)
                assert delivery is not None
                request = delivery.message
                replies.send(
                    Message(
                        body,
                        to=request.reply_to,
                        correlation_id=request.message_id,
                        properties={"statusCode": status, "statusDescription": "so it is"},
                    )
                )

        thread = threading.Thread(target=answer)
        thread.start()
        manager = connection.management(timeout=30)
        assert manager.create("thing", "x", {"a": 1}) == {"a": 1}
        assert manager.read("thing", "x") == {"a": 1}
        assert manager.update("thing", "x", {"a": 2}) == {"a": 2}
        manager.delete("thing", "x")
        assert manager.query("thing", ["a"]) == [{"a": 2}]
        with pytest.raises(ManagementError, match="so it is"):
            manager.read("thing", "x")
        thread.join()


def test_one_thread_serves_all_connections_and_ends_with_the_last(place: Place) -> None:
    def threads() -> int:
        return [thread.name for thread in threading.enumerate()].count("enmasse-client")

    first = connect(place.url)
    second = connect(place.url)
    assert threads() == 1
    first.close()
    first.close()
    assert second.sender("orders").send(Message(b"x")) == Outcome.ACCEPTED
    second.close()
    assert threads() == 0
    with pytest.raises(ClosedError):
        second.sender("orders")


def test_an_interrupt_ends_the_wait_and_nothing_else(place: Place) -> None:
    with connect(place.url) as connection:
        sender = connection.sender("mute")

        def interrupt() -> None:
            while not place.server.arrived["mute"]:
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            sender.send(Message(b"x"))
        thread.join()
        assert connection.sender("orders").send(Message(b"x")) == Outcome.ACCEPTED


def test_a_call_from_the_loop_itself_is_refused(place: Place) -> None:
    with connect(place.url) as connection:

        async def call() -> None:
            connection.sender("orders")

        with pytest.raises(LocalError, match="own loop"):
            connection._background.run(call())


def _in_a_fork(check: Any) -> int:
    """Run a check in a child process; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            check()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_starts_anew_and_does_not_disturb_the_parent(place: Place) -> None:
    with connect(place.url) as connection:
        sender = connection.sender("orders")

        def check() -> None:
            with pytest.raises(ClosedError, match="before a fork"):
                sender.send(Message(b"x"))
            with connect(place.url) as anew:
                assert anew.sender("orders").send(Message(b"child"), timeout=30) == Outcome.ACCEPTED
            connection.close()

        assert _in_a_fork(check) == 0
        assert sender.send(Message(b"parent"), timeout=30) == Outcome.ACCEPTED
        assert place.server.arrived["orders"] == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_a_connection_is_being_made_does_not_hang_the_child(place: Place) -> None:
    with Background._lock:

        def check() -> None:
            with connect(place.url) as connection:
                assert isinstance(connection, Connection)

        assert _in_a_fork(check) == 0
