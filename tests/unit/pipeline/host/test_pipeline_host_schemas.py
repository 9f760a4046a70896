"""The copy of the schema registry that the host keeps for runners."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
from enmasse.pipeline.host.schemas import SchemaCopies, needs_registry
from enmasse.pipeline.host.space_folders import SpaceFolder
from enmasse.pipeline.registry_copy import RegistryCopy

SHOP = ("default/shop", "uid-1")


class Registry:
    """An API whose registry is in a state, and that counts how often it told all of it."""

    def __init__(self) -> None:
        self.tag, self.versions, self.told, self.is_away = '"1"', [{"id": 1, "subject": "a", "version": 1}], 0, False

    def answer(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/schemas/v1/spaces/default/shop/schemas"
        if self.is_away:
            return httpx.Response(503)
        if request.headers.get("if-none-match") == self.tag:
            return httpx.Response(304)
        self.told += 1
        versions = [{**item, "schema": '"int"'} for item in self.versions]
        return httpx.Response(200, json=versions, headers={"etag": self.tag})


def test_a_copy_is_written_when_the_registry_changes_and_its_time_is_when_it_was_asked(tmp_path: Path) -> None:
    registry, folder = Registry(), SpaceFolder(tmp_path / "default.shop", None)
    folder.make()
    path = folder.path / "schemas" / "registry.json"

    async def play() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(registry.answer), base_url="http://api") as http:
            copies = SchemaCopies(http, lambda: {SHOP: folder})

            async def copied() -> float:
                await copies._copy(SHOP, folder)
                return path.stat().st_mtime

            first = await copied()
            assert RegistryCopy(path).schema(1, first) is not None
            assert (second := await copied()) > first
            assert registry.told == 1
            registry.is_away = True
            assert await copied() == second
            registry.is_away = False
            registry.tag, registry.versions = '"2"', [{"id": 2, "subject": "a", "version": 2}]
            assert await copied() > second
            assert json.loads(path.read_bytes())[0]["id"] == 2
            assert path.stat().st_mode & 0o077 == 0

    asyncio.run(play())


@pytest.mark.parametrize(
    ("document", "is_needed"),
    [
        ({"sources": [{"name": "a", "address": "a"}], "sinks": [{"table": "t"}]}, False),
        ({"sources": [{"name": "a", "address": "a", "schemaRegistry": {"subject": "s"}}]}, True),
        ({"sinks": [{"address": "a", "schemaRegistry": {"subject": "s"}}]}, True),
    ],
)
def test_only_pipelines_that_name_schemas_need_it(document: Any, is_needed: bool) -> None:
    assert needs_registry(PipelineSpec.model_validate(document, by_alias=True, by_name=False)) is is_needed
