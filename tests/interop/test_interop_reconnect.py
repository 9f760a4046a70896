"""Foreign clients that reconnect by themselves go on with a node that was killed."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import Any

import pytest

from enmasse.client import blocking
from tests.interop.conftest import HERE, TOOLS
from tests.support.draining import everything
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

COUNT = 200
FEW = 20
PATIENCE_S = 60


def bodies(node: NodeProcess, address: str) -> set[Any]:
    """Everything that an address holds; some of it may be there twice."""
    with (
        blocking.connect(node.url, timeout=PATIENCE_S) as connection,
        connection.receiver(address, credit=0) as receiver,
    ):
        return {delivery.message.body for delivery in everything(receiver)}


EVERYTHING = {f"m{number}" for number in range(COUNT)}


def test_rhea_goes_on_with_a_node_that_was_killed(killable_node: Any) -> None:
    require("rhea")
    node, manage = killable_node
    address = manage().declare("queue")
    asked = {"port": node.port, "address": address, "count": COUNT, "few": FEW}
    with subprocess.Popen(
        ["node", str(HERE / "rhea_reconnect.js"), json.dumps(asked)],
        env={**os.environ, "NODE_PATH": str(TOOLS / "node_modules")},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            node.kill()
            node.start()
            assert process.communicate(timeout=PATIENCE_S)[0] == "done\n"
        finally:
            process.kill()
    assert bodies(node, address) == EVERYTHING


def test_proton_goes_on_with_a_node_that_was_killed_and_one_that_was_stopped(killable_node: Any) -> None:
    require("python-qpid-proton")
    from proton import Message
    from proton.handlers import MessagingHandler
    from proton.reactor import Backoff, Container

    node, manage = killable_node
    address = manage().declare("queue")
    begun, gone_on = threading.Event(), threading.Event()

    class Sending(MessagingHandler):
        """Sends one message after the other."""

        next = 0
        waits_for: str | None = None

        def on_start(self, event: Any) -> None:
            self.container = event.container
            connection = event.container.connect(node.url, reconnect=Backoff(initial=0.1, max_delay=1))
            self.sender = event.container.create_sender(connection, address)
            event.container.schedule(0.005, self)

        def on_timer_task(self, event: Any) -> None:
            if self.waits_for is None and self.sender.credit > 0:
                self.waits_for = self.sender.send(Message(body=f"m{self.next}", durable=True)).tag
            event.container.schedule(0.005, self)

        def on_accepted(self, event: Any) -> None:
            if event.delivery.tag != self.waits_for:
                # Of what was sent more than once while nobody was there, one counts.
                return
            self.waits_for = None
            self.next += 1
            if self.next == FEW:
                begun.set()
            if self.next == COUNT // 2:
                gone_on.set()
            if self.next == COUNT:
                event.container.stop()

        def on_released(self, event: Any) -> None:
            self.waits_for = None

        def on_disconnected(self, event: Any) -> None:
            # The fate of what was on its way is not known, so it goes again.
            self.waits_for = None

        def on_connection_remote_close(self, event: Any) -> None:
            # As docs/howto/run-several-nodes.md has it.
            condition = event.connection.remote_condition
            if condition and condition.name == "amqp:connection:forced":
                event.transport.close_tail()
                event.transport.close_head()

        def on_transport_error(self, event: Any) -> None:
            """It goes on."""

    sending = Sending()
    thread = threading.Thread(target=Container(sending).run, daemon=True)
    thread.start()
    assert begun.wait(PATIENCE_S)
    node.kill()
    node.start()
    assert gone_on.wait(PATIENCE_S)
    assert node.stop() == 0
    node.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert sending.next == COUNT
    assert bodies(node, address) == EVERYTHING
