"""What would become of an object if it were written: the answer to a dry run.

The status of the answer has the conditions that the object would have, whether it would fit, what it would use, and
what of its plan would be in effect. Nothing is written, and nothing keeps its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.control.address_planning import address_status, claim_of, judge_address, wanted_address
from enmasse.control.effective import effective_space_limits
from enmasse.control.space_planning import SpaceView, condition, judge_space, space_conditions
from enmasse.control.verdicts import Verdict
from enmasse.model.addresses import Address
from enmasse.model.conditions import READY
from enmasse.model.kinds import restore
from enmasse.model.spaces import AddressSpace

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.control_plane import ControlPlane
    from enmasse.control.quota import Probe
    from enmasse.control.store import Document

__all__ = ["Preview"]

_DRY = Verdict("DryRun", "nothing was written")


class Preview:
    """Tells what would be.

    Args:
        plane: the controllers that would look at it.
        now: gives the present, RFC 3339 in UTC.
    """

    def __init__(self, plane: ControlPlane, *, now: Callable[[], str]) -> None:
        self._plane = plane
        self._now = now

    def __call__(self, document: Document) -> Document:
        """Return an object as it would be stored, with the status that it would have."""
        if document["kind"] not in ("Address", "AddressSpace"):
            return document
        resource = restore(document)
        match resource:
            case Address():
                status = self._address(resource)
            case AddressSpace():
                status = self._space(resource)
            case _:
                return document
        return document | {"status": status}

    def _address(self, address: Address) -> Document:
        plane, generation = self._plane, address.metadata.generation
        row = plane.declared.addresses.get(address.key)
        is_placed = row is not None and plane.placements.of(address.space_key).place_of(row.key) is not None
        view = plane.address_looks.view(address, row, is_served=is_placed)
        verdict, status = judge_address(view), address.status
        ready = verdict
        if verdict.is_yes:
            probe = plane.placements.of(address.space_key).probe(address.key, claim_of(view))
            if probe.place is None:
                verdict = ready = Verdict("QuotaExceeded", probe.refusal)
            else:
                status = address_status(view, wanted_address(view), probe.place, plane.mirror.name)
                ready = _DRY
        scheduled = condition("Scheduled", verdict, generation)
        if verdict.is_yes:
            scheduled = scheduled.model_copy(update={"reason": "WouldFit", "message": _used(probe)})
        found = (scheduled, condition(READY, ready, generation))
        return status.with_conditions(found, self._now()).to_dict()

    def _space(self, space: AddressSpace) -> Document:
        plane, generation = self._plane, space.metadata.generation
        view: SpaceView = plane.space_looks.view(space)
        verdict = judge_space(view)
        ready = condition(READY, _DRY if verdict.is_yes else verdict, generation)
        limits = effective_space_limits(space.spec, view.plan.spec if view.plan else None)
        status = space.status.model_copy(update={"limits": limits if limits.to_dict() else None})
        return status.with_conditions(space_conditions(view, ready), self._now()).to_dict()


def _used(probe: Probe) -> str:
    """Return what a space would use, in a sentence."""
    parts = []
    for resource, used in probe.usage.items():
        limit = probe.limits.get(resource)
        parts.append(f"{used:g} {resource}" if limit is None else f"{used:g} of {limit:g} {resource}")
    return f"it fits; the address space would use {', '.join(parts)}"
