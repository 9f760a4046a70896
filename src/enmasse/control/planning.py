"""What to do to a node, and what to say about it, for one space at a time. Pure.

Rules:
1. What is declared and can be served is on the node, in its present generation.
2. What is on the node and not declared is deleted.
3. What is declared and cannot be served (any more) is left as it is: its
   contents are worth more than tidiness.
4. An object that was deleted and made anew is another one: its uid tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

from enmasse.control.admission import (
    PlanCatalog,
    Verdict,
    judge_addresses,
    judge_authentication,
    judge_space_plan,
)
from enmasse.control.effective import effective_settings, effective_space_bytes, effective_status
from enmasse.control.ports import AddressEntity, Entity, NodeState, SpaceEntity
from enmasse.model.addresses import Address, PlanStatus
from enmasse.model.conditions import READY, Condition
from enmasse.model.spaces import NO_AUTHENTICATION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from enmasse.model.plans import AddressSpacePlan
    from enmasse.model.resource import Resource
    from enmasse.model.spaces import AddressSpace

__all__ = ["SpacePlan", "SpaceView", "Step", "plan_space", "plan_space_plan"]

_CHANGEABLE = frozenset({"authentication", "generation", "max_bytes", "settings"})


@dataclass(frozen=True, slots=True)
class SpaceView:
    """All that is known about one space.

    Attributes:
        space: as declared, None when it is not.
        addresses: all that are declared in it.
        plans: the operator's plans.
        node: what the node has of this space, None when the node cannot be reached.
        refusals: what the node said to the last attempt, by the entity's name.
    """

    space: AddressSpace | None
    addresses: tuple[Address, ...] = ()
    plans: PlanCatalog = field(default_factory=PlanCatalog)
    node: NodeState | None = None
    refusals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to tell the node."""

    action: Literal["create", "update", "delete"]
    entity: Entity


@dataclass(frozen=True, slots=True)
class SpacePlan:
    """What to do and what to say.

    Attributes:
        stages: steps for the node; those of one stage may go at the same time.
        resources: the declared objects with their conditions as of now,
            transition times not yet filled in.
    """

    stages: tuple[tuple[Step, ...], ...]
    resources: tuple[tuple[Resource, tuple[Condition, ...]], ...]


def plan_space(view: SpaceView) -> SpacePlan:
    """Compare what is declared in a space with what the node has."""
    node = view.node or NodeState()
    served = {
        item.key
        for item in view.addresses
        if (there := node.addresses.get(item.key)) and there.uid == item.metadata.uid
    }
    space_verdict, space_conditions = _judge_space(view)
    verdicts = judge_addresses(view.space, space_verdict, view.addresses, view.plans, served)
    wanted_space = _space_entity(view.space, view) if view.space and space_verdict.is_yes else None
    topics = {item.spec.address: item for item in view.addresses if item.spec.type == "topic"}
    wanted = {
        item.key: _address_entity(item, view, node, topics) for item in view.addresses if verdicts[item.key].is_yes
    }
    stages = _stages(view, node, wanted_space, wanted) if view.node is not None else ()
    findings: list[tuple[Resource, tuple[Condition, ...]]] = []
    if view.space is not None:
        ready = _readiness(
            view, space_verdict, wanted_space, node.spaces.get(view.space.key), view.space.metadata.generation
        )
        findings.append((view.space, (*space_conditions, ready)))
    for item in view.addresses:
        generation = item.metadata.generation
        scheduled = _condition("Scheduled", verdicts[item.key], generation)
        entity = wanted.get(item.key)
        ready = _readiness(view, verdicts[item.key], entity, node.addresses.get(item.key), generation)
        findings.append((_with_effective(item, view, entity), (scheduled, ready)))
    return SpacePlan(stages, tuple(findings))


def plan_space_plan(plan: AddressSpacePlan, plans: PlanCatalog) -> tuple[Condition, ...]:
    """Return the conditions of a space plan: whether the address plans that it offers exist."""
    missing = [name for name in plan.spec.address_plans if name not in plans.addresses]
    message = f"unknown address plans: {', '.join(missing)}" if missing else ""
    verdict = Verdict("UnknownPlan", message) if missing else Verdict("Valid")
    return (_condition(READY, verdict, plan.metadata.generation),)


def _judge_space(view: SpaceView) -> tuple[Verdict, tuple[Condition, ...]]:
    if view.space is None:
        return Verdict("SpaceMissing", "the address space does not exist"), ()
    generation = view.space.metadata.generation
    plan, authentication = judge_space_plan(view.space, view.plans), judge_authentication(view.space)
    conditions = (
        _condition("PlanApplied", plan, generation),
        _condition("AuthenticationReady", authentication, generation),
    )
    return (plan if not plan.is_yes else authentication), conditions


