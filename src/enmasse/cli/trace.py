"""``enmasse trace``: the frames of connections, as they come and go."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from enmasse.cli.capture import Capture
from enmasse.cli.errors import NotFoundError, UnreachableError, UsageError
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer, make_table
from enmasse.client import Message, connect
from enmasse.client.management import Management
from enmasse.engines.embedded.paths import DEFAULT_NODE, Layout
from enmasse.errors import EnmasseError, UnavailableError
from enmasse.wire.amqp.trace import describe

if TYPE_CHECKING:
    from enmasse.client import Connection

__all__ = ["trace"]

CONNECTION_TYPE = "io.enmasse.connection"

_CREDIT = 32  # messages of some 64 KiB that may be on their way: the node keeps the rest
_COLUMNS = ("identity", "container", "host", "space", "user", "senders", "receivers")
_POLL_S = 0.5


def trace(
    connection: Annotated[
        str | None, typer.Argument(metavar="CONNECTION", help="Its number; without one they are listed.")
    ] = None,
    all_connections: Annotated[bool, typer.Option("--all", help="Every connection, those to come included.")] = False,
    container: Annotated[
        str | None, typer.Option("--container", metavar="ID", help="Only connections of this container id.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", "-w", metavar="FILE", dir_okay=False, help="Write a capture file for Wireshark."),
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, help="End after so long.")] = None,
    payload: Annotated[int, typer.Option("--payload", min=0, metavar="BYTES", help="Show so much of messages.")] = 0,
    node: Annotated[str, typer.Option("--node", metavar="NAME", help="Which node.")] = DEFAULT_NODE,
    admin: Annotated[
        Path | None, typer.Option("--admin", metavar="PATH", help="Its socket for management, if it lies elsewhere.")
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show the AMQP frames of connections while they run, until Ctrl-C.

    Nothing has to be restarted, and connections that are not traced are not
    slowed down. <- comes from the client, -> goes to it. What authenticates
    somebody is masked; payloads are shown only if asked for, but --write
    keeps them whole.
    """
    writer = Writer()
    chosen = [connection is not None, all_connections, container is not None]
    if sum(chosen) > 1:
        raise UsageError("name a connection, a container or --all, and only one of them")
    socket = admin or Layout(data).admin_socket(node)
    url = f"amqp+unix://{socket.absolute()}"
    try:
        if not any(chosen):
            asyncio.run(_list(writer, url))
            return
        arguments: dict[str, Any] = {"container": container} if container else {}
        if write is None:
            arguments["payload"] = payload
        with write.open("wb") if write is not None else nullcontext() as file:
            shown = _Shown(writer, payload, file)
            try:
                asyncio.run(_follow(url, connection or "", arguments, shown, seconds))
            finally:
                shown.sum_up(write)
    except UnavailableError as error:
        raise UnreachableError(f"the trace of {node} ended, or could not begin: {error}") from None


async def _list(writer: Writer, url: str) -> None:
    async with connect(url, reconnect=False) as connection:
        found = await Management(connection).query(CONNECTION_TYPE, _COLUMNS)
    rows = [["" if item[name] is None else str(item[name]) for name in _COLUMNS] for item in found if item["space"]]
    rows = [row for row in rows if row[3] != "$admin"]
    if not rows:
        writer.say("No client is connected; --all waits for one.")
        return
    writer.out.print(make_table([name.upper() for name in _COLUMNS], rows))


class _Shown:
    """What becomes of the frames: text, or a capture file."""

    def __init__(self, writer: Writer, payload: int, file: BinaryIO | None) -> None:
        self._writer = writer
        self._payload = payload
        self._file = file
        self._capture = Capture(file) if file is not None else None
        self._hosts: dict[str, str] = {}
        self._dropped = 0

    def show(self, body: dict[str, Any]) -> None:
        """Show what one message of the node holds."""
        for number, about in body.get("connections", {}).items():
            self._introduce(str(number), about)
        for time_us, number, is_outgoing, frame, _size in body.get("records", ()):
            if self._capture is not None:
                peer = self._hosts.get(str(number), "")
                self._capture.add(int(time_us), int(number), peer, is_outgoing=is_outgoing, frame=frame)
                continue
            at = datetime.fromtimestamp(time_us / 1e6).astimezone().strftime("%H:%M:%S.%f")
            arrow = "->" if is_outgoing else "<-"
            self._print(f"{at} #{number} {arrow} {describe(frame, self._payload)}")
        dropped = int(body.get("dropped", 0))
        if dropped > self._dropped and self._capture is None:
            self._print(f"# {dropped - self._dropped} frames came too fast and are not shown")
        self._dropped = dropped
        (self._file or self._writer.out.file).flush()

    def _introduce(self, number: str, about: dict[str, Any]) -> None:
        self._hosts[number] = str(about.get("host") or "")
        if self._capture is None:
            container = f", container {about['container']!r}" if about.get("container") else ""
            space = f", space {about['space']}" if about.get("space") else ""
            self._print(f"# connection {number}: {self._hosts[number]}{container}{space}")

    def _print(self, line: str) -> None:
        self._writer.out.print(line, markup=False, highlight=False, soft_wrap=True)

    def sum_up(self, path: Path | None) -> None:
        """Say what the file holds."""
        if self._capture is not None:
            lost = f"; {self._dropped} came too fast and are missing" if self._dropped else ""
            capture = self._capture
            self._writer.note(f"{capture.frames} frames of {capture.connections} connections are in {path}{lost}")


async def _follow(url: str, name: str, arguments: dict[str, Any], shown: _Shown, seconds: float | None) -> None:
    deadline = None if seconds is None else time.monotonic() + seconds
    async with connect(url, reconnect=False) as connection:
        address = await _start(connection, name, arguments)
        async with connection.receiver(address, credit=_CREDIT, settled=True) as receiver:
            while deadline is None or time.monotonic() < deadline:
                patience = _POLL_S if deadline is None else max(0.0, min(_POLL_S, deadline - time.monotonic()))
                delivery = await receiver.receive(timeout=patience)
                if delivery is None:
                    continue
                body = delivery.message.body
                if isinstance(body, dict):
                    shown.show(body)
                    if body.get("ended"):
                        return


async def _start(connection: Connection, name: str, arguments: dict[str, Any]) -> str:
    properties = {"operation": "TRACE", "type": CONNECTION_TYPE} | ({"name": name} if name else {})
    reply = await connection.request("$management", Message(arguments, properties=properties), timeout=10.0)
    status, said = reply.properties.get("statusCode"), str(reply.properties.get("statusDescription"))
    if status == 404:
        raise NotFoundError(said)
    if status != 200 or not isinstance(reply.body, dict):
        raise EnmasseError(said)
    return str(reply.body["address"])
