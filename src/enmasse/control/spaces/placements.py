"""The placements of all spaces, each under the policy of its plan.

They are read from the published statuses at the start, so that a restart changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.control.spaces.credits import CreditPlaces
from enmasse.control.spaces.effective import effective_space_limits
from enmasse.control.spaces.quota import Claim, CountedPlaces, Place, Places
from enmasse.model.schema.kinds import ADDRESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.runtime.desired import AddressRow, Desired
    from enmasse.control.store.port import Document, Store
    from enmasse.model.kinds.plans import AddressSpacePlan
    from enmasse.model.kinds.spaces import AddressSpace

_BROKER = "broker-"  # names of brokers that the credit policy gives begin so


class Placements:
    """The places of all spaces.

    Args:
        desired: the declarations.
        store: the store of the statuses.
        node_of: gives the name of the node that a space is placed on, by its key.
    """

    def __init__(self, desired: Desired, store: Store, node_of: Callable[[str], str]) -> None:
        self.node_of = node_of
        self._desired = desired
        self._store = store
        self._places: dict[str, Places] = {}
        self._policies: dict[str, tuple[str, str]] = {}

    def clear(self) -> None:
        """Forget everything: it is read again when it is needed."""
        self._places.clear()

    def of(self, key: str) -> Places:
        """Return the places of a space."""
        places = self._places.get(key)
        if places is None:
            places = self._places[key] = self._restored(key)
        return places

    def drop(self, key: str) -> None:
        """Forget the places of a deleted space."""
        self._places.pop(key, None)
        self._policies.pop(key, None)

    def refresh(self, key: str) -> list[str]:
        """Take over the limits of a space as they are now; return who has got a place by that."""
        space, plan = self._space(key)
        if key not in self._places:
            return []  # they are read when they are needed
        if space is None:
            return self._places[key].relimit({})
        if self._policies.get(key) != _policy(space, plan):
            self._places.pop(key, None)
        places = self.of(key)
        places.plan = space.spec.plan_name
        return places.relimit(plan_limits(space, plan))

    def give_back(self, row: AddressRow) -> list[str]:
        """Release the place of a deleted address; return the keys that have got a place by that."""
        places = self._places.get(row.space)
        return places.give_back(row.key) if places is not None else []

    def excess_elsewhere(self, key: str, space: AddressSpace, plan: AddressSpacePlan) -> list[str]:
        """Return the limits that the addresses of a space would exceed under another policy; none if they fit."""
        places = make_places(space, plan, key)
        present = self.of(key)
        for name in self._desired.addresses_of(key):
            row = self._desired.addresses[name]
            if present.place_of(name) is None:
                continue
            document = self._store.find(ADDRESS.name, row.namespace, row.name)
            if document is not None and places.acquire(name, row.order, held_claim(document)) is None:
                return [places.refusal(name)]
        return []

    def _restored(self, key: str) -> Places:
        space, plan = self._space(key)
        self._policies[key] = _policy(space, plan)
        places = make_places(space, plan, key)
        for name in self._desired.addresses_of(key):
            row = self._desired.addresses[name]
            if not row.is_scheduled:
                continue
            if isinstance(places, CountedPlaces):
                places.hold(row.key, row.order, Claim(), Place())
                continue
            document = self._store.find(ADDRESS.name, row.namespace, row.name)
            if document is not None:
                self._hold(places, row, document)
        return places

    @staticmethod
    def _hold(places: Places, row: AddressRow, document: Document) -> None:
        claim = held_claim(document)
        found = document.get("status", {}).get("brokerStatuses", ())
        brokers = tuple(item["clusterId"] for item in found if item["clusterId"].startswith(_BROKER))
        # One that was placed under the other policy has no brokers yet.
        if brokers or places.acquire(row.key, row.order, claim) is None:
            places.hold(row.key, row.order, claim, Place(brokers))

    def _space(self, key: str) -> tuple[AddressSpace | None, AddressSpacePlan | None]:
        space = self._desired.spaces.get(key)
        return space, self._desired.space_plans.get(space.spec.plan_name) if space else None


def held_claim(document: Document) -> Claim:
    """Return the claim of an address when it got its place, from its published status."""
    spec: dict[str, Any] = document["spec"]
    status = document.get("status") or {}
    planned = status.get("planStatus") or {}
    resources = planned.get("resources") or {}
    brokers = [item for item in status.get("brokerStatuses") or () if item["clusterId"].startswith(_BROKER)]
    return Claim(
        address=spec["address"],
        kind=spec["type"],
        topic=spec.get("topic") or "",
        plan=planned.get("name", ""),
        router=resources.get("router", 0.0),
        broker=resources.get("broker", 0.0),
        partitions=max(len(brokers), 1) if spec["type"] == "queue" else 1,
    )


def make_places(space: AddressSpace | None, plan: AddressSpacePlan | None, key: str) -> Places:
    """Return the places of a space under the policy of its plan, all free."""
    policy, kind = _policy(space, plan)
    limits = plan_limits(space, plan) if space else {}
    name = space.spec.plan_name if space else ""
    if policy == "credits":
        return CreditPlaces(key, limits, name, is_pooled=kind == "standard")
    return CountedPlaces("addresses", limits, name)


def plan_limits(space: AddressSpace, plan: AddressSpacePlan | None) -> dict[str, float]:
    """Return the limits of a space for places, by resource."""
    if plan is not None and plan.spec.policy == "credits":
        return dict(plan.spec.resource_limits)
    addresses = effective_space_limits(space.spec, plan.spec if plan else None).addresses
    return {} if addresses is None else {"addresses": float(addresses)}


def _policy(space: AddressSpace | None, plan: AddressSpacePlan | None) -> tuple[str, str]:
    return (plan.spec.policy if plan else "limits"), (space.spec.type if space else "standard")
