"""A real node, declared addresses, and foreign clients or a reason why they are missing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import blocking
from enmasse.drivers.authority import Authority
from tests.interop.hostile import Bystander
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess
from tests.support.stranger import Stranger

HERE = Path(__file__).parent
TOOLS = HERE.parent / "tools"
SPACE = "default/interop"


_numbers = count(1)


class Addresses:
    """Declares addresses on a node, each under a name of its own, and reads the node's account."""

    def __init__(self, node: NodeProcess) -> None:
        self._connection = blocking.connect(node.admin_url, timeout=30, patience=30)
        self._management = self._connection.management()
        self._declared: dict[str, None] = {}

    def make_space(self, authentication: str = "none") -> None:
        self._management.create(
            "io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": authentication}
        )

    def declare(self, address_type: str, address: str | None = None, **attributes: Any) -> str:
        """Create an address and return it."""
        if address is None:
            address = f"{address_type}-{next(_numbers)}"
        self._management.create(
            "io.enmasse.address",
            f"default/interop.{address.replace('/', '.')}",
            {"space": SPACE, "address": address, "addressType": address_type, **attributes},
        )
        self._declared[address] = None
        return address

    def pair(self, address_type: str) -> tuple[str, str]:
        """Create an address; where to receive from, and where to send to."""
        if address_type == "subscription":
            topic = self.declare("topic")
            return self.declare("subscription", topic=topic), topic
        address = self.declare(address_type)
        return address, address

    def read(self, address: str) -> dict[str, Any]:
        """What the node knows of an address."""
        return self._management.read("io.enmasse.address", f"default/interop.{address.replace('/', '.')}")

    def operate(self, operation: str, address: str, **arguments: Any) -> int:
        """Purge, move or replay what an address stores; how many messages that were."""
        name = f"default/interop.{address.replace('/', '.')}"
        count: int = getattr(self._management, operation)(name, **arguments)
        return count

    def update(self, address: str, **attributes: Any) -> None:
        self._management.update("io.enmasse.address", f"default/interop.{address.replace('/', '.')}", attributes)

    def update_space(self, **attributes: Any) -> None:
        self._management.update("io.enmasse.space", SPACE, attributes)

    def delete(self, address: str) -> None:
        self._management.delete("io.enmasse.address", f"default/interop.{address.replace('/', '.')}")
        self._declared.pop(address, None)

    def query(self, entity_type: str) -> list[dict[str, Any]]:
        return self._management.query(entity_type)

    def told(self, operation: str) -> dict[str, Any]:
        """What management tells of itself."""
        return self._management.perform(operation, "org.amqp.management", "self")

    def clear(self) -> None:
        """Delete what was declared here, the last first."""
        for address in reversed(list(self._declared)):
            self.delete(address)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node for all tests that change no more than their own addresses; some kill it and start it again."""
    with NodeProcess(tmp_path_factory.mktemp("node")) as process:
        addresses = Addresses(process)
        addresses.make_space()
        addresses.close()
        yield process
        assert "Traceback" not in process.log, process.log


@pytest.fixture(scope="module")
def addresses(node: NodeProcess) -> Iterator[Addresses]:
    """Where tests declare what they need."""
    found = Addresses(node)
    yield found
    found.clear()
    found.close()


Manage = Callable[[], Addresses]


def _managing(node: NodeProcess) -> Iterator[tuple[NodeProcess, Manage]]:
    opened: list[Addresses] = []

    def manage() -> Addresses:
        opened.append(Addresses(node))
        return opened[-1]

    yield node, manage
    for found in opened:
        found.clear()
        found.close()


@pytest.fixture
def killable_node(node: NodeProcess) -> Iterator[tuple[NodeProcess, Manage]]:
    """The node of all tests, for one that kills it and starts it again, and how to manage it."""
    yield from _managing(node)


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[tuple[NodeProcess, Manage]]:
    """A node for one test, which may change its space or stop it, and how to manage it."""
    with NodeProcess(tmp_path) as process:
        addresses = Addresses(process)
        addresses.make_space()
        addresses.close()
        yield from _managing(process)
        assert "Traceback" not in process.log, process.log


class Rhea:
    """One process with rhea, which plays scenarios of rhea_client.js, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(HERE / "rhea_client.js")],
            env={**os.environ, "NODE_PATH": str(TOOLS / "node_modules")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def play(self, **asked: Any) -> dict[str, Any]:
        """Play one scenario; what it reports."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        report: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "failed" not in report, report
        return report

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="session")
def rhea(node: NodeProcess) -> Iterator[Callable[..., dict[str, Any]]]:
    """Plays one scenario of rhea_client.js against the node and returns what it reports."""
    require("rhea")
    process = Rhea()

    def run(scenario: str, **options: Any) -> dict[str, Any]:
        return process.play(port=node.port, scenario=scenario, **options)

    yield run
    process.close()


@pytest.fixture(scope="session")
def secure_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, Path]]:
    """A node with TLS whose space knows the user jo, who may do all, and the file of its authority."""
    from tests.interop.test_interop_users import PASSWORD, run_user

    directory = tmp_path_factory.mktemp("secure")
    users = directory / "users.yaml"
    run_user("add", "jo", "--space", "interop", "--users", str(users), "--send", "#", "--recv", "#")
    authority = Authority(directory / "tls")
    authority.keep_server_certificate("default", ["localhost", "127.0.0.1"])
    with NodeProcess(directory / "data", "--users", str(users), "--tls", str(authority.directory)) as node:
        addresses = Addresses(node)
        addresses.make_space("standard")
        addresses.close()
        yield node, authority.path
        assert "Traceback" not in node.log, node.log
        assert PASSWORD not in node.log


@pytest.fixture(scope="module")
def secure_addresses(secure_node: tuple[NodeProcess, Path]) -> Iterator[Addresses]:
    """Where tests declare what they need on the node with TLS."""
    found = Addresses(secure_node[0])
    yield found
    found.clear()
    found.close()


@pytest.fixture(scope="module")
def secure_orders(secure_node: tuple[NodeProcess, Path], secure_addresses: Addresses) -> tuple[str, str]:
    """The URL of a node with TLS, the user jo and the queue orders, and the file of its authority."""
    secure_addresses.declare("queue", "orders")
    node, authority = secure_node
    return f"amqps://localhost:{node.port}", str(authority)


@pytest.fixture
def stranger(node: NodeProcess) -> Iterator[Callable[[], Stranger]]:
    """Makes strangers, with a socket each."""
    made: list[Stranger] = []

    def make() -> Stranger:
        made.append(Stranger(node.port))
        return made[-1]

    yield make
    for peer in made:
        peer.socket.close()


@pytest.fixture(scope="module")
def bystander(node: NodeProcess, addresses: Addresses) -> Iterator[Bystander]:
    """Asks and is answered all the time."""
    found = Bystander(node.url, addresses.declare("anycast"))
    found.start()
    yield found
    found.stop()
