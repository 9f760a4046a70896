"""Translates the source and target of AMQP links into the options of addresses.

This includes dynamic termini: the node that a link asks for, and the properties of the one it gets
[AMQP 3.5.9 - 3.5.13].
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from enmasse.message.types import Array, Described, Symbol, ULong
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.direct.multicast import Multicast
from enmasse.messaging.dynamic import DynamicRequest, Lifetime
from enmasse.messaging.errors import AttachError
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.messaging.space import Space
from enmasse.wire.amqp.performatives import DYNAMIC_PLACE, Attach, Source, Target

if TYPE_CHECKING:
    from enmasse.node.users.rights import Rights

TerminusT = TypeVar("TerminusT", Source, Target)

ADDRESS_TYPE = "enmasse:address-type"
PARTITIONS = "enmasse:partitions"

SELECTOR_CODE = 0x0000468C00000004
"""The descriptor of a selector as a number."""

_WITHOUT_DESCRIPTOR = {"jms-selector": SELECTOR_FILTER, "selector": SELECTOR_FILTER}
"""The keys of selectors that clients send without a descriptor."""

EXPIRY_POLICIES = ("link-detach", "session-end", "connection-close", "never")
MAX_DURABILITY = 2


def address_of(terminus: Source | Target) -> str:
    """Return the address that a terminus names.

    Raises:
        AttachError: the address is not a string.
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
    """Return filters by their descriptors, whatever their keys are [AMQP 3.5.8].

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


def _check(terminus: Source | Target) -> None:
    """Check the durability and expiry policy of a terminus [AMQP 3.5.5, 3.5.6].

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
    """Return the options that a sender asks for.

    Raises:
        AttachError: its target says what cannot be.
    """
    _check(target)
    return AttachOptions(
        capabilities=_capabilities(attach, target),
        properties=_plain(attach.properties),
        name=attach.name,
        attach=attach,
    )


def require_kind(address: Address, capabilities: tuple[str, ...]) -> None:
    """Check that an address is what a client takes it for, as JMS tells queues from topics by a capability.

    Raises:
        AttachError: it is not, so that messages would be shared out where each receiver expects all, or the reverse.
    """
    for capability, kinds, others in _MISTAKEN:
        if capability in capabilities and address.kind in kinds:
            raise AttachError(
                "amqp:not-allowed",
                f"{address.name!r:.200} is a {address.kind} address, and the link asks for a {capability}: ask for a "
                f"{others}, as by JMS's create{others.capitalize()}, or for neither",
            )


def attach_properties(address: Address, options: AttachOptions) -> dict[str, Any] | None:
    """Return the properties by which a sender that asks is given the type of its address."""
    if ADDRESS_TYPE not in options.capabilities:
        return None
    given: dict[str, Any] = {ADDRESS_TYPE: address.kind}
    if address.partitions:
        given[PARTITIONS] = len(address.partitions)
    return given


def receiver_options(attach: Attach, source: Source, container: str, url: str, rights: Rights) -> AttachOptions:
    """Return the options that a receiver asks for, without its address.

    Args:
        attach: the receiver's attach.
        source: its source, or the one that was recovered.
        container: the receiver's container id.
        url: the URL of this node.
        rights: the rights of its connection.

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
        owner=rights.owner,
        user=rights.username,
        may_manage=rights.may_manage,
        url=url,
        browse=source.distribution_mode == "copy",
        is_durable=bool(source.durable),
        expiry_policy=str(source.expiry_policy),
        expiry_timeout_s=source.timeout,
        attach=attach,
    )


def as_named(granted: TerminusT, asked: Source | Target) -> TerminusT:
    """Return a terminus that others have granted, with the address by which the client knows it."""
    connector = dynamic_place(asked).partition("/")[0]
    return replace(granted, address=f"{connector}/{granted.address}" if connector else asked.address)


def granted_filters(source: Source) -> dict[Any, Any] | None:
    """Return the filters in place for the receiver's attach [AMQP 3.5.3]: all but those that are null."""
    return {key: value for key, value in (source.filter or {}).items() if value is not None} or None


def recovered_source(space: Space, container: str, link: str, rights: Rights) -> Source:
    """Return the source of a durable subscription that a receiver names by its link alone.

    Raises:
        AttachError: the container has no such subscription that is open to its user.
    """
    for address in space.addresses.values():
        lasting = address.lasting(container, link, rights.owner, rights.username, may_manage=rights.may_manage)
        if lasting is None:
            continue
        name = SELECTOR_FILTER
        return Source(
            address=lasting.source,
            durable=2,
            expiry_policy=Symbol(lasting.policy),
            timeout=lasting.timeout_s,
            filter=None if lasting.selector is None else {Symbol(name): Described(Symbol(name), lasting.selector)},
            capabilities=tuple(Symbol(capability) for capability in lasting.capabilities) or None,
        )
    raise AttachError(
        "amqp:not-found", f"container {container!r} has no durable subscription {link!r}, and its source is not named"
    )


