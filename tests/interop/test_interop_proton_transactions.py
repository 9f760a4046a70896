"""python-qpid-proton's transactions against a real node: commit, abort, consume and produce, and sudden ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message, symbol
from proton.handlers import TransactionHandler
from proton.reactor import Filter

from enmasse.client import blocking
from tests.support.node_process import NodeProcess
from tests.support.proton_play import Exchange, Play

pytestmark = pytest.mark.slow

EXAMPLES = Path("/usr/share/proton/examples/python")


class Work(Play, TransactionHandler):
    """Sends to some addresses and takes from others within transactions that end as the test says.

    Args:
        url: the node's.
        sends: what each transaction sends: (address, body).
        takes: where to receive from.
        take: how many messages each transaction accepts.
        ends: how each transaction ends: ``commit``, ``abort``, or ``vanish`` for hanging up.
        settles: whether accepted messages are settled before the discharge.
    """

    def __init__(
        self,
        url: str,
        sends: Sequence[tuple[str, Any]] = (),
        *,
        takes: str | None = None,
        take: int = 0,
        ends: Sequence[str] = ("commit",),
        settles: bool = False,
    ) -> None:
        super().__init__(url, prefetch=take)
        self.sends = list(sends)
        self.takes = takes
        self.take = take
        self.ends = list(ends)
        self.settles = settles
        self.diary: list[str] = []
        self.bodies: list[Any] = []
        self.counts: list[int] = []
        """Delivery counts, in the order of arrival."""
        self.reasons: list[tuple[str, str]] = []
        self.senders: dict[str, Any] = {}
        self.transaction: Any = None
        self.accepted = 0
        self.waiting: list[Any] = []

    def begin(self) -> None:
        for address, _ in self.sends:
            if address not in self.senders:
                self.senders[address] = self.container.create_sender(self.connection, address)
        if self.takes is not None:
            self.container.create_receiver(self.connection, self.takes)
        self.declare()

    def declare(self) -> None:
        self.accepted = 0
        self.container.declare_transaction(self.connection, handler=self, settle_before_discharge=self.settles)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        for address, body in self.sends:
            self.transaction.send(self.senders[address], Message(body=body, durable=True))
        waiting, self.waiting = self.waiting, []
        for delivery in waiting:
            self.accept_in(delivery)
        self.discharge()

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)
        self.counts.append(event.message.delivery_count)
        if self.transaction is None or self.accepted >= self.take:
            self.waiting.append(event.delivery)
        else:
            self.accept_in(event.delivery)
            self.discharge()

    def accept_in(self, delivery: Any) -> None:
        self.transaction.accept(delivery)
        self.accepted += 1

    def discharge(self) -> None:
        if self.accepted < self.take or self.transaction is None:
            return
        transaction, self.transaction = self.transaction, None
        how = self.ends.pop(0)
        if how == "vanish":
            self.diary.append("vanished")
            self.end()
        elif how == "abort":
            transaction.abort()
        else:
            transaction.commit()

    def go_on(self, what: str) -> None:
        self.diary.append(what)
        if self.ends:
            self.declare()
        else:
            self.end()

    def on_transaction_committed(self, event: Any) -> None:
        self.go_on("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        self.go_on("aborted")

    def on_transaction_commit_failed(self, event: Any) -> None:
        condition = event.delivery.remote.condition
        self.reasons.append((condition.name, condition.description))
        self.go_on("failed")

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.go_on("not declared")


def stored(addresses: Any, *names: str) -> list[int]:
    return [addresses.read(name)["messagesStored"] for name in names]


@pytest.fixture
def three(addresses: Any) -> tuple[str, str, str]:
    """Two queues and a stream."""
    return addresses.declare("queue"), addresses.declare("queue"), addresses.declare("stream", partitions=2)


def test_a_commit_sends_to_all_and_an_abort_to_none(
    node: NodeProcess, addresses: Any, three: tuple[str, str, str]
) -> None:
    work = Work(node.url, [(name, "x") for name in three], ends=["abort", "commit", "commit"])
    work.play()
    assert work.diary == ["aborted", "committed", "committed"]
    assert stored(addresses, *three) == [2, 2, 2]


def test_a_topic_takes_part_for_all_its_subscriptions(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    subscriptions = [addresses.declare("subscription", topic=topic) for _ in range(2)]
    work = Work(node.url, [(topic, "x"), (f"{topic}/below", "y")], ends=["commit", "abort"])
    work.play()
    assert work.diary == ["committed", "aborted"]
    counts = stored(addresses, *subscriptions)
    assert counts == [2, 2]
    receiver = Exchange(node.url, subscriptions[0], [], expect=counts[0])
    receiver.play()
    assert receiver.bodies[0] == "x"


@pytest.mark.parametrize("settles", [False, True])
def test_messages_move_with_the_commit_and_stay_with_an_abort(
    node: NodeProcess, addresses: Any, three: tuple[str, str, str], settles: bool
) -> None:
    source, target, stream = three
    Exchange(node.url, source, [1, 2, 3], expect=0, credit=0).play()
    sends = [(target, "t"), (stream, "s")]
    aborted = Work(node.url, sends, takes=source, take=3, ends=["abort"], settles=settles)
    aborted.play()
    assert (aborted.diary, aborted.bodies[:3]) == (["aborted"], [1, 2, 3])
    assert stored(addresses, *three) == [3, 0, 0]
    moved = Work(node.url, sends, takes=source, take=3, ends=["commit"], settles=settles)
    moved.play()
    assert (moved.diary, moved.bodies) == (["committed"], [1, 2, 3])
    if settles:
        assert min(moved.counts) >= 1, "an abort counts as an attempt"
    assert stored(addresses, *three) == [0, 1, 1]


def test_who_hangs_up_leaves_everything_as_it_was(
    node: NodeProcess, addresses: Any, three: tuple[str, str, str]
) -> None:
    source, target, stream = three
    Exchange(node.url, source, ["in"], expect=0, credit=0).play()
    work = Work(node.url, [(target, "t"), (stream, "s")], takes=source, take=1, ends=["vanish"], settles=True)
    work.play()
    assert work.diary == ["vanished"]
    assert stored(addresses, *three) == [1, 0, 0]
    receiver = Exchange(node.url, source, [], expect=1)
    receiver.play()
    assert receiver.bodies == ["in"]


def test_a_direct_address_in_a_transaction_is_refused_in_words(
    node: NodeProcess, addresses: Any, three: tuple[str, str, str]
) -> None:
    direct = addresses.declare("anycast")

    class Both(Work):
        """Receives from the direct address too, so that there is credit."""

        def begin(self) -> None:
            self.container.create_receiver(self.connection, direct).flow(10)
            super().begin()

    work = Both(node.url, [(three[0], "x"), (direct, "y")])
    work.play()
    assert work.diary == ["failed"]
    ((name, description),) = work.reasons
    assert name == "amqp:transaction:rollback"
    assert f"anycast '{direct}' stores nothing" in description
    assert stored(addresses, three[0]) == [0]


def test_protons_transactional_server_answers_its_client(node: NodeProcess, addresses: Any) -> None:
    server, client = EXAMPLES / "server_tx.py", EXAMPLES / "client.py"
    require("Proton's examples for Python")
    requests = addresses.declare("queue", "examples")
    # As it comes, but for where it connects, which it does not take from its arguments.
    program = server.read_text().replace("localhost:5672", f"localhost:{node.port}")
    with subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True) as serving:
        try:
            address = f"localhost:{node.port}/{requests}"
            asked = subprocess.run(
                [sys.executable, str(client), "--address", address],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert serving.stdout is not None
            answered = [serving.stdout.readline() for _ in range(4)]
        finally:
            serving.kill()
    assert asked.stdout.splitlines()[0] == "Twas brillig, and the slithy toves => TWAS BRILLIG, AND THE SLITHY TOVES"
    assert len(asked.stdout.splitlines()) == 4, asked.stderr
    assert answered == ["Request processed successfully\n"] * 4
    assert stored(addresses, requests) == [0]


def test_large_messages_and_many_of_them_take_part(
    node: NodeProcess, addresses: Any, three: tuple[str, str, str]
) -> None:
    sends: list[tuple[str, Any]] = [(three[0], "x" * 200_000)] * 5 + [(three[1], n) for n in range(300)]
    work = Work(node.url, sends, ends=["commit"])
    work.play()
    assert work.diary == ["committed"]
    assert stored(addresses, *three[:2]) == [5, 300]
    receiver = Exchange(node.url, three[1], [], expect=300)
    receiver.play()
    assert receiver.bodies == list(range(300))


class Late(Work):
    """Lets the time of its transaction pass before it commits."""

    def discharge(self) -> None:
        self.container.schedule(3.0, self)

    def on_timer_task(self, event: Any) -> None:
        if self.diary:
            super().on_timer_task(event)
        self.diary.append("late")
        super().discharge()


def test_a_transaction_that_takes_too_long_is_rolled_back(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--transaction-timeout", "1.5") as process:
        with blocking.connect(process.admin_url, timeout=30, patience=30) as connection:
            management = connection.management()
            management.create("io.enmasse.space", "ns/shop", {})
            asked = {"space": "ns/shop", "address": "orders", "addressType": "queue"}
            management.create("io.enmasse.address", "ns/shop.orders", asked)
        work = Late(process.url, [("orders", "x")])
        work.play()
        assert work.diary == ["late", "failed"]
        assert [condition for condition, _ in work.reasons] == ["amqp:transaction:timeout"]
        assert "Traceback" not in process.log


def test_what_was_committed_is_there_after_the_node_was_killed(
    killable_node: tuple[NodeProcess, Any],
) -> None:
    process, manage = killable_node
    addresses = manage()
    names = [addresses.declare(kind) for kind in ("queue", "queue", "stream")]
    work = Work(process.url, [(name, "x") for name in names], ends=["commit", "commit", "vanish"])
    work.play()
    assert work.diary == ["committed", "committed", "vanished"]
    process.kill()
    process.start()
    addresses = manage()
    assert stored(addresses, *names) == [2, 2, 2]
    filters: dict[Any, Any] = {symbol("enmasse:start"): "first"}
    options = Filter(filters)
    reader = Exchange(process.url, names[2], [], expect=2, options=options)
    reader.play()
    assert reader.bodies == ["x", "x"]
