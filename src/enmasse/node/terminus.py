"""From the ends of an AMQP link to what addresses are asked for."""

from __future__ import annotations

from typing import Any

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.errors import AttachError
from enmasse.messaging.selector import SELECTOR_FILTER
from enmasse.messaging.space import Space
from enmasse.messaging.stream import Stream
from enmasse.messaging.topic import Topic
from enmasse.wire.amqp.performatives import Attach, Source, Target
from enmasse.wire.amqp.types import Described, Symbol

__all__ = [
    "address_of",
    "granted_filters",
    "receiver_options",
    "recovered_source",
    "require_filters",
    "sender_options",
    "what_is_told",
]

ADDRESS_TYPE = "enmasse:address-type"
PARTITIONS = "enmasse:partitions"

SELECTOR_CODE = 0x0000468C00000004
"""The descriptor of a selector as a number."""

_WITHOUT_DESCRIPTOR = {"jms-selector": SELECTOR_FILTER, "selector": SELECTOR_FILTER}
"""What the selector is called by clients that do not describe it."""

EXPIRY_POLICIES = ("link-detach", "session-end", "connection-close", "never")
MAX_DURABILITY = 2


def address_of(terminus: Source | Target) -> str:
    """The address that a terminus names.

    Raises:
        AttachError: it is no string.
    """
    address = terminus.address
    if not isinstance(address, str):
        raise AttachError("amqp:invalid-field", f"an address is a string, not {address!r:.60}")
    return str(address)


def _capabilities(attach: Attach, terminus: Source | Target) -> tuple[str, ...]:
    return tuple(dict.fromkeys((attach.desired_capabilities or ()) + (terminus.capabilities or ())))


def _plain(properties: dict[Any, Any] | None) -> dict[str, Any]:
    return {str(key): value for key, value in (properties or {}).items()}


def _filters(filters: dict[Any, Any] | None) -> dict[str, Any]:
    """Filters by their descriptors, under whatever keys they stand [AMQP 3.5.8].

    One without a descriptor, which the specification does not know but some clients send, goes by its key.

    Raises:
        AttachError: one is there twice.
    """
    found: dict[str, Any] = {}
    for key, value in (filters or {}).items():
        if value is None:
            continue
        content = value
        if not isinstance(value, Described):
            name = _WITHOUT_DESCRIPTOR.get(str(key), str(key))
        elif isinstance(value.descriptor, int):
            content = value.value
            name = SELECTOR_FILTER if value.descriptor == SELECTOR_CODE else f"{value.descriptor:#x}"
        else:
            content = value.value
            name = str(value.descriptor)
        if name in found:
            raise AttachError("amqp:invalid-field", f"the source has the filter {name!r:.100} twice")
        found[name] = content
    return found


def require_filters(address: Address, options: AttachOptions) -> None:
    """See that an address does what a receiver's filters ask for; nobody is sent what he did not ask for.

    Raises:
        AttachError: it does not know one of them.
    """
    known = address.known_filters(options)
    for name in options.filters:
        if name not in known:
            raise AttachError(
                "amqp:not-implemented",
                f"{address.kind} {address.name!r:.100} does not know the filter {name!r:.100} for such a receiver: "
                f"it knows {', '.join(known) or 'none'}",
            )


def _check(terminus: Source | Target) -> None:
    """See that what a terminus says of its life exists [AMQP 3.5.5, 3.5.6].

    Raises:
        AttachError: it does not.
    """
    if terminus.durable > MAX_DURABILITY or terminus.expiry_policy not in EXPIRY_POLICIES:
        raise AttachError(
            "amqp:invalid-field",
            f"a terminus has durability 0 to {MAX_DURABILITY} and one of the expiry policies "
            f"{', '.join(EXPIRY_POLICIES)}; not {terminus.durable} and {terminus.expiry_policy!r:.60}",
        )


def sender_options(attach: Attach, target: Target) -> AttachOptions:
    """What a sender asks for.

    Raises:
        AttachError: its target says what cannot be.
    """
    _check(target)
    return AttachOptions(
        capabilities=_capabilities(attach, target), properties=_plain(attach.properties), name=attach.name
    )


def what_is_told(address: Address, options: AttachOptions) -> dict[str, Any] | None:
    """What a sender is told of its address if it asks what kind that is."""
    if ADDRESS_TYPE not in options.capabilities:
        return None
    told: dict[str, Any] = {ADDRESS_TYPE: address.kind}
    if isinstance(address, Stream):
        told[PARTITIONS] = len(address.partitions)
    return told


def receiver_options(attach: Attach, source: Source, container: str, url: str) -> AttachOptions:
    """What a receiver asks for, its address aside.

    Args:
        attach: the receiver's attach.
        source: its source, or the one that was recovered.
        container: the receiver's container id.
        url: how this node is reached.

    Raises:
        AttachError: its source says what cannot be.
    """
    _check(source)
    return AttachOptions(
        presettle=attach.snd_settle_mode == 1,
        filters=_filters(source.filter),
        capabilities=_capabilities(attach, source),
        properties=_plain(attach.properties),
        name=attach.name,
        container=container,
        url=url,
        browse=source.distribution_mode == "copy",
        is_durable=bool(source.durable),
        expiry_policy=str(source.expiry_policy),
        expiry_timeout_s=source.timeout,
    )


def granted_filters(source: Source) -> dict[Any, Any] | None:
    """The filters in place, to be told to the receiver [AMQP 3.5.3]: all but those that are null."""
    return {key: value for key, value in (source.filter or {}).items() if value is not None} or None


def recovered_source(space: Space, container: str, link: str) -> Source:
    """The source of a durable subscription that a receiver names by its link alone.

    Raises:
        AttachError: the container has no such subscription.
    """
    for address in space.addresses.values():
        lasting = address.subscribing.find(container, link) if isinstance(address, Topic) else None
        if lasting is None:
            continue
        selector = lasting.subscription.selector
        name = SELECTOR_FILTER
        return Source(
            address=lasting.source,
            durable=2,
            expiry_policy=Symbol(lasting.policy),
            timeout=lasting.timeout_s,
            filter=None if selector is None else {Symbol(name): Described(Symbol(name), selector.text)},
            capabilities=tuple(Symbol(capability) for capability in lasting.capabilities) or None,
        )
    raise AttachError(
        "amqp:not-found", f"container {container!r} has no durable subscription {link!r}, and its source is not named"
    )