_MISTAKEN = (
    ("queue", (Topic.kind, Multicast.kind), "topic"),
    ("topic", (Queue.kind, Anycast.kind), "queue"),
)
"""The capabilities that say what a client takes an address for, the types that it is not, and what it is then."""

LIFETIME_POLICY = Symbol("lifetime-policy")
DIST_MODES = Symbol("supported-dist-modes")

_LIFETIMES: dict[Any, Lifetime] = {
    **{lifetime.value: lifetime for lifetime in Lifetime},
    "amqp:delete-on-close:list": Lifetime.CLOSE,
    "amqp:delete-on-no-links:list": Lifetime.NO_LINKS,
    "amqp:delete-on-no-messages:list": Lifetime.NO_MESSAGES,
    "amqp:delete-on-no-links-or-messages:list": Lifetime.NO_LINKS_OR_MESSAGES,
}

_KINDS = {name: kind for kind in (Queue.kind, Topic.kind) for name in (f"temporary-{kind}", kind)}
"""The kind of node by the capability that asks for it."""

_MODES = {Anycast.kind: ("move",), Queue.kind: ("move", "copy"), Topic.kind: ("copy",)}
_SYMBOLS = 0xA3


def dynamic_request(terminus: Source | Target, capabilities: tuple[str, ...]) -> DynamicRequest:
    """Return the kind and lifetime of the dynamic node that a link asks for.

    A capability says which kind it is; without one, the distribution modes that it has to support decide.

    Args:
        terminus: the dynamic terminus.
        capabilities: the link's and the terminus's.

    Raises:
        AttachError: a property is wrong, or contradicts another.
    """
    _check_dynamic(terminus)
    properties = terminus.dynamic_node_properties or {}
    lifetime = _lifetime(properties.get(LIFETIME_POLICY))
    modes = _modes(properties.get(DIST_MODES))
    kind = next((_KINDS[capability] for capability in capabilities if capability in _KINDS), None)
    if kind is None:
        kind = Anycast.kind if "copy" not in modes else Queue.kind if "move" in modes else Topic.kind
    elif not modes <= set(_MODES[kind]):
        raise AttachError("amqp:invalid-field", f"a temporary {kind} supports {' and '.join(_MODES[kind])} only")
    return DynamicRequest(kind, lifetime)


def _check_dynamic(terminus: Source | Target) -> None:
    if terminus.address:
        raise AttachError("amqp:invalid-field", "a dynamic terminus names no address: the node names it")


def dynamic_place(terminus: Source | Target) -> str:
    """Return the connector behind which a link wants its dynamic node, and what leads on from there; empty: here.

    Raises:
        AttachError: the property that names it is none of its kind.
    """
    if not terminus.dynamic:
        return ""
    place = (terminus.dynamic_node_properties or {}).get(DYNAMIC_PLACE, "")
    if not isinstance(place, str):
        raise AttachError("amqp:invalid-field", f"{DYNAMIC_PLACE} is the name of a connector, not {place!r:.60}")
    _check_dynamic(terminus)
    return str(place)


def dynamic_properties(wish: DynamicRequest) -> dict[Any, Any]:
    """Return the properties of the node for the link's attach."""
    modes = [Symbol(mode) for mode in _MODES[wish.kind]]
    return {
        LIFETIME_POLICY: Described(ULong(wish.lifetime.value), []),
        DIST_MODES: modes[0] if len(modes) == 1 else Array(_SYMBOLS, modes),
    }


def _lifetime(policy: Any) -> Lifetime:
    if policy is None:
        return Lifetime.CLOSE
    descriptor = policy.descriptor if isinstance(policy, Described) else None
    lifetime = _LIFETIMES.get(descriptor) if isinstance(descriptor, int | str) else None
    if lifetime is None:
        raise AttachError("amqp:invalid-field", f"lifetime-policy is one of the four of AMQP 1.0, not {policy!r:.60}")
    return lifetime


def _modes(given: Any) -> set[str]:
    values = given.values if isinstance(given, Array) else [] if given is None else [given]
    modes = {str(value) for value in values}
    if not modes <= {"move", "copy"}:
        raise AttachError("amqp:invalid-field", f"supported-dist-modes takes move and copy, not {given!r:.60}")
    return modes
