"""What the devices of a tenant may use in a period: refused over every protocol, and remembered over restarts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.devices.stage import BLUE, eventually
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from tests.devices.stage import Stage

pytestmark = pytest.mark.slow

SINCE = "2026-01-01T00:00:00Z"


@pytest.fixture(autouse=True)
def as_before(stage: Stage) -> Iterator[None]:
    require("python-qpid-proton")
    yield
    limit(stage)


def limit(stage: Stage, document: dict[str, Any] | None = None) -> None:
    stage.registry.put(f"/tenants/{BLUE}", json=document or {}).raise_for_status()


def used(stage: Stage) -> dict[str, Any]:
    document: dict[str, Any] = stage.registry.get(f"/tenants/{BLUE}/usage").raise_for_status().json()
    return document


def test_a_data_volume_is_shared_by_all_devices_and_protocols_and_outlives_the_node(stage: Stage) -> None:
    first, second = stage.device(BLUE), stage.device(BLUE)
    client = stage.http(first, BLUE)
    volume = {"effective-since": SINCE, "max-bytes": 450, "period": {"mode": "days", "no-of-days": 30_000}}
    with stage.mqtt(second, BLUE, version=5) as device:
        assert not device.subscribe("command///req/#").is_failure
        limit(stage, {"minimum-message-size": 100, "resource-limits": {"data-volume": volume}})
        eventually(lambda: "data-volume" in used(stage))
        assert client.post("/event", content=b"x" * 101).status_code == 202  # counts as 200
        assert not device.send("event", b"three").is_failure
        assert stage.application(BLUE).command(second, "four", b"!") == "accepted"
        assert device.next().topic == "command///req//four"
        assert stage.application(BLUE).command(first, "nobody listens", b"!") == "released"  # and does not count
        assert client.post("/event", content=b"the last one, which goes over it").status_code == 202
        refused = client.post("/telemetry", content=b"one more")
        assert refused.status_code == 429
        assert f"tenant '{BLUE}' have used up their data volume" in refused.json()["detail"]
        assert device.send("event", b"six").value == 0x97  # quota exceeded
        assert stage.application(BLUE).command(second, "seven") == "rejected"
    eventually(lambda: used(stage) == {"data-volume": {"since": SINCE, "bytes": 500}})
    os.kill(stage.installation.pid("node"), signal.SIGKILL)
    stage.installation.ok("status", "--wait", "60")
    stage.renew()
    again = stage.http(first, BLUE)
    eventually(lambda: again.post("/event", content=b"and now?").status_code == 429)
    shown = json.loads(stage.installation.ok("iot", "tenant", "usage", BLUE, "-o", "json"))
    assert shown["data-volume"]["bytes"] >= 500
    volume["max-bytes"] = 10_000
    limit(stage, {"resource-limits": {"data-volume": volume}})
    eventually(lambda: again.post("/event", content=b"again").status_code == 202)
    volume["max-bytes"] = 1
    limit(stage, {"resource-limits": {"data-volume": volume}})
    eventually(lambda: again.post("/event", content=b"too much").status_code == 429)
    limit(stage)
    eventually(lambda: again.post("/event", content=b"without a limit").status_code == 202)


def test_who_was_connected_for_as_long_as_it_may_be_does_not_connect_again(stage: Stage) -> None:
    device = stage.device(BLUE)
    duration = {"effective-since": SINCE, "max-minutes": 0}
    with stage.mqtt(device, BLUE):
        limit(stage, {"resource-limits": {"connection-duration": duration}})
        eventually(lambda: used(stage).get("connection-duration", {}).get("since") == SINCE)
        with stage.mqtt(device, BLUE, version=5) as second:
            assert second.connected.value == 0x97
        assert stage.http(device, BLUE).post("/event", content=b"a request is no connection").status_code == 202
    duration["max-minutes"] = 5
    limit(stage, {"resource-limits": {"connection-duration": duration}})

    def connects() -> bool:
        with stage.mqtt(device, BLUE, version=5) as third:
            return not third.connected.is_failure

    eventually(connects)
