"""MQTT over WebSocket, as web pages use it: MQTT.js in a real browser and in Node.js."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.browser import Site, browse
from tests.interop.conftest import TOOLS
from tests.interop.mqtt.conftest import Peer
from tests.support.foreign_tools import require
from tests.support.mqtt_devices import Connect, Foreign

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
COUNT = 15

PLAY = """(async () => {
    const byte = (pair) => parseInt(pair, 16);
    const bytes = (text) => new TextDecoder().decode(Uint8Array.from(text.match(/../g), byte));
    const answer = makeClients(mqtt, bytes, 15000);
    const received = [];
    for (const request of asked) {
        received.push(await answer(request));
    }
    tell({received, errors: []});
})()"""


def story(peer: Peer, version: int) -> list[dict[str, str]]:
    """A page subscribes, publishes with every QoS, and takes what comes."""
    at = f"web-{version}"
    requests: list[dict[str, Any]] = [
        {"do": "connect", "name": at, "url": peer.web_url, "version": version, "id": at, "clean": 1}
    ]
    for qos in (0, 1, 2):
        topic = f"web/{version}/{qos}"
        payloads = ",".join(f"grüße {number}".encode().hex() for number in range(COUNT))
        requests += [
            {"do": "subscribe", "name": at, "version": version, "filter": topic, "qos": qos},
            {"do": "publish", "name": at, "topic": topic, "qos": qos, "retain": 0, "payloads": payloads},
            {"do": "receive", "name": at, "count": COUNT},
        ]
    requests.append({"do": "disconnect", "name": at})
    # They come as in the query of a URL: as text.
    return [{name: str(value) for name, value in request.items()} for request in requests]


def test_a_page_publishes_and_subscribes_with_every_qos(peer: Peer, tmp_path: Path) -> None:
    require("MQTT.js")
    scripts = {
        "mqtt.js": TOOLS / "node_modules" / "mqtt" / "dist" / "mqtt.min.js",
        "play.js": HERE / "mqttjs_client.js",
    }
    with Site(scripts, PLAY) as pages:
        pages.asked = story(peer, 4) + story(peer, 5)
        report = browse(pages, tmp_path / "profile")
    assert report["errors"] == []
    told = iter(report["received"])
    for _ in (4, 5):
        assert next(told) == {"present": False}
        for qos in (0, 1, 2):
            assert next(told) == {"granted": qos}
            assert next(told) == {"reasons": [0] * COUNT}
            messages = next(told)["messages"]
            assert [bytes.fromhex(message["payload"]).decode() for message in messages] == [
                f"grüße {number}" for number in range(COUNT)
            ]
            assert {message["qos"] for message in messages} == {qos}
        assert next(told) == {}


@pytest.mark.parametrize("version", [4, 5])
def test_a_page_and_a_device_hear_each_other(
    mqttjs: Foreign, paho: Foreign, version: int, peer: Peer, connect: Connect
) -> None:
    page, device = connect(mqttjs, version, url=peer.web_url), connect(paho, version)
    large = b"x" * 300_000
    page.subscribe(f"page/{version}/in", 1)
    device.subscribe(f"page/{version}/out", 1)
    page.publish(f"page/{version}/out", large, b"small", qos=1)
    assert device.receive_bodies(2) == [large, b"small"]
    device.publish(f"page/{version}/in", large, b"small", qos=1)
    assert page.receive_bodies(2) == [large, b"small"]
