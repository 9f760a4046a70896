"""``enmasse trace``: the frames of connections, as they come and go.

Traced frames as a capture file (pcap) that Wireshark and tshark read as what they are.

A node hands over frames, not packets, also those that came through TLS. So the packets around them are made
up: each connection runs from its client's address to the customary port of its protocol at this machine, opens
with a handshake of TCP and loses nothing. Where a trace began in the middle of a connection, the protocol header is
made up too, because Wireshark takes the version of AMQP from it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import struct
import time
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from enmasse.cli.errors import NotFoundError, UnreachableError, UsageError
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer, make_table
from enmasse.client import Message, connect
from enmasse.client.management import Management
from enmasse.drivers.data_directory import DEFAULT_NODE, Layout
from enmasse.drivers.embedded.traces import hop_lines
from enmasse.drivers.supervisor.endpoints import Endpoints, read_endpoints
from enmasse.errors import EnmasseError, UnavailableError
from enmasse.node.protocols import PROTOCOLS, ProtocolRow, main_protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from enmasse.client import Connection

CONNECTION_TYPE = "io.enmasse.connection"

_CREDIT = 32  # messages of some 64 KiB that may be on their way: the node keeps the rest
_COLUMNS = ("identity", "container", "host", "space", "user", "senders", "receivers")
_LAST_S = 5.0
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
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Only this node; left out: all of the installation.")
    ] = None,
    admin: Annotated[
        Path | None, typer.Option("--admin", metavar="PATH", help="Its socket for management, if it lies elsewhere.")
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show the frames of connections while they run, until Ctrl-C.

    Nothing has to be restarted, and connections that are not traced are not
    slowed down. <- comes from the client, -> goes to it. Where a connection
    goes on behind a connector, its frames there follow as those of 7/mill,
    say: -> goes to the other container. What authenticates somebody is
    masked; payloads are shown only if asked for, but --write keeps them whole.
    """
    writer = Writer()
    chosen = [connection is not None, all_connections, container is not None]
    if sum(chosen) > 1:
        raise UsageError("name a connection, a container or --all, and only one of them")
    urls = _urls(Layout(data), node, admin)
    try:
        if not any(chosen):
            asyncio.run(_list(writer, urls))
            return
        if connection is not None:
            urls = asyncio.run(_with_connection(urls, connection))
        arguments: dict[str, Any] = {"container": container} if container else {}
        if write is None:
            arguments["payload"] = payload
        with write.open("wb") if write is not None else nullcontext() as file:
            shown = _Shown(writer, payload, file)
            try:
                asyncio.run(_follow_all(urls, connection or "", arguments, shown, seconds))
            finally:
                shown.sum_up(write)
    except UnavailableError as error:
        raise UnreachableError(f"the trace of {' and '.join(urls)} ended, or could not begin: {error}") from None


def _urls(layout: Layout, node: str | None, admin: Path | None) -> dict[str, str]:
    """Return where nodes are managed, by their names."""
    if admin is not None:
        sockets = {node or DEFAULT_NODE: admin}
    else:
        running = (read_endpoints(layout.endpoints) or Endpoints()).processes
        names = [node] if node else [each.name for each in running if each.kind == "node"] or [DEFAULT_NODE]
        sockets = {name: layout.admin_socket(name) for name in names}
    return {name: f"amqp+unix://{socket.absolute()}" for name, socket in sockets.items()}


async def _clients(url: str) -> list[dict[str, Any]]:
    async with connect(url, reconnect=False) as connection:
        found = await Management(connection).query(CONNECTION_TYPE, _COLUMNS)
    return [item for item in found if item["space"] and item["space"] != "$admin"]


async def _list(writer: Writer, urls: dict[str, str]) -> None:
    rows = [
        [node, *("" if item[name] is None else str(item[name]) for name in _COLUMNS)]
        for node, url in urls.items()
        for item in await _clients(url)
    ]
    if not rows:
        writer.say("No client is connected; --all waits for one.")
        return
    first = len(urls) == 1  # its name says nothing
    headers = ["NODE", *(name.upper() for name in _COLUMNS)]
    writer.out.print(make_table(headers[first:], [row[first:] for row in rows]))


async def _with_connection(urls: dict[str, str], number: str) -> dict[str, str]:
    """Return the node that has a connection: each counts its own."""
    if len(urls) == 1:
        return urls
    found = {
        node: url
        for node, url in urls.items()
        if any(str(item["identity"]) == number for item in await _clients(url))
    }
    if not found:
        raise NotFoundError(f"no node has a connection {number} of a client; `enmasse trace` lists them")
    if len(found) > 1:
        raise UsageError(f"{' and '.join(found)} have a connection {number}: choose by --node")
    return found


