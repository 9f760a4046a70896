"""What the name that a client gives at login stands for: places x names x what control has told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import jwt
import pytest

from enmasse.client import ConnectionDeniedError, connect
from enmasse.errors import UnavailableError
from enmasse.message.composites import decode_composite
from enmasse.net.loop import run
from enmasse.node.devices.directory import Directory
from enmasse.node.devices.registry_link import RegistryLink
from enmasse.node.devices.tenants import Tenant
from enmasse.node.errors import TenancyError
from enmasse.node.management.entity_fields import SPACE_TYPE
from enmasse.node.server import Server
from enmasse.node.tenancy import Names
from enmasse.node.users.gate import GateOptions
from enmasse.node.users.password_checker import ProcessChecker
from enmasse.node.users.realms import DeviceMeant, NobodyMeant, Realms, UserMeant
from enmasse.wire.amqp.framing import SASL_HEADER, sasl_frame
from enmasse.wire.amqp.performatives import SaslInit, SaslOutcome
from enmasse.wire.mqtt.packets import Reason, Version
from tests.support.mqtt_peer import MqttPeer
from tests.unit.node.test_node_tenancy import spaces_named

if TYPE_CHECKING:
    from pathlib import Path

FARM, SHOP = "ns/farm", "ns/shop"
"""A project's space, which is open to everybody, and another one, for its users."""

SERVED = Tenant("ns.barn", FARM, {"alias": "barn"})
DISABLED = Tenant("ns.shed", FARM, {"enabled": False})
ELSEWHERE = Tenant("ns.mill", SHOP, {})
LIKE_A_SPACE = Tenant("attic.ns", FARM, {})
CALLED_AS_A_SPACE = Tenant("ns.house", FARM, {"alias": "shop.ns"})
TENANTS = (SERVED, DISABLED, ELSEWHERE, LIKE_A_SPACE, CALLED_AS_A_SPACE)


def realms(*spaces: str, are_tenants_known: bool = True, default: str | None = None) -> Realms:
    directory = Directory(lambda: 0.0, lambda _question, _answered: False, lambda _: None, lambda _t, _d: None)
    for tenant in TENANTS:
        directory.put_tenant(tenant)
    return Realms(
        spaces_named(*(spaces or (FARM, SHOP))),
        directory,
        are_tenants_known,
        lambda space: space == FARM,
        default,
        Names({"mq.example.org": SHOP}),
    )


def told(looked_up: Realms, name: str, *hosts: str, **more: Any) -> str:
    """The meaning of a name, in words."""
    try:
        meaning = looked_up.meaning(name, *hosts, **more)
    except TenancyError:
        return "refused"
    match meaning:
        case UserMeant(user, space, may_be_device=may_be_device):
            place = "nowhere" if space is None else space.name
            return f"user {user} of {place}" + (", perhaps a device" if may_be_device else "")
        case DeviceMeant(auth_id, tenant):
            return f"device {auth_id} of {tenant.id}"
        case NobodyMeant(is_known=is_known):
            return "refused" if is_known else "later"


UNNAMED = {
    "jo": "user jo of nowhere",
    "": "user  of nowhere",
    "jo@shop.ns": "user jo of ns/shop",
    "jo@shop.ns.enmasse.local": "user jo of ns/shop",
    "jo@SHOP.ns.": "user jo of ns/shop",
    "jo@mq.example.org": "user jo of ns/shop",
    "a@b@shop.ns": "user a@b of ns/shop",
    "lamp@ns.barn": "device lamp of ns.barn",
    "lamp@barn": "device lamp of ns.barn",
    "a@b@barn": "device a@b of ns.barn",
    "@barn": "device  of ns.barn",
    "lamp@ns.shed": "device lamp of ns.shed",
    "lamp@attic.ns": "device lamp of attic.ns",
    "lamp@nosuch": "refused",
    "lamp@ns.nosuch": "refused",
    "lamp@typo.ns": "refused",
    "lamp@": "refused",
    "lamp@localhost": "refused",
    "lamp@127.0.0.1": "refused",
    "jo@example.org": "refused",
    "jo\N{FULLWIDTH COMMERCIAL AT}shop.ns": "refused",
    "lamp@NS.BARN": "refused",
}


