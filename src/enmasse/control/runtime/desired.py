"""The desired state, in memory as far as planning needs it, with the indexes that keep work small.

Spaces, plans and infrastructure configurations are kept whole: they are few. Of addresses, of which there may be
hundreds of thousands, a row of their most important facts is kept; the whole lies in the store.

It follows the store's changes and enqueues, for each, the keys that have to be reconciled:
an address concerns itself, whatever refers to it and whatever claims the same address; a plan all that use it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.control.runtime.verdicts import PlanCatalog
from enmasse.model.kinds.infra import BrokeredInfraConfig, StandardInfraConfig
from enmasse.model.kinds.plans import AddressPlan, AddressSpacePlan
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.kinds import (
    ADDRESS,
    ADDRESS_PLAN,
    ADDRESS_SPACE,
    ADDRESS_SPACE_PLAN,
    BROKERED_INFRA_CONFIG,
    STANDARD_INFRA_CONFIG,
)
from enmasse.model.schema.names import PLAN_NAMESPACE, space_of
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.control.store.port import Change, Document, Store
    from enmasse.model.kinds.infra import InfraConfig
    from enmasse.model.schema.resource import Resource

_REFERENCES = ("topic", "deadletter", "expiry", "fallback")
_WHOLE = (
    STANDARD_INFRA_CONFIG.name,
    BROKERED_INFRA_CONFIG.name,
    ADDRESS_SPACE_PLAN.name,
    ADDRESS_PLAN.name,
    ADDRESS_SPACE.name,
)
"""Kinds that are kept whole, in an order in which each finds what it names."""

_NONE: frozenset[str] = frozenset()


class AddressRow:
    """The facts of one address that are kept in memory.

    Attributes:
        key: ``<namespace>/<object name>``.
        space: ``<namespace>/<space>``.
        address: the name for applications.
        type: its type.
        plan: its plan, None for the smallest.
        references: the addresses that it names.
        forwarders: the number of its forwarders.
        uid: the uid of the object.
        generation: the generation of its spec.
        order: rises with every address that is created.
        is_leaving: whether its deletion was requested.
        is_scheduled: whether it has its place, as was published or found since.
        phase: the phase as it was published.
    """

    __slots__ = (
        "address",
        "forwarders",
        "generation",
        "is_leaving",
        "is_scheduled",
        "key",
        "order",
        "phase",
        "plan",
        "references",
        "space",
        "type",
        "uid",
    )

    def __init__(self, document: Document, order: int) -> None:
        metadata, spec = document["metadata"], document["spec"]
        status: dict[str, Any] = document.get("status") or {}
        name: str = metadata["name"]
        self.key = f"{metadata['namespace']}/{name}"
        self.space = f"{metadata['namespace']}/{space_of(name)}"
        self.address: str = spec["address"]
        self.type: str = spec["type"]
        self.plan: str | None = spec.get("plan")
        self.references: tuple[str, ...] = tuple({spec[item] for item in _REFERENCES if spec.get(item)})
        self.forwarders = len(spec.get("forwarders") or ())
        self.uid: str = metadata.get("uid", "")
        self.generation: int = metadata.get("generation", 0)
        self.order = order
        self.is_leaving = bool(metadata.get("deletionTimestamp"))
        # What has no place has no plan in effect; what has one keeps both, whatever it waits for now.
        self.is_scheduled = "planStatus" in status
        self.phase: str = status.get("phase", "Pending")

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """The name of its object."""
        return self.key.partition("/")[2]


class Interest(Protocol):
    """The queues and everything else that depends on the desired state."""

    def enqueue_address(self, key: str, *, background: bool = False) -> None:
        """Enqueue an address."""

    def enqueue_space(self, key: str, *, background: bool = False) -> None:
        """Enqueue a space."""

    def enqueue_plan(self, kind: str, name: str) -> None:
        """Enqueue a plan."""

    def limits_changed(self, space: str) -> None:
        """Handle changed limits of a space: at once, before any address is reconciled with the former ones."""

    def forget_address(self, row: AddressRow) -> None:
        """Handle an address that is no longer declared."""

    def reloaded(self) -> None:
        """Handle a reload, after which everything may be different."""


class Desired:
    """The desired state: spaces and plans whole, and a row of each address.

    Args:
        interest: takes the keys that have to be reconciled.
    """

    def __init__(self, interest: Interest) -> None:
        self._interest = interest
        self._clear()

    def _clear(self) -> None:
        self.spaces: dict[str, AddressSpace] = {}
        self.space_plans: dict[str, AddressSpacePlan] = {}
        self.address_plans: dict[str, AddressPlan] = {}
        self.infra: dict[tuple[str, str], InfraConfig] = {}
        self.addresses: dict[str, AddressRow] = {}
        self.phases: Counter[tuple[str, str]] = Counter()
        """The number of addresses of each space, by phase."""
        self.forwarders: Counter[str] = Counter()
        """The number of forwarders of the addresses of each space."""
        self._of_space: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._claims: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._referrers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._by_plan: defaultdict[tuple[str | None, str], dict[str, None]] = defaultdict(dict)
        self._by_space_plan: defaultdict[str, set[str]] = defaultdict(set)
        self._last_order = 0

    @property
    def plans(self) -> PlanCatalog:
        """The operator's plans and infrastructure configurations."""
        return PlanCatalog(self.space_plans, self.address_plans, self.infra)

    def addresses_of(self, space: str) -> Iterable[str]:
        """Return the keys of a space's addresses, in the order of their creation."""
        return self._of_space.get(space, {}).keys()

    def claimants(self, space: str, address: str) -> list[AddressRow]:
        """Return all that declare the same address of a space, oldest first."""
        keys = self._claims.get((space, address), ())
        return sorted((self.addresses[key] for key in keys), key=lambda row: row.order)

    def owner(self, space: str, address: str) -> AddressRow | None:
        """Return the row that owns the address: the one that has it already, or else the oldest."""
        rows = self.claimants(space, address)
        return min(rows, key=lambda row: (not row.is_scheduled, row.order), default=None)

    def referrers(self, space: str, address: str) -> frozenset[str] | set[str]:
        """Return the keys of the addresses of a space that refer to one of it."""
        return self._referrers.get((space, address), _NONE)

    def spaces_with_plan(self, plan: str) -> list[str]:
        """Return the keys of the spaces that have a plan."""
        return sorted(self._by_space_plan.get(plan, ()))

    def addresses_with_plan(self, plan: AddressPlan) -> list[str]:
        """Return the keys of the addresses that have a plan, or may have it by default."""
        # Those that name none have the smallest plan of their type, of which this may be one.
        kind = plan.spec.address_type
        return [*self._by_plan.get((plan.metadata.name, ""), ()), *self._by_plan.get((None, kind), ())]

    # Following the store

    def load(self, store: Store) -> None:
        """Load everything that a store holds now."""
        self._clear()
        for kind in _WHOLE:
            for document in store.bodies(kind):
                self._put(restore(document))
        for document in store.bodies(ADDRESS.name):
            self._add(document)
        self._interest.reloaded()

    def apply(self, change: Change) -> None:
        """Take one change."""
        document = change.document
        kind = document["kind"]
        if kind == ADDRESS.name:
            self._apply_address(change)
        elif kind in _WHOLE:
            before = change.before
            if change.action == "MODIFIED" and before is not None and _is_same(before, document):
                if kind == ADDRESS_SPACE.name:
                    self._put(restore(document))  # others depend on its status
                return
            self._apply_whole(restore(document), is_deleted=change.action == "DELETED")

    def _apply_address(self, change: Change) -> None:
        document = change.document
        key = f"{document['metadata']['namespace']}/{document['metadata']['name']}"
        former = self.addresses.get(key)
        if change.action == "DELETED":
            if former is not None:
                self._remove(former)
                self._interest.forget_address(former)
                self._interest.enqueue_address(key)
                self._enqueue_around(former)
            return
        if change.action == "MODIFIED" and former is not None and former.uid == document["metadata"].get("uid", ""):
            before = change.before
            if before is not None and _is_same(before, document):
                self._set_phase(former, (document.get("status") or {}).get("phase", "Pending"))
                return
            scheduled = former.is_scheduled
            self._remove(former)
            row = self._add(document, former.order)
            row.is_scheduled = scheduled
        else:
            if former is not None:
                self._remove(former)
                self._interest.forget_address(former)
            row = self._add(document)
        self._interest.enqueue_address(key)
        self._enqueue_around(row)

    def _enqueue_around(self, row: AddressRow) -> None:
        """Enqueue all that depend on an address."""
        for key in self.referrers(row.space, row.address):
            self._interest.enqueue_address(key)
        for other in self._claims.get((row.space, row.address), ()):
            if other != row.key:
                self._interest.enqueue_address(other)

    def enqueue_dependents(self, row: AddressRow) -> None:
        """Enqueue all that depend on an address whose state has changed."""
        self._enqueue_around(row)

    def _apply_whole(self, resource: Resource, *, is_deleted: bool) -> None:
        former = self._take(resource) if is_deleted else self._put(resource)
        match resource:
            case AddressSpace():
                self._interest.limits_changed(resource.key)
                self._interest.enqueue_space(resource.key)
                if is_deleted or not isinstance(former, AddressSpace) or _concerns_addresses(former, resource):
                    for key in self.addresses_of(resource.key):
                        self._interest.enqueue_address(key, background=True)
            case AddressSpacePlan() if resource.metadata.namespace == PLAN_NAMESPACE:
                self._interest.enqueue_plan(resource.kind, resource.metadata.name)
                for key in self.spaces_with_plan(resource.metadata.name):
                    self._interest.limits_changed(key)
                    self._interest.enqueue_space(key, background=True)
                    for address in self.addresses_of(key):
                        self._interest.enqueue_address(address, background=True)
            case StandardInfraConfig() | BrokeredInfraConfig() if resource.metadata.namespace == PLAN_NAMESPACE:
                for plan in self.space_plans.values():
                    if plan.spec.infra_config_ref == resource.metadata.name:
                        for key in self.spaces_with_plan(plan.metadata.name):
                            for address in self.addresses_of(key):
                                self._interest.enqueue_address(address, background=True)
            case AddressPlan() if resource.metadata.namespace == PLAN_NAMESPACE:
                self._interest.enqueue_plan(resource.kind, resource.metadata.name)
                for plan in self.space_plans.values():
                    if resource.metadata.name in plan.spec.address_plans:
                        self._interest.enqueue_plan(plan.kind, plan.metadata.name)
                for key in self.addresses_with_plan(resource):
                    self._interest.enqueue_address(key, background=True)

    # Indexes

    def _put(self, resource: Resource) -> Resource | None:
        """Keep an object and return its former version."""
        former = self._take(resource)
        match resource:
            case AddressSpace():
                self.spaces[resource.key] = resource
                self._by_space_plan[resource.spec.plan_name].add(resource.key)
            case AddressSpacePlan() if resource.metadata.namespace == PLAN_NAMESPACE:
                self.space_plans[resource.metadata.name] = resource
            case AddressPlan() if resource.metadata.namespace == PLAN_NAMESPACE:
                self.address_plans[resource.metadata.name] = resource
            case StandardInfraConfig() | BrokeredInfraConfig() if resource.metadata.namespace == PLAN_NAMESPACE:
                self.infra[resource.kind, resource.metadata.name] = resource
        return former

    def _take(self, resource: Resource) -> Resource | None:
        """Forget an object and return it."""
        match resource:
            case AddressSpace():
                former = self.spaces.pop(resource.key, None)
                if former is not None:
                    self._by_space_plan[former.spec.plan_name].discard(resource.key)
                return former
            case AddressSpacePlan() if resource.metadata.namespace == PLAN_NAMESPACE:
                return self.space_plans.pop(resource.metadata.name, None)
            case AddressPlan() if resource.metadata.namespace == PLAN_NAMESPACE:
                return self.address_plans.pop(resource.metadata.name, None)
            case StandardInfraConfig() | BrokeredInfraConfig() if resource.metadata.namespace == PLAN_NAMESPACE:
                return self.infra.pop((resource.kind, resource.metadata.name), None)
        return None

    def _add(self, document: Document, order: int = 0) -> AddressRow:
        if not order:
            self._last_order = order = self._last_order + 1
        row = AddressRow(document, order)
        self.addresses[row.key] = row
        self.phases[row.space, row.phase] += 1
        if row.forwarders:
            self.forwarders[row.space] += row.forwarders
        self._of_space[row.space][row.key] = None
        self._claims[row.space, row.address][row.key] = None
        for name in row.references:
            self._referrers[row.space, name].add(row.key)
        self._by_plan[_plan_key(row)][row.key] = None
        return row

    def _remove(self, row: AddressRow) -> None:
        del self.addresses[row.key]
        self._set_phase(row, "")
        if row.forwarders:
            self.forwarders[row.space] -= row.forwarders
        _drop(self._of_space, row.space, row.key)
        _drop(self._claims, (row.space, row.address), row.key)
        for name in row.references:
            found = self._referrers[row.space, name]
            found.discard(row.key)
            if not found:
                del self._referrers[row.space, name]
        _drop(self._by_plan, _plan_key(row), row.key)

    def _set_phase(self, row: AddressRow, phase: str) -> None:
        self.phases[row.space, row.phase] -= 1
        if not self.phases[row.space, row.phase]:
            del self.phases[row.space, row.phase]
        if phase:
            row.phase = phase
            self.phases[row.space, phase] += 1


def _drop(index: defaultdict[Any, dict[str, None]], key: Any, member: str) -> None:
    found = index[key]
    found.pop(member, None)
    if not found:
        del index[key]


def _plan_key(row: AddressRow) -> tuple[str | None, str]:
    return (row.plan, "") if row.plan is not None else (None, row.type)


def _is_same(before: Document, after: Document) -> bool:
    """Return whether two forms of an object differ in their status only."""
    old, new = before["metadata"], after["metadata"]
    return all(
        old.get(name) == new.get(name)
        for name in ("uid", "generation", "deletionTimestamp", "finalizers", "annotations")
    )


def _concerns_addresses(former: AddressSpace, present: AddressSpace) -> bool:
    """Return whether the change of a space concerns its addresses."""
    old, new = former.spec, present.spec
    return (
        former.metadata.uid != present.metadata.uid
        or old.type != new.type
        or old.plan_name != new.plan_name
        or old.authentication_service != new.authentication_service
        or old.connectors != new.connectors
        or bool(former.metadata.deletion_timestamp) != bool(present.metadata.deletion_timestamp)
    )
