"""Devices that come to a node before it was told of their tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.node.http_scene import Scene, basic, play

if TYPE_CHECKING:
    from pathlib import Path


def test_what_may_be_a_device_is_no_stranger_while_tenants_are_awaited(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        devices = scene.server.devices
        async with scene.client() as client:

            async def status(name: str) -> int:
                return (await client.post("orders/messages", content=b"x", headers=basic(name))).status_code

            assert await status("lamp@ns.plant") == 202, "a node on its own waits for nobody"
            devices.expect_tenants()
            assert await status("lock@ns.plant") == 429
            assert await status("lamp@open.ns") == 202, "a realm that is a space's"
            assert await status("lamp") == 202
            devices.directory.keep_tenants(set())
            assert await status("lock@ns.plant") == 202

    play(tmp_path, story)