@pytest.mark.parametrize(("name", "meaning"), UNNAMED.items())
def test_where_nothing_names_a_space_the_realm_says_who_is_meant(name: str, meaning: str) -> None:
    assert told(realms(), name) == told(realms(), name, "localhost", "10.0.0.1") == meaning
    # The only space, and the listener's default, are for names without a realm.
    one = "user jo of ns/farm" if name == "jo" else meaning.replace("nowhere", FARM)
    if "of ns/shop" not in meaning and "typo" not in name:
        assert told(realms(FARM), name) == one
    assert told(realms(default=FARM), name) == one


AT_FARM = {
    "jo": "user jo of ns/farm",
    "jo@farm.ns": "user jo of ns/farm",
    "jo@shop.ns": "refused",
    "lamp@ns.barn": "device lamp of ns.barn",
    "lamp@barn": "device lamp of ns.barn",
    "lamp@ns.shed": "device lamp of ns.shed",
    "lamp@ns.mill": "user lamp@ns.mill of ns/farm",
    "jo@example.org": "user jo@example.org of ns/farm",
    "jo@typo.ns": "user jo@typo.ns of ns/farm",
    "jo\N{FULLWIDTH COMMERCIAL AT}x": "user jo\N{FULLWIDTH COMMERCIAL AT}x of ns/farm",
}


@pytest.mark.parametrize(("name", "meaning"), AT_FARM.items())
def test_where_a_space_is_named_all_but_its_devices_are_its_users(name: str, meaning: str) -> None:
    hosts: tuple[tuple[str, ...], ...] = (("farm.ns",), ("localhost", "farm.ns.enmasse.local"))
    for each in hosts:
        assert told(realms(), name, *each) == meaning
    assert told(realms(), name, port_of=FARM) == meaning


def test_an_alias_does_not_take_a_space_s_name() -> None:
    assert told(realms(), "jo@shop.ns") == "user jo of ns/shop"
    assert told(realms(), "jo", "shop.ns") == "user jo of ns/shop"


@pytest.mark.parametrize(
    ("name", "hosts", "meaning"),
    [
        ("lamp@nosuch", (), "later"),
        ("lamp@typo.ns", (), "later"),
        ("lamp@nosuch", ("farm.ns",), "later"),
        ("jo@example.org", ("shop.ns",), "user jo@example.org of ns/shop, perhaps a device"),
        ("jo", (), "user jo of nowhere"),
        ("jo@shop.ns", (), "user jo of ns/shop"),
        ("lamp@barn", (), "device lamp of ns.barn"),
    ],
)
def test_as_long_as_tenants_are_not_known_an_unknown_realm_is_nobody_s(
    name: str, hosts: tuple[str, ...], meaning: str
) -> None:
    assert told(realms(are_tenants_known=False), name, *hosts) == meaning


@pytest.mark.parametrize(
    ("name", "hosts", "meaning"),
    [
        ("lamp@barn", (), "device lamp of ns.barn"),
        ("lamp@barn", ("farm.ns",), "device lamp of ns.barn"),
        ("lamp@barn", ("shop.ns",), "refused"),
        ("lamp@nosuch", (), "refused"),
        ("lamp@nosuch", ("farm.ns",), "refused"),
        ("lamp@farm.ns", (), "refused"),
    ],
)
def test_the_credentials_of_a_device_prove_no_user(name: str, hosts: tuple[str, ...], meaning: str) -> None:
    assert told(realms(), name, *hosts, is_device=True) == meaning


# At a node with one open space, over sockets


async def _over_amqp(port: int, name: str, proof: str) -> str:
    mechanism = "XOAUTH2" if proof.startswith("eyJ") else "PLAIN"
    response = f"user={name}\1auth=Bearer {proof}\1\1" if mechanism == "XOAUTH2" else f"\0{name}\0{proof}"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(SASL_HEADER + sasl_frame(SaslInit(mechanism, response.encode(), None)))
        assert await reader.readexactly(8) == SASL_HEADER
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size - 4)
            found = decode_composite(frame, 4, len(frame))[0]
            if isinstance(found, SaslOutcome):
                return {0: "in", 1: "refused", 4: "later"}[found.code]
    finally:
        writer.close()


