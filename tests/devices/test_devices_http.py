"""Devices over HTTP, with httpx; applications with Proton."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.devices.stage import BLUE, EMPTY, GREEN, PASSWORD, Asked, eventually, message_of
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from tests.devices.stage import Stage

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def needs() -> None:
    require("python-qpid-proton")


def test_telemetry_and_events_reach_the_application(stage: Stage) -> None:
    device = stage.device()
    client, application = stage.http(device), stage.application()
    with application.listen("telemetry") as telemetry, application.listen("event") as events:
        assert client.post("/telemetry", content=b"21").status_code == 202
        message = telemetry.next(device)
        assert bytes(message.body) == b"21"
        assert message.properties["orig_adapter"] == "hono-http"
        asked = Asked(client, "POST", "/telemetry", content=b"22", headers={"qos-level": "1"})
        assert telemetry.next(device).properties["device_id"] == device
        assert asked.answer().status_code == 202
        headers = {"content-type": "text/plain", "hono-ttl": "9"}
        assert client.post("/event", content=b"fire", headers=headers).status_code == 202
        message = events.next(device)
        assert (bytes(message.body), message.content_type, message.ttl) == (b"fire", "text/plain", 9.0)
        assert client.post("/event?hono-ttd=0", headers={"content-type": EMPTY}).status_code == 202
        assert events.next(device).properties["ttd"] == 0


def test_a_device_that_waits_is_given_a_command_and_answers_it(stage: Stage) -> None:
    device = stage.device()
    client, application = stage.http(device), stage.application()
    with application.listen("event") as events, application.listen("command_response", at="app-2") as responses:
        asked = Asked(client, "POST", "/event?hono-ttd=20", content=b"awake")
        assert events.next(device).properties["ttd"] == 20
        told = {"reply_to": f"command_response/{GREEN}/app-2", "correlation_id": "c-2"}
        assert application.command(device, "open", b"valve", content_type="text/plain", **told) == "accepted"
        answer = asked.answer()
        assert (answer.status_code, answer.content, answer.headers["hono-command"]) == (200, b"valve", "open")
        assert answer.headers["content-type"] == "text/plain"
        request_id = answer.headers["hono-cmd-req-id"]
        assert client.post(f"/command/res/{request_id}?hono-cmd-status=204").status_code == 202
        response = responses.next()
        assert (response.correlation_id, response.properties["status"]) == ("c-2", 204)
        assert application.command(device, "open") == "released"
        other = stage.http(stage.device())
        assert other.post(f"/command/res/{request_id}?hono-cmd-status=200").status_code == 400
        assert client.post(f"/command/res/{request_id}?hono-cmd-status=9").status_code == 400


def test_no_command_within_the_time_is_an_ordinary_answer(stage: Stage) -> None:
    device = stage.device()
    client = stage.http(device)
    with stage.application().listen("event") as events:
        asked = Asked(client, "POST", "/event?hono-ttd=1", content=b"awake")
        events.next(device)
        assert asked.answer().status_code == 202


def test_a_service_answers_an_inquiry_in_one_request(stage: Stage) -> None:
    from proton import Message

    device = stage.device()
    client, application = stage.http(device), stage.application()
    with application.listen("inquiry") as inquiries:
        asked = Asked(client, "POST", "/inquiry/weather", content=b"where am I?")
        question = inquiries.next()
        assert (question.subject, question.properties["device_id"]) == ("weather", device)
        answer = Message(correlation_id=question.correlation_id, body=b"in the rain", inferred=True)
        sender: Any = application.connection.create_sender(question.reply_to)
        sender.send(answer)
        sender.close()
        assert (asked.answer().status_code, asked.answer().content) == (200, b"in the rain")


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/telemetry", b"", {}, 400),
        ("POST", "/event", b"", {"content-type": "text/plain"}, 202),
        ("POST", "/event", b"x", {"qos-level": "0"}, 202),
        ("POST", "/event", b"x", {"content-type": EMPTY}, 400),
        ("POST", "/event", b"x", {"hono-ttl": "soon"}, 400),
        ("POST", "/telemetry", b"x", {"hono-ttd": "-5"}, 400),
        ("POST", "/telemetry", b"x", {"qos-level": "2"}, 400),
        ("POST", "/telemetry", b"x", {"qos-level": "1"}, 503),
        ("PUT", f"/event/{BLUE}/some", b"x", {}, 403),
        ("PUT", "/event//nobody", b"x", {}, 404),
        ("PUT", "/event/x", b"x", {}, 404),
        ("GET", "/event", b"", {}, 405),
        ("POST", "/command/res/abc?hono-cmd-status=200", b"x", {}, 400),
        ("POST", "/command/req/abc", b"x", {}, 404),
        ("POST", f"/v1/spaces/green-space.default/addresses/event%2F{GREEN}/messages", b"x", {}, 403),
        ("POST", "/event", b"x" * (17 << 20), {}, 413),
    ],
)
def test_what_is_wrong_has_its_code(
    stage: Stage, method: str, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    found = stage.http(stage.device()).request(method, path, content=body, headers=headers)
    assert found.status_code == status, found.text


def test_a_disabled_adapter_tenant_or_device_is_refused(stage: Stage) -> None:
    device = stage.device()
    client = stage.http(device)
    assert client.post("/event", content=b"x").status_code == 202
    tenant = stage.registry.get(f"/tenants/{GREEN}").json()
    try:
        changed = tenant | {"adapters": [{"type": "hono-mqtt", "enabled": True}]}
        stage.registry.put(f"/tenants/{GREEN}", json=changed).raise_for_status()
        eventually(lambda: stage.http(device).post("/event", content=b"x").status_code == 403)
    finally:
        stage.registry.put(f"/tenants/{GREEN}", json=tenant).raise_for_status()
    eventually(lambda: stage.http(device).post("/event", content=b"x").status_code == 202)
    stage.change(device, {"enabled": False})
    eventually(lambda: stage.http(device).post("/event", content=b"x").status_code == 401)
    assert httpx.post(f"{stage.url('http')}/event", content=b"x").status_code in (401, 403)
    assert stage.http(device, BLUE).post("/event", content=b"x").status_code == 401
    assert stage.http(stage.device(), password="wrong").post("/event", content=b"x").status_code == 401


def test_a_token_that_is_signed_with_the_devices_key_lets_it_in_and_no_other_does(stage: Stage) -> None:
    key, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    device = stage.device(secrets=[{"key": b64encode(public).decode()}], kind="rpk")
    now = datetime.now(UTC)

    def status(signed_with: Any = key, **changed: Any) -> int:
        claims = {"tid": GREEN, "sub": device, "aud": "hono-adapter", "iat": now, "exp": now + timedelta(hours=1)}
        token = jwt.encode(claims | changed, signed_with, algorithm="ES256")
        headers = {"authorization": f"Bearer {token}"}
        return httpx.post(f"{stage.url('http')}/event", content=b"x", headers=headers).status_code

    assert status() == 202
    assert status(signed_with=other) == 401
    assert status(iat=now - timedelta(hours=3), exp=now - timedelta(hours=2)) == 401
    assert status(exp=now + timedelta(days=3)) == 401
    assert status(aud="somebody") == 401
    assert status(sub="another") == 401
    assert status(tid=BLUE) == 401


def test_known_devices_come_in_while_the_control_process_is_away(stage: Stage) -> None:
    import os
    import signal

    known, unknown = stage.device(), stage.device()
    assert stage.http(known).post("/event", content=b"x").status_code == 202
    control = stage.installation.pid("control")
    os.kill(control, signal.SIGSTOP)
    try:
        assert stage.http(known).post("/event", content=b"x").status_code == 202
        assert stage.http(unknown, password="wrong").post("/event", content=b"x").status_code == 429
    finally:
        os.kill(control, signal.SIGCONT)
    assert stage.http(unknown).post("/event", content=b"x").status_code == 202
    assert PASSWORD


def test_defaults_are_those_of_the_device_at_every_door(stage: Stage) -> None:
    defaults = {"content-type": "application/json", "ttl": 1000, "hall": "b"}
    device, plain = stage.device(document={"defaults": defaults}), stage.device()
    with stage.application().listen("event") as events:
        for which, kind in ((device, "application/json"), (plain, "application/octet-stream")):
            assert stage.http(which).post("/event", content=b"{}").status_code == 202
            assert events.next(which).content_type == kind
        with stage.mqtt(device) as client, stage.amqp(device) as connection:
            client.send("event", b"{}")
            connection.create_sender(None).send(message_of("event", b"{}"))
        for _ in range(2):
            message = events.next(device)
            assert (message.content_type, message.properties["hall"]) == ("application/json", "b")
            assert 0 < message.ttl <= 1000
        headers = {"content-type": "text/plain"}
        assert stage.http(device).post("/event", content=b"1", headers=headers).status_code == 202
        assert events.next(device).content_type == "text/plain"


@pytest.mark.parametrize("auth_id", ["a#1", "a+b", "a@b", "CN=a/b, O=#2"])
def test_an_auth_id_may_have_any_characters(stage: Stage, auth_id: str) -> None:
    device = stage.device(auth_id=auth_id)
    assert stage.http(auth_id).post("/event", content=b"x").status_code == 202
    with stage.mqtt(auth_id) as client, stage.amqp(auth_id) as connection:
        assert not client.send("event", b"x").is_failure
        connection.create_sender(None).send(message_of("event", b"x"))
    assert stage.registry.delete(f"/devices/{GREEN}/{device}").status_code == 204
