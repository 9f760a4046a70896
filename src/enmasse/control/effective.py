"""What is in effect for an address: what it says, what its topic and its plan say, and the defaults. Pure.

Rules:
1. Limits, retention and times to live: the plan's bounds may be narrowed, never widened.
2. Redelivery and policies: the address overrides its plan, field by field.
3. What a subscription leaves open is as its topic says, then as its plan says.
4. With somewhere for dead letters to go and nothing said, there are 10 attempts without delay;
   without, a message is offered again without end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from enmasse.control.ports import AddressSettings, SpaceLimitSettings
from enmasse.model.addresses import AddressStatus
from enmasse.model.durations import MAX_MS, milliseconds, written
from enmasse.model.limits import AddressLimits, SpaceLimits
from enmasse.model.storing import MessageRedelivery, MessageTtl, Retention, SubscriptionSpec

if TYPE_CHECKING:
    from enmasse.model.addresses import Address, AddressSpec
    from enmasse.model.plans import AddressPlanSpec, AddressSpacePlanSpec
    from enmasse.model.spaces import AddressSpaceSpec

__all__ = ["effective_settings", "effective_space_bytes", "effective_space_limits", "effective_status", "told_limits"]

_DEFAULT_ATTEMPTS = 10
_NOTHING = AddressSettings()
_NO_SPACE_LIMITS = SpaceLimits()
_NUMBERS = tuple(name for name in SpaceLimits.model_fields if name != "ttl")
_NO_TTL, _NO_REDELIVERY, _NO_LIMITS, _ALL = MessageTtl(), MessageRedelivery(), AddressLimits(), Retention()


def effective_space_limits(spec: AddressSpaceSpec, plan: AddressSpacePlanSpec | None) -> SpaceLimits:
    """Return the least of what a space and its plan say, limit by limit; None is without limit."""
    said, planned = spec.limits or _NO_SPACE_LIMITS, (plan.limits if plan else None) or _NO_SPACE_LIMITS
    found = {name: _least(getattr(said, name), getattr(planned, name)) or None for name in _NUMBERS}
    ttl = _least(said.ttl_ms, planned.ttl_ms)
    return SpaceLimits(**found, ttl=written(ttl) if ttl else None)


def effective_space_bytes(spec: AddressSpaceSpec, plan: AddressSpacePlanSpec | None) -> int:
    """Return how much the queues, subscriptions and streams of a space may store together; 0 is without limit."""
    return effective_space_limits(spec, plan).max_bytes or 0


def told_limits(limits: SpaceLimits) -> SpaceLimitSettings:
    """Return the limits of a space that its node keeps, in the node's words; 0 is without limit."""
    return SpaceLimitSettings(
        max_connections=limits.connections or 0,
        max_devices=limits.devices or 0,
        max_links=limits.links or 0,
        max_message_rate=limits.message_rate or 0,
        max_byte_rate=limits.byte_rate or 0,
        max_message_size=limits.message_size or 0,
        max_ttl=min(limits.ttl_ms or 0, MAX_MS),
    )


def effective_settings(address: Address, plan: AddressPlanSpec | None, topic: Address | None) -> AddressSettings:
    """Return what a node is told beyond what the address is.

    Args:
        address: as declared.
        plan: its plan, None when there is none any more.
        topic: of a subscription, the topic that it belongs to, if that exists.
    """
    spec = address.spec
    limits = spec.limits or _NO_LIMITS
    planned = plan.limits if plan and plan.limits else _NO_LIMITS
    bounds = AddressSettings(
        max_links=_least(limits.links, planned.links),
        max_message_rate=_least(limits.message_rate, planned.message_rate),
        max_byte_rate=_least(limits.byte_rate, planned.byte_rate),
        max_message_size=_least(limits.message_size, planned.message_size),
    )
    if spec.type in ("anycast", "multicast"):
        return replace(
            bounds,
            slow_policy=_slow_policy(spec, plan),
            distribution=spec.distribution or _NOTHING.distribution,
            fallback=spec.fallback or "",
        )
    max_bytes = _least(limits.max_bytes, planned.max_bytes)
    if spec.type == "stream":
        retention = spec.retention or _ALL
        planned_age = milliseconds(plan.retention_age) if plan and plan.retention_age else None
        return replace(
            bounds,
            max_bytes=max_bytes,
            retention_bytes=_least(retention.size, plan.retention_bytes if plan else None),
            retention_ms=_least(retention.age_ms, planned_age),
        )
    above = topic.spec if topic else None
    ttl_minimum, ttl_maximum = _ttl(spec.message_ttl or (above.message_ttl if above else None), plan)
    dead_letter = spec.deadletter or (above.deadletter if above else None) or ""
    redelivery = _redelivery(spec, above, plan)
    attempts = redelivery.maximum_delivery_attempts
    if attempts is None:
        attempts = _DEFAULT_ATTEMPTS if dead_letter else 0
    consumers = spec.max_consumers
    if spec.type != "subscription":
        consumers = _least(consumers or None, planned.max_consumers)
    return replace(
        bounds,
        max_bytes=max_bytes,
        max_consumers=consumers,
        full_policy=spec.full_policy or (plan.full_policy if plan else None) or _NOTHING.full_policy,
        slow_policy=_slow_policy(spec, plan),
        ttl_minimum=ttl_minimum,
        ttl_maximum=ttl_maximum,
        max_attempts=max(attempts, 0),
        redelivery_delay=min(redelivery.redelivery_delay or 0, MAX_MS),
        redelivery_multiplier=redelivery.redelivery_delay_multiplier or 1.0,
        max_redelivery_delay=min(redelivery.maximum_delivery_delay or 0, MAX_MS),
        dead_letter=dead_letter,
        expiry=spec.expiry or (above.expiry if above else None) or "",
        exclusive=bool(spec.exclusive),
        last_value_key=spec.last_value_key or "",
    )


