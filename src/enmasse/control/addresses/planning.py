"""Plan one address: the entity that its node should have, and the conditions to report. Pure.

Rules:
1. An address that is declared, valid and placed is on the node exactly as it is declared.
2. An address that is declared and cannot be served (any more) is left as it is: its contents are worth more than
   tidiness.
3. An object that was deleted and created again is another object, with another uid.
4. Nothing is refused for ever: a plan, a topic or a space that does not exist yet may exist at the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from enmasse.control.ports import AddressEntity
from enmasse.control.runtime.verdicts import ADMITTED, PlanCatalog, Verdict
from enmasse.control.spaces.effective import effective_settings, effective_status
from enmasse.control.spaces.quota import Claim, Place
from enmasse.model.kinds.address_settings import STORING
from enmasse.model.kinds.addresses import OFFERED_TYPES, BrokerStatus, PlanStatus

if TYPE_CHECKING:
    from enmasse.model.kinds.address_settings import AddressType
    from enmasse.model.kinds.addresses import Address, AddressStatus
    from enmasse.model.kinds.infra import BrokeredBrokerInfra
    from enmasse.model.kinds.plans import AddressPlan
    from enmasse.model.kinds.spaces import AddressSpace, SpaceType


_STORING = frozenset({*STORING, "stream"})


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
    """Everything that one address depends on.

    Attributes:
        address: the address as declared.
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
        """The plan that it names; if it names none, the smallest, or else the first that its space offers."""
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

    @property
    def broker(self) -> BrokeredBrokerInfra | None:
        """The brokers' settings in the infrastructure configuration that the space's plan names."""
        space_plan = self.plans.spaces.get(self.space.spec.plan_name) if self.space else None
        name = space_plan.spec.infra_config_ref if space_plan else None
        config = self.plans.infra.get((f"{self.space_type.capitalize()}InfraConfig", name)) if name else None
        return config.spec.broker if config else None


def judge_address(view: AddressView) -> Verdict:
    """Return whether an address can be served, quotas aside."""
    for judge in (_judge_space, _judge_type, _judge_plan, _judge_rival, _judge_references, _judge_forwarders):
        verdict = judge(view)
        if not verdict.is_yes:
            return verdict
    return ADMITTED


def claim_of(view: AddressView) -> Claim:
    """Return the claim of an address on its space."""
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
    """Return the entity of an address for its node.

    Args:
        view: the facts that it depends on.
        present: the address as the node has it; only a stream's number of partitions is used.
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
        settings=effective_settings(address, plan.spec if plan else None, view.topic, view.broker),
    )
    if spec.type != "stream":
        return entity
    return replace(entity, partitions=_partitions(view, present))


def address_status(view: AddressView, entity: AddressEntity, place: Place, node: str) -> AddressStatus:
    """Return the status of an address with what of plan and defaults is in effect, and where it lies.

    Args:
        view: the facts that it depends on.
        entity: the entity as it is for the node.
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
    """Return the number of partitions of a stream, which never changes once it is set."""
    address, plan = view.address, view.plan
    if address.spec.partitions is not None:
        return address.spec.partitions
    if address.status.plan_status is not None and address.status.plan_status.partitions is not None:
        return address.status.plan_status.partitions
    if present is not None and present.uid == address.metadata.uid:
        return present.partitions
    return plan.spec.partitions if plan is not None else 1
