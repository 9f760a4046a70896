"""Whatever is taken away from a device cuts its connections in every protocol, and leaves those by another proof."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from enmasse.node.devices.login import LEEWAY_S
from tests.devices.authority import Authority
from tests.devices.conftest import PROJECT
from tests.devices.stage import (
    APPLICATION_PASSWORD,
    BLUE,
    GREEN,
    PASSWORD,
    SPACES,
    WAIT_S,
    MqttDevice,
    Stage,
    eventually,
    hashed,
)
from tests.devices.test_with_certificates import comes_in, prove, trust
from tests.support.mqtt_peer import MqttPeer

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

pytestmark = pytest.mark.slow

OTHER = "another secret"
"""By which a second connection of the same device has come in."""

UNAUTHORIZED = "amqp:unauthorized-access"
NOT_AUTHORIZED = 0x87


Held = Callable[[], str]
"""Waits for the end of a connection, and returns how the client was told."""


def mqtt(stage: Stage, stack: ExitStack, user: str, password: str, version: int, **more: Any) -> Held:
    device = stack.enter_context(MqttDevice(stage.url("mqtt"), user, password, version, **more))
    assert device.connected == 0
    return lambda: str(device.answer("disconnected"))


def amqp(stage: Stage, stack: ExitStack, user: str, password: str) -> Held:
    from proton.utils import BlockingConnection, ConnectionClosed

    connection = BlockingConnection(
        stage.url("amqp"),
        timeout=WAIT_S,
        user=user,
        password=password,
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
    )
    stack.callback(connection.close)

    def ended() -> str:
        try:
            connection.wait(lambda: False, timeout=WAIT_S)
        except ConnectionClosed as error:
            return str(error)
        return ""

    return ended


def request(
    stage: Stage, stack: ExitStack, auth: Any, *, is_v2: bool, path: str = "/event", context: Any = True
) -> Held:
    url = stage.url("http" if context is True else "https")
    client = stack.enter_context(
        httpx.Client(base_url=url, auth=auth, timeout=WAIT_S, http1=not is_v2, http2=is_v2, verify=context)
    )

    found: queue.Queue[str] = queue.Queue()

    def answer() -> str:
        try:
            put = client.put if path.count("/") > 1 else client.post
            answer = put(f"{path}?hono-ttd=60", content=b"{}", headers={"content-type": "application/json"})
        except httpx.HTTPError as error:
            return type(error).__name__
        return f"{answer.status_code} {answer.text}"

    threading.Thread(target=lambda: found.put(answer()), daemon=True).start()
    return lambda: found.get(timeout=WAIT_S)


Come = Callable[[Stage, ExitStack, str, str], Held]

PROTOCOLS: dict[str, tuple[Come, str]] = {
    "MQTT 5": (lambda stage, stack, user, proof: mqtt(stage, stack, user, proof, 5), "Not authorized"),
    "MQTT 3.1.1": (lambda stage, stack, user, proof: mqtt(stage, stack, user, proof, 4), "Unspecified error"),
    "MQTT over WebSocket": (
        lambda stage, stack, user, proof: mqtt(stage, stack, user, proof, 5, transport="websockets"),
        "Not authorized",
    ),
    "AMQP": (amqp, UNAUTHORIZED),
    "HTTP/1.1": (lambda stage, stack, user, proof: request(stage, stack, (user, proof), is_v2=False), "403"),
    "HTTP/2": (lambda stage, stack, user, proof: request(stage, stack, (user, proof), is_v2=True), "403"),
}
"""How a device connects, by user and password, and a part of what it is told at the end."""


class Table:
    """One device's connections over every protocol, and one by another secret."""

    def __init__(self, stage: Stage, stack: ExitStack, tenant: str, device: str, proof: str) -> None:
        self.stage = stage
        self.stack = stack
        self.tenant = tenant
        self.device = device
        self.user = f"{device}@{tenant}"
        self.held: dict[str, Held] = {}
        for name, (come, _) in PROTOCOLS.items():
            self.held[name] = come(stage, stack, self.user, proof)
        self.idle = [
            stack.enter_context(
                httpx.Client(
                    base_url=stage.url("http"), auth=(self.user, proof), timeout=WAIT_S, http1=not is_v2, http2=is_v2
                )
            )
            for is_v2 in (False, True)
        ]
        for client in self.idle:
            assert client.post("/event", content=b"{}").status_code == 202
        with stage.application(tenant).listen("event") as events:
            for _ in range(2 + len(self.idle)):  # two requests are still on their way
                events.next(device)

    def expect_cut(self) -> None:
        for name, held in self.held.items():
            assert PROTOCOLS[name][1] in held(), name

    def expect_refused(self) -> None:
        """What has cut them refuses who comes again, also where a connection was idle between two requests."""
        for client in self.idle:
            with suppress(httpx.TransportError):  # the connection is closed: httpx notices as it writes
                assert client.post("/event", content=b"{}").status_code == 401
            assert client.post("/event", content=b"{}").status_code == 401