def _slow_policy(spec: AddressSpec, plan: AddressPlanSpec | None) -> str:
    found = spec.slow_policy or (plan.slow_policy if plan else None)
    if spec.type == "multicast":
        # What is not to block drops, which is the node's own way and so not told.
        return "block" if found == "block" else _NOTHING.slow_policy
    return found if spec.type == "topic" and found not in (None, "drop") else _NOTHING.slow_policy


def _ttl(said: MessageTtl | None, plan: AddressPlanSpec | None) -> tuple[int, int]:
    own, planned = said or _NO_TTL, (plan.message_ttl if plan else None) or _NO_TTL
    maximum = min(_least(own.maximum, planned.maximum), MAX_MS)
    minimum = min(max(own.minimum or 0, planned.minimum or 0), MAX_MS)
    # A maximum is a promise about space and staleness, a minimum only a wish.
    return (min(minimum, maximum) if maximum else minimum), maximum


def _redelivery(spec: AddressSpec, above: AddressSpec | None, plan: AddressPlanSpec | None) -> MessageRedelivery:
    layers = (plan.message_redelivery if plan else None, above.message_redelivery if above else None)
    found = _NO_REDELIVERY
    for layer in (*layers, spec.message_redelivery):
        if layer is not None:
            said = {name: value for name in type(layer).model_fields if (value := getattr(layer, name)) is not None}
            found = found.model_copy(update=said)
    return found


def _least(*bounds: int | None) -> int:
    """Return the least of the bounds that there are; 0 if there is none."""
    return min((bound for bound in bounds if bound is not None), default=0)


def effective_status(status: AddressStatus, address_type: str, settings: AddressSettings) -> AddressStatus:
    """Return a status that tells what is in effect; the same one where nothing has changed."""
    found = {
        "subscription": SubscriptionSpec(max_consumers=settings.max_consumers)
        if address_type == "subscription"
        else None,
        "message_ttl": _told_ttl(settings),
        "message_redelivery": _told_redelivery(address_type, settings),
        "limits": _told_limits(address_type, settings),
        "retention": _told_retention(settings),
    }
    changed = {name: value for name, value in found.items() if getattr(status, name) != value}
    return status.model_copy(update=changed) if changed else status


def _told_ttl(settings: AddressSettings) -> MessageTtl | None:
    if not settings.ttl_minimum and not settings.ttl_maximum:
        return None
    return MessageTtl(minimum=settings.ttl_minimum or None, maximum=settings.ttl_maximum or None)


def _told_redelivery(address_type: str, settings: AddressSettings) -> MessageRedelivery | None:
    if address_type not in ("queue", "subscription", "topic"):
        return None
    return MessageRedelivery(
        maximum_delivery_attempts=settings.max_attempts or -1,
        redelivery_delay=settings.redelivery_delay,
        redelivery_delay_multiplier=settings.redelivery_multiplier,
        maximum_delivery_delay=settings.max_redelivery_delay,
    )


def _told_limits(address_type: str, settings: AddressSettings) -> AddressLimits | None:
    consumers = settings.max_consumers if address_type != "subscription" else 0
    found = AddressLimits(
        max_bytes=settings.max_bytes or None,
        max_consumers=consumers or None,
        message_rate=settings.max_message_rate or None,
        byte_rate=settings.max_byte_rate or None,
        message_size=settings.max_message_size or None,
        links=settings.max_links or None,
    )
    return None if found == _NO_LIMITS else found


def _told_retention(settings: AddressSettings) -> Retention | None:
    if not settings.retention_bytes and not settings.retention_ms:
        return None
    age = written(settings.retention_ms) if settings.retention_ms else None
    return Retention(bytes=settings.retention_bytes or None, age=age)
