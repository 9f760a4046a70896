"""The controller of plans: whether what they name exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.control.space_planning import condition, plan_space_plan
from enmasse.control.verdicts import Verdict
from enmasse.model.conditions import READY
from enmasse.model.kinds import restore
from enmasse.model.plans import PLAN_NAMESPACE, AddressSpacePlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.declared import Declared
    from enmasse.control.statuses import StatusWriter
    from enmasse.control.store import ResourceStore

__all__ = ["PlanLooks"]


class PlanLooks:
    """Looks at plans; a key is kind and name.

    Args:
        store: where they lie.
        declared: what is declared.
        statuses: takes what was found.
        now: gives the present, RFC 3339 in UTC.
    """

    def __init__(
        self, store: ResourceStore, declared: Declared, statuses: StatusWriter, *, now: Callable[[], str]
    ) -> None:
        self._store = store
        self._declared = declared
        self._statuses = statuses
        self._now = now

    async def look(self, key: str) -> bool:
        """Say how one plan is."""
        kind, _, name = key.partition("/")
        document = self._store.find(kind, PLAN_NAMESPACE, name)
        if document is None:
            return True
        plan = restore(document)
        if isinstance(plan, AddressSpacePlan):
            found = plan_space_plan(plan, self._declared.plans)
        else:
            found = (condition(READY, Verdict("Valid"), plan.metadata.generation),)
        status = plan.status.with_conditions(found, self._now())
        self._statuses.publish(plan, status)
        return True
