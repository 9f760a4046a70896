"""The running installation of a data directory: its endpoints and URLs, and waiting for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from enmasse.cli.errors import UnreachableError, UsageError
from enmasse.drivers.data_directory import DirectoryLock, Layout
from enmasse.drivers.supervisor.endpoints import Endpoints, read_endpoints

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_START_S = 10.0  # an installation that is just being started is waited for; it takes about one second


def find_endpoints(data: Path) -> Endpoints:
    """Return what the installation serves.

    Raises:
        UnreachableError: when nothing has been started there.
    """
    path, lock = Layout(data).endpoints, DirectoryLock(data)
    try:
        wait_until(lambda: path.exists() or not lock.is_held(), _START_S)
    except PermissionError:
        raise UnreachableError(
            f"{data} cannot be read: it is another user's. Log in with `enmasse login --server URL`, with an account "
            "or a token that its owner gives you, or name another directory with --data or ENMASSE_DATA"
        ) from None
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


def space_host(data: Path | None, space: str | None, namespace: str | None) -> str | None:
    """Return the host that names a space and nothing else: a misspelt one is refused.

    Args:
        data: the data directory; None: of an installation elsewhere, whose domain is not known.
        space: the space; None: the only one there is, which no host names.
        namespace: the namespace of the space; None: ``default``.

    Raises:
        UnreachableError: when nothing has been started there.
        UsageError: when there is a namespace and no space: the only space may be in another namespace.
    """
    if space is None:
        if namespace is not None:
            raise UsageError(f"name the space in namespace {namespace} as well, with --space")
        return None
    host = f"{space}.{namespace or 'default'}"
    return host if data is None else f"{host}.{find_endpoints(data).domain}"


_PAUSE_S = 0.1  # short enough to feel immediate, long enough to leave the machine to the others


def wait_until(condition: Callable[[], bool], seconds: float, pause_s: float = _PAUSE_S) -> bool:
    """Poll a condition, at least once; return True if it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause_s, left))
    return True