Way = Callable[[Stage, str, str], None]
"""Takes something from a tenant or a device of it."""


def put_secrets(*secrets: dict[str, Any], kind: str = "hashed-password", **more: Any) -> Way:
    """Return what puts secrets in the place of those that there are; what ``keeps`` is the one at its place."""

    def way(stage: Stage, tenant: str, device: str) -> None:
        kept = stage.registry.get(f"/credentials/{tenant}/{device}").json()[0]["secrets"]
        given = []
        for at, secret in enumerate(dict(each) for each in secrets):
            if secret.pop("keeps", False):
                secret["id"] = kept[at]["id"]
            if secret.get("not-after") == "soon":
                secret["not-after"] = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
            given.append(secret)
        document = [{"type": kind, "auth-id": device, "secrets": given, **more}]
        stage.registry.put(f"/credentials/{tenant}/{device}", json=document).raise_for_status()

    return way


def _password(device: str, *secrets: dict[str, Any]) -> dict[str, Any]:
    return {"type": "hashed-password", "auth-id": device, "secrets": secrets}


def imported(stage: Stage, tenant: str, *lines: dict[str, Any]) -> None:
    import json

    answer = stage.registry.post(
        f"/import/{tenant}?existing=replace",
        content="\n".join(json.dumps(line) for line in lines),
        headers={"content-type": "application/x-ndjson"},
    )
    answer.raise_for_status()
    assert not answer.json()["failed"], answer.text


def deleted(stage: Stage, tenant: str, device: str) -> None:
    stage.registry.delete(f"/devices/{tenant}/{device}").raise_for_status()


def no_credentials(stage: Stage, tenant: str, device: str) -> None:
    stage.registry.put(f"/credentials/{tenant}/{device}", json=[]).raise_for_status()


def all_deleted(stage: Stage, tenant: str, _device: str) -> None:
    stage.registry.delete(f"/devices/{tenant}").raise_for_status()


OF_ITS_DEVICE: dict[str, Way] = {
    "the device is deleted": deleted,
    "the device is disabled": lambda stage, tenant, device: stage.change(device, {"enabled": False}, tenant),
    "all devices are deleted": all_deleted,
    "an import disables it": lambda stage, tenant, device: imported(stage, tenant, {"id": device, "enabled": False}),
    "its credentials are disabled": put_secrets({"keeps": True}, {"keeps": True}, enabled=False),
    "its credentials are removed": no_credentials,
}  # fmt: skip
"""What ends all connections of a device, whatever they have come in by."""

