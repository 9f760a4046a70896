"""Removes from the schema registry what belonged to spaces that are gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from enmasse.control.runtime.controller import Controller
from enmasse.model.schema.kinds import ADDRESS_SPACE

if TYPE_CHECKING:
    from enmasse.control.context import Context
    from enmasse.control.store.port import Change, Store
    from enmasse.schemas.registry import SchemaRegistry

_ALL: Final = "all"


class SpaceSchemasController(Controller):
    """Forgets the schemas of each space that is deleted, and at the start of those that were.

    Args:
        context: the state that controllers share.
        schemas: the schema registry.
    """

    name = "schemas"
    workers = 1

    def __init__(self, context: Context, schemas: SchemaRegistry) -> None:
        super().__init__(jitter=context.jitter)
        self._store = context.store
        self._schemas = schemas

    def load(self, store: Store) -> None:
        """Enqueue what was left to do."""
        self.enqueue(_ALL)

    def apply(self, change: Change) -> None:
        """Take one change."""
        if change.action == "DELETED" and change.document["kind"] == ADDRESS_SPACE.name:
            self.enqueue(change.document["metadata"]["uid"])

    async def reconcile(self, key: str) -> bool:
        """Forget the schemas of one space, or of all that there are no more."""
        if key == _ALL:
            spaces = {space["metadata"]["uid"] for space in self._store.select(ADDRESS_SPACE.name)}
            await asyncio.to_thread(self._schemas.forget_others, spaces)
        elif self._store.find_uid(key) is None:
            await asyncio.to_thread(self._schemas.forget, key)
        return True
