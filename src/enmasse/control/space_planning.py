"""What one space is to be on a node, and what to say about it and about plans. Pure.

The rules are those of ``address_planning``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from enmasse.control.authentication import Authentication, is_realm_missing
from enmasse.control.effective import effective_space_limits, told_limits
from enmasse.control.ports import SpaceEntity
from enmasse.control.verdicts import ADMITTED, PlanCatalog, Verdict, judge_space_plan
from enmasse.model.conditions import READY, Condition

if TYPE_CHECKING:
    from enmasse.control.ports import Entity, Sighting
    from enmasse.model.plans import AddressSpacePlan
    from enmasse.model.spaces import AddressSpace

__all__ = [
    "Outcome",
    "SpaceView",
    "condition",
    "judge_space",
    "plan_space_plan",
    "readiness",
    "space_conditions",
    "wanted_space",
]


@dataclass(frozen=True, slots=True)
class SpaceView:
    """All that one space depends on.

    Attributes:
        space: as declared.
        plans: the operator's plans.
        excess: a sentence for each limit that is exceeded by what has a place already.
        authentication: how its users are known.
        hosts: that stand for it, beside its own.
        port: of its own; 0 for none.
    """

    space: AddressSpace
    plans: PlanCatalog = field(default_factory=PlanCatalog)
    excess: tuple[str, ...] = ()
    authentication: Authentication = field(default_factory=Authentication)
    hosts: tuple[str, ...] = ()
    port: int = 0

    @property
    def plan(self) -> AddressSpacePlan | None:
        """Its plan, if that exists."""
        return self.plans.spaces.get(self.space.spec.plan_name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has come of telling a node about an entity.

    Attributes:
        digest: what the entity's digest is to be.
        present: what the node has.
        is_reachable: whether it can be asked.
        refusal: what it said when it was told; empty: it did not refuse.
        differs: whether it refused because what it has cannot be changed to what is wanted.
    """

    digest: str
    present: Sighting | None = None
    is_reachable: bool = True
    refusal: str = ""
    differs: bool = False


def judge_space(view: SpaceView) -> Verdict:
    """Tell whether a space can be served."""
    for verdict in (judge_space_plan(view.space, view.plans), view.authentication.verdict):
        if not verdict.is_yes:
            return verdict
    if not view.space.status.is_ready and is_realm_missing(view.authentication.state):
        # Once a space is served it stays so, whatever happens to those who know its users.
        return view.authentication.state
    return ADMITTED


def wanted_space(view: SpaceView) -> SpaceEntity:
    """Return what a node is told of a space."""
    space, metadata = view.space, view.space.metadata
    limits = effective_space_limits(space.spec, view.plan.spec if view.plan else None)
    return SpaceEntity(
        space.key,
        space.spec.type,
        view.authentication.kind,
        metadata.uid,
        metadata.generation,
        limits.max_bytes or 0,
        limits=told_limits(limits),
        hosts=view.hosts,
        port=view.port,
        oidc=view.authentication.oidc,
    )


def space_conditions(view: SpaceView, ready: Condition) -> tuple[Condition, ...]:
    """Return what holds for a space.

    Args:
        view: what it depends on.
        ready: whether it is ready.
    """
    generation = view.space.metadata.generation
    plan = judge_space_plan(view.space, view.plans)
    applied = condition("PlanApplied", plan, generation)
    if plan.is_yes and view.excess:
        # It goes on, with all that has a place: nothing is taken away from those who had it first.
        message = f"{'; '.join(view.excess)}; what is there stays, and nothing new finds a place"
        applied = applied.model_copy(update={"reason": "QuotaExceeded", "message": message})
    return (applied, condition("AuthenticationReady", view.authentication.told, generation), ready)


def plan_space_plan(plan: AddressSpacePlan, plans: PlanCatalog) -> tuple[Condition, ...]:
    """Return the conditions of a space plan: whether the address plans that it offers exist."""
    missing = [name for name in plan.spec.address_plans if name not in plans.addresses]
    message = f"unknown address plans: {', '.join(missing)}" if missing else ""
    verdict = Verdict("UnknownPlan", message) if missing else Verdict("Valid")
    return (condition(READY, verdict, plan.metadata.generation),)


def readiness(verdict: Verdict, wanted: Entity | None, outcome: Outcome | None, generation: int) -> Condition:
    """Return the condition ``Ready`` of a space or an address.

    Args:
        verdict: whether it can be served.
        wanted: what the node is told, None when nothing.
        outcome: what has come of it, None when the node was not told.
        generation: of the declaration.
    """
    if wanted is None or outcome is None:
        return condition(READY, verdict, generation)
    if not outcome.is_reachable:
        return condition(READY, Verdict("NodeUnavailable", "the node cannot be reached"), generation)
    present = outcome.present
    if present is not None and (present.uid, present.digest) == (wanted.uid, outcome.digest):
        return condition(READY, Verdict("Served"), generation)
    if outcome.refusal:
        reason = "NodeDiffers" if outcome.differs else "NodeRefused"
        return condition(READY, Verdict(reason, outcome.refusal), generation)
    return condition(READY, Verdict("Configuring", "the node is being told"), generation)


def condition(kind: str, verdict: Verdict, generation: int) -> Condition:
    """Return a verdict as a condition, without its time."""
    return Condition(
        type=kind,
        status="True" if verdict.is_yes else "False",
        reason=verdict.reason,
        message=verdict.message,
        observed_generation=generation,
    )
