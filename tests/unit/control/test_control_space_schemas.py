"""Schemas go with their space, and what another one of its name registers is its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from enmasse.model.schema.objects import decode
from enmasse.schemas.compatibility import read_schema
from enmasse.schemas.registry import SchemaRegistry
from enmasse.schemas.store import SchemaStore
from tests.support.polling import until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.unit.control.stage import Stage

    Perform = Callable[..., None]

SPACE = {
    "apiVersion": "enmasse.io/v1beta1",
    "kind": "AddressSpace",
    "metadata": {"name": "shop", "namespace": "default"},
    "spec": {"type": "standard", "plan": "standard-unlimited"},
}


@pytest.fixture
def schemas(tmp_path: Path) -> Iterator[SchemaRegistry]:
    with SchemaStore(tmp_path / "schemas.db") as store:
        yield SchemaRegistry(store)


def test_schemas_go_with_their_space_also_while_control_is_away(perform: Perform, schemas: SchemaRegistry) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create_namespaces()
        stage.registry.create_catalog()
        schemas.register("gone", "readings", read_schema("AVRO", '"int"'))
        space = stage.registry.create(decode(SPACE))["metadata"]["uid"]
        schemas.register(space, "readings", read_schema("AVRO", '"int"'))
        async with stage.controlled(schemas=schemas):
            await until_async(lambda: not schemas.subjects("gone"))
            assert schemas.subjects(space) == ["readings"]
            stage.registry.delete("AddressSpace", "default", "shop")
            await until_async(lambda: not schemas.subjects(space))
            assert schemas.revision(space) == 0

    perform(scene)
