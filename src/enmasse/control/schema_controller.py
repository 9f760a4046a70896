"""Publishes what tenants may choose from: an AddressSpaceSchema for each type of spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.control.errors import ResourceNotFoundError
from enmasse.control.runtime import Controller
from enmasse.identity.requester import OURSELVES
from enmasse.model.authentication import AuthenticationService
from enmasse.model.choices import address_space_schemas
from enmasse.model.kinds import restore
from enmasse.model.plans import PLAN_NAMESPACE, AddressPlan, AddressSpacePlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.registry import Registry
    from enmasse.control.store import Change, ResourceStore

__all__ = ["SchemaPublisher"]

_KEY = "schema"
_KIND = "AddressSpaceSchema"
_SOURCES = ("AddressSpacePlan", "AddressPlan", "AuthenticationService")


class SchemaPublisher:
    """Keeps the schemas as the operator's objects are; a listener of the store's changes.

    Args:
        registry: where both lie.
        jitter: gives a factor around 1 for delays.

    Attributes:
        controller: to be run by a ``Runtime``, which this listens to.
    """

    def __init__(self, registry: Registry, *, jitter: Callable[[], float]) -> None:
        self.controller = Controller("schemas", self._look, jitter=jitter, workers=1)
        self._registry = registry

    def load(self, store: ResourceStore) -> None:
        """Have the schemas looked at."""
        self.controller.look_at(_KEY)

    def apply(self, change: Change) -> None:
        """Have them looked at if they depend on what changed, or were changed themselves."""
        if change.document["kind"] in (*_SOURCES, _KIND):
            self.controller.look_at(_KEY)

    async def _look(self, _key: str) -> bool:
        store = self._registry.store
        found = [restore(document) for kind in _SOURCES for document in store.select(kind, PLAN_NAMESPACE)]
        wanted = address_space_schemas(
            [item for item in found if isinstance(item, AddressSpacePlan)],
            [item for item in found if isinstance(item, AddressPlan)],
            [item for item in found if isinstance(item, AuthenticationService)],
        )
        for schema in wanted:
            try:
                self._registry.replace(schema, user=OURSELVES)
            except ResourceNotFoundError:
                self._registry.create(schema, user=OURSELVES)
        names = {schema.metadata.name for schema in wanted}
        for document in store.select(_KIND):
            if document["metadata"]["name"] not in names:
                self._registry.delete(_KIND, "", document["metadata"]["name"], user=OURSELVES)
        return True
