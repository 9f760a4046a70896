"""The installation that users' tests are given, and its spaces."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from paho.mqtt import publish
from paho.mqtt.enums import MQTTProtocolVersion

from enmasse.client import TlsOptions
from enmasse.client.blocking import Message, connect
from enmasse.drivers.supervisor.endpoints import read_endpoints
from enmasse.errors import ConfigError, EnmasseError, UnavailableError
from enmasse.testing.installation import Installation, Space
from tests.support.polling import until
from tests.support.processes import is_alive
from tests.support.stomp_peer import StompPeer

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "test-your-own-service.md"
WAIT_S = 60.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with Installation(tmp_path_factory.mktemp("own")) as installation:
        yield installation


def port(space: Space, protocol: str) -> int:
    found = urlsplit(space.url(protocol)).port
    assert found is not None
    return found


async def say_over_stomp(space: Space) -> None:
    async with StompPeer(port(space, "stomp")) as peer:
        peer.send("orders", b"stomp", receipt="stored")
        await peer.receipt("stored")


def test_each_url_leads_to_the_addresses_of_the_space(own: Installation) -> None:
    with own.space() as space:
        orders = space.queue("orders")
        for protocol, tls in (("amqp", None), ("amqps", TlsOptions(ca_file=str(own.ca_file)))):
            with connect(space.url(protocol), tls=tls) as connection:
                connection.sender(orders).send(Message(protocol.encode()))
        version = MQTTProtocolVersion.MQTTv311
        publish.single(orders, b"mqtt", qos=1, hostname="127.0.0.1", port=port(space, "mqtt"), protocol=version)
        url = f"{space.url('http')}/addresses/{orders}/messages"
        assert httpx.post(url, content=b"http", trust_env=False, timeout=WAIT_S).status_code == 202
        asyncio.run(say_over_stomp(space))
        with connect(space.url("amqp")) as connection:
            receiver = connection.receiver(orders)
            deliveries = [receiver.receive(timeout=WAIT_S) for _ in range(5)]
        assert [delivery and delivery.message.body for delivery in deliveries] == [
            b"amqp",
            b"amqps",
            b"mqtt",
            b"http",
            b"stomp",
        ]


def test_spaces_are_apart_and_gone_after_their_block(own: Installation) -> None:
    with own.space() as one, own.space() as other:
        for space in (one, other):
            space.queue("orders")
        with connect(one.url("amqp"), hostname=one.host) as connection:
            connection.sender("orders").send(Message("for one"))
        with connect(other.url("amqp"), hostname=other.host) as connection:
            assert connection.receiver("orders", credit=0).drain(timeout=WAIT_S) == 0
        with connect(one.url("amqp"), hostname=one.host) as connection:
            delivery = connection.receiver("orders").receive(timeout=WAIT_S)
            assert delivery is not None
            assert delivery.message.body == "for one"
    with own.space(one.name) as again:
        again.queue("orders")
        with connect(again.url("amqp")) as connection:
            assert connection.receiver("orders", credit=0).drain(timeout=WAIT_S) == 0


@pytest.mark.parametrize("kind", ["anycast", "multicast", "queue", "topic", "stream", "deadletter"])
def test_an_address_of_each_type_is_declared_in_a_line(own: Installation, kind: str) -> None:
    with own.space() as space:
        assert getattr(space, kind)("orders/2026") == "orders/2026"
        with connect(space.url("amqp")) as connection:
            assert connection.receiver("orders/2026").address == "orders/2026"


def test_what_cannot_be_served_is_told_at_once(own: Installation) -> None:
    with own.space() as space:
        with pytest.raises(UnavailableError, match=r"cannot be used: .*nothing"):
            space.subscription("letters", topic="nothing")
        with pytest.raises(EnmasseError, match="maxBytes"):
            space.queue("orders", limits={"maxBytes": "many"})
        with pytest.raises(ConfigError, match="protocol gopher is not served; expected one of amqp, amqps, "):
            space.url("gopher")


def test_with_two_nodes_a_service_sees_the_home_of_its_space_go_and_come_again(tmp_path: Path) -> None:
    with Installation(tmp_path, nodes=2) as several, several.space() as one, several.space() as other:
        assert {one.home, other.home} == set(several.nodes) == {"node-0", "node-1"}
        orders = one.queue("orders")
        with connect(one.url("amqp"), hostname=one.host, patience=WAIT_S) as connection:
            sender = connection.sender(orders)
            sender.send(Message("before", durable=True))
            several.kill(one.home)
            sender.send(Message("behind", durable=True), timeout=WAIT_S)
            receiver = connection.receiver(orders)
            found = [receiver.receive(timeout=WAIT_S) for _ in range(2)]
        assert [delivery and delivery.message.body for delivery in found] == ["before", "behind"]
        with pytest.raises(UnavailableError, match="there is no node node-2; there are node-0, node-1"):
            several.kill("node-2")


def test_an_installation_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(UnavailableError, match=f"does not serve: error: .*{tmp_path}/data' is a file") as raised:
        Installation(tmp_path).__enter__()  # there is no block to come to
    assert "Python" not in str(raised.value)


def test_it_runs_without_pytest_and_ends_with_a_program_that_is_killed(tmp_path: Path) -> None:
    program = re.findall(r"```python\n(from pathlib.*?)```", PAGE.read_text(), re.DOTALL)[0]
    program += "    print(installation.data, flush=True)\n    input()\n"
    with subprocess.Popen(
        [sys.executable, "-uc", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url, data = (process.stdout.readline().strip() for _ in range(2))
        with connect(url) as connection:
            assert connection.sender("orders").send(Message("kept")).name == "accepted"
        endpoints = read_endpoints(Path(data) / "endpoints.json")
        assert endpoints is not None
        pids = [each.pid for each in endpoints.processes]
        assert len(pids) >= 4
        process.send_signal(signal.SIGKILL)
        until(lambda: not any(map(is_alive, pids)), lambda: str(pids))
