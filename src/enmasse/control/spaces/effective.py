"""Compute the effective settings of an address, from its own, its topic's and its plan's, and the defaults. Pure.

Rules:
1. Limits, retention and times to live: the plan's bounds may be narrowed, never widened.
2. Redelivery and policies: the address overrides its plan, field by field.
3. A field that a subscription leaves open is as in its topic, then as in its plan.
   A field of full addresses or rejected messages that all of them leave open is as in the infrastructure
   configuration.
4. With an address for dead letters and nothing else declared, there are 10 attempts without delay;
   without, a message is offered again without end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from enmasse.control.ports import SpaceLimitSettings
from enmasse.model.kinds.address_settings import (
    ADDRESS_TYPES,
    DEFAULTS,
    MAX_MS,
    SETTINGS,
    STORING,
    AddressSettings,
    wire_name,
)
from enmasse.model.kinds.addresses import AddressSpec
from enmasse.model.kinds.durations import milliseconds, written
from enmasse.model.kinds.limits import (
    AddressLimits,
    MessageRedelivery,
    MessageTtl,
    Retention,
    SpaceLimits,
    SubscriptionSpec,
)
from enmasse.model.kinds.plans import AddressPlanSpec

if TYPE_CHECKING:
    from enmasse.model.kinds.address_settings import AddressType, Setting
    from enmasse.model.kinds.addresses import Address, AddressStatus
    from enmasse.model.kinds.infra import BrokeredBrokerInfra
    from enmasse.model.kinds.plans import AddressSpacePlanSpec
    from enmasse.model.kinds.spaces import AddressSpaceSpec
    from enmasse.model.schema.schema import Model

_DEFAULT_ATTEMPTS = 10
_FULL_POLICIES: dict[str | None, str] = {"FAIL": "reject", "DROP": "drop-oldest"}
"""The policies of EnMasse 1.0; the others hold senders back."""

_NO_SPACE_LIMITS = SpaceLimits()
_DURATIONS = ("ttl", "session_expiry", "will_grace")
_NUMBERS = tuple(name for name in SpaceLimits.model_fields if name not in _DURATIONS)
_NO_TTL = MessageTtl()
_SLOW = ("topic", "multicast")
_PARTS: dict[str, type[Model]] = {
    "subscription": SubscriptionSpec,
    "message_ttl": MessageTtl,
    "message_redelivery": MessageRedelivery,
    "limits": AddressLimits,
    "retention": Retention,
}
"""The settings as a status reports them."""


def _attributes(model: Any, path: str) -> tuple[str, ...]:
    """Return the attributes by which a part of a resource is reached from its class; none if it has no such part."""
    found = []
    for word in path.split("."):
        name = next((name for name, field in model.model_fields.items() if field.alias == word), None)
        if name is None:
            return ()
        found.append(name)
        model = next(iter(get_args(model.model_fields[name].annotation)), None)
    return tuple(found)


_PATHS = {
    address_type: [
        (setting, path, _attributes(AddressSpec, path), _attributes(AddressPlanSpec, setting.plan_path))
        for setting in SETTINGS.values()
        if (path := setting.path_for(address_type))
    ]
    for address_type in ADDRESS_TYPES
}
"""The settings that addresses of a type declare, and where: in words, and in the attributes of spec and plan."""


def effective_space_limits(spec: AddressSpaceSpec, plan: AddressSpacePlanSpec | None) -> SpaceLimits:
    """Return the least of the limits of a space and its plan, limit by limit; None is without limit."""
    declared, planned = spec.limits or _NO_SPACE_LIMITS, (plan.limits if plan else None) or _NO_SPACE_LIMITS
    found: dict[str, Any] = {
        name: _least(getattr(declared, name), getattr(planned, name)) or None for name in _NUMBERS
    }
    for name in _DURATIONS:
        least = _least(getattr(declared, f"{name}_ms"), getattr(planned, f"{name}_ms"))
        found[name] = written(least) if least else None
    return SpaceLimits(**found)


def effective_space_bytes(spec: AddressSpaceSpec, plan: AddressSpacePlanSpec | None) -> int:
    """Return how much the queues, subscriptions and streams of a space may store together; 0 is without limit."""
    return effective_space_limits(spec, plan).max_bytes or 0


def limit_settings(limits: SpaceLimits) -> SpaceLimitSettings:
    """Return the limits of a space that its node keeps, in the node's words; 0 is none, or the node's own."""
    return SpaceLimitSettings(
        max_connections=limits.connections or 0,
        max_devices=limits.devices or 0,
        max_links=limits.links or 0,
        max_message_rate=limits.message_rate or 0,
        max_byte_rate=limits.byte_rate or 0,
        max_message_size=limits.message_size or 0,
        max_ttl=min(limits.ttl_ms or 0, MAX_MS),
        max_retained=limits.retained or 0,
        max_retained_bytes=limits.retained_bytes or 0,
        max_sessions=limits.sessions or 0,
        max_session_bytes=limits.session_bytes or 0,
        max_session_expiry=min(limits.session_expiry_ms or 0, MAX_MS),
        will_grace=min(limits.will_grace_ms or 0, MAX_MS),
        max_filter_addresses=limits.filter_addresses or 0,
        max_subscriptions=limits.subscriptions or 0,
        max_subscription_bytes=limits.subscription_bytes or 0,
        max_connector_connections=limits.connector_connections or 0,
        max_connector_sessions=limits.connector_sessions or 0,
        max_connector_unsettled=limits.connector_unsettled or 0,
        max_connector_bytes=limits.connector_bytes or 0,
    )


def effective_settings(
    address: Address, plan: AddressPlanSpec | None, topic: Address | None, broker: BrokeredBrokerInfra | None = None
) -> AddressSettings:
    """Return the settings for a node, beyond the identity of the address.

    Args:
        address: the address as declared.
        plan: its plan, None when there is none any more.
        topic: of a subscription, the topic that it belongs to, if that exists.
        broker: the broker of the infrastructure configuration.
    """
    spec, above = address.spec, topic.spec if topic else None
    found: dict[str, Any] = {}
    for setting, _, path, plan_path in _PATHS[spec.type]:
        own, planned = _value(setting, spec, path), _value(setting, plan, plan_path)
        if setting.is_bound:
            found[setting.field] = min(_least(own, planned), setting.most)
            continue
        if own is None and setting.is_inherited:
            own = _value(setting, above, path)
        value = own if own is not None else planned
        if value is not None:
            found[setting.field] = min(value, setting.most) if setting.type is int else value
    if spec.type in _SLOW:
        found["slow_policy"] = _slow_policy(spec, plan)
    if spec.type in STORING:
        found["ttl_minimum"], found["ttl_maximum"] = _ttl(
            spec.message_ttl or (above.message_ttl if above else None), plan
        )
        attempts = found.get("max_attempts", _DEFAULT_ATTEMPTS if found.get("deadletter") else 0)
        found["max_attempts"] = max(attempts, 0)
        found.setdefault("full_policy", _full_policy(broker))
        found.setdefault("reject_policy", _reject_policy(broker))
    if spec.type == "subscription":
        found["max_consumers"] = spec.max_consumers
    return AddressSettings(**found)


def _value(setting: Setting, part: Any, path: tuple[str, ...]) -> Any:
    """Return the value of a part of a resource at a path; None if there is none."""
    if not path:
        return None
    for name in path:
        if part is None:
            return None
        part = getattr(part, name)
    return milliseconds(part) if isinstance(part, str) and setting.type is int else part


def _full_policy(broker: BrokeredBrokerInfra | None) -> str:
    return _FULL_POLICIES.get(broker.address_full_policy if broker else None, DEFAULTS.full_policy)


def _reject_policy(broker: BrokeredBrokerInfra | None) -> str:
    is_retry = broker.treat_reject_as_unmodified_delivery_failed if broker else None
    return DEFAULTS.reject_policy if is_retry is None else "retry" if is_retry else "deadletter"


def _slow_policy(spec: AddressSpec, plan: AddressPlanSpec | None) -> str:
    found = spec.slow_policy or (plan.slow_policy if plan else None)
    if spec.type == "multicast":
        # What is not to block drops, which is the node's default and so not sent.
        return "block" if found == "block" else DEFAULTS.slow_policy
    return found if spec.type == "topic" and found not in (None, "drop") else DEFAULTS.slow_policy


def _ttl(declared: MessageTtl | None, plan: AddressPlanSpec | None) -> tuple[int, int]:
    own, planned = declared or _NO_TTL, (plan.message_ttl if plan else None) or _NO_TTL
    maximum = min(_least(own.maximum or None, planned.maximum or None), MAX_MS)
    minimum = min(max(own.minimum or 0, planned.minimum or 0), MAX_MS)
    # A maximum is a promise about space and staleness, a minimum only a wish.
    return (min(minimum, maximum) if maximum else minimum), maximum


def _least(*bounds: int | None) -> int:
    """Return the least of the bounds that there are; 0 if there is none."""
    return min((bound for bound in bounds if bound is not None), default=0)


def effective_status(status: AddressStatus, address_type: AddressType, settings: AddressSettings) -> AddressStatus:
    """Return a status with the effective settings; the same one where nothing has changed."""
    declared = declared_settings(settings, address_type)
    found = {
        name: part.model_validate(declared[wire_name(name)]) if wire_name(name) in declared else None
        for name, part in _PARTS.items()
    }
    changed = {name: value for name, value in found.items() if getattr(status, name) != value}
    return status.model_copy(update=changed) if changed else status


def declared_settings(settings: AddressSettings, address_type: AddressType) -> dict[str, Any]:
    """Return the fields of a spec that come to the settings of an address, whatever its plan says.

    What is unbounded, nowhere or off is left out.
    """
    found: dict[str, Any] = {}
    for setting, path, *_ in _PATHS[address_type]:
        value = getattr(settings, setting.field)
        if setting.field == "max_attempts":
            value = value or -1
        elif setting.field == "slow_policy" and address_type == "multicast":
            value = "block" if value == "block" else "drop"
        elif setting.field == "retention_ms" and value:
            value = written(value)
        by_default = setting.is_bound or setting.is_fixed
        if value == setting.default if by_default else value == "" or value is False:
            continue
        *above, name = path.split(".")
        part = found.setdefault(above[0], {}) if above else found
        part[name] = value
    return found
