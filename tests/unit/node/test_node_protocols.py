"""Protocols of clients: what the table says of each, and a second one served by it alone."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as connect_websocket

from enmasse.client import Connection, Message, TlsOptions, connect
from enmasse.client.management import Management
from enmasse.drivers.authority import Authority
from enmasse.errors import ConfigError
from enmasse.identity.permissions import Grant, Permissions
from enmasse.identity.users import User, Users, make_keys
from enmasse.net.loop import run
from enmasse.node.connections.client_connection import ClientConnection
from enmasse.node.main import listening_place
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.patterns import matcher_of
from enmasse.node.ports import PortOptions
from enmasse.node.protocols import PROTOCOLS
from enmasse.node.server import Server
from tests.support.polling import until_async
from tests.unit.node.line_protocol import BOTH

SPACE = "ns/shop"
SCRAM = "SCRAM-SHA-256"
SECRET = make_keys(SCRAM, "secret", b"salt", 4096)


def jo(*addresses: str) -> User:
    permissions = Permissions([Grant(("send", "recv"), addresses)], matcher_of)
    return User("jo", SPACE, permissions, {SCRAM: SECRET})


class Line:
    """A client that speaks lines over a stream of bytes."""

    def __init__(self, say: Callable[[bytes], Awaitable[None]], hear: Callable[[], Awaitable[bytes]]) -> None:
        self._say = say
        self._hear = hear
        self._rest = b""

    async def ask(self, line: str) -> str:
        """Say a line, and return the next that comes."""
        await self._say(line.encode() + b"\n")
        return await self.hear()

    async def hear(self) -> str:
        """The next line; an empty one if none will come."""
        while b"\n" not in self._rest:
            data = await self._hear()
            if not data:
                return ""
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()


class Scene:
    """A node that speaks AMQP and lines, with a guarded space, an open one, and a port of each protocol."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.ports: dict[str, int] = {}

    async def create(self, kind: str, name: str, **attributes: Any) -> None:
        stored: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.server.entities.create(kind, name, attributes, stored.set_result)
        assert await stored is None

    def set_users(self, *users: User) -> None:
        self.server._set_users(Users(users, b"seed"))

    @property
    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.directory / "authority" / "ca.crt"))

    @asynccontextmanager
    async def line(
        self, port: str = "lines", *, tls: bool = True, websocket: bool = False, host: str = "localhost"
    ) -> AsyncIterator[Line]:
        context = self.trusting if tls else None
        if websocket:
            url = f"wss://localhost:{self.ports[port]}/"
            async with connect_websocket(url, subprotocols=["v1.lines"], ssl=context, proxy=None) as peer:  # type: ignore[list-item]

                async def send(data: bytes) -> None:
                    await peer.send(data.decode())  # in a message of text

                async def take() -> bytes:
                    return bytes(await peer.recv(decode=False))

                yield Line(send, take)
            return
        name = host if tls else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.ports[port], ssl=context, server_hostname=name
        )

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            yield Line(write, lambda: reader.read(4096))
        finally:
            writer.close()

    @asynccontextmanager
    async def administrator(self) -> AsyncIterator[Connection]:
        path = self.directory / "admin.sock"
        await self.server.listen_admin(path)
        async with connect(f"amqp+unix://{path}", reconnect=False) as connection:
            yield connection


