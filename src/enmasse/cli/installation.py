"""Finding the running installation: its data directory tells where everything is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.cli.errors import UnreachableError
from enmasse.cli.waiting import wait_until
from enmasse.control.lock import DirectoryLock
from enmasse.engines.embedded.paths import Layout
from enmasse.engines.supervisor.endpoints import Endpoints, read_endpoints

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["find_endpoints", "find_url"]

_START_S = 10.0  # an installation that is just being started is waited for; it takes about one second


def find_endpoints(data: Path) -> Endpoints:
    """Return what the installation serves.

    Raises:
        UnreachableError: when nothing has been started there.
    """
    path, lock = Layout(data).endpoints, DirectoryLock(data)
    wait_until(lambda: path.exists() or not lock.is_held(), _START_S)
    endpoints = read_endpoints(path)
    if endpoints is None:
        raise UnreachableError(
            f"nothing runs in {data}: there is no {path}. Start it with `enmasse up --data {data}`, or name another "
            "directory with --data or ENMASSE_DATA"
        )
    return endpoints


def find_url(data: Path, protocol: str) -> str:
    """Return the URL for a protocol.

    Raises:
        UnreachableError: when nothing has been started, or nothing speaks it.
    """
    url = find_endpoints(data).url(protocol)
    if url is None:
        raise UnreachableError(f"the installation in {data} has no endpoint for {protocol}")
    return url