OF_ONE_SECRET: dict[str, Way] = {
    "the secret is removed": put_secrets({"keeps": True}),
    "the secret is disabled": put_secrets({"keeps": True}, {"keeps": True, "enabled": False}),
    "the secret is another one with the same id": put_secrets({"keeps": True}, {"keeps": True, **hashed("new")}),
    "the credentials are replaced": put_secrets(hashed(OTHER), hashed("new")),
    "an import replaces the credentials": lambda stage, tenant, device: imported(
        stage,
        tenant,
        {"id": device, "credentials": [_password(device, hashed(OTHER), hashed("new"))]},
    ),
    "the secret ends": put_secrets({"keeps": True}, {"keeps": True, "not-after": "soon"}),
}  # fmt: skip
"""What ends the connections by one secret of a device, and no others."""


@contextmanager
def connections(stage: Stage, tenant: str = GREEN) -> Iterator[tuple[Table, MqttDevice]]:
    """The connections of a device by one secret, and one by another."""
    device = stage.device(tenant, secrets=[hashed(OTHER), hashed(PASSWORD)])
    with ExitStack() as stack:
        other = stack.enter_context(MqttDevice(stage.url("mqtt"), f"{device}@{tenant}", OTHER, 5))
        yield Table(stage, stack, tenant, device, PASSWORD), other


@pytest.mark.parametrize("way", OF_ITS_DEVICE)
def test_what_a_device_loses_cuts_all_its_connections(stage: Stage, way: str) -> None:
    with connections(stage) as (table, other):
        OF_ITS_DEVICE[way](stage, table.tenant, table.device)
        table.expect_cut()
        assert other.answer("disconnected").value == NOT_AUTHORIZED
        if (
            "all" in way
        ):  # what a node keeps of a device is of no use any more; not each time, as failures are counted
            table.expect_refused()


@pytest.mark.parametrize("way", OF_ONE_SECRET)
def test_a_secret_that_is_gone_cuts_the_connections_by_it_alone(stage: Stage, way: str) -> None:
    with connections(stage) as (table, other):
        OF_ONE_SECRET[way](stage, table.tenant, table.device)
        table.expect_cut()
        assert other.send("event", b"{}").value == 0  # it is still there
        if "removed" in way:
            table.expect_refused()


# What a tenant loses


def change_tenant(stage: Stage, tenant: str = GREEN, **fields: Any) -> None:
    stage.registry.put(f"/tenants/{tenant}", json=fields).raise_for_status()


def test_an_adapter_that_is_disabled_cuts_its_own_connections_alone(stage: Stage) -> None:
    adapters = {"hono-mqtt": ("MQTT",), "hono-http": ("HTTP",), "hono-amqp": ("AMQP",)}
    try:
        with connections(stage) as (table, _):
            on = dict.fromkeys(adapters, True)
            for adapter, protocols in adapters.items():
                on[adapter] = False
                change_tenant(stage, adapters=[{"type": name, "enabled": is_on} for name, is_on in on.items()])
                for name in [name for name in table.held if name.startswith(protocols)]:
                    told = table.held.pop(name)()
                    assert PROTOCOLS[name][1] in told, name
                    if adapter != "hono-mqtt":  # of whose versions one tells no reason
                        assert f"adapter {adapter}" in told
            assert not table.held
    finally:
        change_tenant(stage)


GREY = "default.grey"
SPACES[GREY] = "grey-space.default"


@pytest.fixture
def grey(stage: Stage, tmp_path: Path) -> str:
    """A tenant that may go."""
    file = tmp_path / "grey.yaml"
    file.write_text(PROJECT.format(name="grey", namespace="default", telemetry="anycast"))
    stage.installation.ok("apply", "-f", str(file))
    stage.installation.ok("wait", "iotproject", "grey", "--timeout", "60")
    if not stage.installation.run("get", "user", "grey-space.app").out.count("app"):  # the space stays, and its users
        words = ("create", "user", "app", "--space", "grey-space", "--send", "#", "--recv", "#")
        stage.installation.ok(*words, stdin=APPLICATION_PASSWORD)
    stage.installation.ok("wait", "user", "grey-space.app", "--timeout", "60")
    eventually(lambda: stage.registry.get(f"/tenants/{GREY}").status_code == 200)
    return GREY


