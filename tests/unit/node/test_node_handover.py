"""Clients whose space is at home at another node: who they are, what they may, and what is taken from them there."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import select
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import bcrypt
import pytest

from enmasse.client import Connection, Receiver, connect
from enmasse.client.errors import TlsError
from enmasse.drivers.authority import Authority as Operator
from enmasse.errors import EnmasseError
from enmasse.identity.permissions import Grant, Permissions
from enmasse.identity.users import User, Users, make_keys
from enmasse.iot.certificates import facts_of
from enmasse.net import peers, proxy_layer
from enmasse.net.certificates import CLIENTS
from enmasse.net.loop import run
from enmasse.node import server
from enmasse.node.devices.registry_link import RegistryLink
from enmasse.node.devices.tenants import Tenant
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.patterns import matcher_of
from enmasse.node.ports import PortOptions
from enmasse.node.server import Server
from enmasse.node.users.admission import credential_of
from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import Open
from enmasse.wire.mqtt.packets import Reason, Version
from enmasse.wire.peer_header import SIGNATURE, PeerDevice, PeerHeader, PeerToken, PeerUser, write_peer_header
from enmasse.wire.proxy_header import BalancerTls, ProxyHeader
from enmasse.wire.sasl.scram import Scram
from tests.devices.authority import Authority
from tests.support.mqtt_peer import MqttPeer
from tests.support.polling import until_async
from tests.support.proxy_headers import LOCAL, text
from tests.support.stomp_peer import StompPeer
from tests.unit.net.providers import Provider

OPEN, GUARDED, EXTERNAL, FARM = "ns/open", "ns/guarded", "ns/external", "ns/farm"
PASSWORD = "correct horse"
SCRAM = "SCRAM-SHA-256"
ALL = Grant(("send", "recv"), ("#",))
LITTLE = Grant(("send", "recv"), ("other",))


def jo(*grants: Grant, password: str = PASSWORD, certificates: tuple[str, ...] = ("jo",)) -> User:
    keys = {name: make_keys(name, password, b"salt", 4096) for name in (SCRAM, "SCRAM-SHA-512")}
    return User("jo", GUARDED, Permissions(grants or (ALL,), matcher_of), keys, certificates=certificates)


def ida(*grants: Grant) -> User:
    return User("ida", EXTERNAL, Permissions(grants or (ALL,), matcher_of))


class Registry:
    """Answers what nodes ask of devices, as the control process does."""

    def __init__(self) -> None:
        self.device: dict[str, Any] | None = {}
        digest = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4, prefix=b"2a")).decode()
        self.secrets: dict[str, list[dict[str, Any]]] = {
            "hashed-password": [{"hash-function": "bcrypt", "pwd-hash": digest}],
            "x509-cert": [{}],
        }

    def ask(self, question: dict[str, Any], answered: Callable[[dict[str, Any] | None], None]) -> bool:
        if question["what"] == "credentials":
            found = self._of(question["type"])
            answered({"found": found and {"device-id": "d", **found}, "password-cost": 16})
        elif question["what"] == "review":
            answered({"found": [self._of(kind) for _, kind, _ in question["of"]]})
        else:
            answered({"found": None if self.device is None else {"device": self.device}})
        return True

    def _of(self, kind: str) -> dict[str, Any] | None:
        if self.device is None:
            return None
        return {"device": self.device, "credentials": {"secrets": self.secrets.get(kind, [])}}


class Stage:
    """Two nodes: ``front``, which clients come to, and ``home``, which has all spaces."""

    def __init__(self, directory: Path, provider: Provider) -> None:
        self.directory = directory
        self.provider = provider
        self.registry = Registry()
        self.tls = directory / "tls"
        self.operator = Operator(self.tls)
        self.operator.keep_server_certificate("default", ("localhost", "127.0.0.1"))
        self.makers = Authority.new(directory, "makers")
        ports = PortOptions(tls=self.tls)
        self.front, self.home = (Server(directory / name, name, ports=ports) for name in ("front", "home"))
        self.port = 0

    @property
    def nodes(self) -> tuple[Server, Server]:
        return self.front, self.home

    def credential(self) -> bytes:
        """What a front says of the password of jo."""
        user = self.home.users.find(GUARDED, "jo")
        assert user is not None
        return credential_of(user, "PLAIN")

    async def start(self, peers: Path) -> None:
        self.peers = peers
        secret = secrets.token_bytes(32)
        for node in self.nodes:
            await node.load()
            await node.listen_peers(peers, secret)
            await node.listen("127.0.0.1", 0)
        self.port = self.front.listeners[-1].port
        for name, authentication in (
            (OPEN, "none"),
            (GUARDED, "standard"),
            (EXTERNAL, "external"),
            (FARM, "standard"),
        ):
            oidc = {"issuer": self.provider.issuer, "audience": "messaging", "clientId": "m", "leeway": 0}
            await self.create(name, authentication=authentication, **({"oidc": oidc} if name == EXTERNAL else {}))
        self.users(jo(), ida())
        self.tenant()

    async def create(self, space: str, **attributes: Any) -> None:
        record = {"spaceType": "standard", "uid": space, "home": "home", "homeGeneration": 3, **attributes}
        for node in self.nodes:
            await self.change(node, "create", SPACE_TYPE, space, record)
        for address in ("orders", "other"):
            queue = {"space": space, "address": address, "addressType": "queue"}
            (there,) = (node for node in self.nodes if node.name == record["home"])
            await self.change(there, "create", ADDRESS_TYPE, f"{space}.{address}", queue)

    @staticmethod
    async def change(node: Server, verb: str, kind: str, name: str, *arguments: Any) -> None:
        stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        getattr(node.entities, verb)(kind, name, *arguments, stored.set_result)
        assert await stored is None

    def users(self, *users: User, of: tuple[Server, ...] = ()) -> None:
        for node in of or self.nodes:
            node._set_users(Users(users, seed=b"seed"))

    def tenant(self, *, is_trusting: bool = True, **more: Any) -> None:
        facts = facts_of(self.makers.anchor["cert"], "cert")
        anchor = {
            "id": "1", "subject-dn": facts.subject, "public-key": facts.key, "algorithm": facts.algorithm,
            "not-before": facts.not_before, "not-after": facts.not_after, "counts": True,
            "auth-id-template": "{{subject-cn}}",
        }  # fmt: skip
        document = {"alias": "barn", "trusted-ca": [anchor] if is_trusting else [], **more}
        for node in self.nodes:
            node.devices.directory.put_tenant(Tenant("ns.barn", FARM, document, 16))
            node.devices.authorities.put("ns.barn", node.devices.directory.tenants["ns.barn"])
            node.ports.reload()

    def device_changed(self) -> None:
        for node in self.nodes:
            node.devices.directory.forget("ns.barn", "d")

    def rows(self, node: Server | None = None) -> list[dict[str, Any]]:
        return (node or self.home).connections.connections_of().page()

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.tls / "authority" / "ca.crt"))

    def certified(self, name: str = "jo") -> ssl.SSLContext:
        context = self.trust()
        context.load_cert_chain(*self.operator.issue_client(name).write(self.directory, f"client-{name}"))
        return context


class Client(Protocol):
    """A client that has come in."""

    async def sends(self, address: str = "orders") -> bool: ...

    async def ended(self) -> str: ...


class ByAmqp:
    def __init__(self, connection: Connection, receiver: Receiver | None) -> None:
        self.connection = connection
        self.receiver = receiver

    async def sends(self, address: str = "orders") -> bool:
        try:
            await self.connection.sender(address)
        except EnmasseError:
            return False
        return True

    async def ended(self) -> str:
        assert self.receiver is not None
        with pytest.raises(EnmasseError) as error:
            await self.receiver.receive(30)
        return str(error.value)


class ByMqtt:
    def __init__(self, peer: MqttPeer) -> None:
        self.peer = peer

    async def sends(self, address: str = "orders") -> bool:
        try:
            return await self.peer.answer(address) in (Reason.SUCCESS, Reason.NO_MATCHING_SUBSCRIBERS)
        except EOFError:  # as version 3.1.1 has no other word for it
            return False

    async def ended(self) -> str:
        last = await self.peer.ended()
        return "" if last is None else str(last.said.reason_string)


class ByStomp:
    def __init__(self, peer: StompPeer) -> None:
        self.peer = peer

    async def sends(self, address: str = "orders") -> bool:
        self.peer.send(address, b"x", receipt="1")
        return (await self.peer.next("RECEIPT", "ERROR")).command == "RECEIPT"

    async def ended(self) -> str:
        error = await self.peer.next("ERROR")
        await self.peer.ended()
        return error["message"]


Way = Callable[[Stage], Any]


def amqp(space: str, mechanism: str | None = None, **login: Any) -> Way:
    @asynccontextmanager
    async def come(stage: Stage) -> AsyncIterator[Client]:
        given = {name: value(stage) if callable(value) else value for name, value in login.items()}
        given.setdefault("tls", stage.trust())
        sasl: dict[str, Any] = {} if mechanism is None else {"sasl": [mechanism]}
        url = f"amqps://127.0.0.1:{stage.port}"
        host = ".".join(reversed(space.split("/")))
        async with await connect(url, hostname=host, reconnect=False, timeout=20, **sasl, **given) as connection:
            yield ByAmqp(connection, await connection.receiver("other" if space != FARM else "command"))

    return come


def mqtt(version: Version = Version.V5, **login: Any) -> Way:
    @asynccontextmanager
    async def come(stage: Stage) -> AsyncIterator[Client]:
        given = {name: value(stage) if callable(value) else value for name, value in login.items()}
        async with MqttPeer(stage.port, "c", version, tls=given.pop("tls", None) or stage.trust(), **given) as peer:
            yield ByMqtt(peer)

    return come


@asynccontextmanager
async def mqtt_scram(stage: Stage) -> AsyncIterator[Client]:
    scram = Scram(SCRAM, "jo@guarded.ns", PASSWORD, secrets.token_hex)
    peer = MqttPeer(stage.port, "c", authentication_method=SCRAM, authentication_data=scram.response())
    peer._reader, peer._writer = await peer.dial()
    try:
        asked = await peer.next("auth", "connack")
        if asked.kind == "auth":
            peer.engine.put_auth(Reason.CONTINUE_AUTHENTICATION, scram.answer(asked.said.data))
            asked = await peer.next("connack")
        if asked.reason:
            raise EOFError(asked)
        # What proves the node is of the exchange with the front, and in the home's answer.
        scram.finish(asked.said.properties.authentication_data)
        yield ByMqtt(peer)
    finally:
        peer._writer.close()


def stomp(**login: Any) -> Way:
    @asynccontextmanager
    async def come(stage: Stage) -> AsyncIterator[Client]:
        given = {name: value(stage) if callable(value) else value for name, value in login.items()}
        async with StompPeer(stage.port, **{"tls": stage.trust(), **given}) as peer:
            yield ByStomp(peer)

    return come


def token(stage: Stage) -> str:
    return stage.provider.token()


def token_bytes(stage: Stage) -> bytes:
    return token(stage).encode()


ANONYMOUS: dict[str, Way] = {
    "AMQP ANONYMOUS": amqp(OPEN, "ANONYMOUS"),
    "MQTT": mqtt(user_name="any@open.ns"),
    "STOMP": stomp(host="open.ns"),
}
PASSWORDS: dict[str, Way] = {
    "AMQP PLAIN": amqp(GUARDED, "PLAIN", user="jo", password=PASSWORD),
    "AMQP SCRAM": amqp(GUARDED, SCRAM, user="jo", password=PASSWORD),
    "MQTT": mqtt(user_name="jo@guarded.ns", password=PASSWORD.encode()),
    "MQTT 3.1.1": mqtt(Version.V3_1_1, user_name="jo@guarded.ns", password=PASSWORD.encode()),
    "MQTT SCRAM": mqtt_scram,
    "STOMP": stomp(host="guarded.ns", login="jo", passcode=PASSWORD),
}
CERTIFICATES: dict[str, Way] = {
    "AMQP EXTERNAL": amqp(GUARDED, "EXTERNAL", tls=Stage.certified),
    "MQTT": mqtt(user_name="jo@guarded.ns", tls=Stage.certified),
}
TOKENS: dict[str, Way] = {
    "AMQP OAUTHBEARER": amqp(EXTERNAL, "OAUTHBEARER", token=token),
    "AMQP XOAUTH2": amqp(EXTERNAL, "XOAUTH2", user="ida", token=token),
    "MQTT": mqtt(user_name="ida@external.ns", password=token_bytes),
    "STOMP": stomp(host="external.ns", passcode=token),
}
DEVICES: dict[str, Way] = {
    "AMQP PLAIN": amqp(FARM, "PLAIN", user="d@barn", password=PASSWORD),
    "AMQP EXTERNAL": amqp(FARM, "EXTERNAL", tls=lambda stage: stage.makers.issue("d")),
    "MQTT": mqtt(user_name="d@barn", password=PASSWORD.encode()),
    "MQTT by certificate": mqtt(tls=lambda stage: stage.makers.issue("d")),
}


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Stage], Awaitable[None]]], None]:
    def play(story: Callable[[Stage], Awaitable[None]]) -> None:
        async def main() -> None:
            directory = Path(tempfile.mkdtemp(prefix="enmasse-peers-"))
            async with asyncio.timeout(40), Provider() as provider:
                stages: list[Stage] = []
                monkeypatch.setattr(RegistryLink, "ask", lambda _link, *asked: stages[0].registry.ask(*asked))
                stage = Stage(tmp_path, provider)
                stages.append(stage)
                try:
                    await stage.start(directory)
                    await story(stage)
                finally:
                    for node in stage.nodes:
                        await node.stop()
                    shutil.rmtree(directory)

        run(main())

    return play


Play = Callable[[Callable[[Stage], Awaitable[None]]], None]


async def refused(stage: Stage, way: Way) -> None:
    with pytest.raises((EnmasseError, EOFError, AssertionError, ssl.SSLError)):
        async with way(stage):
            pass


@asynccontextmanager
async def trusted(stage: Stage, way: Way) -> AsyncIterator[Client]:
    """A client with a certificate, once those that vouch for it are known in the handshake, too: a moment later."""
    async with asyncio.timeout(30):
        while True:
            coming = way(stage)
            try:
                client = await coming.__aenter__()
                break
            except (TlsError, ssl.SSLError):
                await asyncio.sleep(0)
    try:
        yield client
    finally:
        await coming.__aexit__(None, None, None)


@pytest.mark.parametrize("name", ANONYMOUS)
def test_nobody_in_particular(play: Play, name: str) -> None:
    way = ANONYMOUS[name]

    async def story(stage: Stage) -> None:
        async with way(stage) as client:
            (row,) = stage.rows()
            assert (row["via"], row["space"], row["user"]) == ("front", OPEN, "anonymous")
            assert row["tls"].startswith("TLSv1.")
            assert await client.sends()
            assert not stage.rows(stage.front)
            assert len(stage.front.handovers) == 1
            # Now it is for users.
            for node in stage.nodes:
                await stage.change(node, "update", SPACE_TYPE, OPEN, {"authentication": "standard"})
            assert "users" in await client.ended()
        await until_async(lambda: not stage.rows())
        await until_async(lambda: not len(stage.front.handovers))

    play(story)


@pytest.mark.parametrize("name", PASSWORDS)
def test_users_with_passwords(play: Play, name: str) -> None:
    way = PASSWORDS[name]

    async def story(stage: Stage) -> None:
        async with way(stage) as client:
            (row,) = stage.rows()
            mechanism = SCRAM if "SCRAM" in name else "PLAIN"
            assert (row["via"], row["space"], row["user"], row["mechanism"]) == ("front", GUARDED, "jo", mechanism)
            assert await client.sends()
            stage.users(jo(LITTLE))
            assert not await client.sends()
        stage.users(jo())
        async with way(stage) as client:
            stage.users(jo(password="another"))
            assert "credentials of user 'jo' have changed" in await client.ended() or name == "MQTT 3.1.1"
            await refused(stage, way)
        stage.users(jo())
        async with way(stage) as client:
            stage.users()
            await client.ended()
        # The front is the last to hear of it.
        stage.users(jo(), of=(stage.front,))
        await refused(stage, way)
        stage.users(jo(password="another"), of=(stage.home,))
        await refused(stage, way)
        stage.users(jo())
        async with way(stage):
            pass

    play(story)


@pytest.mark.parametrize("name", CERTIFICATES)
def test_users_with_certificates(play: Play, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    way = CERTIFICATES[name]

    async def story(stage: Stage) -> None:
        async with way(stage) as client:
            (row,) = stage.rows()
            assert (row["via"], row["user"], row["mechanism"]) == ("front", "jo", "EXTERNAL")
            assert await client.sends()
            stage.users(jo(LITTLE))
            assert not await client.sends()
            stage.users(jo(certificates=("bo",)))
            await client.ended()
        stage.users(jo())
        async with way(stage) as client:
            stage.users()
            await client.ended()
        stage.users(jo())
        with monkeypatch.context() as patch:
            # Certificates end at days.
            end = time.time() + 1.0
            patch.setattr(server, "end_of", lambda _certificate: end)
            async with way(stage) as client:
                assert len(stage.front.handovers) == 1
                assert "certificate has expired" in await client.ended()
        async with way(stage) as client:
            others = Operator(stage.directory / "others")
            others.keep_server_certificate("default", ("localhost",))
            shutil.copy(stage.directory / "others" / CLIENTS, stage.tls / CLIENTS)
            stage.home.reload()
            await client.ended()
            # The front has not read it yet.
            await refused(stage, way)

    play(story)


@pytest.mark.parametrize("name", TOKENS)
def test_users_with_tokens(play: Play, name: str) -> None:
    way = TOKENS[name]

    async def story(stage: Stage) -> None:
        async with way(stage) as client:
            (row,) = stage.rows()
            assert (row["via"], row["space"], row["user"]) == ("front", EXTERNAL, "ida")
            assert await client.sends()
            stage.users(ida(LITTLE))
            assert not await client.sends()
        stage.users(ida())
        async with way(stage) as client:
            stage.users()
            await client.ended()
        stage.users(ida())
        stage.provider.lasts_s = 2
        async with way(stage) as client:
            assert "token has expired" in await client.ended()
        stage.provider.lasts_s = 60
        async with way(stage) as client:
            other = {"issuer": "https://other", "audience": "messaging", "clientId": "m"}
            await stage.change(stage.home, "update", SPACE_TYPE, EXTERNAL, {"oidc": other})
            await client.ended()
            await refused(stage, way)

    play(story)


@pytest.mark.parametrize("name", DEVICES)
def test_devices(play: Play, name: str) -> None:
    way = DEVICES[name]
    by_certificate = "certificate" in name or "EXTERNAL" in name

    async def story(stage: Stage) -> None:
        async with trusted(stage, way) as client:
            (row,) = stage.rows()
            assert (row["via"], row["space"], row["user"]) == ("front", FARM, "d@ns.barn")
            if by_certificate:
                stage.tenant(is_trusting=False)
                for node in stage.nodes:
                    node.devices.connected.mark_all()
            else:
                stage.registry.secrets["hashed-password"] = []
                stage.device_changed()
            await client.ended()
            await refused(stage, way)
        stage.registry = Registry()
        stage.tenant()
        stage.device_changed()
        async with trusted(stage, way) as client:
            stage.registry.device = {"enabled": False}
            stage.device_changed()
            await client.ended()
        stage.registry = Registry()
        stage.device_changed()
        async with trusted(stage, way) as client:
            stage.registry.device = None
            stage.device_changed()
            await client.ended()
            await refused(stage, way)

    play(story)


# What goes wrong


def header(stage: Stage, **changed: Any) -> bytes:
    given = PeerHeader(
        ProxyHeader(True, ("203.0.113.7", 5), ("198.51.100.1", 6), BalancerTls(True)),
        stage.home.handovers.secret, "", "front", GUARDED, 3, "stomp", mechanism="PLAIN",
        user=PeerUser("jo", "name:jo", stage.credential()),
    )  # fmt: skip
    return write_peer_header(given._replace(**changed))


CONNECT = b"CONNECT\naccept-version:1.2\nhost:guarded.ns\n\n\0"


async def answer(stage: Stage, data: bytes) -> bytes:
    """What the home says to bytes at its peer port, until it closes or has admitted a client."""
    reader, writer = await asyncio.open_unix_connection(stage.peers / "home.sock")
    writer.write(data)
    heard = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(30):
            while b"\0" not in heard[1:] and (part := await reader.read(4096)):
                heard += part
    writer.close()
    return heard


WRONG: dict[str, tuple[dict[str, Any], bytes]] = {
    "secret": ({"secret": bytes(32)}, b""),
    "no secret": ({"secret": b""}, b""),
    "installation": ({"installation": "other"}, b""),
    "generation": ({"generation": 2}, b"\1"),
    "a space that there is not": ({"space": "ns/none"}, b"\1"),
    "a space that is not there": ({"space": "ns/elsewhere"}, b"\1"),
    "a protocol that there is not": ({"protocol": "gopher"}, b"\3"),
    "a user that there is not": ({"user": PeerUser("bo", "name:bo", bytes(32))}, b"\2"),
    "another user of the name": ({"user": PeerUser("jo", "user:1", bytes(32))}, b"\2"),
    "another password": ({"user": PeerUser("jo", "name:jo", bytes(32))}, b"\2"),
    "nobody": ({"user": None}, b"\2"),
    "a certificate that nobody vouches for": ({"mechanism": "EXTERNAL", "names": ("jo",), "chain": (b"x",)}, b"\2"),
    "a device": (
        {"user": None, "device": PeerDevice("ns.barn", "d", "hashed-password", "d", b"")}, b"\2",
    ),
    "a device of another space": (
        {"user": None, "space": FARM, "device": PeerDevice("ns.none", "d", "hashed-password", "d", b"")}, b"\2",
    ),
    "a token of nobody": (
        {"user": PeerUser("jo", "oidc:x 1", b"", PeerToken("x", "1"))}, b"\2",
    ),
}  # fmt: skip


def test_a_home_takes_nothing_that_does_not_hold(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        assert (await answer(stage, header(stage) + CONNECT)).startswith(b"\0CONNECTED")
        await stage.create("ns/elsewhere", home="front")
        with caplog.at_level(logging.WARNING):
            for name, (changed, told) in WRONG.items():
                caplog.clear()
                assert await answer(stage, header(stage, **changed) + CONNECT) == told, name
                refusals = [each for each in caplog.records if each.__dict__.get("event") == "handover-refused"]
                assert len(refusals) == 1, name
        for wrong in (b"AMQP\0\1\0\0", b"\x16\3\1", b"GET / HTTP/1.1\r\n\r\n", b"x" * 200_000, LOCAL, text()):
            assert await answer(stage, wrong) == b""
        await until_async(lambda: not stage.home.connections.shells)
        # Nobody else has noticed.
        assert (await answer(stage, header(stage) + CONNECT)).startswith(b"\0CONNECTED")

    play(story)


STRANGER = """
import os, socket, sys
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as home:
    home.connect(sys.argv[1])
    try:
        home.sendall(bytes.fromhex(sys.argv[2]))
        print(home.recv(100))
    except ConnectionError:
        print(b"")
