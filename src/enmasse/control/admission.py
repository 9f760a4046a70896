"""Whether what a space declares can be served, and if not, what it waits for.

Pure. Nothing here is final: a plan, a topic or a space that does not exist yet
may exist at the next look, so each answer is a reason to wait, not an error.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from enmasse.model.addresses import Address, AddressType
from enmasse.model.spaces import SpaceType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from enmasse.model.plans import AddressPlan, AddressSpacePlan
    from enmasse.model.spaces import AddressSpace

__all__ = ["ADMITTED", "PlanCatalog", "Verdict", "judge_addresses", "judge_authentication", "judge_space_plan"]

_OFFERED: dict[SpaceType, frozenset[AddressType]] = {
    "standard": frozenset({"anycast", "multicast", "queue", "topic", "subscription", "stream", "deadletter"}),
    "brokered": frozenset({"queue", "topic", "deadletter"}),
}


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


def judge_authentication(space: AddressSpace) -> Verdict:
    """Tell whether the authentication service that a space asks for exists."""
    service = space.spec.authentication_service
    if service.kind is not None:
        return ADMITTED
    named = service.name or service.type
    return Verdict(
        "UnknownAuthenticationService",
        f"unknown authentication service '{named}'; there are 'none' and 'standard'",
    )


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


def judge_addresses(
    space: AddressSpace | None,
    space_verdict: Verdict,
    addresses: Sequence[Address],
    plans: PlanCatalog,
    served: Collection[str],
) -> dict[str, Verdict]:
    """Return a verdict for each address of one space, by the object's key.

    Args:
        space: the space, None when it does not exist.
        space_verdict: whether the space itself can be served.
        addresses: all that are declared in the space.
        plans: the operator's plans.
        served: keys of the addresses that a node serves already; of two
            objects that declare the same address these win.
    """
    by_address: dict[str, list[Address]] = defaultdict(list)
    for item in addresses:
        by_address[item.spec.address].append(item)
    winners = {name: min(items, key=lambda item: _seniority(item, served)) for name, items in by_address.items()}
    verdicts = {}
    for item in addresses:
        verdict = _judge_space_of(item, space, space_verdict, served)
        if verdict.is_yes and space is not None:
            verdict = _judge_plan(item, space, plans)
        if verdict.is_yes and (winner := winners[item.spec.address]) is not item:
            verdict = Verdict(
                "DuplicateAddress",
                f"address '{item.spec.address}' already exists with resource name '{winner.metadata.name}'",
            )
        verdicts[item.key] = verdict
    # Subscriptions last: theirs depends on the verdict for their topic.
    for item in sorted(addresses, key=lambda item: item.spec.type == "subscription"):
        if verdicts[item.key].is_yes:
            verdicts[item.key] = _judge_references(item, winners, verdicts)
    return verdicts


def _seniority(address: Address, served: Collection[str]) -> tuple[bool, str, str]:
    metadata = address.metadata
    return (address.key not in served, metadata.creation_timestamp, metadata.name)


def _judge_space_of(
    address: Address, space: AddressSpace | None, space_verdict: Verdict, served: Collection[str]
) -> Verdict:
    if space is None:
        return Verdict("SpaceMissing", f"address space '{address.space}' does not exist")
    if space_verdict.is_yes or address.key in served:
        return ADMITTED
    return Verdict("SpaceNotReady", f"address space '{address.space}' waits: {space_verdict.message}")


def _judge_plan(address: Address, space: AddressSpace, plans: PlanCatalog) -> Verdict:
    spec = address.spec
    if spec.type not in _OFFERED[space.spec.type]:
        offered = ", ".join(sorted(_OFFERED[space.spec.type]))
        return Verdict(
            "UnknownAddressType",
            f"a {space.spec.type} space has no addresses of type {spec.type}, only {offered}",
        )
    name = spec.plan_name(space.spec.type)
    plan = plans.addresses.get(name)
    if plan is None:
        return Verdict("UnknownPlan", f"unknown address plan '{name}'")
    if plan.spec.address_type != spec.type:
        return Verdict(
            "UnknownPlan", f"plan '{name}' is for type {plan.spec.address_type}, this address is {spec.type}"
        )
    space_plan = plans.spaces.get(space.spec.plan_name)
    if space_plan is not None and name not in space_plan.spec.address_plans:
        return Verdict("UnknownPlan", f"address plan '{name}' is not offered by space plan '{space.spec.plan_name}'")
    return ADMITTED


def _judge_references(address: Address, winners: Mapping[str, Address], verdicts: Mapping[str, Verdict]) -> Verdict:
    spec = address.spec
    wanted: tuple[tuple[str | None, AddressType, str], ...] = (
        (spec.topic, "topic", "TopicMissing"),
        (spec.deadletter, "deadletter", "DeadletterMissing"),
        (spec.expiry, "deadletter", "DeadletterMissing"),
        (spec.fallback, "queue", "FallbackMissing"),
    )
    for name, needed, reason in wanted:
        if name is None:
            continue
        target = winners.get(name)
        if target is None:
            return Verdict(reason, f"{needed} '{name}' does not exist yet")
        if target.spec.type != needed:
            return Verdict(reason, f"address '{name}' is not of type {needed} but {target.spec.type}")
        if not verdicts[target.key].is_yes:
            return Verdict(reason, f"{needed} '{name}' waits: {verdicts[target.key].message}")
    return ADMITTED
