"""The control process with several nodes: what visits a space does so at the node that has it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from enmasse.control.context import Context
from enmasse.control.errors import NodeUnavailableError
from enmasse.control.store.registry import Registry
from enmasse.control_process.nodes import NodeLinks, visitor
from enmasse.drivers.data_directory import Layout
from tests.unit.control.stage import have_home


def test_a_space_is_visited_at_its_node(registry: Registry, tmp_path: Path) -> None:
    nodes = [NodeLinks(name, None, Layout(tmp_path), lambda: 1.0) for name in ("north", "south")]
    placed = {"default/shop": "north", "default/hall": "south"}
    admins = [node.admin for node in nodes]
    context = Context(registry, admins, now=str, jitter=lambda: 1.0)
    for space, name in placed.items():
        have_home(context, space, name)
    visit = visitor(nodes, context)

    async def enter(space: str) -> None:
        async with visit(space):
            pass

    for space, node in placed.items():
        with pytest.raises(NodeUnavailableError, match=f"node {node} is not connected"):
            asyncio.run(enter(space))
