"""The ports of an installation: chosen once, kept across restarts of its processes.

A port that was chosen here is taken from below the range out of which the
kernel gives outgoing connections their ports. So none of them can take it
while the process that serves it is being started again.

The supervisor binds the ports for clients, and every node inherits the sockets. Nobody is let in, nor waits, before
the first node listens on them; from then on clients that come while no node is there wait to be accepted.
"""

from __future__ import annotations

import json
import random
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.drivers.data_directory import replace_file
from enmasse.drivers.supervisor.endpoints import is_loopback
from enmasse.errors import ConfigError
from enmasse.node.protocols import further_protocols

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from enmasse.drivers.data_directory import Layout
    from enmasse.node.protocols import ProtocolRow


AMQP_PORT = 5672
API_PORT = 8080
API_TLS_PORT = 8443

_OWN_RANGE = 20_000
"""The begin of our range: above the ports that well-known services use."""

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of an installation."""

    amqp: int
    api: int
    api_tls: int = 0
    """0: the API is not served with TLS."""

    further: Mapping[str, int] = field(default_factory=dict)
    """The ports of the protocols beside AMQP, by name."""


def choose_ports(
    layout: Layout,
    host: str,
    *,
    automatic: bool,
    amqp: int | None = None,
    api: int | None = None,
    api_tls_host: str | None = None,
    api_tls: int | None = None,
    further: Mapping[str, int] | None = None,
    protocols: Sequence[ProtocolRow] | None = None,
) -> Ports:
    """Return the ports to use, all of them free at this moment, and keep the choice.

    Args:
        layout: the layout of the directory that keeps the choice.
        host: the interface.
        automatic: take free ports, those of the last run if possible, instead of the customary ones.
        amqp: this port for AMQP, whatever else is said.
        api: this port for the API, whatever else is said.
        api_tls_host: the interface for the API with TLS; None: it is not served so.
        api_tls: its port, whatever else is said; else any that is free if the customary one is not, on loopback.
        further: of protocols beside AMQP, by name: as for ``api_tls``.
        protocols: those; by default all that a node speaks.

    Raises:
        ConfigError: when a requested port is taken, or the choice cannot be written.
    """
    former = _former(layout)
    kept_ports = {} if former is None else {**asdict(former), **former.further}
    rows = further_protocols() if protocols is None else protocols
    chosen: dict[str, int] = {}
    places = [("amqp", host, amqp, AMQP_PORT), ("api", host, api, API_PORT)]
    if api_tls_host is not None:
        places.append(("api_tls", api_tls_host, api_tls, API_TLS_PORT))
    places += [(row.name, host, (further or {}).get(row.name), row.port) for row in rows]
    for name, at, wanted, customary in places:
        # Who names the other ports has never heard of this one, which may well be another installation's.
        is_spare = name not in ("amqp", "api") and is_loopback(at) and not is_free(at, customary)
        if wanted is None and (automatic or is_spare):
            kept = kept_ports.get(name, 0)
            chosen[name] = kept if kept and is_free(at, kept) else _find_free(at, set(chosen.values()))
            continue
        port = customary if wanted is None else wanted
        if not is_free(at, port):
            label = name.replace("_", "-")
            option = f"--port {name}=N" if any(row.name == name for row in rows) else f"--{label}-port"
            raise ConfigError(
                f"port {port} ({label}) on {at} is taken by another program: use --ports auto to take free "
                f"ports, or {option} to name one"
            )
        chosen[name] = port
    ports = Ports(
        chosen["amqp"], chosen["api"], chosen.get("api_tls", 0), {row.name: chosen[row.name] for row in rows}
    )
    replace_file(layout.ports, (json.dumps(asdict(ports), indent=2) + "\n").encode(), 0o644)
    return ports


def is_free(host: str, port: int) -> bool:
    """Return whether nothing listens on a port."""
    with _socket(host) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _socket(host: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made


class ClientSockets:
    """The sockets of the ports for clients, which all nodes inherit, by protocol.

    Args:
        host: the interface.
        ports: the ports.

    Raises:
        ConfigError: one of the ports has been taken.
    """

    def __init__(self, host: str, ports: Ports) -> None:
        self.by_protocol: dict[str, socket.socket] = {}
        for name, port in {"amqp": ports.amqp, **ports.further}.items():
            bound = self.by_protocol[name] = _socket(host)
            try:
                bound.bind((host, port))
            except OSError as error:
                self.close()
                raise ConfigError(
                    f"port {port} ({name}) on {host} cannot be opened: {error.strerror or error}"
                ) from None

    def refuse(self) -> None:
        """Refuse clients, those that wait included, until a node listens again."""
        for each in self.by_protocol.values():
            with suppress(OSError):  # none has ever listened
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close them here; each node has its own."""
        for each in self.by_protocol.values():
            each.close()


def _find_free(host: str, taken: Collection[int]) -> int:
    for _ in range(_ATTEMPTS):
        port = random.randrange(_OWN_RANGE, _ephemeral_start())  # noqa: S311  # no secret
        if port not in taken and is_free(host, port):
            return port
    raise ConfigError(f"no free port was found on {host}; name ports with --amqp-port and --api-port")


def _ephemeral_start() -> int:
    try:
        start = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        start = 32_768  # the kernel's default
    return start if start > _OWN_RANGE + 1_000 else 65_536


def _former(layout: Layout) -> Ports | None:
    try:
        return Ports(**json.loads(layout.ports.read_text()))
    except (OSError, ValueError, TypeError):
        return None