class _Shown:
    """Writes frames as text, or into a capture file."""

    def __init__(self, writer: Writer, payload: int, file: BinaryIO | None) -> None:
        self._writer = writer
        self._payload = payload
        self._file = file
        self._capture = Capture(file) if file is not None else None
        self._hosts: dict[str, str] = {}
        self._rows: dict[str, ProtocolRow] = {}
        self._dropped: dict[str, int] = {}

    def begin(self) -> None:
        """Say that from now on frames are shown."""
        self._writer.note("Tracing; Ctrl-C ends.")

    def show(self, body: dict[str, Any], node: str = "") -> None:
        """Show what one message of a node holds.

        Args:
            body: the body of the message.
            node: the node's name, which tells its connections from those of others; empty: there are no others.
        """

        def named(number: object) -> Any:
            return f"{node}:{number}" if node else number

        for number, about in body.get("connections", {}).items():
            self._introduce(str(named(number)), about)
        for time_us, counted, is_outgoing, frame, _size in body.get("records", ()):
            number = named(counted)
            row = self._rows.get(str(number)) or main_protocol(PROTOCOLS)
            if self._capture is not None:
                peer = self._hosts.get(str(number), "")
                self._capture.add(int(time_us), number, peer, row, is_outgoing=is_outgoing, frame=frame)
                continue
            at = datetime.fromtimestamp(time_us / 1e6).astimezone().strftime("%H:%M:%S.%f")
            arrow = "->" if is_outgoing else "<-"
            self._writer.say_line(f"{at} #{number} {arrow} {row.load_frames().describe(frame, self._payload)}")
        before, dropped = self._dropped.get(node, 0), int(body.get("dropped", 0))
        if dropped > before and self._capture is None:
            self._writer.say_line(f"# {dropped - before} frames came too fast and are not shown")
        self._dropped[node] = dropped
        (self._file or self._writer.out.file).flush()

    def _introduce(self, number: str, about: dict[str, Any]) -> None:
        self._hosts[number] = str(about.get("host") or "")
        self._rows[number] = PROTOCOLS.get(str(about.get("protocol"))) or main_protocol(PROTOCOLS)
        if self._capture is None:
            container = f", container {about['container']!r}" if about.get("container") else ""
            space = f", space {about['space']}" if about.get("space") else ""
            lines = hop_lines(number, about) or [f"connection {number}: {self._hosts[number]}{container}{space}"]
            for line in lines:
                self._writer.say_line(f"# {line}")

    def sum_up(self, path: Path | None) -> None:
        """Say what the file holds."""
        if self._capture is not None:
            dropped = sum(self._dropped.values())
            lost = f"; {dropped} came too fast and are missing" if dropped else ""
            capture = self._capture
            self._writer.note(f"{capture.frames} frames of {capture.connections} connections are in {path}{lost}")


async def _follow_all(
    urls: dict[str, str], name: str, arguments: dict[str, Any], shown: _Shown, seconds: float | None
) -> None:
    begun = asyncio.Barrier(len(urls))

    async def follow(node: str, url: str) -> None:
        async def started() -> None:
            if not await begun.wait():
                shown.begin()

        await _follow(url, name, arguments, started, lambda body: shown.show(body, node), seconds)

    await asyncio.gather(*(follow(node if len(urls) > 1 else "", url) for node, url in urls.items()))


async def _follow(
    url: str,
    name: str,
    arguments: dict[str, Any],
    started: Callable[[], Awaitable[None]],
    show: Callable[[dict[str, Any]], None],
    seconds: float | None,
) -> None:
    async with connect(url, reconnect=False) as connection:
        address = await _start(connection, name, arguments)
        async with connection.receiver(address, credit=_CREDIT, settled=True) as receiver:
            await started()
            deadline = None if seconds is None else time.monotonic() + seconds
            try:
                while deadline is None or time.monotonic() < deadline:
                    patience = _POLL_S if deadline is None else max(0.0, min(_POLL_S, deadline - time.monotonic()))
                    delivery = await receiver.receive(timeout=patience)
                    if delivery is None:
                        continue
                    body = delivery.message.body
                    if isinstance(body, dict):
                        show(body)
                        if body.get("ended"):
                            return
            finally:
                # What was traced before the end was asked for is shown, too.
                await receiver.drain(timeout=_LAST_S)
                while (delivery := receiver.receive_nowait()) is not None:
                    if isinstance(delivery.message.body, dict):
                        show(delivery.message.body)


async def _start(connection: Connection, name: str, arguments: dict[str, Any]) -> str:
    properties = {"operation": "TRACE", "type": CONNECTION_TYPE} | ({"name": name} if name else {})
    reply = await connection.request("$management", Message(arguments, properties=properties), timeout=10.0)
    status, reason = reply.properties.get("statusCode"), str(reply.properties.get("statusDescription"))
    if status == 404:
        raise NotFoundError(reason)
    if status != 200 or not isinstance(reply.body, dict):
        raise EnmasseError(reason)
    return str(reply.body["address"])


LINKTYPE_RAW = 101
"""Packets begin with the header of IP, version 4 or 6."""

