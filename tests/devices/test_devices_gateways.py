"""Gateways: devices that act for others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devices.stage import GREEN, Asked, eventually
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from tests.devices.stage import Stage

PROVISIONED = "application/vnd.eclipse-hono-device-provisioning-notification"

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def needs() -> None:
    require("paho-mqtt", "python-qpid-proton")


def test_a_gateway_sends_for_its_devices_and_for_no_others(stage: Stage) -> None:
    gateway = stage.device()
    device, stranger = stage.device(document={"via": [gateway]}), stage.device()
    with stage.application().listen("event") as events:
        http = stage.http(gateway)
        assert http.put(f"/event//{device}", content=b"1").status_code == 202
        assert events.next(device).properties | {"device_id": device, "gateway_id": gateway} == events_of(
            device, gateway
        )
        assert http.put(f"/event/{GREEN}/{device}", content=b"2").status_code == 202
        events.next(device)
        assert http.put(f"/event//{stranger}", content=b"3").status_code == 403
        with stage.mqtt(gateway, version=5) as client:
            assert not client.send(f"event//{device}", b"4").is_failure
            assert events.next(device).properties["gateway_id"] == gateway
            client.publish(f"event//{stranger}/?on-error=ignore", b"5")
            assert client.answer("published").is_failure
        stage.change(device, {})
        eventually(lambda: http.put(f"/event//{device}", content=b"6").status_code == 403)


def events_of(device: str, gateway: str) -> dict[str, str]:
    return {
        "device_id": device,
        "tenant_id": GREEN,
        "gateway_id": gateway,
        "orig_adapter": "hono-http",
        "orig_address": f"/event//{device}",
    }


def test_commands_go_to_the_gateway_that_listens(stage: Stage) -> None:
    one, two = stage.device(document={"memberOf": ["hall"]}), stage.device()
    device = stage.device(document={"viaGroups": ["hall"], "via": [two]})
    application = stage.application()
    assert application.command(device, "blink") == "released"
    with stage.mqtt(one) as first, stage.mqtt(two) as second:
        first.subscribe("command//+/req/#")
        assert application.command(device, "blink") == "accepted"
        assert first.next().topic == f"command//{device}/req//blink"
        second.subscribe("c//+/q/#")
        second.send(f"e//{device}", b"I speak for it now")
        assert application.command(device, "blink") == "accepted"
        assert second.next().topic == f"c//{device}/q//blink"
        second.subscribe(f"command//{device}/req/#")
        assert application.command(device, "blink") == "accepted"
        assert second.next().topic == f"command//{device}/req//blink"
        with stage.mqtt(device) as itself:
            itself.subscribe("command///req/#")
            assert application.command(device, "blink") == "accepted"
            assert itself.next().topic == "command///req//blink"


def test_a_gateway_that_may_registers_the_devices_that_it_sends_for(stage: Stage) -> None:
    gateway = stage.device(document={"authorities": ["auto-provisioning-enabled"]})
    http = stage.http(gateway)
    name = f"new-of-{gateway}"
    with stage.application().listen("event") as events:
        assert http.put(f"/event//{name}", content=b"1").status_code == 202
        # The one comes over the node, the other from the registry.
        messages = [events.next(name), events.next(name)]
        [told] = [each for each in messages if each.content_type == PROVISIONED]
    assert (bytes(told.body), told.durable) == (b"", True)
    assert told.properties == {
        "tenant_id": GREEN,
        "device_id": name,
        "gateway_id": gateway,
        "hono_registration_status": "NEW",
        "orig_adapter": "hono-device-registry",
        "orig_address": "event",
    }

    def device() -> dict[str, Any]:
        found: dict[str, Any] = stage.registry.get(f"/devices/{GREEN}/{name}").json()
        return found

    status = eventually(lambda: device()["status"].get("auto-provisioning-notification-sent") and device()["status"])
    assert status["auto-provisioned"] is True
    assert device()["via"] == [gateway]
    assert http.put(f"/event//{name}", content=b"2").status_code == 202
    # What the registry alone writes outlives a change, and is not in an export.
    stage.change(name, {"via": [gateway], "ext": {"hall": "b"}, "status": {"auto-provisioned": False}})
    kept = device()["status"]
    assert (kept["auto-provisioned"], kept["auto-provisioning-notification-sent"]) == (True, True)
    exported = stage.registry.get(f"/export/{GREEN}").text
    assert name in exported
    assert "auto-provisioned" not in exported


def test_a_gateway_that_polls_as_itself_gets_the_commands_of_its_devices(stage: Stage) -> None:
    gateway = stage.device()
    device = stage.device(document={"via": [gateway]})
    http, application = stage.http(gateway), stage.application()
    with application.listen("event") as events:
        for target, marked in ((device, device), (gateway, None)):
            asked = Asked(http, "POST", "/event?hono-ttd=30", content=b"awake")
            assert events.next(gateway).properties["ttd"] == 30
            assert application.command(target, "blink") == "accepted"
            answer = asked.answer()
            assert (answer.status_code, answer.headers["hono-command"]) == (200, "blink")
            assert answer.headers.get("hono-cmd-target-device") == marked
        assert application.command(device, "blink") == "released"