def _stages(
    view: SpaceView,
    node: NodeState,
    wanted_space: SpaceEntity | None,
    wanted: Mapping[str, AddressEntity],
) -> tuple[tuple[Step, ...], ...]:
    """Order the steps so that nothing is told of what does not exist at that moment."""
    declared = {item.key: item.metadata.uid for item in view.addresses}
    space_uid = view.space.metadata.uid if view.space else None
    stale_spaces = [item for item in node.spaces.values() if item.uid != space_uid]
    stale = [item for item in node.addresses.values() if stale_spaces or declared.get(item.name) != item.uid]
    gone = {item.name for item in stale}
    kept = {name: item for name, item in node.addresses.items() if name not in gone}
    changes = [step for entity in wanted.values() for step in _change(kept.get(entity.name), entity)]
    space_changes: list[Step] = []
    if wanted_space is not None:
        present = None if stale_spaces else node.spaces.get(wanted_space.name)
        space_changes = list(_change(present, wanted_space))
    stages = (
        [Step("delete", item) for item in stale if item.address_type == "subscription"],
        [Step("delete", item) for item in stale if item.address_type != "subscription"],
        [Step("delete", item) for item in stale_spaces],
        space_changes,
        [step for step in changes if not _is_subscription(step.entity)],
        [step for step in changes if _is_subscription(step.entity)],
    )
    return tuple(tuple(stage) for stage in stages if stage)


def _change(present: Entity | None, wanted: Entity) -> Sequence[Step]:
    if present is None:
        return (Step("create", wanted),)
    if present == wanted or _fixed_differences(present, wanted):
        return ()
    return (Step("update", wanted),)


def _fixed_differences(present: Entity, wanted: Entity) -> list[str]:
    """Return the attributes that no update can bring to what is wanted."""
    return [
        item.name.replace("_", " ")
        for item in fields(wanted)
        if item.name not in _CHANGEABLE and getattr(present, item.name) != getattr(wanted, item.name)
    ]


def _readiness(
    view: SpaceView, verdict: Verdict, wanted: Entity | None, present: Entity | None, generation: int
) -> Condition:
    if wanted is None:
        return _condition(READY, verdict, generation)
    if view.node is None:
        return _condition(READY, Verdict("NodeUnavailable", "the node cannot be reached"), generation)
    if present == wanted:
        return _condition(READY, Verdict("Served"), generation)
    if present is not None and present.uid == wanted.uid and (other := _fixed_differences(present, wanted)):
        message = f"the node has it with another {', '.join(other)}; delete it and create it anew"
        return _condition(READY, Verdict("NodeDiffers", message), generation)
    if (refusal := view.refusals.get(wanted.name)) is not None:
        return _condition(READY, Verdict("NodeRefused", refusal), generation)
    return _condition(READY, Verdict("Configuring", "the node is being told"), generation)


def _condition(kind: str, verdict: Verdict, generation: int) -> Condition:
    return Condition(
        type=kind,
        status="True" if verdict.is_yes else "False",
        reason=verdict.reason,
        message=verdict.message,
        observed_generation=generation,
    )


def _with_effective(address: Address, view: SpaceView, entity: AddressEntity | None) -> Address:
    """Return an address with what of its plan and defaults is in effect, where that is known."""
    if entity is None or view.space is None:
        return address
    spec, status = address.spec, address.status
    wanted = PlanStatus(name=spec.plan_name(view.space.spec.type), partitions=entity.partitions or None)
    # Mostly nothing has changed, and copies of thousands of addresses take their time.
    if status.plan_status != wanted:
        status = status.model_copy(update={"plan_status": wanted})
    status = effective_status(status, spec.type, entity.settings)
    return address if status is address.status else address.model_copy(update={"status": status})


def _space_entity(space: AddressSpace, view: SpaceView) -> SpaceEntity:
    metadata = space.metadata
    plan = view.plans.spaces.get(space.spec.plan_name)
    max_bytes = effective_space_bytes(space.spec, plan.spec if plan else None)
    authentication = space.spec.authentication_service.kind or NO_AUTHENTICATION
    return SpaceEntity(space.key, space.spec.type, authentication, metadata.uid, metadata.generation, max_bytes)


def _address_entity(
    address: Address, view: SpaceView, node: NodeState, topics: Mapping[str, Address]
) -> AddressEntity:
    spec, metadata = address.spec, address.metadata
    plan = view.plans.addresses.get(spec.plan_name(view.space.spec.type)) if view.space else None
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
        settings=effective_settings(address, plan.spec if plan else None, topics.get(spec.topic or "")),
    )
    if spec.type != "stream":
        return entity
    return replace(entity, partitions=_partitions(address, view, node.addresses.get(address.key)))


def _partitions(address: Address, view: SpaceView, present: AddressEntity | None) -> int:
    """Return how many partitions a stream has: fixed by whoever said so first."""
    if address.spec.partitions is not None:
        return address.spec.partitions
    if address.status.plan_status is not None and address.status.plan_status.partitions is not None:
        return address.status.plan_status.partitions
    if present is not None and present.uid == address.metadata.uid:
        return present.partitions
    space_type = view.space.spec.type if view.space else "standard"
    plan = view.plans.addresses.get(address.spec.plan_name(space_type))
    return plan.spec.partitions if plan is not None else 1


def _is_subscription(entity: Entity) -> bool:
    return isinstance(entity, AddressEntity) and entity.address_type == "subscription"
