"""Devices over MQTT, with paho; applications with Proton."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.devices.stage import BLUE, GREEN, PASSWORD, MqttDevice, eventually
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from tests.devices.stage import Stage

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def needs() -> None:
    require("paho-mqtt", "python-qpid-proton")


def is_refused(stage: Stage, device: str) -> bool:
    with stage.mqtt(device) as client:
        return bool(client.connected.is_failure)


@pytest.mark.parametrize("version", [4, 5])
def test_telemetry_and_events_reach_the_application(stage: Stage, version: int) -> None:
    device = stage.device(document={"defaults": {"site": "north", "ttl": 60}})
    application = stage.application()
    with (
        application.listen("telemetry") as telemetry,
        application.listen("event") as events,
        stage.mqtt(device, version=version) as client,
    ):
        client.publish("telemetry", b"21.5", qos=0)
        message = telemetry.next(device)
        assert bytes(message.body) == b"21.5"
        assert message.properties == {
            "device_id": device,
            "tenant_id": GREEN,
            "orig_adapter": "hono-mqtt",
            "orig_address": "telemetry",
            "site": "north",
        }
        assert message.content_type == "application/octet-stream"
        assert message.creation_time
        client.publish("t/?content-type=text%2Fplain", b"22", qos=1)
        assert telemetry.next(device).content_type == "text/plain"
        assert not client.answer("published").is_failure
        assert not client.send("event/?hono-ttl=5", b"fire").is_failure
        message = events.next(device)
        assert (bytes(message.body), message.durable, message.ttl) == (b"fire", True, 5.0)
        assert not client.send("e", b"smoke").is_failure
        assert events.next(device).ttl == 60.0


def test_telemetry_may_be_a_stream_that_keeps_the_order_of_each_device(stage: Stage) -> None:
    device = stage.device(BLUE)
    with stage.application(BLUE).listen("telemetry") as telemetry, stage.mqtt(device, BLUE) as client:
        for number in range(20):
            assert not client.send("telemetry", str(number).encode()).is_failure
        # The body lies in the message, which has to be kept as long.
        found = [int(bytes(message.body)) for message in [telemetry.next(device) for _ in range(20)]]
    assert found == list(range(20))


def test_a_command_is_answered(stage: Stage) -> None:
    device = stage.device()
    application = stage.application()
    with stage.mqtt(device) as client, application.listen("command_response", at="app-1") as responses:
        assert not client.subscribe("command///req/#").is_failure
        outcome = application.command(
            device,
            "blink",
            b'{"times": 3}',
            reply_to=f"command_response/{GREEN}/app-1",
            correlation_id="c-1",
            content_type="application/json",
        )
        assert outcome == "accepted"
        command = client.next()
        assert command.payload == b'{"times": 3}'
        words = command.topic.split("/")
        assert (words[:4], words[5]) == (["command", "", "", "req"], "blink")
        assert not client.send(f"command///res/{words[4]}/200", b"done").is_failure
        response = responses.next()
        assert (bytes(response.body), response.correlation_id) == (b"done", "c-1")
        assert response.properties == {"status": 200, "device_id": device, "tenant_id": GREEN}


def test_a_command_that_nobody_waits_for_has_no_request_id(stage: Stage) -> None:
    device = stage.device()
    with stage.mqtt(device) as client:
        client.subscribe("c///q/#", qos=0)
        assert stage.application().command(device, "reboot", b"now") == "accepted"
        assert client.next().topic == "c///q//reboot"


def test_a_command_is_released_when_nobody_listens_and_rejected_when_it_is_wrong(stage: Stage) -> None:
    device = stage.device()
    application = stage.application()
    assert application.command(device, "blink") == "released"
    with stage.mqtt(device) as client:
        assert application.command(device, "blink") == "released"
        client.subscribe("command///req/#")
        assert application.command(device, "blink") == "accepted"
        assert application.command("nobody", "blink") == "rejected"
        assert application.command(device, "") == "rejected"
        assert application.command(device, "blink", reply_to="elsewhere", correlation_id="1") == "rejected"
    eventually(lambda: application.command(device, "blink") == "released")


def test_errors_are_told_to_who_subscribes_to_them(stage: Stage) -> None:
    device = stage.device()
    with stage.mqtt(device, version=5) as client:
        assert not client.subscribe("error///#").is_failure
        assert client.send("telemetry/?correlation-id=m-1", b"x").is_failure
        error = client.next()
        assert error.topic == "error///telemetry/m-1/503"
        assert json.loads(error.payload)["code"] == 503
        assert client.send("telemetry/?on-error=ignore", b"").is_failure
        assert json.loads(client.next().payload)["code"] == 400
        assert not client.send("event", b"still connected").is_failure


def test_what_becomes_of_an_error_is_as_the_topic_says(stage: Stage) -> None:
    device = stage.device()
    with stage.mqtt(device) as client:
        assert not client.send("telemetry/?on-error=ignore", b"x").is_failure
        client.publish("telemetry/?on-error=skip-ack", b"x")
        assert not client.send("event", b"still connected").is_failure
        assert client.answers.empty(), "one of the two is not acknowledged"
        client.subscribe("error///#")
        assert not client.send("telemetry", b"x").is_failure
        assert client.next().topic.endswith("/503")
        client.publish("telemetry/?on-error=disconnect", b"x")
        client.answer("disconnected")
    with stage.mqtt(device) as client:
        client.publish("telemetry", b"x")
        client.answer("disconnected")


def test_an_event_that_nobody_is_told_of_is_stored_too(stage: Stage) -> None:
    device = stage.device()
    with stage.application().listen("event") as events, stage.mqtt(device) as client:
        client.publish("event", b"quick", qos=0)
        message = events.next(device)
        assert (bytes(message.body), message.durable) == (b"quick", True)


@pytest.mark.parametrize(
    "topic", ["nonsense", "telemetry/other.blue/x", "command///res/abc/200", "event/?hono-ttl=x"]
)
def test_a_wrong_topic_ends_the_connection(stage: Stage, topic: str) -> None:
    with stage.mqtt(stage.device()) as client:
        client.publish(topic, b"x")
        client.answer("disconnected")


def test_devices_have_no_other_topics(stage: Stage) -> None:
    with stage.mqtt(stage.device(), version=5) as client:
        assert client.subscribe("#").is_failure
        assert client.subscribe(f"telemetry/{GREEN}").is_failure
        assert client.subscribe("command/other.blue//req/#").is_failure


@pytest.mark.parametrize(
    ("user", "password"),
    [("{device}@default.green", "wrong"), ("nobody@default.green", PASSWORD), ("{device}@other.blue", PASSWORD)],
)
def test_wrong_credentials_are_refused(stage: Stage, user: str, password: str) -> None:
    device = stage.device()
    with MqttDevice(stage.url("mqtt"), user.format(device=device), password) as client:
        assert client.connected.is_failure


def test_a_device_that_is_disabled_is_disconnected_at_once_and_stays_out(stage: Stage) -> None:
    device = stage.device()
    with stage.mqtt(device) as client:
        assert not client.connected.is_failure
        stage.change(device, {"enabled": False})
        client.answer("disconnected")
    eventually(lambda: is_refused(stage, device))  # once the node is told of it
    stage.change(device, {})
    eventually(lambda: not is_refused(stage, device))


def test_a_password_that_was_changed_is_valid_no_more(stage: Stage) -> None:
    device = stage.device()
    with stage.mqtt(device) as client:
        assert not client.connected.is_failure
    given = [{"type": "hashed-password", "auth-id": device, "secrets": [{"pwd-plain": "another"}]}]
    stage.registry.put(f"/credentials/{GREEN}/{device}", json=given).raise_for_status()
    eventually(lambda: is_refused(stage, device))  # once the node is told of it
    with stage.mqtt(device, password="another") as client:  # of this test
        assert not client.connected.is_failure


@pytest.mark.parametrize("version", [4, 5])
def test_a_service_answers_an_inquiry_on_the_same_connection(stage: Stage, version: int) -> None:
    from proton import Message

    device = stage.device()
    application = stage.application()
    with application.listen("inquiry") as inquiries, stage.mqtt(device, version=version) as client:
        client.subscribe("inquiry///res/#")
        client.publish("inquiry///req/q-1/weather", b"where am I?")
        question = inquiries.next(device)
        assert (bytes(question.body), question.subject, question.correlation_id) == (b"where am I?", "weather", "q-1")
        sender: Any = application.connection.create_sender(question.reply_to)
        sender.send(Message(body=b"in the sun", correlation_id="q-1", inferred=True, properties={"status": 203}))
        sender.close()
        answer = client.next()
        assert (answer.topic, answer.payload) == ("inquiry///res/q-1/203", b"in the sun")
        assert not client.answer("published").is_failure


def test_the_registry_tells_whether_a_device_is_connected_and_when_it_was_seen(stage: Stage) -> None:
    device = stage.device()

    def status() -> dict[str, Any]:
        found: dict[str, Any] = stage.registry.get(f"/devices/{GREEN}/{device}").json()["status"]
        return found

    assert "connected" not in status()
    with stage.mqtt(device):
        eventually(lambda: status().get("connected") is True)
    eventually(lambda: status()["connected"] is False)
    assert status()["last-seen"].endswith("Z")
