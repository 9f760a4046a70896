"""Events of CloudEvents between its own library over MQTT 5 and clients of HTTP."""

from __future__ import annotations

import json
import os
import subprocess

import httpx
import pytest

from tests.interop.conftest import HERE, TOOLS, Addresses
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess

EVENT = {
    "specversion": "1.0", "id": "7", "source": "/till", "type": "sold", "time": "2026-01-31T12:00:00.000Z",
    "shop": "3", "datacontenttype": "application/json", "data": {"price": 19.9},
}  # fmt: skip


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_events_of_its_own_library_are_those_of_http(node: NodeProcess, addresses: Addresses, mode: str) -> None:
    require("CloudEvents' library for Node.js")
    topic = addresses.declare("topic")
    kept = addresses.declare("subscription", topic=topic)
    http = httpx.Client(
        base_url=f"http://127.0.0.1:{node.port}/v1/spaces/interop.default/addresses/", trust_env=False, timeout=60
    )
    client = subprocess.Popen(
        ["node", str(HERE / "cloudevents_client.js"), str(node.port), topic, mode, "2"],
        env={**os.environ, "NODE_PATH": str(TOOLS / "node_modules")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "subscribed\n"
        assert json.loads(client.stdout.readline())["id"] == "7", "its own, back"
        answer = http.post(
            f"{kept}/receive",
            params={"wait": 60, "auto": "true"},
            headers={"Accept": "application/cloudevents-batch+json"},
        )
        assert answer.json() == [EVENT], answer.text
        headers = {f"ce-{name}": value for name, value in EVENT.items() if isinstance(value, str) and name != "id"}
        del headers["ce-datacontenttype"]
        sent = http.post(f"{topic}/messages", headers={**headers, "ce-id": "8"}, json=EVENT["data"])
        assert sent.status_code == 202, sent.text
        told = json.loads(client.stdout.readline())
        assert json.loads(told.pop("data")) == EVENT["data"], "the library leaves it as it came"
        assert {name: told[name] for name in ("id", "source", "type", "shop")} == {
            "id": "8", "source": "/till", "type": "sold", "shop": "3",
        }  # fmt: skip
    finally:
        client.kill()
        client.communicate()
        http.close()