"""


def test_a_home_takes_nothing_from_another_user(play: Play) -> None:
    if os.geteuid():
        pytest.skip("needs root, who may become another user")

    async def story(stage: Stage) -> None:
        # As if they could reach it, and knew the secret.
        path = stage.peers / "home.sock"
        stage.peers.chmod(0o755)
        path.chmod(0o666)
        asked = [sys.executable, "-I", "-c", STRANGER, str(path), (header(stage) + CONNECT).hex()]
        process = await asyncio.create_subprocess_exec(*asked, stdout=subprocess.PIPE)
        told, _ = await process.communicate()
        assert told == b"b''\n"
        assert not stage.rows()
        stage.peers.chmod(0o700)

    play(story)


def test_a_front_that_dies_at_any_byte_leaves_nothing_at_the_home(play: Play) -> None:
    async def story(stage: Stage) -> None:
        data = header(stage) + CONNECT
        for size in range(len(data)):
            _, writer = await asyncio.open_unix_connection(stage.peers / "home.sock")
            writer.write(data[:size])
            writer.transport.abort() if size % 2 else writer.close()
        await until_async(lambda: not len(stage.home._awaited or ()) and not stage.home.connections.shells)
        assert not stage.rows()
        assert not len(stage.home.ports.limiter)
        assert (await answer(stage, data)).startswith(b"\0CONNECTED")

    play(story)


def test_what_a_front_has_given_up_is_not_taken(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """As after the home has hung: the client was told to come again, so it has said nothing."""

    async def story(stage: Stage) -> None:
        queue = stage.home.entities.spaces[GUARDED].find("orders")
        data = header(stage) + CONNECT + b"SEND\ndestination:orders\nreceipt:1\n\nx\0"
        for has_gone in (True, False):
            caplog.clear()
            with caplog.at_level(logging.WARNING), socket.socket(socket.AF_UNIX) as front:
                front.connect(str(stage.peers / "home.sock"))
                front.sendall(data)
                if has_gone:
                    front.close()
                    await until_async(lambda: caplog.records)
                    assert "hung up" in caplog.records[0].__dict__["fields"]["description"]
                else:
                    await until_async(lambda: queue.counts()["messagesStored"])
            await until_async(lambda: not stage.home.connections.shells)
            assert queue.counts()["messagesStored"] == (not has_gone)

    play(story)


def test_a_header_that_does_not_come_has_its_time(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_layer, "HEADER_S", 0.05)

    async def story(stage: Stage) -> None:
        assert await answer(stage, b"") == await answer(stage, header(stage)[:-1]) == b""

    play(story)


async def comes_again(stage: Stage) -> None:
    """Clients of every protocol are told to come again."""
    with pytest.raises(EnmasseError, match=r"connection:forced|has another home|does not answer"):
        async with amqp(GUARDED, "PLAIN", user="jo", password=PASSWORD)(stage):
            pass
    login: dict[str, Any] = {"user_name": "jo@guarded.ns", "password": PASSWORD.encode(), "is_refused": True}
    for version, code in ((Version.V5, Reason.SERVER_UNAVAILABLE), (Version.V3_1_1, 3)):
        async with MqttPeer(stage.port, "c", version, tls=stage.trust(), **login) as peer:
            assert peer.connack is not None
            assert peer.connack.reason == code
    with pytest.raises(AssertionError, match=r"ERROR.*condition': 'amqp:connection:forced"):
        async with stomp(host="guarded.ns", login="jo", passcode=PASSWORD)(stage):
            pass
    assert not len(stage.front.handovers)
    await until_async(lambda: not stage.front.connections.shells)


@pytest.mark.parametrize("state", ["missing", "refuses", "hangs", "hangs up", "stranger"])
def test_a_home_that_is_away_has_clients_come_again(play: Play, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setattr(peers, "ANSWER_S", 0.3)

    async def story(stage: Stage) -> None:
        path = stage.peers / "home.sock"
        path.rename(stage.peers / "away.sock")
        held: list[Any] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held.append(writer)
            if state == "hangs up":
                writer.close()
            elif state == "stranger":
                writer.write(b"HTTP/1.1 400 what?")

        if state == "refuses":
            with socket.socket(socket.AF_UNIX) as gone:
                gone.bind(str(path))
        elif state != "missing":
            server = await asyncio.start_unix_server(serve, path)
        await comes_again(stage)
        # Those of other spaces notice nothing of many who wait.
        await stage.create("ns/near", home="front", authentication="none")
        waiting = [asyncio.create_task(refused(stage, PASSWORDS["STOMP"])) for _ in range(50)]
        async with stomp(host="near.ns")(stage) as client:
            assert client is not None
        await asyncio.gather(*waiting)
        for writer in held:
            writer.close()
        if state not in ("missing", "refuses"):
            server.close()
        path.unlink(missing_ok=True)
        (stage.peers / "away.sock").rename(path)
        async with PASSWORDS["STOMP"](stage) as client:
            assert await client.sends()

    play(story)


def test_a_front_that_knows_an_old_home_says_so_and_has_clients_come_again(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.change(stage.home, "update", SPACE_TYPE, GUARDED, {"homeGeneration": 4})
        changes = stage.front.entities.changes
        await comes_again(stage)
        assert stage.front.entities.changes > changes
        assert "generation" in stage.front.entities.read(SPACE_TYPE, GUARDED)["homeProblem"]
        await stage.change(stage.front, "update", SPACE_TYPE, GUARDED, {"homeGeneration": 4})
        assert "homeProblem" not in stage.front.entities.read(SPACE_TYPE, GUARDED)
        async with PASSWORDS["STOMP"](stage):
            # Whoever is there goes when the space goes.
            await stage.change(stage.home, "update", SPACE_TYPE, GUARDED, {"home": "front", "homeGeneration": 5})
            await until_async(lambda: not stage.rows())

    play(story)


@pytest.mark.parametrize("way", ["at its home", "at a front", "at a front whose home stops"])
def test_who_answers_no_close_but_waits_for_its_socket_to_fail_as_proton_does_has_it_fail(
    play: Play, way: str
) -> None:
    async def story(stage: Stage) -> None:
        reached = stage.home if way == "at its home" else stage.front
        client = socket.create_connection(("127.0.0.1", reached.listeners[-1].port))
        with client:
            client.sendall(AMQP_HEADER + amqp_frame(0, Open("c", hostname="open.ns")))
            await until_async(stage.rows)
            ends = select.poll()
            ends.register(client, 0)
            if way == "at a front whose home stops":
                await stage.home.stop()
            else:
                (row,) = stage.rows()
                assert stage.home.connections.close(row["name"], "connect again")
            await until_async(lambda: any(event & select.POLLERR for _, event in ends.poll(0)))
            heard = b""
            with suppress(ConnectionResetError):
                while part := client.recv(4096):
                    heard += part
            assert b"amqp:connection:forced" in heard

    play(story)


SAID = {
    "STOMP": (
        b"CONNECT\naccept-version:1.2\nhost:open.ns\n\n\0",
        b"SEND\ndestination:orders\nreceipt:7\n\nx\0",
        b"receipt-id:7\n",
    ),
    "HTTP": (
        b"GET /v1/spaces/open.ns/addresses/orders HTTP/1.1\r\nHost: localhost\r\n\r\n",
        (
            b"POST /v1/spaces/open.ns/addresses/orders/messages HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: 1\r\n\r\nx"
        ),
        b'"accepted"',
    ),
    "HTTP, nothing before": (
        b"",
        (
            b"POST /v1/spaces/open.ns/addresses/other/receive?wait=60 HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Length: 0\r\n\r\n"
        ),
        b'{"messages": []}',
    ),
}


@pytest.mark.parametrize("protocol", SAID)
@pytest.mark.parametrize("end", ["in the clear", "TLS, its end of data", "TLS, the end of the socket"])
def test_a_client_that_says_nothing_more_hears_its_answers(play: Play, protocol: str, end: str) -> None:
    first, said, answer = SAID[protocol]

    def hear(stage: Stage) -> bytes:
        heard = b""
        with socket.create_connection(("127.0.0.1", stage.port), timeout=30) as plain:
            if end == "in the clear":
                if first:
                    plain.sendall(first)
                    assert plain.recv(4096)
                plain.sendall(said)
                plain.shutdown(socket.SHUT_WR)
                while part := plain.recv(4096):
                    heard += part
                return heard
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = stage.trust().wrap_bio(incoming, outgoing, server_hostname="localhost")
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(outgoing.read())
                    incoming.write(plain.recv(4096))
            if first:
                tls.write(first)
                plain.sendall(outgoing.read())
                while True:
                    incoming.write(plain.recv(4096))
                    with suppress(ssl.SSLWantReadError):
                        assert tls.read(4096)
                        break
            tls.write(said)
            if end == "TLS, its end of data":
                with suppress(ssl.SSLWantReadError):
                    tls.unwrap()
            plain.sendall(outgoing.read())
            if end == "TLS, the end of the socket":
                plain.shutdown(socket.SHUT_WR)
            while part := plain.recv(4096):
                incoming.write(part)
                with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                    while found := tls.read(4096):
                        heard += found
        return heard

    async def story(stage: Stage) -> None:
        assert answer in await asyncio.to_thread(hear, stage)
        await until_async(lambda: not stage.front.connections.shells and not stage.home.connections.shells)

    play(story)


def test_clients_that_leave_while_the_home_is_asked_leave_nothing(play: Play) -> None:
    async def story(stage: Stage) -> None:
        path = stage.peers / "home.sock"
        path.unlink()
        held: list[Any] = []
        server = await asyncio.start_unix_server(lambda reader, writer: held.append((reader, writer)), path)
        coming = [asyncio.create_task(refused(stage, PASSWORDS[name])) for name in PASSWORDS for _ in range(5)]
        await until_async(lambda: len(held) == len(coming))
        for each in coming:
            each.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
        await until_async(lambda: not stage.front.connections.shells)
        assert not stage.front.handovers._calls
        for reader, writer in held:
            assert (await reader.read()).startswith(SIGNATURE)
            writer.close()
        server.close()

    play(story)
