"""Whether what a space declares can be served, and if not, what it waits for.

Pure. Nothing here is final: a plan, a topic or a space that does not exist yet
may exist at the next look, so each answer is a reason to wait, not an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.model.plans import AddressPlan, AddressSpacePlan
    from enmasse.model.spaces import AddressSpace

__all__ = ["ADMITTED", "PlanCatalog", "Verdict", "judge_space_plan"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer: yes, or no for a reason.

    Attributes:
        reason: one CamelCase word, for programs.
        message: a sentence for people; empty means yes.
    """

    reason: str
    message: str = ""

    @property
    def is_yes(self) -> bool:
        """Whether nothing stands in the way."""
        return not self.message


ADMITTED = Verdict("Admitted")


@dataclass(frozen=True, slots=True)
class PlanCatalog:
    """The operator's plans by name."""

    spaces: Mapping[str, AddressSpacePlan] = field(default_factory=dict)
    addresses: Mapping[str, AddressPlan] = field(default_factory=dict)


def judge_space_plan(space: AddressSpace, plans: PlanCatalog) -> Verdict:
    """Tell whether the plan of a space exists and fits its type."""
    name = space.spec.plan_name
    plan = plans.spaces.get(name)
    if plan is None:
        return Verdict("UnknownPlan", f"unknown address space plan '{name}'")
    if plan.spec.address_space_type != space.spec.type:
        return Verdict(
            "UnknownPlan",
            f"plan '{name}' is for {plan.spec.address_space_type} spaces, this one is {space.spec.type}",
        )
    return ADMITTED
