"""The lists of a tenant's devices that the host keeps for runners."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
from enmasse.pipeline import device_list
from enmasse.pipeline.device_list import DeviceList, path_of
from enmasse.pipeline.errors import RegistryAwayError
from enmasse.pipeline.host.devices import DeviceLists, tenant_of
from enmasse.pipeline.host.space_folders import SpaceFolder

S = 1_000_000
PLANT = ("default/shop", "default.plant")


class Registry:
    """An API whose registry has devices, and that counts how often it told all of them."""

    def __init__(self) -> None:
        self.ids, self.told, self.is_away = ["a", "b"], 0, False

    def answer(self, request: httpx.Request) -> httpx.Response:
        assert (request.url.path, request.url.query) == ("/registry/v1/ids/default.plant", b"space=shop")
        tag = f'"{",".join(self.ids)}"'
        if self.is_away:
            return httpx.Response(503)
        if request.headers.get("if-none-match") == tag:
            return httpx.Response(304)
        self.told += 1
        return httpx.Response(200, json=self.ids, headers={"etag": tag})


def test_a_list_follows_the_registry_and_stays_while_that_is_away(tmp_path: Path) -> None:
    registry, folder = Registry(), SpaceFolder(tmp_path / "default.shop", None)
    folder.make()
    path = path_of(folder.path, "default.plant")
    far = 4_000_000_000 * S

    async def play() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(registry.answer), base_url="http://api") as http:
            lists = DeviceLists(http, lambda: {PLANT: folder})
            assert await lists._read(PLANT, folder)
            assert await lists._read(PLANT, folder)
            assert DeviceList(path).ids_at(far) == {"a", "b"}
            assert registry.told == 1
            registry.is_away = True
            assert not await lists._read(PLANT, folder)
            registry.is_away, registry.ids = False, ["b", "c"]
            assert await lists._read(PLANT, folder)
            assert DeviceList(path).ids_at(far) == {"b", "c"}
            assert path.stat().st_mode & 0o077 == 0
            # Of another namespace the registry is not even asked.
            assert not await lists._read(("default/shop", "green.plant"), folder)

    asyncio.run(play())


def test_a_list_is_what_it_was_at_a_moment_and_old_changes_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "default.plant.json"
    for number in range(1000):
        content = DeviceList(path).changed_to([str(n) for n in range(number + 1)], number * 10 * S)
        assert content is not None
        path.write_bytes(content)
    lists = DeviceList(path)
    assert lists.changed_to([str(n) for n in range(1000)], 20_000 * S) is None
    for number in (999, 900, 700):
        # A change counts a second later, when whoever looks can see it.
        assert len(lists.ids_at((number * 10 + 1) * S)) == number + 1
        assert len(lists.ids_at((number * 10 + 1) * S - 1)) == number
    assert len(json.loads(path.read_bytes())["changes"]) == 360


def test_without_a_list_work_fails_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_list, "PATIENCE_S", 0.0)
    with pytest.raises(RegistryAwayError, match=r"tenant 'default.plant' .* no IoTProject of this space"):
        DeviceList(tmp_path / "default.plant.json").ids_at(S)


@pytest.mark.parametrize(
    ("builtin", "tenant"),
    [
        ({"name": "heartbeat", "parameters": {"address": "telemetry/default.plant", "alerts": "a"}}, None),
        (
            {
                "name": "heartbeat",
                "parameters": {"address": "telemetry/default.plant", "alerts": "a", "registered": True},
            },
            "default.plant",
        ),
        ({"name": "lake", "parameters": {"address": "telemetry/default.plant"}}, None),
    ],
)
def test_only_heartbeats_that_expect_devices_need_a_list(builtin: Any, tenant: str | None) -> None:
    spec = PipelineSpec.model_validate({"builtin": builtin}, by_alias=True, by_name=False)
    assert tenant_of(spec) == tenant