async def _over_amqp_websocket(port: int, name: str, proof: str) -> str:
    options: dict[str, Any] = {"user": name, "password": proof, "sasl": ["PLAIN"], "allow_insecure_plain": True}
    try:
        async with connect(f"amqpws://127.0.0.1:{port}", reconnect=False, **options):
            return "in"
    except UnavailableError:
        return "later"
    except ConnectionDeniedError:
        return "refused"


async def _over_mqtt(port: int, name: str, proof: str, version: Version = Version.V5) -> str:
    peer = MqttPeer(port, "", version, user_name=name, password=proof.encode())
    with suppress(AssertionError):  # it is refused
        async with peer:
            return "in"
    assert peer.connack is not None
    return "later" if peer.connack.reason in (3, Reason.SERVER_BUSY) else "refused"


async def _over_stomp(port: int, name: str, proof: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"CONNECT\naccept-version:1.2\nhost:localhost\nlogin:{name}\npasscode:{proof}\n\n\0".encode())
        answer = (await reader.readuntil(b"\0")).decode()
    finally:
        writer.close()
    return "in" if answer.startswith("CONNECTED") else "later" if "try again later" in answer else "refused"


async def _over_http(port: int, name: str, proof: str) -> str:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", auth=(name, proof), trust_env=False) as http:
        found = await http.post("/event", content=b"x")
    # A user who is let in is told that these paths are for devices.
    return {401: "refused", 429: "later", 403: "in"}[found.status_code]


PROTOCOLS: dict[str, Callable[[int, str, str], Awaitable[str]]] = {
    "AMQP": _over_amqp,
    "AMQP over WebSocket": _over_amqp_websocket,
    "MQTT 3.1.1": lambda port, name, proof: _over_mqtt(port, name, proof, Version.V3_1_1),
    "MQTT 5": _over_mqtt,
    "STOMP": _over_stomp,
    "HTTP": _over_http,
}


class Farm(NamedTuple):
    """A node whose only space is open to everybody, with tenants that a control process has told of."""

    server: Server
    port: int

    async def log_in(self, protocol: str, name: str, proof: str = "any") -> str:
        """Log in as who names no space: ``in``, ``refused``, or ``later``."""
        return await PROTOCOLS[protocol](self.port, name, proof)

    async def create(self, kind: str, name: str, **attributes: Any) -> None:
        stored: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.server.entities.create(kind, name, attributes, stored.set_result)
        assert await stored is None


def play(directory: Path, story: Callable[[Farm], Awaitable[None]]) -> None:
    """Have a story told at such a node."""

    async def main() -> None:
        server = Server(directory, "node", gate=GateOptions())
        await server.load()
        try:
            async with asyncio.timeout(60):
                farm = Farm(server, await server.listen("127.0.0.1", 0))
                await farm.create(SPACE_TYPE, FARM)
                server.devices.expect_tenants()
                for tenant in (SERVED, DISABLED):
                    server.devices.directory.put_tenant(tenant)
                await story(farm)
        finally:
            await server.stop()

    run(main())


