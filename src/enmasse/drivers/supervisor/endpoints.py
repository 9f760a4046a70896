"""``endpoints.json``, the URLs and processes of an installation; and checks of the hosts that it serves.

Where there are no users, reaching a port is all the permission there is: such a port is served on loopback
interfaces only.
"""

from __future__ import annotations

import ipaddress
import json
import queue
import socket
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from enmasse.drivers.data_directory import replace_file
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_DOMAIN = "enmasse.local"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL to connect to, and its protocol.

    Attributes:
        protocol: ``amqp``, ``amqps``, ``api``, ``api-tls``, ``console``, ``registry``, or the schemes of a further
            protocol in ``node/protocols.py``.
        url: the URL of the endpoint.
    """

    protocol: str
    url: str


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the installation.

    Attributes:
        kind: ``supervisor``, ``control``, ``node``, ``journal`` or ``pipelines``.
        name: its own name; a journal has its node's.
        pid: its process id.
    """

    kind: str
    name: str
    pid: int


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The contents of ``endpoints.json``.

    Attributes:
        endpoints: the URLs.
        processes: the processes that serve them.
        domain: below which spaces have their hosts.
    """

    endpoints: tuple[Endpoint, ...] = ()
    processes: tuple[Process, ...] = ()
    domain: str = _DOMAIN

    def url(self, protocol: str) -> str | None:
        """Return the first URL for a protocol."""
        return next((item.url for item in self.endpoints if item.protocol == protocol), None)


def write_endpoints(path: Path, endpoints: Endpoints) -> None:
    """Replace the file as a whole.

    Raises:
        ConfigError: it cannot be written.
    """
    replace_file(path, (json.dumps(asdict(endpoints), indent=2) + "\n").encode(), 0o644)


def read_endpoints(path: Path) -> Endpoints | None:
    """Return the contents of the file, None when there is none.

    Raises:
        ConfigError: when it was not written by us.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Endpoints(
            tuple(Endpoint(item["protocol"], item["url"]) for item in document["endpoints"]),
            tuple(Process(item["kind"], item.get("name", ""), item["pid"]) for item in document["processes"]),
            str(document.get("domain", _DOMAIN)),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read as a list of endpoints: {error!r}") from None


_NAME_S: Final = 1.0
"""Seconds to wait for a resolver: one that does not answer must not keep anything from starting."""


def is_loopback(host: str) -> bool:
    """Return whether a host name or address, without port, is this very machine."""
    host = host.removeprefix("[").removesuffix("]")
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_loopback(host: str) -> None:
    """Refuse every interface but the loopback ones.

    Raises:
        ConfigError: for any other, with the reason.
    """
    if not is_loopback(host):
        raise ConfigError(
            f"host {host}: only loopback interfaces can be served, such as 127.0.0.1 or ::1, because there are "
            "no users: everyone who reaches the port may do everything (a node with --users can serve others)"
        )


def machine_names(given: Iterable[str] = ()) -> frozenset[str]:
    """Return this machine's own names, in lower case: those of its system, and those that its operator gives it."""
    own = socket.gethostname()
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(socket.getfqdn(own)), daemon=True).start()
    try:
        full = answers.get(timeout=_NAME_S)
    except queue.Empty:
        full = own
    names = (*given, own, full, f"{own.partition('.')[0]}.local")
    return frozenset(name.lower().rstrip(".") for name in names if name)
