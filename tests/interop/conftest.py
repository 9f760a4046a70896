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
from enmasse.engines.authority import Authority
from enmasse.testing.node_process import NodeProcess
from enmasse.testing.stranger import Stranger
from tests.foreign_tools import require
from tests.interop.hostile import Bystander

HERE = Path(__file__).parent
TOOLS = HERE.parent / "tools"
SPACE = "default/interop"


class Addresses:
    """Declares addresses on a node, each under a name of its own, and reads the node's account."""

    def __init__(self, node: NodeProcess) -> None:
        self._connection = blocking.connect(node.admin_url, timeout=30, patience=30)
        self._management = self._connection.management()
        self._numbers = count(1)

    def make_space(self) -> None:
        self._management.create("io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": "none"})

    def declare(self, address_type: str, address: str | None = None, **attributes: Any) -> str:
        """Create an address and return it."""
        if address is None:
            address = f"{address_type}-{next(self._numbers)}"
        self._management.create(
            "io.enmasse.address",
            f"default/interop.{address.replace('/', '.')}",
            {"space": SPACE, "address": address, "addressType": address_type, **attributes},
        )
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

    def query(self, entity_type: str) -> list[dict[str, Any]]:
        return self._management.query(entity_type)

    def told(self, operation: str) -> dict[str, Any]:
        """What management tells of itself."""
        return self._management.perform(operation, "org.amqp.management", "self")

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node for all tests of a module that leave it alive."""
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
    found.close()


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[tuple[NodeProcess, Callable[[], Addresses]]]:
    """A node that a test may kill, and how to manage it."""
    opened: list[Addresses] = []

    def manage() -> Addresses:
        opened.append(Addresses(process))
        return opened[-1]

    with NodeProcess(tmp_path) as process:
        manage().make_space()
        yield process, manage
        for found in opened:
            found.close()
        assert "Traceback" not in process.log, process.log


@pytest.fixture(scope="module")
def rhea(node: NodeProcess) -> Callable[..., dict[str, Any]]:
    """Runs one scenario of rhea_client.js against the node and returns what it reports."""
    require("rhea")

    def run(scenario: str, **options: Any) -> dict[str, Any]:
        asked = {"port": node.port, "scenario": scenario, **options}
        done = subprocess.run(
            ["node", str(HERE / "rhea_client.js"), json.dumps(asked)],
            env={**os.environ, "NODE_PATH": str(TOOLS / "node_modules")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"rhea: {done.stderr}{done.stdout}"
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    return run


@pytest.fixture(scope="module")
def secure_orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL of a node with TLS, the user jo and the queue orders, and the file of its authority."""
    from tests.interop.test_interop_users import PASSWORD, run_user

    directory = tmp_path_factory.mktemp("secure")
    users = directory / "users.yaml"
    run_user("add", "jo", "--space", "interop", "--users", str(users), "--send", "#", "--recv", "#")
    authority = Authority(directory / "tls")
    authority.keep_server_certificate("default", ["localhost", "127.0.0.1"])
    with NodeProcess(directory / "data", "--users", str(users), "--tls", str(authority.directory)) as node:
        with blocking.connect(node.admin_url, timeout=30) as connection:
            management = connection.management()
            management.create("io.enmasse.space", SPACE, {"authentication": "standard"})
            management.create(
                "io.enmasse.address",
                "default/interop.orders",
                {"space": SPACE, "address": "orders", "addressType": "queue"},
            )
        yield f"amqps://localhost:{node.port}", str(authority.path)
        assert PASSWORD not in node.log


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
