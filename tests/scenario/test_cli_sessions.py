"""The sessions of MQTT's clients and the wills of all clients, as commands and the API show them, and their end."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from enmasse.wire.mqtt.packets import Reason, Version, Will
from tests.support.mqtt_peer import MqttPeer
from tests.support.polling import until

if TYPE_CHECKING:
    from tests.support.installation import Installation

pytestmark = pytest.mark.slow

STRANGE = ("..", ".", "a/b", "a b?c=d#e", "%2e%2e", "ü")
"""Client identifiers that mean something else in a path, if they are not encoded."""


def listed(own: Installation, what: str, space: str = "shop") -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(own.ok("get", what, "-s", space, "-o", "json"))["items"]
    return found


def test_sessions_and_wills_are_shown_without_what_is_in_them_and_ended(own: Installation) -> None:
    port = urlsplit(own.url("mqtt")).port
    assert port is not None
    own.ok("create", "space", "shop")
    own.ok("create", "address", "lamps", "--type", "topic", "-s", "shop")
    own.ok("create", "space", "other")
    realm: dict[str, Any] = {"user_name": "@shop.default"}
    will = Will("lamps/gone", b"a secret of the lamp", qos=1, delay_s=60)

    async def leave_sessions() -> None:
        for client_id in ("lamp", *STRANGE):
            async with MqttPeer(port, client_id, Version.V5, session_expiry_s=300, **realm) as peer:
                assert await peer.subscribed("lamps/#", qos=1) == [1]
                peer.leave()
                await peer.ended()
        async with MqttPeer(port, "switch", **realm) as peer:
            assert await peer.answer("lamps/1", b"a secret of the switch") == 0

    async def with_a_will() -> None:
        options: dict[str, Any] = {"session_expiry_s": 300, "will": will, "is_clean": False, **realm}
        async with MqttPeer(port, "lamp", **options) as peer:
            await peer.next("publish")
            (mine,) = [item for item in listed(own, "sessions") if item["name"] == "lamp"]
            assert (mine["connected"], mine["filters"], mine["inFlightOut"]) == (True, ["lamps/#"], 1)
            (armed,) = listed(own, "wills")
            assert (armed["client"], armed["address"], armed["state"], armed["delay"]) == (
                "lamp", "lamps/gone", "armed", 60.0
            )  # fmt: skip
            assert own.ok("delete", "session", "lamp", "-s", "shop") == "session/lamp ended\n"
            last = await peer.ended()
            assert last is not None
            assert last.reason == Reason.ADMINISTRATIVE_ACTION

    asyncio.run(leave_sessions())
    table = own.ok("get", "sessions", "-s", "shop").splitlines()
    assert table[0].split() == [
        "CLIENT", "USER", "CONNECTED", "FILTERS", "WAITING", "BYTES", "LOST", "IN-FLIGHT", "EXPIRY"
    ]  # fmt: skip
    assert {item["name"] for item in listed(own, "sessions")} == {"lamp", *STRANGE}
    assert all((item["connected"], item["messagesStored"]) == (False, 1) for item in listed(own, "sessions"))
    assert own.run("get", "wills", "-s", "shop").err == "There are no wills.\n"
    assert own.run("get", "sessions", "-s", "other").err == "There are no sessions.\n"
    asyncio.run(with_a_will())

    # What is in messages is in no answer, of the API neither.
    path = f"{own.url('api')}/apis/enmasse.io/v1beta1/namespaces/default/addressspaces/shop"
    with httpx.Client(headers=own.proof) as http:
        told = [http.get(f"{path}/{what}") for what in ("sessions", "wills", "connections", "links")]
    assert [answer.status_code for answer in told] == [200] * 4
    assert not any("secret" in answer.text for answer in told)

    elsewhere = own.run("delete", "session", "..", "-s", "other")
    assert (elsewhere.code, "space other has no session of client .." in elsewhere.err) == (3, True)
    for client_id in STRANGE:
        assert own.ok("delete", f"session/{client_id}", "-s", "shop") == f"session/{client_id} ended\n"
    until(lambda: not listed(own, "sessions"), lambda: listed(own, "sessions"))
    again = own.run("delete", "session", "lamp", "--space", "shop")
    assert (again.code, "space shop has no session of client lamp" in again.err) == (3, True)
    assert own.run("get", "sessions", "--space", "nowhere").code == 3
    assert own.ok("get", "space", "shop", "-o", "name") == "addressspace/shop\n"
