"""All declared objects in memory, arranged as planning needs them.

It follows the store's changes, and tells for each of them which spaces have
to be looked at again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Self

from enmasse.control.admission import PlanCatalog
from enmasse.model.addresses import Address
from enmasse.model.kinds import KINDS, restore
from enmasse.model.plans import PLAN_NAMESPACE, AddressPlan, AddressSpacePlan
from enmasse.model.spaces import AddressSpace

if TYPE_CHECKING:
    from enmasse.control.store import Change, ResourceStore
    from enmasse.model.resource import Resource

__all__ = ["Inventory"]


class Inventory:
    """What is declared, as of ``version`` of the store."""

    def __init__(self) -> None:
        self.version = 0
        self.spaces: dict[str, AddressSpace] = {}
        self.addresses: defaultdict[str, dict[str, Address]] = defaultdict(dict)
        """By the key of their space, then by their own."""
        self.space_plans: dict[str, AddressSpacePlan] = {}
        self.address_plans: dict[str, AddressPlan] = {}

    @property
    def plans(self) -> PlanCatalog:
        """The operator's plans."""
        return PlanCatalog(self.space_plans, self.address_plans)

    def space_keys(self) -> set[str]:
        """Return the keys of all spaces that are declared, or named by an address."""
        return self.spaces.keys() | {key for key, items in self.addresses.items() if items}

    def find(self, resource: Resource) -> Resource | None:
        """Return the present form of an object."""
        match resource:
            case AddressSpace():
                return self.spaces.get(resource.key)
            case Address():
                return self.addresses.get(resource.space_key, {}).get(resource.key)
            case AddressSpacePlan():
                return self.space_plans.get(resource.metadata.name)
            case AddressPlan():
                return self.address_plans.get(resource.metadata.name)
        return None

    @classmethod
    def of(cls, store: ResourceStore) -> Self:
        """Return everything that a store holds now."""
        inventory = cls()
        for kind in KINDS:
            for document in store.select(kind.name):
                inventory._put(restore(document))
        inventory.version = store.version
        return inventory

    def apply(self, change: Change) -> set[str] | None:
        """Take one change; return the keys of the spaces that it concerns, None for all of them."""
        self.version = change.version
        resource = restore(change.document)
        if change.action == "DELETED":
            self._remove(resource)
            return _concerned(resource)
        former = self._put(resource)
        if former is not None and _same_declaration(former, resource):
            return set()  # only its status was written
        return _concerned(resource)

    def _put(self, resource: Resource) -> Resource | None:
        """Keep an object and return its former version."""
        former: Resource | None = None
        match resource:
            case AddressSpace():
                former = self.spaces.get(resource.key)
                self.spaces[resource.key] = resource
            case Address():
                former = self.addresses[resource.space_key].get(resource.key)
                self.addresses[resource.space_key][resource.key] = resource
            case AddressSpacePlan() if resource.metadata.namespace == PLAN_NAMESPACE:
                former = self.space_plans.get(resource.metadata.name)
                self.space_plans[resource.metadata.name] = resource
            case AddressPlan() if resource.metadata.namespace == PLAN_NAMESPACE:
                former = self.address_plans.get(resource.metadata.name)
                self.address_plans[resource.metadata.name] = resource
        return former

    def _remove(self, resource: Resource) -> None:
        match resource:
            case AddressSpace():
                self.spaces.pop(resource.key, None)
            case Address():
                self.addresses[resource.space_key].pop(resource.key, None)
                if not self.addresses[resource.space_key]:
                    del self.addresses[resource.space_key]
            case AddressSpacePlan() if resource.metadata.namespace == PLAN_NAMESPACE:
                self.space_plans.pop(resource.metadata.name, None)
            case AddressPlan() if resource.metadata.namespace == PLAN_NAMESPACE:
                self.address_plans.pop(resource.metadata.name, None)


def _same_declaration(former: Resource, present: Resource) -> bool:
    old, new = former.metadata, present.metadata
    return (old.uid, old.generation) == (new.uid, new.generation)


def _concerned(resource: Resource) -> set[str] | None:
    match resource:
        case AddressSpace():
            return {resource.key}
        case Address():
            return {resource.space_key}
        case _:
            return None
