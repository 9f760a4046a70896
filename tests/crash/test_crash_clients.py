"""The clients of the stories end with their node, whatever they were about to do."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading

import pytest

from tests.crash.crash_site import PATIENCE_S, Site
from tests.support.ledger import Ledger
from tests.support.node_process import NodeProcess

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("foreign_clients")]

QUEUE = "orders"


def test_proton_ends_when_its_node_dies_before_it_answers_a_close(process: NodeProcess) -> None:
    from tests.support.proton_load import ProtonProducer

    asyncio.run(Site(process, random.Random()).declare({QUEUE: {"addressType": "queue"}}))
    client = ProtonProducer(process.url, QUEUE, [Ledger(QUEUE)], "proton", 0, limit=1)
    # A daemon, so that a client that never ends fails this test and does not keep the others from ending.
    thread = threading.Thread(target=client.run, daemon=True)
    thread.start()
    assert client.has_begun.wait(PATIENCE_S)
    os.kill(process.pid, signal.SIGSTOP)
    client.is_stopping.set()
    assert client.is_closing.wait(PATIENCE_S)
    process.kill()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
