"""Conditions in the Kubernetes manner: facts about an object, each with its reason.

The other status fields of EnMasse 1.0 (``isReady``, ``phase``, ``messages``)
are derived from the conditions and never written apart from them.

The condition ``InEffect`` names the fields of a declaration that are kept and shown, and change nothing.

Rules:
1. A field that is accepted works, or is named in ``InEffect`` with its path and the reason.
2. Every object has the condition, true where all of it works: so it can be waited for.
3. ``Ready`` is false, too, where a field without effect would restrict access or move messages: it must not be
   relied on. Everything else is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from enmasse.model.schema.schema import Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


READY = "Ready"
IN_EFFECT = "InEffect"

Truth = Literal["True", "False", "Unknown"]
Phase = Literal["Pending", "Configuring", "Active", "Failed", "Terminating"]

_WAITING_FOR_DECLARATION = frozenset({"PlanApplied", "AuthenticationReady", "Scheduled"})
_FAILED_REASONS = frozenset({"NodeRefused", "NodeDiffers", "NotInEffect"})


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
    """The time at which ``status`` last changed, RFC 3339 in UTC."""

    def is_same(self, other: Condition) -> bool:
        """Return True if two conditions differ in nothing but their transition times."""
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
    """Return conditions with their transition times: the former one where the status is unchanged.

    Args:
        found: the conditions that hold now, without times.
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


NOT_IN_EFFECT: Final = "NotInEffect"

_MAX_NAMED = 50
"""Paths in one message; more of them would not be read."""


@dataclass(frozen=True, slots=True)
class Unapplied:
    """A field that has no effect.

    Attributes:
        path: the place of it, as in ``spec.forwarders[0].name``.
        why: the reason, and what to do, in a sentence without a capital letter.
        is_needed: whether it would restrict access or move messages.
    """

    path: str
    why: str
    is_needed: bool = False


def in_effect(found: Sequence[Unapplied], generation: int) -> Condition:
    """Return the condition ``InEffect``, without its time."""
    return Condition(
        type=IN_EFFECT,
        status="False" if found else "True",
        reason=NOT_IN_EFFECT if found else "Applied",
        message="; ".join(sentences(found)),
        observed_generation=generation,
    )


def sentences(found: Sequence[Unapplied]) -> list[str]:
    """Return a sentence for each reason why fields have no effect."""
    reasons: dict[str, list[str]] = {}
    # What would restrict access or move messages comes first.
    for item in sorted(found, key=lambda item: not item.is_needed)[:_MAX_NAMED]:
        reasons.setdefault(item.why, []).append(item.path)
    found_sentences = []
    for why, paths in reasons.items():
        found_sentences.append(f"{', '.join(paths)} {'has' if len(paths) == 1 else 'have'} no effect: {why}")
    left = len(found) - _MAX_NAMED
    return found_sentences if left <= 0 else [*found_sentences, f"and {left} more"]


def with_effect(
    conditions: Iterable[Condition], found: Sequence[Unapplied], generation: int
) -> tuple[Condition, ...]:
    """Return conditions with ``InEffect`` before ``Ready``, which is false if a needed field has no effect.

    Args:
        conditions: of an object, with ``Ready`` or without.
        found: the fields of the object that have no effect.
        generation: the generation of its declaration.
    """
    others = [item for item in conditions if item.type not in (READY, IN_EFFECT)]
    ready = [item for item in conditions if item.type == READY]
    needed = [item for item in found if item.is_needed]
    if needed:
        unready = {"status": "False", "reason": NOT_IN_EFFECT, "message": in_effect(needed, generation).message}
        ready = [item.model_copy(update=unready) if item.status == "True" else item for item in ready]
    return (*others, in_effect(found, generation), *ready)


def is_served(conditions: Iterable[Condition]) -> bool:
    """Return True if an object is served: it is ready, or would be but for fields without effect."""
    ready = find(conditions, READY)
    return ready is not None and (ready.status == "True" or ready.reason == NOT_IN_EFFECT)


def over_bounds(path: str, asked: Model | None, allowed: Model | None) -> Iterator[Unapplied]:
    """Yield the limits of a part that are above those of the plan, which hold instead.

    Args:
        path: the path of the part.
        asked: the limits that an object asks for.
        allowed: the limits that its plan allows.
    """
    for field, value in set_fields(asked):
        bound = getattr(allowed, field, None)
        if asked is not None and isinstance(value, int) and isinstance(bound, int) and value > bound:
            name = type(asked).model_fields[field].alias
            yield Unapplied(f"{path}.{name}", f"the plan allows {bound}, which holds")


def set_fields(part: Model | None) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a part that are set, with their values."""
    if part is None:
        return
    for field in type(part).model_fields:
        value = getattr(part, field)
        if value is not None and value is not False and value not in ((), {}):
            yield field, value