OF_ITS_TENANT: dict[str, Callable[[Stage], Any]] = {
    "the tenant is disabled": lambda stage: change_tenant(stage, GREY, enabled=False),
    "the project is deleted": lambda stage: stage.installation.ok("delete", "iotproject", "grey"),
}


@pytest.mark.parametrize("way", OF_ITS_TENANT)
def test_a_tenant_that_is_off_or_gone_cuts_all_its_connections(stage: Stage, grey: str, way: str) -> None:
    with connections(stage, grey) as (table, other), connections(stage) as (bystander, also):
        OF_ITS_TENANT[way](stage)
        table.expect_cut()
        assert other.answer("disconnected").value == NOT_AUTHORIZED
        assert also.send("event", b"{}").value == 0
        bystander.held.clear()
    if way == "the tenant is disabled":
        change_tenant(stage, grey)


# Tokens


class Key:
    """A key of a device, and tokens that are signed with it."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.secret = {"key": b64encode(public).decode()}

    def token(self, device: str, left_s: float = 3_600.0) -> str:
        """Return a token that is good for some more seconds."""
        end = time.time() + left_s - LEEWAY_S
        claims = {"iat": end - 3_600, "exp": end, "tid": GREEN, "sub": device, "aud": "hono-adapter"}
        return jwt.encode(claims, self._key, algorithm="ES256")


def by_token(stage: Stage, stack: ExitStack, device: str, token: str) -> list[tuple[str, Held]]:
    """Connect by a token over the protocols that take one."""

    def bearer(asked: httpx.Request) -> httpx.Request:
        asked.headers["Authorization"] = f"Bearer {token}"
        return asked

    with stage.application().listen("event") as events:
        found = [
            ("Not authorized", mqtt(stage, stack, f"{device}@{GREEN}", token, 5)),
            ("Unspecified error", mqtt(stage, stack, f"{device}@{GREEN}", token, 4)),
            ("403", request(stage, stack, bearer, is_v2=False)),
            ("403", request(stage, stack, bearer, is_v2=True)),
        ]
        for _ in range(2):
            events.next(device)
    return found


@pytest.mark.parametrize("way", ["the key is removed", "the token ends"])
def test_a_token_ends_with_its_key_and_its_time(stage: Stage, way: str) -> None:
    key, other = Key(), Key()
    device = stage.device(secrets=[other.secret, key.secret], kind="rpk")
    with ExitStack() as stack:
        stays = stack.enter_context(MqttDevice(stage.url("mqtt"), f"{device}@{GREEN}", other.token(device), 5))
        held = by_token(stage, stack, device, key.token(device, 2.0 if "ends" in way else 3_600.0))
        if "removed" in way:
            put_secrets({"keeps": True}, kind="rpk")(stage, GREEN, device)
        for told, each in held:
            assert told in each()
        assert stays.send("event", b"{}").value == 0


# Certificates


def test_an_authority_that_is_removed_cuts_whom_it_has_vouched_for(
    stage: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    one, two = (Authority.new(tmp_path_factory.mktemp(name), f"{name} of grey") for name in ("first", "second"))
    name = {"auth-id-template": "{{subject-cn}}"}
    try:
        trust(stage, GREEN, **{"trusted-ca": [one.anchor | name, two.anchor | name]})
        for authority in (one, two):
            prove(stage, GREEN, authority)
        device = stage.device(secrets=[{}], kind="x509-cert")
        with ExitStack() as stack:
            stays = stack.enter_context(come_by(stage, two.issue(device)))
            held = [stack.enter_context(come_by(stage, one.issue(device), version)) for version in (4, 5)]
            with stage.application().listen("event") as events:
                waiting = request(stage, stack, None, is_v2=False, context=one.issue(device))
                while "ttd" not in events.next(device).properties:
                    pass  # those before were by ``come_by``, as often as it took
            trust(stage, GREEN, **{"trusted-ca": [two.anchor | name]})
            for each in held:
                each.answer("disconnected")
            assert "trust" in waiting()
            assert not stays.send("event", b"{}").is_failure
    finally:
        trust(stage, GREEN, **{"trusted-ca": []})


def come_by(stage: Stage, context: ssl.SSLContext, version: int = 5) -> MqttDevice:
    """Connect by a certificate, once the node trusts its authority."""
    comes_in(stage, context)
    return MqttDevice(stage.url("mqtts"), "", version=version, context=context)


# Gateways


def test_a_gateway_that_may_not_act_for_a_device_any_more_has_its_commands_no_longer(stage: Stage) -> None:
    from proton.utils import LinkDetached

    gateway = stage.device()
    user = f"{gateway}@{GREEN}"
    ways: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
        "may not act": ({"via": [gateway]}, "device", {"via": []}),
        "was disabled": ({"via": [gateway]}, "device", {"via": [gateway], "enabled": False}),
        "any more": ({"viaGroups": ["hall"]}, "gateway", {}),
    }
    for told, (document, whose, after) in ways.items():
        stage.change(gateway, {"memberOf": ["hall"]})
        device = stage.device(document=document)
        with ExitStack() as stack:
            five, four = (
                stack.enter_context(MqttDevice(stage.url("mqtt"), user, version=version)) for version in (5, 4)
            )
            five.subscribe("error//+/#")
            for each in (five, four):
                each.subscribe(f"command//{device}/req/#")
            assert stage.application().command(device, "before", b"x") == "accepted"
            waiting = request(stage, stack, (user, PASSWORD), is_v2=False, path=f"/event//{device}")
            with stage.application().listen("event") as events, stage.amqp(gateway) as connection:
                receiver = connection.create_receiver(f"command//{device}", credit=10)
                events.next(device)
                stage.change(device if whose == "device" else gateway, after)
                assert told in waiting()
                four.answer("disconnected")
                assert five.next().topic.startswith(f"error//{device}/command/")
                with pytest.raises(LinkDetached):
                    receiver.receive(timeout=WAIT_S)
                # Nobody has it now; and the gateway's own proof still holds.
                assert stage.application().command(device, "after", b"x") in ("released", "rejected")
                assert five.send("event", b"{}").value == 0


# Many at once

FLEET = 300


@pytest.mark.parametrize("way", ["all devices are deleted", "an import disables them"])
def test_one_call_cuts_a_fleet_and_nobody_else(stage: Stage, way: str) -> None:
    names = [f"fleet-{number}" for number in range(FLEET)]
    credentials = {name: [_password(name, hashed(PASSWORD))] for name in names}
    imported(stage, GREEN, *({"id": name, "credentials": credentials[name]} for name in names))
    port = int(stage.url("mqtt").rpartition(":")[2])
    bystander = stage.device(BLUE)

    async def story() -> list[int]:
        async with AsyncExitStack() as stack:

            async def come(name: str, tenant: str) -> MqttPeer:
                peer = MqttPeer(port, user_name=f"{name}@{tenant}", password=PASSWORD.encode())
                return await stack.enter_async_context(peer)

            stays = await come(bystander, BLUE)
            peers = await asyncio.gather(*(come(name, GREEN) for name in names))
            if "deleted" in way:
                await asyncio.to_thread(all_deleted, stage, GREEN, "")
            else:
                lines = [{"id": name, "enabled": False} for name in names]
                await asyncio.to_thread(imported, stage, GREEN, *lines)
            ends = await asyncio.gather(*(peer.ended() for peer in peers))
            assert await stays.answer("event", b"{}") == 0
            return [0 if end is None else end.reason for end in ends]

    assert asyncio.run(story()) == [NOT_AUTHORIZED] * FLEET
