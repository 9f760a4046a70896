"""What one address is to be on a node, and what to say about it. Pure.

Rules:
1. What is declared, can be served and has its place is on the node, as it is declared.
2. What is declared and cannot be served (any more) is left as it is: its contents are worth more than tidiness.
3. An object that was deleted and made anew is another one: its uid tells.
4. Nothing is refused for ever: a plan, a topic or a space that does not exist yet may exist at the next look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from enmasse.control.effective import effective_settings, effective_status
from enmasse.control.ports import AddressEntity
from enmasse.control.quota import Claim, Place
from enmasse.control.verdicts import ADMITTED, PlanCatalog, Verdict
from enmasse.model.addresses import OFFERED_TYPES, BrokerStatus, PlanStatus

if TYPE_CHECKING:
    from enmasse.model.addresses import Address, AddressStatus, AddressType
    from enmasse.model.plans import AddressPlan
    from enmasse.model.spaces import AddressSpace, SpaceType

__all__ = ["AddressView", "Reference", "address_status", "claim_of", "judge_address", "wanted_address"]

_STORING = frozenset({"queue", "topic", "subscription", "stream", "deadletter"})


@dataclass(frozen=True, slots=True)
class Reference:
    """An address that another one names.

    Attributes:
        type: its type; empty: there is none of this name.
        is_scheduled: whether it has its place.
    """

    type: str = ""
    is_scheduled: bool = False


@dataclass(frozen=True, slots=True)
class AddressView:
    """All that one address depends on.

    Attributes:
        address: as declared.
        space: its space, None when that is not declared.
        space_verdict: whether the space can be served.
        plans: the operator's plans.
        rival: the name of the object that has the same address; empty: there is none.
        references: the addresses that it names.
        topic: of a subscription, its topic, if that is declared.
        is_served: whether the node has it.
    """

    address: Address
    space: AddressSpace | None
    space_verdict: Verdict = ADMITTED
    plans: PlanCatalog = field(default_factory=PlanCatalog)
    rival: str = ""
    references: Mapping[str, Reference] = field(default_factory=dict)
    topic: Address | None = None
    is_served: bool = False

    @property
    def space_type(self) -> SpaceType:
        """The type of its space."""
        return self.space.spec.type if self.space else "standard"

    @property
    def plan_name(self) -> str:
        """The plan that it asks for; if it asks for none, the smallest, or else what its space offers first."""
        spec = self.address.spec
        name = spec.plan_name(self.space_type)
        space_plan = self.plans.spaces.get(self.space.spec.plan_name) if self.space else None
        if spec.plan is not None or space_plan is None or name in space_plan.spec.address_plans:
            return name
        for offered in space_plan.spec.address_plans:
            plan = self.plans.addresses.get(offered)
            if plan is not None and plan.spec.address_type == spec.type:
                return offered
        return name

    @property
    def plan(self) -> AddressPlan | None:
        """Its plan, if that exists."""
        return self.plans.addresses.get(self.plan_name)


def judge_address(view: AddressView) -> Verdict:
    """Tell whether an address can be served, but for the quota."""
    for judge in (_judge_space, _judge_type, _judge_plan, _judge_rival, _judge_references, _judge_forwarders):
        verdict = judge(view)
        if not verdict.is_yes:
            return verdict
    return ADMITTED


def claim_of(view: AddressView) -> Claim:
    """Return what an address claims of its space."""
    spec, plan = view.address.spec, view.plan
    resources = plan.spec.resources if plan else {}
    return Claim(
        address=spec.address,
        kind=spec.type,
        topic=spec.topic or "",
        plan=view.plan_name,
        router=resources.get("router", 0.0),
        broker=resources.get("broker", 0.0),
        # Of a stream it says how it is ordered, not where it lies.
        partitions=plan.spec.partitions if plan and spec.type == "queue" else 1,
    )


def wanted_address(view: AddressView, present: AddressEntity | None = None) -> AddressEntity:
    """Return what a node is told of an address.

    Args:
        view: what it depends on.
        present: what the node has of it; only a stream's number of partitions is looked at.
    """
    address, plan = view.address, view.plan
    spec, metadata = address.spec, address.metadata
    entity = AddressEntity(
        name=address.key,
        space=address.space_key,
        address=spec.address,
        address_type=spec.type,
        topic=spec.topic or "",
        partitions=0,
        uid=metadata.uid,
        generation=metadata.generation,
        storage=spec.storage or "message",
        settings=effective_settings(address, plan.spec if plan else None, view.topic),
    )
    if spec.type != "stream":
        return entity
    return replace(entity, partitions=_partitions(view, present))


def address_status(view: AddressView, entity: AddressEntity, place: Place, node: str) -> AddressStatus:
    """Return the status of an address with what of plan and defaults is in effect, and where it lies.

    Args:
        view: what it depends on.
        entity: what the node is told.
        place: its place.
        node: the name of the node, for policies that place things nowhere in particular.
    """
    status, spec, plan = view.address.status, view.address.spec, view.plan
    resources = dict(plan.spec.resources) if plan else {}
    planned = PlanStatus(name=view.plan_name, partitions=entity.partitions or None, resources=resources)
    brokers: tuple[BrokerStatus, ...] = ()
    if spec.type in _STORING:
        brokers = tuple(
            BrokerStatus(cluster_id=name, container_id=name, state="Active")
            for name in dict.fromkeys(place.brokers or (node,))
        )
    # Mostly nothing has changed, and copies of thousands of addresses take their time.
    if status.plan_status != planned or status.broker_statuses != brokers:
        status = status.model_copy(update={"plan_status": planned, "broker_statuses": brokers})
    return effective_status(status, spec.type, entity.settings)


def _judge_space(view: AddressView) -> Verdict:
    name, space = view.address.space, view.space
    if space is None:
        return Verdict("SpaceMissing", f"address space '{name}' does not exist")
    if space.metadata.deletion_timestamp and not view.is_served:
        return Verdict("SpaceTerminating", f"address space '{name}' is being deleted")
    if view.space_verdict.is_yes or view.is_served:
        return ADMITTED
    return Verdict("SpaceNotReady", f"address space '{name}' waits: {view.space_verdict.message}")


def _judge_type(view: AddressView) -> Verdict:
    kind, offered = view.address.spec.type, OFFERED_TYPES[view.space_type]
    if kind in offered:
        return ADMITTED
    return Verdict(
        "UnknownAddressType",
        f"a {view.space_type} space has no addresses of type {kind}, only {', '.join(sorted(offered))}",
    )


def _judge_plan(view: AddressView) -> Verdict:
    spec = view.address.spec
    name, plan = view.plan_name, view.plan
    if plan is None:
        return Verdict("UnknownPlan", f"unknown address plan '{name}'")
    if plan.spec.address_type != spec.type:
        return Verdict(
            "UnknownPlan", f"plan '{name}' is for type {plan.spec.address_type}, this address is {spec.type}"
        )
    space_plan = view.plans.spaces.get(view.space.spec.plan_name) if view.space else None
    if space_plan is not None and name not in space_plan.spec.address_plans:
        return Verdict(
            "UnknownPlan", f"address plan '{name}' is not offered by space plan '{space_plan.metadata.name}'"
        )
    return ADMITTED


def _judge_rival(view: AddressView) -> Verdict:
    if not view.rival:
        return ADMITTED
    return Verdict(
        "DuplicateAddress",
        f"address '{view.address.spec.address}' already exists with resource name '{view.rival}'",
    )


def _judge_references(view: AddressView) -> Verdict:
    spec = view.address.spec
    wanted: tuple[tuple[str | None, AddressType, str], ...] = (
        (spec.topic, "topic", "TopicMissing"),
        (spec.deadletter, "deadletter", "DeadletterMissing"),
        (spec.expiry, "deadletter", "DeadletterMissing"),
        (spec.fallback, "queue", "FallbackMissing"),
    )
    for name, needed, reason in wanted:
        if name is None:
            continue
        found = view.references.get(name, Reference())
        if not found.type:
            return Verdict(reason, f"{needed} '{name}' does not exist yet")
        if found.type != needed:
            return Verdict(reason, f"address '{name}' is not of type {needed} but {found.type}")
        if not found.is_scheduled:
            return Verdict(reason, f"{needed} '{name}' waits itself")
    return ADMITTED


def _judge_forwarders(view: AddressView) -> Verdict:
    declared = {item.name for item in view.space.spec.connectors} if view.space else set()
    for forwarder in view.address.spec.forwarders:
        connector = forwarder.remote_address.partition("/")[0]
        if connector not in declared:
            return Verdict(
                "ConnectorMissing",
                f"forwarder '{forwarder.name}' needs connector '{connector}', which its address space does not have",
            )
    return ADMITTED


def _partitions(view: AddressView, present: AddressEntity | None) -> int:
    """Return how many partitions a stream has: fixed by whoever said so first."""
    address, plan = view.address, view.plan
    if address.spec.partitions is not None:
        return address.spec.partitions
    if address.status.plan_status is not None and address.status.plan_status.partitions is not None:
        return address.status.plan_status.partitions
    if present is not None and present.uid == address.metadata.uid:
        return present.partitions
    return plan.spec.partitions if plan is not None else 1
