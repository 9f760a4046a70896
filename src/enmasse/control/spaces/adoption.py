"""Adopt what a node has and nobody has declared, because a resource store was lost or is older. Pure.

Rules:
1. An adopted object is the one that the node has: it keeps its uid and its generation.
2. A declaration results in exactly what the node has: it never admits more users, and never keeps less. The
   authentication of a space is declared explicitly, and so are the bounds of an address or a space. What no
   declaration results in is not adopted.
3. Secrets of connectors are in no declaration that is made here: they are waited for where they were.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

from enmasse.control.errors import ForbiddenError, ResourceExistsError
from enmasse.control.ports import AddressEntity, SpaceEntity
from enmasse.control.spaces.effective import declared_settings
from enmasse.model.kinds.durations import written
from enmasse.model.kinds.spaces import NO_AUTHENTICATION
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, MESSAGING_USER
from enmasse.model.schema.names import object_name
from enmasse.model.schema.objects import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from enmasse.control.ports import UserEntity
    from enmasse.control.runtime.verdicts import PlanCatalog
    from enmasse.control.users.authentication_services import Authentication
    from enmasse.model.kinds.address_settings import AddressType
    from enmasse.model.kinds.plans import AddressSpacePlan
    from enmasse.model.schema.kinds import Kind
    from enmasse.model.schema.resource import Resource

ADOPTED_FROM = "enmasse.io/adopted-from"
"""Annotation: the node that had the object when the store did not know it."""

NOT_ADOPTABLE = (InvalidResourceError, ForbiddenError, ResourceExistsError)
"""The errors after which an entity of a node is not adopted."""

_UNKNOWN_SERVICE = "unknown-provider"
"""A name that no authentication service has: with it a space waits, and stays as the node has it."""

_SPACE_LIMITS = {
    "connections": "max_connections",
    "devices": "max_devices",
    "links": "max_links",
    "messageRate": "max_message_rate",
    "byteRate": "max_byte_rate",
    "messageSize": "max_message_size",
    "retained": "max_retained",
    "retainedBytes": "max_retained_bytes",
    "sessions": "max_sessions",
    "sessionBytes": "max_session_bytes",
    "filterAddresses": "max_filter_addresses",
    "subscriptions": "max_subscriptions",
    "subscriptionBytes": "max_subscription_bytes",
    "connectorConnections": "max_connector_connections",
    "connectorSessions": "max_connector_sessions",
    "connectorUnsettled": "max_connector_unsettled",
    "connectorBytes": "max_connector_bytes",
}
_DURATIONS = {"ttl": "max_ttl", "sessionExpiry": "max_session_expiry", "willGrace": "will_grace"}
_TLS_ENTRIES = {"caCert": "ca.crt", "clientCert": "tls.crt", "clientKey": "tls.key"}
Document = dict[str, Any]


def adopted_space(entity: SpaceEntity, node: str, *, service: str, plan: str | None) -> Resource:
    """Return the declaration of a space that a node has.

    Args:
        entity: the entity as the node has it.
        node: the name of the node.
        service: the name of the authentication service, where a provider knows the users; see ``choose_service``.
        plan: its plan; None for the one that spaces have by default.

    Raises:
        InvalidResourceError: it cannot be declared like that.
    """
    bounds: Document = {name: getattr(entity.limits, field) for name, field in _SPACE_LIMITS.items()}
    bounds["maxBytes"] = entity.max_bytes
    for name, field in _DURATIONS.items():
        longest = getattr(entity.limits, field)
        bounds[name] = written(longest) if longest else None
    is_local = entity.authentication in (NO_AUTHENTICATION, "standard")
    endpoints: list[Document] = [
        {"name": f"host-{number}", "service": "messaging", "expose": {"type": "route", "routeHost": host}}
        for number, host in enumerate(entity.hosts, start=1)
    ]
    if entity.port:
        endpoints.append({"name": "port", "service": "messaging", "port": entity.port})
    spec = {
        "type": entity.space_type,
        "plan": plan,
        "authenticationService": {"type": entity.authentication} if is_local else {"name": service},
        "limits": _without_defaults(bounds),
        "endpoints": endpoints or None,
        "mqtt": _mqtt_of(entity),
        "http": {"queryProperties": True} if entity.takes_query_properties else None,
        "connectors": _connectors_of(entity) or None,
    }
    return decode(_document(ADDRESS_SPACE, entity, node, spec))


def _connectors_of(entity: SpaceEntity) -> list[Document]:
    """Return the connectors of a space with their secrets by the places of which they are.

    What was given in the declaration itself has a place now: a Secret ``<space>-<connector>``.
    """
    space = entity.name.partition("/")[2]
    found = []
    for connector in entity.connectors:
        if not connector.servers:
            continue
        first = connector.servers[0]
        places = {
            entry: {"valueFromSecret": {"name": secret or f"{space}-{connector.name}".lower(), "key": key or entry}}
            for entry, (secret, key) in connector.origins.items()
        }
        tls = {name: places[entry] for name, entry in _TLS_ENTRIES.items() if entry in places}
        login = {entry: places[entry] for entry in ("username", "password") if entry in places}
        found.append(
            _given(
                name=connector.name,
                endpointHosts=[{"host": server.host, "port": server.port} for server in connector.servers],
                idleTimeout=first.idle_timeout_s,
                maxFrameSize=first.max_frame_size,
                tls=tls if first.is_tls else None,
                credentials=login or None,
                addresses=[
                    {"name": f"pattern-{number}", "pattern": pattern}
                    for number, pattern in enumerate(connector.patterns, start=1)
                ],
            )
        )
    return found


def _mqtt_of(entity: SpaceEntity) -> Document | None:
    options: Document = {}
    if entity.acknowledges_undeliverable:
        options["undeliverable"] = "acknowledge"
    if entity.copies_overlapping:
        options["overlapping"] = "each"
    if entity.takes_dollar_names:
        options["dollarNames"] = True
    bounds = entity.mqtt
    options |= _given(
        maximumPacketSize=bounds.packet_bytes or None,
        receiveMaximum=bounds.receive_maximum or None,
        keepAlive=bounds.keep_alive_s or None,
        inflight=bounds.inflight or None,
    )
    return options or None


def choose_service(entity: SpaceEntity, resolved: Mapping[str, Authentication]) -> str:
    """Return the authentication service of a space whose users come from a provider.

    Args:
        entity: the entity as the node has it.
        resolved: the authentication with each service that there is.

    Returns:
        The service with the same settings of the same provider; if there is none, the provider's own name, which
        stands for no service.
    """
    issuer = str((entity.oidc or {}).get("issuer", ""))
    for name, authentication in sorted(resolved.items()):
        agreed = dict(authentication.oidc or {})
        agreed.pop("clientSecret", None)  # which a node does not reveal
        if issuer and authentication.verdict.is_yes and agreed == entity.oidc:
            return name
    host = issuer.partition("://")[2].partition("/")[0]
    return _UNKNOWN_SERVICE if not host or host in resolved else host


def space_plans(entity: SpaceEntity, plans: Iterable[AddressSpacePlan]) -> list[str | None]:
    """Return the plans that a space can have, the one by default, which is None, before the others."""
    found = [
        plan.metadata.name
        for plan in plans
        if plan.spec.address_space_type == entity.space_type
        and (not entity.port or (plan.spec.ports is not None and entity.port in plan.spec.ports))
    ]
    return [*([] if entity.port else [None]), *sorted(found)]


def address_plans(entity: AddressEntity, plans: PlanCatalog, space_plan: str) -> list[str | None]:
    """Return the plans that an address can have: None, for the one by default, and what its space offers first."""
    offering = plans.spaces.get(space_plan)
    offered = set(offering.spec.address_plans) if offering is not None else set()
    names = [name for name, plan in plans.addresses.items() if plan.spec.address_type == entity.address_type]
    return [None, *sorted(names, key=lambda name: (name not in offered, name))]


def adopted_address(entity: AddressEntity, node: str, *, plan: str | None = None) -> Resource:
    """Return the declaration of an address that a node has.

    Args:
        entity: the entity as the node has it.
        node: the name of the node.
        plan: its plan; None for the one that addresses have by default.

    Raises:
        InvalidResourceError: it cannot be declared like that.
    """
    spec: Document = {
        "address": entity.address,
        "type": entity.address_type,
        "plan": plan,
        "topic": entity.topic or None,
        "partitions": entity.partitions or None,
        **declared_settings(entity.settings, cast("AddressType", entity.address_type)),
    }
    return decode(_document(ADDRESS, entity, node, spec))


def adopted_user(entity: UserEntity, node: str, *, is_external: bool) -> Resource:
    """Return the declaration of a user that a node has, without its password.

    Args:
        entity: the entity as the node has it.
        node: the name of the node.
        is_external: whether a provider knows the users of its space.

    Raises:
        InvalidResourceError: it cannot be declared like that.
    """
    authentication: Document = {"type": "federated" if is_external and not entity.scram else "password"}
    if entity.certificates:
        (subject, *_) = entity.certificates
        authentication = {"type": "certificate", "subject": subject if subject != entity.username else None}
    spec = {
        "username": entity.username,
        "authentication": authentication,
        "authorization": [
            {"operations": list(operations), "addresses": [_declared_pattern(pattern) for pattern in patterns]}
            for operations, patterns in entity.authorization
        ],
    } | ({"clientId": {"pattern": entity.client_ids}} if entity.client_ids else {})
    namespace, _, space = entity.space.partition("/")
    name = f"{namespace}/{object_name(space, entity.username)}"
    document = _document(MESSAGING_USER, replace(entity, name=name), node, spec)
    return decode(document | {"apiVersion": "user.enmasse.io/v1beta1"})


def _declared_pattern(pattern: str) -> str:
    """Return a pattern of a node as a user declares it, where ``*`` alone is everything; see ``node_pattern``."""
    return "+" if pattern == "*" else pattern


def differences(present: SpaceEntity | AddressEntity, wanted: SpaceEntity | AddressEntity) -> list[str]:
    """Return the fields in which a wanted entity differs from the one that the node has under its name."""
    if isinstance(present, SpaceEntity) and isinstance(wanted, SpaceEntity):
        return _differing(present, wanted, ("max_bytes",)) + _differing(present.limits, wanted.limits)
    assert isinstance(present, AddressEntity)
    assert isinstance(wanted, AddressEntity)
    found = _differing(present, wanted, ("address_type", "topic", "partitions"))
    return found + _differing(present.settings, wanted.settings)


def _differing(present: Any, wanted: Any, names: Iterable[str] = ()) -> list[str]:
    names = names or [field.name for field in fields(present)]
    return [
        f"{name} {getattr(present, name)} (not {getattr(wanted, name)})"
        for name in names
        if getattr(present, name) != getattr(wanted, name)
    ]


def _without_defaults(given: Document) -> Document | None:
    """Return the fields that say something, or nothing if none does."""
    return {name: value for name, value in given.items() if value} or None


def _document(kind: Kind, entity: SpaceEntity | AddressEntity | UserEntity, node: str, spec: Document) -> Document:
    namespace, _, name = entity.name.partition("/")
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": entity.uid,
        "generation": max(entity.generation, 1),
        "annotations": {ADOPTED_FROM: node},
    }
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": _given(**spec)}


def _given(**fields: Any) -> Document:
    """Return the fields that are said."""
    return {name: value for name, value in fields.items() if value is not None}