NAMES = {
    # Beside it: where control is away. A registry that cannot be asked says nothing of the devices of its tenants.
    "lamp@nosuch": ("refused", "later"),
    "lamp@ns.nosuch": ("refused", "later"),
    "lamp@ns.shed": ("refused", "refused"),
    "lamp@ns.barn": ("later", "later"),
    "lamp\N{FULLWIDTH COMMERCIAL AT}nosuch": ("refused", "refused"),
    "lamp\N{SMALL COMMERCIAL AT}nosuch": ("refused", "refused"),
    "lamp": ("in", "in"),
    "lamp@farm.ns": ("in", "in"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_name_with_a_realm_that_is_nobody_s_never_comes_in_as_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    async def story(farm: Farm) -> None:
        directory, log_in = farm.server.devices.directory, farm.log_in
        is_here = True
        monkeypatch.setattr(RegistryLink, "is_up", property(lambda _link: is_here))
        monkeypatch.setattr(directory, "_ask", lambda _question, _answered: False)
        directory.keep_tenants({SERVED.id, DISABLED.id})
        known = {name: await log_in(protocol, name) for name in NAMES}
        is_here = False
        away = {name: await log_in(protocol, name) for name in NAMES}
        is_here = True
        directory.doubt()  # control has come back, and not told all yet
        back = {name: await log_in(protocol, name) for name in NAMES}
        assert known == {name: at_once for name, (at_once, _) in NAMES.items()}
        assert away == back == {name: later for name, (_, later) in NAMES.items()}

    play(tmp_path, story)


@pytest.mark.parametrize("protocol", ["AMQP", "MQTT 3.1.1", "MQTT 5"])
def test_a_token_of_a_device_proves_no_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    def token(**claims: str) -> str:
        return jwt.encode(claims, "a key that nobody knows, of 32 bytes", algorithm="HS256")

    async def story(farm: Farm) -> None:
        monkeypatch.setattr(RegistryLink, "is_up", True)
        farm.server.devices.directory.keep_tenants({SERVED.id, DISABLED.id})
        for tenant in ("nosuch", "farm.ns", "ns.shed"):
            assert await farm.log_in(protocol, "", token(tid=tenant, sub="lamp", aud="hono-adapter")) == "refused"

    play(tmp_path, story)


@pytest.mark.parametrize("name", ["lamp@nosuch", "lamp@ns.shed"])
def test_who_guesses_at_what_there_is_not_waits_as_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def story(farm: Farm) -> None:
        monkeypatch.setattr(RegistryLink, "is_up", True)
        farm.server.devices.directory.keep_tenants({SERVED.id, DISABLED.id})
        asked = farm.server.gate.passwords.checker
        told = [await farm.log_in("MQTT 5", name, f"guess {number}") for number in range(7)]
        assert (told[:5], told[6]) == (["refused"] * 5, "later")
        assert isinstance(asked, ProcessChecker)
        assert asked.checked == told.count("refused"), "each was held against something, in the queue of all"

    play(tmp_path, story)


# At a node with two spaces, each for its users

HOW = "the connection names no space; name the space: USER@SPACE.NAMESPACE"


async def _told_over_amqp(port: int, mechanism: str) -> str:
    options: dict[str, Any] = {"user": "jo", "sasl": [mechanism], "allow_insecure_plain": True, "reconnect": False}
    options |= {"token": "a token"} if mechanism == "XOAUTH2" else {"password": "any"}
    with pytest.raises(ConnectionDeniedError) as refused:
        # What open names comes too late, and whether there is such a space is nobody's business.
        async with connect(f"amqp://127.0.0.1:{port}", **options):
            pass
    return refused.value.description


async def _told_over_mqtt(port: int) -> str:
    peer = MqttPeer(port, "", Version.V5, user_name="jo", password=b"any")
    with suppress(AssertionError):
        async with peer:
            pass
    assert peer.connack is not None
    return f"{peer.connack.said.properties.reason_string}"


async def _told_over_stomp(port: int, host: str = "/") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"CONNECT\naccept-version:1.2\nhost:{host}\nlogin:jo\npasscode:any\n\n\0".encode())
        return (await reader.readuntil(b"\0")).decode()
    finally:
        writer.close()


def test_a_login_that_names_no_space_where_there_are_several_is_told_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "enmasse.node")

    async def story(farm: Farm) -> None:
        gate = farm.server.gate
        gate.options.allow_insecure_plain = True
        farm.server.entities.update(SPACE_TYPE, FARM, {"authentication": "standard"}, lambda _problem: None)
        await farm.create(SPACE_TYPE, SHOP, authentication="standard")
        for _ in range(10):  # nothing was guessed, so nobody has to wait
            assert HOW in await _told_over_amqp(farm.port, "PLAIN")
        assert HOW in await _told_over_mqtt(farm.port)
        assert HOW in await _told_over_stomp(farm.port)
        told = [await _over_mqtt(farm.port, "jo", "any", Version.V3_1_1), await _over_http(farm.port, "jo", "any")]
        assert told == ["refused", "refused"]
        about = [record.fields["description"] for record in caplog.records if hasattr(record, "fields")]
        assert len(about) == 14
        assert all(HOW in description for description in about), about
        wrong = {await _told_over_stomp(farm.port, host) for host in ("shop.ns", "nosuch.ns")}
        assert len(wrong) == 1
        assert "passcode is wrong" in wrong.pop()

    play(tmp_path, story)
