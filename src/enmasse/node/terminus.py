"""From the ends of an AMQP link to what addresses are asked for."""

from __future__ import annotations

from typing import Any

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.errors import AttachError
from enmasse.messaging.selector import SELECTOR_FILTERS
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
    "sender_options",
    "what_is_told",
]

ADDRESS_TYPE = "enmasse:address-type"
PARTITIONS = "enmasse:partitions"

OUR_FILTERS = "enmasse:"

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
    """Filters by name; ours are known by it, others by the descriptor of their value [AMQP 3.5.8]."""
    found = {}
    for key, value in (filters or {}).items():
        name = str(key)
        found[name] = value.value if name.startswith(OUR_FILTERS) and isinstance(value, Described) else value
    return found


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


def granted_filters(source: Source, kind: str) -> dict[Any, Any] | None:
    """The filters that an address of a kind takes to heart, to be told to the receiver [AMQP 3.5.3]."""
    granted = {}
    for key, value in (source.filter or {}).items():
        names = {str(key), str(value.descriptor) if isinstance(value, Described) else ""}
        if str(key).startswith(OUR_FILTERS) if kind == "stream" else names & set(SELECTOR_FILTERS):
            granted[key] = value
    return granted or None


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
        name = SELECTOR_FILTERS[0]
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