SNAP_BYTES = 262_144
SEGMENT_BYTES = 60_000
"""The size of a packet of IP has 16 bits."""

WINDOW = 65_535
TCP = 6

FIN, SYN, PUSH, ACK = 0x01, 0x02, 0x08, 0x10

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_FILE = struct.Struct("<IHHiIII")
_RECORD = struct.Struct("<IIII")
_IP4 = struct.Struct(">BBHHHBBH4s4s")
_IP6 = struct.Struct(">IHBB16s16s")
_TCP = struct.Struct(">HHIIBBHHH")


@dataclass(slots=True)
class _Side:
    """One end of a connection: where it is, and how many bytes it has sent."""

    address: Address
    port: int
    sequence: int = 0
    has_header: bool = False


class Capture:
    """Writes a capture file, frame by frame.

    Args:
        file: the file to write; the caller closes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._connections: dict[int | str, tuple[_Side, _Side]] = {}
        self.frames = 0
        file.write(_FILE.pack(0xA1B2C3D4, 2, 4, 0, 0, SNAP_BYTES, LINKTYPE_RAW))

    @property
    def connections(self) -> int:
        """The number of connections with frames."""
        return len(self._connections)

    def add(
        self, time_us: int, connection: int | str, peer: str, row: ProtocolRow, *, is_outgoing: bool, frame: bytes
    ) -> None:
        """Add a protocol header or a whole frame.

        Args:
            time_us: the time, in microseconds since 1970 UTC.
            connection: its number, or that with the name of a connector behind which it goes on.
            peer: the other end's address, as ``host:port``.
            row: the protocol that it speaks.
            is_outgoing: whether the node sent it.
            frame: the bytes.
        """
        ends = self._connections.get(connection)
        if ends is None:
            number = connection if isinstance(connection, int) else len(self._connections)
            made_up = 0xC000 + number % 0x3FFF
            if isinstance(connection, int):
                ends = _ends(peer, made_up, row.port)
            else:
                # We are the client of what is behind a connector, which is taken to be at the customary port.
                ends = _ends(f"{peer.rpartition(':')[0]}:{row.port}", row.port, made_up)
            self._connections[connection] = ends
            self._greet(time_us, *ends)
        client, node = ends
        sender, receiver = (node, client) if is_outgoing else (client, node)
        if not sender.has_header:
            sender.has_header = True
            if row.header and not frame.startswith(row.signature.beginnings):
                self._send(time_us, sender, receiver, row.header, PUSH | ACK)
        for at in range(0, len(frame), SEGMENT_BYTES):
            self._send(time_us, sender, receiver, frame[at : at + SEGMENT_BYTES], PUSH | ACK)
        self.frames += 1

    def _greet(self, time_us: int, client: _Side, node: _Side) -> None:
        self._send(time_us, client, node, b"", SYN)
        self._send(time_us, node, client, b"", SYN | ACK)
        self._send(time_us, client, node, b"", ACK)

    def _send(self, time_us: int, sender: _Side, receiver: _Side, data: bytes, flags: int) -> None:
        acknowledged = receiver.sequence if flags & ACK else 0
        head = (sender.port, receiver.port, sender.sequence, acknowledged, 5 << 4, flags, WINDOW)
        length = _TCP.size + len(data)
        source, target = sender.address.packed, receiver.address.packed
        pseudo = source + target + struct.pack(">II", length, TCP)
        segment = _TCP.pack(*head, 0, 0) + data
        segment = _TCP.pack(*head, _checksum(pseudo + segment), 0) + data
        if sender.address.version == 4:
            packet = _ip4(source, target, length) + segment
        else:
            packet = _IP6.pack(6 << 28, length, TCP, 64, source, target) + segment
        seconds, micros = divmod(time_us, 1_000_000)
        self._file.write(_RECORD.pack(seconds & 0xFFFFFFFF, micros, len(packet), len(packet)) + packet)
        sender.sequence = (sender.sequence + len(data) + (1 if flags & (SYN | FIN) else 0)) & 0xFFFFFFFF


def _ends(peer: str, other_port: int, node_port: int) -> tuple[_Side, _Side]:
    host, _, port = peer.rpartition(":")
    address: Address
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
        number = int(port)
    except ValueError:
        # A socket of another kind: somewhere on this machine.
        address, number = ipaddress.IPv4Address("127.0.0.1"), other_port
    here = "127.0.0.1" if address.version == 4 else "::1"
    return _Side(address, number), _Side(ipaddress.ip_address(here), node_port)


def _ip4(source: bytes, target: bytes, length: int) -> bytes:
    head = (0x45, 0, 20 + length, 0, 0x4000, 64, TCP)
    return _IP4.pack(*head, _checksum(_IP4.pack(*head, 0, source, target)), source, target)


def _checksum(data: bytes) -> int:
    """The sum of the Internet protocols [RFC 1071]."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
