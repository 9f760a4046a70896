"""What of spaces and what belongs to them is refused at once, because it can never become right or does not fit.

Everything else is taken and waits, with a condition that says for what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.control.errors import ForbiddenError
from enmasse.control.placements import make_places, plan_limits
from enmasse.model.addresses import OFFERED_TYPES, Address
from enmasse.model.errors import InvalidResourceError, Problem
from enmasse.model.kinds import restore
from enmasse.model.pipelines import Pipeline
from enmasse.model.plans import PLAN_NAMESPACE, AddressSpacePlan
from enmasse.model.spaces import AddressSpace

if TYPE_CHECKING:
    from enmasse.control.placements import Placements
    from enmasse.control.store import Document, ResourceStore
    from enmasse.control.writes import Write
    from enmasse.model.resource import Resource, SpaceMember

__all__ = ["SpaceAdmission"]


class SpaceAdmission:
    """Judges writes of spaces, addresses and pipelines.

    Args:
        placements: who has a place.
    """

    kinds = frozenset({"AddressSpace", "Address", "Pipeline"})

    def __init__(self, placements: Placements) -> None:
        self._placements = placements

    def admit(self, write: Write) -> Resource:
        """Return the object to be stored.

        Raises:
            InvalidResourceError: when a space cannot have addresses of this type, or what it has does not fit
                its new plan or limits.
            ForbiddenError: when the space is being deleted.
        """
        old, new = write.old, write.new
        match new:
            case Address() if write.operation == "CREATE":
                self._check_address(new, write.store)
            case Pipeline() if write.operation == "CREATE":
                _find_space(new, write.store)
            case AddressSpace() if isinstance(old, AddressSpace):
                self._check_plan(old, new, write.store)
        return write.resource

    def _check_address(self, address: Address, store: ResourceStore) -> None:
        found = _find_space(address, store)
        if found is None:
            return  # it waits for its space
        name = address.space
        kind = found["spec"].get("type", "standard")
        if address.spec.type not in OFFERED_TYPES[kind]:
            offered = ", ".join(sorted(OFFERED_TYPES[kind]))
            problem = Problem(
                "spec.type",
                f"a {kind} space has no addresses of type {address.spec.type}, only {offered}; "
                f"'{name}' is {kind} and stays so",
            )
            raise InvalidResourceError(f"Address {address.metadata.name}", [problem])

    def _check_plan(self, old: AddressSpace, new: AddressSpace, store: ResourceStore) -> None:
        """See that what has a place in a space fits its new plan and limits."""
        if (old.spec.plan_name, old.spec.limits) == (new.spec.plan_name, new.spec.limits):
            return
        document = store.find("AddressSpacePlan", PLAN_NAMESPACE, new.spec.plan_name)
        plan = restore(document) if document else None
        if not isinstance(plan, AddressSpacePlan) or plan.spec.address_space_type != new.spec.type:
            return  # such a plan is waited for
        present = self._placements.of(old.key)
        future = make_places(new, plan, new.key)
        if type(present) is type(future):
            problems = present.excess(plan_limits(new, plan))
        else:
            problems = self._placements.excess_elsewhere(old.key, new, plan)
        if problems:
            path = "spec.plan" if old.spec.plan_name != new.spec.plan_name else "spec.limits"
            message = f"what the address space has does not fit plan '{plan.metadata.name}': {'; '.join(problems)}"
            raise InvalidResourceError(f"AddressSpace {new.metadata.name}", [Problem(path, message)])


def _find_space(member: SpaceMember, store: ResourceStore) -> Document | None:
    """Return the space that something belongs to, if it is there.

    Raises:
        ForbiddenError: it is being deleted.
    """
    found = store.find("AddressSpace", member.metadata.namespace, member.space)
    if found is not None and found["metadata"].get("deletionTimestamp"):
        raise ForbiddenError(
            f"nothing new can be created in address space {member.space}, because it is being deleted",
            cause="AddressSpaceTerminating",
        )
    return found
