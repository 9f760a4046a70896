"""Patterns that cross addresses, by AMQP and HTTP at a node."""

from __future__ import annotations

import asyncio
from pathlib import Path

from enmasse.node.management.entity_fields import ADDRESS_TYPE
from tests.support.polling import until_async
from tests.unit.node.http_scene import OPEN, Scene, play, version  # noqa: F401  a fixture


def test_a_pattern_reaches_addresses_that_are_declared_themselves(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.create(ADDRESS_TYPE, f"{OPEN}.uk", space=OPEN, address="news/uk", addressType="topic")
        space = scene.server.entities.spaces[OPEN]
        async with scene.amqp() as amqp, scene.client() as client, scene.client() as sender:
            async with amqp.receiver("news/#") as receiver:
                for name in ("news", "news%2Fuk", "news%2Ffr"):
                    assert (await sender.post(f"{name}/messages", content=name.encode())).is_success
                    delivery = await receiver.receive(60)
                    assert delivery is not None
                    assert delivery.message.body == name.encode()
                    delivery.accept()
            await until_async(lambda: not space.crossing)
            waiting = asyncio.create_task(client.post("news%2F%23/receive", params={"wait": 60}))
            await until_async(lambda: len(space.crossing) == 1)
            assert (await sender.post("news%2Fuk/messages", content=b"uk")).is_success
            answer = await waiting
            assert answer.status_code == 200, answer.text
            assert len(answer.json()["messages"]) == 1

    play(tmp_path, story)
