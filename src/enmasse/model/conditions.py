"""Conditions in the Kubernetes manner: what holds for an object now, and why not.

The other status fields of EnMasse 1.0 (``isReady``, ``phase``, ``messages``)
are derived from the conditions and never written apart from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from enmasse.model.schema import Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["READY", "Condition", "Phase", "Truth", "find", "phase_of", "stamp", "unmet"]

READY = "Ready"

Truth = Literal["True", "False", "Unknown"]
Phase = Literal["Pending", "Configuring", "Active", "Failed", "Terminating"]

_WAITING_FOR_DECLARATION = frozenset({"PlanApplied", "AuthenticationReady", "Scheduled"})
_FAILED_REASONS = frozenset({"NodeRefused", "NodeDiffers"})


class Condition(Model):
    """One fact about an object."""

    entry_keys: ClassVar[tuple[str, ...]] = ("type",)

    type: str
    status: Truth
    reason: str
    """One CamelCase word for programs."""
    message: str = ""
    """A sentence for people; empty when there is nothing to say."""
    observed_generation: int = 0
    """The generation of the spec that this was found for."""
    last_transition_time: str = ""
    """When ``status`` last changed, RFC 3339 in UTC."""

    def is_same(self, other: Condition) -> bool:
        """Tell whether two conditions say the same, whenever that began."""
        return (self.type, self.status, self.reason, self.message, self.observed_generation) == (
            other.type,
            other.status,
            other.reason,
            other.message,
            other.observed_generation,
        )


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Return the condition of one type, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


def stamp(found: Iterable[Condition], former: Sequence[Condition], now: str) -> tuple[Condition, ...]:
    """Give new findings their transition times: the former one where the truth is unchanged.

    Args:
        found: what holds now, without times.
        former: the conditions as they were published last.
        now: the present, RFC 3339 in UTC.
    """
    stamped = []
    for condition in found:
        before = find(former, condition.type)
        if before is not None and before.is_same(condition):
            stamped.append(before)
            continue
        since = before.last_transition_time if before and before.status == condition.status else now
        stamped.append(condition.model_copy(update={"last_transition_time": since}))
    return tuple(stamped)


def phase_of(conditions: Sequence[Condition], *, deleted: bool = False) -> Phase:
    """Return EnMasse's phase for a set of conditions."""
    if deleted:
        return "Terminating"
    if any(item.status != "True" and item.type in _WAITING_FOR_DECLARATION for item in conditions):
        return "Pending"
    ready = find(conditions, READY)
    if ready is None:
        return "Pending"
    if ready.status == "True":
        return "Active"
    return "Failed" if ready.reason in _FAILED_REASONS else "Configuring"


def unmet(conditions: Iterable[Condition]) -> tuple[str, ...]:
    """Return the messages of all conditions that do not hold, each once."""
    messages = (item.message or item.reason for item in conditions if item.status != "True")
    return tuple(dict.fromkeys(messages))
