"""Verdicts: whether something can be served, and if not, what it waits for; with the plans that decide about spaces.

Pure. No verdict is final: a plan, a topic or a space that does not exist yet may exist at the next attempt, so a
negative verdict is a reason to wait, not an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from enmasse.model.schema.conditions import Condition, find

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from enmasse.model.kinds.infra import InfraConfig
    from enmasse.model.kinds.plans import AddressPlan, AddressSpacePlan
    from enmasse.model.kinds.spaces import AddressSpace


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision: yes, or no for a reason.

    Attributes:
        reason: one CamelCase word, for programs.
        message: a sentence for people; empty means yes.
    """

    reason: str
    message: str = ""

    @property
    def is_yes(self) -> bool:
        """True when there is no reason against it."""
        return not self.message


ADMITTED = Verdict("Admitted")

_MAX_NAMED = 20  # plans, in a sentence


@dataclass(frozen=True, slots=True)
class PlanCatalog:
    """The operator's plans by name, and the infrastructure configurations that they name, by kind and name."""

    spaces: Mapping[str, AddressSpacePlan] = field(default_factory=dict)
    addresses: Mapping[str, AddressPlan] = field(default_factory=dict)
    infra: Mapping[tuple[str, str], InfraConfig] = field(default_factory=dict)


def judge_space_plan(space: AddressSpace, plans: PlanCatalog) -> Verdict:
    """Return whether the plan of a space exists, fits its type, and is for its namespace."""
    name = space.spec.plan_name
    plan = plans.spaces.get(name)
    if plan is None:
        return Verdict("UnknownPlan", f"unknown address space plan '{name}'")
    if plan.spec.address_space_type != space.spec.type:
        return Verdict(
            "UnknownPlan",
            f"plan '{name}' is for {plan.spec.address_space_type} spaces, this one is {space.spec.type}",
        )
    applied = find(space.status.conditions, "PlanApplied")
    # A space that has a plan already keeps it when it becomes one for others.
    if (applied is None or applied.status != "True") and (
        problem := grant_problem(space, plan, plans.spaces.values())
    ):
        return Verdict("PlanNotGranted", problem)
    return ADMITTED


def grant_problem(space: AddressSpace, plan: AddressSpacePlan, others: Iterable[AddressSpacePlan]) -> str:
    """Return the reason why a space may not have a plan: it is for other namespaces; empty: it may.

    Args:
        space: the space that asks for it.
        plan: the plan.
        others: all plans, to name those that it may have.
    """
    namespace = space.metadata.namespace
    if plan.is_for(namespace):
        return ""
    usable = sorted(
        item.metadata.name
        for item in others
        if item.spec.address_space_type == space.spec.type and item.is_for(namespace)
    )
    instead = f"there are {', '.join(usable[:_MAX_NAMED])}" if usable else "there is no other one for it"
    return f"plan '{plan.metadata.name}' is not for spaces of namespace {namespace}; {instead}"


def condition(kind: str, verdict: Verdict, generation: int) -> Condition:
    """Return a verdict as a condition, without its time."""
    return Condition(
        type=kind,
        status="True" if verdict.is_yes else "False",
        reason=verdict.reason,
        message=verdict.message,
        observed_generation=generation,
    )