def play(directory: Path, story: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        tls = directory / "tls"
        Authority(tls).keep_server_certificate("default", ("localhost", "127.0.0.1", "open.ns"))
        server = Server(directory / "node", "node", ports=PortOptions(tls=tls), protocols=BOTH)
        await server.load()
        try:
            async with asyncio.timeout(60):
                scene = Scene(server, tls)
                for name in BOTH:
                    scene.ports[name] = await server.listen("127.0.0.1", 0, protocol=name)
                await scene.create(SPACE_TYPE, SPACE, authentication="standard")
                await scene.create(SPACE_TYPE, "ns/open")
                for space in (SPACE, "ns/open"):
                    for address in ("orders", "stock"):
                        asked = {"space": space, "address": address, "addressType": "queue"}
                        await scene.create(ADDRESS_TYPE, f"{space}.{address}", **asked)
                scene.set_users(jo("orders", "stock"))
                await story(scene)
        finally:
            await server.stop()

    run(main())


@pytest.mark.parametrize("row", BOTH.values(), ids=list(BOTH))
def test_a_row_names_what_there_is(row: Any) -> None:
    assert issubclass(row.load(), ClientConnection)
    assert row.load().protocol == row.name
    frames = row.load_frames()
    if row.signature.beginnings:
        (beginning, *_) = row.signature.beginnings
        is_line = beginning.endswith(b"\n")
        frame = beginning + b"\n\x00" if is_line else beginning.ljust(8, b"\x00") + b"\n"
    elif row.signature.answers_http:
        frame = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    else:
        (start, *_) = row.signature.packets
        frame = bytes((start.kind, len(start.content))) + start.content
    assert frames.Splitter().feed(frame)
    assert row.url("::1", 1, is_secure=True) == f"{row.schemes[1]}://[::1]:1"


def test_a_place_to_listen_at_may_name_its_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.node.main.PROTOCOLS", BOTH)
    assert listening_place("127.0.0.1:0") == (BOTH["amqp"], "127.0.0.1", 0, None)
    assert listening_place("lines=[::1]:7007") == (BOTH["lines"], "::1", 7007, None)
    with socket.create_server(("127.0.0.1", 0)) as inherited:
        place = listening_place(f"lines=fd:{os.dup(inherited.fileno())}")
        assert place[:3] == (BOTH["lines"], *inherited.getsockname())
        assert place.inherited is not None
        place.inherited.close()
    with socket.socket(socket.AF_UNIX) as other, pytest.raises(ConfigError, match=r"fd:.*is no socket of TCP"):
        listening_place(f"fd:{os.dup(other.fileno())}")
    with pytest.raises(
        ConfigError, match=f"'gopher' is no protocol of clients: {' or '.join(BOTH)} is expected before the ="
    ):
        listening_place("gopher=127.0.0.1:70")


def test_no_two_protocols_begin_alike_or_share_a_name() -> None:
    speeches = [row.signature for row in PROTOCOLS.values()]
    own = [beginning for speech in speeches for beginning in speech.beginnings]
    assert not [(a, b) for a in own for b in own if a is not b and a.startswith(b)]
    packets = [packet for speech in speeches for packet in speech.packets]
    assert not [(a, b) for a in own for b in packets if a[0] == b.kind]
    assert not [
        (a, b) for a in packets for b in packets if a is not b and a.kind == b.kind and a.content == b.content
    ]
    names = [name for speech in speeches for name in speech.subprotocols]
    assert len(names) == len(set(names))


def test_a_second_protocol_is_spoken_on_every_port_in_the_clear_in_tls_and_in_websocket(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        for port in scene.ports:
            async with scene.line(port, tls=False) as client:
                assert await client.ask("HELLO - - open.ns here") == "WELCOME here"
                assert await client.ask("SEND orders one word") == "DONE orders accepted"
            async with scene.line(port) as client:
                assert await client.ask("HELLO jo@shop.ns secret - here") == "WELCOME here"
                assert await client.ask("READ orders") == "READY orders"
            async with scene.line(port, websocket=True) as client:
                assert await client.ask("HELLO jo secret shop.ns here") == "WELCOME here"
                assert await client.ask("SEND orders one word") == "DONE orders accepted"
        async with scene.line(host="open.ns") as client:
            assert await client.ask("HELLO - - - here") == "WELCOME here", "the host for TLS names the space"
        async with scene.line() as client:
            lost = await client.ask("HELLO - - - here")
            assert lost.startswith(
                "BYE amqp:not-found the connection names no space; name the space: USER@SPACE.NAMESPACE, or by"
            )
        own = await scene.server._open_space_port("127.0.0.1", 0, "ns/open")
        scene.ports["of a space"] = own.sockets[0].getsockname()[1]
        async with scene.line("of a space", tls=False) as client:
            assert await client.ask("HELLO - - - here") == "WELCOME here", "the port names the space"
        own.close()
        async with scene.line(tls=False) as stranger:
            assert await stranger.ask("what is this") == "BYE amqp:not-allowed what is not expected here"
        # On AMQP's own port a stranger is AMQP's, and on the other one AMQP is spoken, too.
        async with scene.line("amqp", tls=False) as stranger:
            await stranger._say(b"what is this")
            assert await stranger._hear() == b"AMQP\x03\x01\x00\x00"
        url = f"amqp://127.0.0.1:{scene.ports['lines']}"
        async with connect(url, hostname="open.ns", reconnect=False) as amqp:
            receiver = await amqp.receiver("orders")
            delivery = await receiver.receive(timeout=30)
            assert delivery is not None
            assert delivery.message.body == "one word"
            async with scene.line() as client:
                await client.ask("HELLO - - open.ns here")
                assert await client.ask("READ stock") == "READY stock"
                await (await amqp.sender("stock")).send(Message("from AMQP"))
                assert await client.hear() == "MESSAGE stock from AMQP"
            await receiver.close()

    play(tmp_path, story)


def test_a_password_is_judged_throttled_and_counted_whatever_the_protocol(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        refused = "BYE amqp:unauthorized-access authentication failed"
        async with scene.line(tls=False) as client:
            assert await client.ask("HELLO jo secret shop.ns here") == "WELCOME here", "nobody else reads it here"
        async with scene.line() as client:
            assert await client.ask("HELLO - - shop.ns here") == (
                "BYE amqp:unauthorized-access the space is for its users: authenticate, and name the space: "
                "USER@SPACE.NAMESPACE, or by the host"
            )
        for number in range(5):
            async with scene.line() as client:
                assert await client.ask(f"HELLO jo guess{number} shop.ns here") == refused
        async with scene.line() as client:
            assert await client.ask("HELLO jo secret shop.ns here") == refused, "it has to wait"
        assert scene.server.gate.refused == 5
        assert scene.server.events.counts["authentication-failed"] == 6

    play(tmp_path, story)


def test_messages_that_are_rejected_and_go_nowhere_are_told_of_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "enmasse.node")

    def told() -> list[dict[str, Any]]:
        return [vars(each)["fields"] for each in caplog.records if vars(each).get("event") == "message-dropped"]

    async def story(scene: Scene) -> None:
        url = f"amqp://127.0.0.1:{scene.ports['amqp']}"
        async with (
            connect(url, hostname="open.ns", reconnect=False) as client,
            client.sender("orders") as sender,
            client.receiver("orders") as receiver,
        ):
            for body in ("one", "two", "three"):
                await sender.send(Message(body))
                delivery = await receiver.receive(timeout=60)
                assert delivery is not None
                await delivery.reject()
            await until_async(lambda: sum(fields["messages"] for fields in told()) == 3)
        assert {tuple(fields[name] for name in ("space", "address", "reason")) for fields in told()} == {
            ("ns/open", "orders", "rejected")
        }
        assert scene.server.events.counts["message-dropped"] == 3

    play(tmp_path, story)


def test_management_lists_closes_and_traces_connections_of_any_protocol(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "enmasse.node")

    async def story(scene: Scene) -> None:
        async with scene.administrator() as admin, scene.line() as client:
            reply = await admin.request("$management", operation("TRACE", "io.enmasse.connection"), timeout=30)
            trace = await admin.receiver(reply.body["address"], settled=True)
            await until_async(lambda: bool(scene.server.tracer._traces))
            async with scene.line() as other:
                await other.ask("HELLO jo secret shop.ns there")
            assert await client.ask("HELLO jo secret shop.ns here") == "WELCOME here"
            assert await client.ask("SEND orders one word") == "DONE orders accepted"
            assert await client.ask("READ stock") == "READY stock"
            management = Management(admin)
            found = await management.query(
                "io.enmasse.connection", ["protocol", "container", "mechanism", "user", "name"]
            )
            (line,) = [row for row in found if row["container"] == "here"]
            assert (line["protocol"], line["mechanism"], line["user"]) == ("lines", "PLAIN", "jo")
            links = await management.query(
                "io.enmasse.link", ["name", "role", "deliveries", "identity", "connection"]
            )
            assert {
                (row["name"], row["role"], row["deliveries"]) for row in links if row["connection"] == line["name"]
            } == {
                ("orders", "sender", 1),
                ("stock", "receiver", 0),
            }
            (listener,) = [row for row in scene.server._read_listeners() if row["name"] == "lines"]
            assert listener["port"] == scene.ports["lines"]
            body = {"connection": line["name"]}
            closed = await admin.request("$management", operation("CLOSE", SPACE_TYPE, body, SPACE), timeout=30)
            assert closed.properties["statusCode"] == 200
            assert await client.hear() == "BYE amqp:connection:forced closed by an operator"
            seen: list[bytes] = []
            while b"BYE amqp:connection:forced closed by an operator\n" not in seen:
                delivery = await trace.receive(timeout=30)
                assert delivery is not None
                seen += [bytes(record[3]) for record in delivery.message.body["records"]]
                about = delivery.message.body["connections"].values()
                assert {item["protocol"] for item in about} <= {"lines"}
            assert b"HELLO jo ****** shop.ns there\n" in seen
            assert not [line for line in seen if b"secret" in line]
            await trace.close()

    play(tmp_path, story)
    records = [vars(record) for record in caplog.records if hasattr(record, "event")]
    told = [(record["event"], record["fields"].get("container")) for record in records]
    for event in ("connection-opened", "link-attached", "connection-closed"):
        assert (event, "here") in told


def test_management_tells_of_tls_of_the_client_and_of_what_waits_for_a_link(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        url = f"amqps://localhost:{scene.ports['amqp']}"
        tls = TlsOptions(ca_file=str(scene.directory / "authority" / "ca.crt"))
        told = {"platform": "p" * 500, "secret": "not for others"}
        async with (
            scene.administrator() as admin,
            scene.line(tls=False) as plain,
            connect(url, hostname="open.ns", tls=tls, properties=told, reconnect=False) as client,
            client.sender("orders") as sender,
            client.receiver("orders", credit=0) as receiver,
            client.receiver("orders", credit=0, browse=True, settled=True) as browser,
        ):
            assert await plain.ask("HELLO - - open.ns here") == "WELCOME here"
            assert await plain.ask("SEND orders one word") == "DONE orders accepted"
            await sender.send(Message("two"))
            browser.grant(2)
            assert [(await browser.receive(timeout=30)) is not None for _ in range(2)] == [True] * 2
            receiver.grant(1)
            held = await receiver.receive(timeout=30)
            assert held is not None
            management = Management(admin)
            found = await management.query("io.enmasse.connection", ["tls", "properties", "protocol"])
            (line,) = [row for row in found if row["protocol"] == "lines"]
            assert (line["tls"], line["properties"]) == ("", None)
            (secure,) = [row for row in found if row["tls"]]
            assert secure["tls"].startswith("TLSv1.3 TLS_")
            assert secure["properties"]["product"] == "enmasse-python"
            assert {name: len(value) for name, value in secure["properties"].items() if name != "version"} == {
                "product": 14,
                "platform": 100,
            }
            links = await management.query("io.enmasse.link", ["role", "deliveries", "presettled", "backlog"])
            shown = [(row["role"], row["deliveries"], row["presettled"], row["backlog"]) for row in links]
            for expected in (
                ("sender", 1, None, None),  # of lines, which do not say
                ("receiver", 1, 0, 1),
                ("receiver", 2, 2, None),
            ):
                assert expected in shown
            await held.accept()

    play(tmp_path, story)


def test_limits_reviews_and_deletions_reach_connections_of_any_protocol(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        space = scene.server.entities.spaces[SPACE]
        async with scene.line() as sender, scene.line() as reader:
            await sender.ask("HELLO jo secret shop.ns one")
            await reader.ask("HELLO jo secret shop.ns two")
            assert await sender.ask("SEND orders word") == "DONE orders accepted"
            assert await reader.ask("READ stock") == "READY stock"
            assert (space.usage.connections, space.usage.links) == (2, 2)
            scene.set_users(jo("orders"))
            assert await reader.hear() == "BYE amqp:unauthorized-access user 'jo' may not receive from 'stock'"
            scene.set_users()
            gone = "the credentials of user 'jo' have changed; authenticate again"
            assert await sender.hear() == f"BYE amqp:unauthorized-access {gone}"
        await until_async(lambda: (space.usage.connections, space.usage.links) == (0, 0))
        assert len(scene.server.connections) == 0
        async with scene.line() as late:
            await late.ask("HELLO - - open.ns here")
            await scene.server.stop()
            assert await late.hear() == "BYE amqp:connection:forced the node is stopping; connect again"

    play(tmp_path, story)


def operation(name: str, kind: str, body: Any = None, of: str = "") -> Message:
    properties = {"operation": name, "type": kind} | ({"name": of} if of else {})
    return Message(body or {}, properties=properties)
