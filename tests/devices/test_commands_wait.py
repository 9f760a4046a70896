"""Commands that wait for their devices, by the API and the command line."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.devices.stage import BLUE, GREEN, eventually
from tests.support.chance import kills
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    import httpx

    from tests.devices.stage import Stage

pytestmark = pytest.mark.slow

STATE = "application/vnd.enmasse-command-state+json"


@pytest.fixture(autouse=True)
def needs() -> None:
    require("paho-mqtt", "python-qpid-proton")


def send(stage: Stage, device: str, name: str, **fields: Any) -> str:
    asked = {"name": name} | {field.replace("_", "-"): value for field, value in fields.items()}
    answer = stage.registry.post(f"/commands/{GREEN}/{device}", json=asked)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def state(stage: Stage, identity: str) -> dict[str, Any]:
    found: dict[str, Any] = stage.registry.get(f"/commands/{GREEN}/{identity}").json()
    return found


def reaches(stage: Stage, identity: str, wanted: str) -> dict[str, Any]:
    eventually(lambda: state(stage, identity)["state"] == wanted)
    return state(stage, identity)


def test_a_command_waits_for_its_device_and_its_states_are_told_as_events(stage: Stage) -> None:
    device = stage.device()
    with stage.application().listen("event") as events:
        identity = send(stage, device, "open", payload="valve 3", content_type="text/plain", response_required=True)
        assert state(stage, identity)["state"] == "queued"
        with stage.mqtt(device) as client:
            client.subscribe("command///req/#")
            command = client.next()
            assert command.payload == b"valve 3"
            request_id = command.topic.split("/")[4]
            reaches(stage, identity, "delivered")
            assert not client.send(f"command///res/{request_id}/200", b"opened").is_failure
        found = reaches(stage, identity, "accepted")
        assert found["response"] == {"status": 200, "payload": "opened"}
        told: list[dict[str, Any]] = []
        while not told or told[-1]["state"] != "accepted":
            message = events.next(device)
            assert message.content_type == STATE
            told.append(json.loads(bytes(message.body)))
        assert {item["id"] for item in told} == {identity}
        assert [item["state"] for item in told][-1] == "accepted"


def test_commands_come_in_their_order_and_the_newest_takes_the_place_of_those_with_its_key(stage: Stage) -> None:
    device = stage.device()
    first = send(stage, device, "set", payload="1", supersede_key="level")
    other = send(stage, device, "sing")
    second = send(stage, device, "set", payload="2", supersede_key="level")
    found = reaches(stage, first, "expired")
    assert found["reason"] == f"superseded by {second}"
    with stage.mqtt(device) as client:
        client.subscribe("command///req/#")
        assert [client.next().topic.rpartition("/")[2] for _ in range(2)] == ["sing", "set"]
    for identity in (other, second):
        reaches(stage, identity, "accepted")


def test_an_expired_command_is_never_delivered(stage: Stage) -> None:
    device = stage.device()
    identity = send(stage, device, "late", ttl=1)
    reaches(stage, identity, "expired")
    fresh = send(stage, device, "fresh")
    with stage.mqtt(device) as client:
        client.subscribe("command///req/#")
        assert client.next().topic.endswith("/fresh")
        reaches(stage, fresh, "accepted")
        assert client.messages.empty()


def test_a_command_may_be_taken_back(stage: Stage) -> None:
    device = stage.device()
    identity = send(stage, device, "open")
    assert stage.registry.delete(f"/commands/{GREEN}/{identity}").status_code == 204
    assert state(stage, identity)["state"] == "failed"
    assert stage.registry.delete(f"/commands/{GREEN}/{identity}").status_code == 409
    assert stage.registry.delete(f"/commands/{GREEN}/nothing").status_code == 404


def test_a_device_that_asks_by_http_is_given_what_waits(stage: Stage) -> None:
    device = stage.device()
    identity = send(stage, device, "open", payload="door")
    answer = stage.http(device).post("/event?hono-ttd=20", content=b"awake")
    assert (answer.status_code, answer.headers["hono-command"], answer.content) == (200, "open", b"door")
    reaches(stage, identity, "accepted")


def test_a_group_is_told_one_by_one_those_that_sleep_later(stage: Stage) -> None:
    members = [stage.device(document={"ext": {"groups": ["lamps"]}}) for _ in range(3)]
    asked = {"name": "shine", "group": "lamps", "ttl": 600, "pace": {"per-second": 50, "at-once": 2}}
    answer = stage.registry.post(f"/commands/{GREEN}", json=asked)
    assert (answer.status_code, answer.json()["devices"]) == (202, 3)
    batch = answer.json()["batch"]

    def states() -> dict[str, int]:
        found: dict[str, int] = stage.registry.get(f"/commands/{GREEN}", params={"batch": batch}).json()["states"]
        return found

    for device in members[:2]:
        with stage.mqtt(device) as client:
            client.subscribe("command///req/#")
            assert client.next().topic == "command///req//shine"
    eventually(lambda: states() == {"accepted": 2, "queued": 1})
    with stage.mqtt(members[2]) as client:
        client.subscribe("command///req/#")
        client.next()
        eventually(lambda: states() == {"accepted": 3})
    assert stage.registry.post(f"/commands/{GREEN}", json={"name": "x", "group": "nobody"}).status_code == 404


def test_one_call_asks_a_device_and_waits_for_its_answer(stage: Stage) -> None:
    device = stage.device()
    path, asked = f"/commands/{GREEN}/{device}", {"name": "read", "mode": "direct"}
    assert stage.registry.post(f"{path}?wait=5", json=asked).status_code == 503
    with stage.mqtt(device) as client:
        client.subscribe("command///req/#")

        def answer(message: Any) -> None:
            client.publish(f"command///res/{message.topic.split('/')[4]}/200", b"21.5")

        client._client.on_message = lambda _c, _u, message: answer(message)
        found = stage.registry.post(f"{path}?wait=20", json=asked)
        assert (found.status_code, found.json()["status"], found.json()["payload"]) == (200, 200, "21.5")
        said = stage.installation.ok("iot", "command", "send", GREEN, "read", "-d", device, "--now", "--wait", "20")
        assert said == f"device {device} answers 200: 21.5\n"
        client._client.on_message = None
        assert stage.registry.post(f"{path}?wait=1", json=asked).status_code == 504


def test_an_application_has_a_command_stored_by_a_message(stage: Stage) -> None:
    device = stage.device()
    application = stage.application()
    told = {"reply_to": f"command_response/{GREEN}/app-9", "correlation_id": "c-9"}
    with application.listen("command_response", at="app-9") as responses:
        assert (
            application.command(device, "open", b"gate", properties={"command-mode": "stored"}, ttl=60.0, **told)
            == "accepted"
        )
        with stage.mqtt(device) as client:
            client.subscribe("command///req/#")
            command = client.next()
            assert command.payload == b"gate"
            client.send(f"command///res/{command.topic.split('/')[4]}/200", b"yes")
            assert responses.next().correlation_id == "c-9"
    assert application.command("nobody", "open", properties={"command-mode": "stored"}) == "rejected"


def test_the_command_line_sends_lists_shows_and_cancels(stage: Stage) -> None:
    device, ok = stage.device(), stage.installation.ok
    said = ok("iot", "command", "send", GREEN, "open", "-d", device, "-p", "gate", "--ttl", "60", "--supersede", "k")
    identity = said.split()[1]
    assert said == f"command {identity} is queued\n"
    assert f"{device}" in ok("iot", "command", "list", GREEN, "--device", device)
    assert "state: queued" in ok("iot", "command", "show", GREEN, identity)
    assert ok("iot", "command", "cancel", GREEN, identity) == f"command {identity} is cancelled\n"
    done = stage.installation.run("iot", "command", "cancel", GREEN, identity)
    assert (done.code, "waits no more" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"name": "a/b"}, 400),
        ({"name": "x", "mode": "sometimes"}, 400),
        ({"name": "x", "payload": "a", "payload-base64": "YQ=="}, 400),
        ({"name": "x", "devices": ["a"]}, 400),
        ({"name": "x", "payload": "x" * 70_000}, 413),
    ],
)
def test_a_wrong_command_is_refused(stage: Stage, body: dict[str, Any], status: int) -> None:
    assert stage.registry.post(f"/commands/{GREEN}/{stage.device()}", json=body).status_code == status


def test_commands_of_a_tenant_are_no_others(stage: Stage) -> None:
    identity = send(stage, stage.device(), "open")
    assert stage.registry.get(f"/commands/{BLUE}/{identity}").status_code == 404
    assert stage.registry.delete(f"/commands/{BLUE}/{identity}").status_code == 404
    assert stage.registry.post(f"/commands/{GREEN}/nobody", json={"name": "x"}).status_code == 404


@pytest.mark.chance
def test_no_command_is_lost_when_control_and_node_are_killed(stage: Stage) -> None:
    device = stage.device()
    identities = []
    for number in range(kills(4)):
        identities.append(send(stage, device, f"n{number}"))
        kind = ("control", "node")[number % 2]
        before = stage.installation.pid(kind)
        os.kill(before, signal.SIGKILL)
        until_replaced(stage, kind, before)
        stage.installation.ok("status", "--wait", "60")
        stage.renew()
    eventually(lambda: _answers(stage.registry))

    def is_let_in() -> bool:
        # A node that has just started asks devices to try again until it was told of the tenants.
        with stage.mqtt(device) as client:
            return not client.connected.is_failure

    eventually(is_let_in)
    with stage.mqtt(device) as client:
        client.subscribe("command///req/#")
        for identity in identities:
            reaches(stage, identity, "accepted")
        names = [client.messages.get_nowait().topic.rpartition("/")[2] for _ in range(client.messages.qsize())]
    assert set(names) == {f"n{number}" for number in range(kills(4))}


def until_replaced(stage: Stage, kind: str, before: int) -> None:
    eventually(lambda: stage.installation.pid(kind) != before)


def _answers(registry: httpx.Client) -> bool:
    return registry.get(f"/tenants/{GREEN}").status_code == 200
