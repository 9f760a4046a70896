"""A way to a server that can be cut, so that the server seems to be gone and come back."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

__all__ = ["Relay"]


class Relay:
    """Passes TCP connections on to a port of the loopback interface; a cut refuses new ones and ends the others.

    Args:
        target: the port of the server.

    Attributes:
        port: where clients connect, the same after a cut.
        answer: what each connection gets instead of the server's own; empty: it is passed on.
        slowness_s: seconds that each piece of data takes on its way.
        lost: the beginning of a request that is passed on, once, and whose answer is cut off; empty: none is.
        on_data: called with each piece of data, from either side, before it is passed on.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self.answer = b""
        self.slowness_s = 0.0
        self.lost = b""
        self.on_data: Callable[[bytes], object] = bool
        self._target = target
        self._sockets: set[socket.socket] = set()
        self._unanswered: set[socket.socket] = set()
        self.mend()

    def mend(self) -> None:
        """Take connections, for the first time or again."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._sockets = {listener}
        threading.Thread(target=self._accept, args=(listener, self._sockets), daemon=True).start()

    def cut(self) -> None:
        """End all connections and take no more."""
        for found in list(self._sockets):
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
            found.close()

    def _accept(self, listener: socket.socket, sockets: set[socket.socket]) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                if self.answer:
                    threading.Thread(target=self._answer, args=(near,), daemon=True).start()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # the server is away: so it is for the client
                    near.close()
                    continue
                sockets |= {near, far}
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(*ends, sockets), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, sockets: set[socket.socket]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.slowness_s:
                    time.sleep(self.slowness_s)  # the fault itself
                if sink in self._unanswered:
                    break
                self.on_data(data)
                if self.lost and data.startswith(self.lost):
                    self.lost = b""
                    self._unanswered.add(source)
                sink.sendall(data)
        for found in (source, sink):
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
        source.close()
        sockets.discard(source)

    def _answer(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.recv(1 << 16)
            client.sendall(self.answer)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):  # or what is still on its way would reset the connection
                pass
