"""The sockets on which runners serve Spark's pages, and requests for these.

The host makes a socket with a name that it alone reaches, and gives the runner the open socket: what is connected to
is never a name in a folder that a space's processes can write.
"""

from __future__ import annotations

import secrets
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from enmasse.drivers.data_directory import make_private
from enmasse.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

_FOLDER = "ui"
_CONNECT_S = 5.0
_WAITING = 64


class UiSocket:
    """A socket on which one runner answers, whichever process it is.

    Args:
        root: the folder of the host's sockets.

    Raises:
        ConfigError: it cannot be made.
    """

    def __init__(self, root: Path) -> None:
        folder = root / _FOLDER
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path = folder / secrets.token_hex(4)
        try:
            make_private(folder)
            self._listener.bind(str(self._path))
            self._path.chmod(0o600)
            self._listener.listen(_WAITING)
        except OSError as error:
            self._listener.close()
            raise ConfigError(f"the socket {self._path} cannot be made: {error.strerror or error}") from None

    @property
    def number(self) -> int:
        """The open socket, for a process that is started."""
        return self._listener.fileno()

    def close(self) -> None:
        """Remove it."""
        self._listener.close()
        self._path.unlink(missing_ok=True)

    @asynccontextmanager
    async def get(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """Ask for a page, and stream the answer for the duration of the block, however long it takes.

        Args:
            path: with its query, as Spark knows it; it is sent as it is.
            headers: the headers of the request.

        Raises:
            UnavailableError: the runner does not answer.
        """
        transport = httpx.AsyncHTTPTransport(uds=str(self._path))
        timeout = httpx.Timeout(None, connect=_CONNECT_S)
        async with httpx.AsyncClient(transport=transport, base_url="http://runner", timeout=timeout) as http:
            try:
                target = {"target": path.encode("latin-1")}
                async with http.stream("GET", "/", headers=headers, extensions=target) as response:
                    yield response
            except httpx.TransportError:
                # What the error says may be what a tenant's process has answered.
                raise UnavailableError("the space's Spark session does not answer, or not with HTTP") from None


def remove_former(root: Path) -> None:
    """Remove the sockets that a host has left which was killed."""
    shutil.rmtree(root / _FOLDER, ignore_errors=True)
