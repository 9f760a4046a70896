"""An installation for the tests of a service, and spaces in it that are gone after their tests.

    with Installation(folder) as installation, installation.space() as space:
        orders = space.queue("orders")
        run_my_service(space.url("amqp"))

With pytest the fixtures of ``pytest_plugin`` are these two.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from enmasse.cli.api_client import ApiClient, operator_token
from enmasse.cli.columns import is_ready, is_stuck, sentence_of
from enmasse.cli.installation import wait_until
from enmasse.drivers.authority import Authority
from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.endpoints import Endpoints, read_endpoints
from enmasse.drivers.supervisor.probes import failed_probes
from enmasse.errors import ConfigError, UnavailableError
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, Kind
from enmasse.model.schema.names import object_name

if TYPE_CHECKING:
    from enmasse.cli.api_client import Document

__all__ = ["Installation", "Space"]

_NAMESPACE = "default"
_START_S = 120.0  # two seconds; a machine that is busy with other tests takes longer
_STOP_S = 60.0  # each process has its own bound, and the supervisor kills what exceeds it
_READY_S = 60.0
_PAUSE_S = 0.01  # a space or an address is there in some 50 ms, and tests are many
_LOG_LINES = 20

_PROGRAM = """\
import os, signal, threading
def follow():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=follow, daemon=True).start()
from enmasse.cli.main import main
main()
"""
"""``enmasse``, which ends when its input does: so it never outlives the tests, however these end."""


class Installation:
    """An ``enmasse up`` on free ports, in processes of its own, that runs while the block does.

    It runs no pipelines.

    Args:
        folder: the directory of its data and its log; both stay, for whoever wants to know what happened.
        nodes: the number of nodes, which share the spaces among them.
    """

    def __init__(self, folder: Path, *, nodes: int = 1) -> None:
        self._nodes = nodes
        self.data = folder / "data"
        """The data directory, as for ``--data`` of commands."""
        self._log = folder / "up.log"
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        words = ["up", "--data", str(self.data), "--ports", "auto", "--no-pipelines"]
        words += ["--nodes", str(self._nodes)] if self._nodes > 1 else []
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop it
            )
        with ExitStack() as held:
            held.callback(self._stop)
            wait_until(lambda: self._serves() or self._process.poll() is not None, _START_S)
            if not self._serves():
                raise UnavailableError(f"`enmasse {' '.join(words)}` does not serve: {self._last_words()}")
            api = ApiClient(self.url("api"), warn=_ignore, token=operator_token(self.data))
            self._api = held.enter_context(api)
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def _stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children end with it
            self._process.wait()

    @property
    def _endpoints(self) -> Endpoints:
        return read_endpoints(Layout(self.data).endpoints) or Endpoints()

    def _serves(self) -> bool:
        return len(self.nodes) >= self._nodes and not failed_probes(self._endpoints)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:]) or f"it said nothing; its logs are in {Layout(self.data).logs}"

    @property
    def ca_file(self) -> Path:
        """The authority (PEM) of the certificates that it shows to clients with TLS."""
        return Authority(Layout(self.data).tls).path

    @property
    def domain(self) -> str:
        """The domain below which spaces have their hosts."""
        return self._endpoints.domain

    @property
    def nodes(self) -> dict[str, int]:
        """The names of the nodes that run, and the ids of their processes."""
        return {process.name: process.pid for process in self._endpoints.processes if process.kind == "node"}

    def kill(self, node: str) -> None:
        """Kill a node, as a failure would, and return once it was started again and serves.

        Raises:
            UnavailableError: there is no such node, or it does not serve again.
        """
        pid = self.nodes.get(node)
        if pid is None:
            raise UnavailableError(f"there is no node {node}; there are {', '.join(self.nodes)}")
        os.kill(pid, signal.SIGKILL)
        is_back = wait_until(lambda: self.nodes.get(node) not in (None, pid) and self._is_ready(node), _START_S)
        if not is_back:
            raise UnavailableError(f"node {node} does not serve again: {self._last_words()}")

    def _is_ready(self, node: str) -> bool:
        return any(item["name"] == node and item["ready"] for item in self._api.nodes())

    def url(self, protocol: str) -> str:
        """Return the URL of a protocol, such as ``amqp``, ``mqtts`` or ``http``.

        Raises:
            ConfigError: it is not served.
        """
        if (url := self._endpoints.url(protocol)) is None:
            served = ", ".join(item.protocol for item in self._endpoints.endpoints)
            raise ConfigError(f"protocol {protocol} is not served; expected one of {served}")
        return url

    @contextmanager
    def space(self, name: str | None = None) -> Iterator[Space]:
        """Make a space for everybody, without addresses, and delete it with all that it holds after the block.

        Args:
            name: the space's name; left out: one that no other space of this installation has had.
        """
        space = Space(self, self._api, name or f"test-{next(self._numbers)}")
        space.create()
        try:
            yield space
        finally:
            space.delete()


class Space:
    """A space, and its addresses, each declared by a call that returns once it is served.

    Options of an address are the fields of its ``spec``, as in ``queue("orders", deadletter="refused")``.
    """

    def __init__(self, installation: Installation, api: ApiClient, name: str) -> None:
        self._installation = installation
        self._api = api
        self.name = name

    @property
    def host(self) -> str:
        """The host by which clients name it where there are several: of AMQP's open, of STOMP's CONNECT, of TLS."""
        return f"{self.name}.{_NAMESPACE}.{self._installation.domain}"

    @property
    def home(self) -> str:
        """The node that has the space."""
        return str(self._api.get(ADDRESS_SPACE, _NAMESPACE, self.name)["status"].get("home", ""))

    def url(self, protocol: str) -> str:
        """Return the URL of a protocol, such as ``amqp``, ``mqtts`` or ``http``.

        That of HTTP names the space. Those of other protocols lead to it while it is the only one; otherwise clients
        name ``host``.

        Raises:
            ConfigError: it is not served.
        """
        url = self._installation.url(protocol)
        return f"{url}/v1/spaces/{self.name}.{_NAMESPACE}" if protocol in ("http", "https") else url

    def anycast(self, name: str, **spec: Any) -> str:
        """Declare an address that hands each message to one receiver, at once; return its name."""
        return self.address(name, "anycast", **spec)

    def multicast(self, name: str, **spec: Any) -> str:
        """Declare an address that hands each message to every receiver, at once; return its name."""
        return self.address(name, "multicast", **spec)

    def queue(self, name: str, **spec: Any) -> str:
        """Declare a queue; return its name."""
        return self.address(name, "queue", **spec)

    def topic(self, name: str, **spec: Any) -> str:
        """Declare a topic; return its name."""
        return self.address(name, "topic", **spec)

    def subscription(self, name: str, topic: str, **spec: Any) -> str:
        """Declare a subscription of a topic that is there; return its name."""
        return self.address(name, "subscription", topic=topic, **spec)

    def stream(self, name: str, **spec: Any) -> str:
        """Declare a stream; return its name."""
        return self.address(name, "stream", **spec)

    def deadletter(self, name: str, **spec: Any) -> str:
        """Declare an address for messages that failed, before the queues that name it; return its name."""
        return self.address(name, "deadletter", **spec)

    def address(self, name: str, type: str, **spec: Any) -> str:  # noqa: A002  # as the field is called
        """Declare an address of a type; return its name.

        Raises:
            UnavailableError: it is not served, and the reason.
            EnmasseError: the API refuses it, and the reason.
        """
        self._create(ADDRESS, object_name(self.name, name), {"address": name, "type": type, **spec})
        return name

    def create(self) -> None:
        """Make the space."""
        self._create(ADDRESS_SPACE, self.name, {"type": "standard"})

    def delete(self) -> None:
        """Delete the space, and return when it is gone."""
        self._api.delete(ADDRESS_SPACE, _NAMESPACE, self.name)
        is_gone = wait_until(
            lambda: self._api.find_object(ADDRESS_SPACE, _NAMESPACE, self.name) is None, _READY_S, _PAUSE_S
        )
        if not is_gone:
            raise UnavailableError(f"space {self.name} is still there {_READY_S:g} s after it was deleted")

    def _create(self, kind: Kind, name: str, spec: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": _NAMESPACE}
        item: Document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
        self._api.create(item)

        def is_decided() -> bool:
            nonlocal item
            item = self._api.get(kind, _NAMESPACE, name)
            return is_ready(item) or is_stuck(item)

        wait_until(is_decided, _READY_S, _PAUSE_S)
        if not is_ready(item):
            raise UnavailableError(f"{kind.name} {name} cannot be used: {sentence_of(item)}")


def _ignore(_warning: str) -> None:
    """Warnings are for people at a terminal."""
