"""Connectors of spaces with everything that a node needs to connect: hosts, ports, and what lies in secrets."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from enmasse.control.ports import ConnectorEntity, ConnectorServer
from enmasse.control.users.authentication_services import MissingError, secret_entry
from enmasse.identity.authorities import ends_of
from enmasse.model.kinds.spaces import ConnectorStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enmasse.control.spaces.planning import SpaceView
    from enmasse.model.kinds.connectors import Connector
    from enmasse.model.kinds.core import Secret
    from enmasse.model.kinds.spaces import AddressSpace

_WARN: Final = timedelta(days=14)
"""The time before the end of a certificate from which on the connector says so."""

_PORT: Final = 5672
_TLS_PORT: Final = 5671


def servers_of(
    connector: Connector, namespace: str, find_secret: Callable[[str, str], Secret | None]
) -> list[ConnectorServer]:
    """Return the servers of a connector, the one that is used first first.

    Args:
        connector: the connector.
        namespace: that of its space, in which its secrets are.
        find_secret: gives secrets.

    Raises:
        MissingError: a secret, or an entry of it, is not there.
    """
    secrets = {}
    for entry, given in connector.given():
        place = given.value_from_secret
        if place is None:
            secrets[entry] = given.value or ""
        else:
            secrets[entry] = secret_entry(find_secret, namespace, place.name, place.key or entry)
    is_tls = connector.tls is not None
    return [
        ConnectorServer(
            host=place.host,
            port=place.port or (_TLS_PORT if is_tls else _PORT),
            is_tls=is_tls,
            secrets=secrets,
            idle_timeout_s=connector.idle_timeout,
            max_frame_size=connector.max_frame_size,
        )
        for place in connector.endpoint_hosts
    ]


def connectors_of(
    space: AddressSpace, find_secret: Callable[[str, str], Secret | None]
) -> tuple[tuple[ConnectorEntity, ...], dict[str, str]]:
    """Return the connectors of a space for its node, and why others wait, by their names.

    Args:
        space: the space as declared.
        find_secret: gives secrets.
    """
    found, waiting = [], {}
    for connector in space.spec.connectors:
        try:
            servers = servers_of(connector, space.metadata.namespace, find_secret)
        except MissingError as error:
            waiting[connector.name] = str(error)
        else:
            patterns = tuple(address.pattern for address in connector.addresses)
            origins = {
                entry: (place.name, place.key or entry)
                for entry, given in connector.given()
                if (place := given.value_from_secret) is not None
            }
            found.append(ConnectorEntity(connector.name, tuple(servers), patterns, origins))
    return tuple(found), waiting


def connector_statuses(view: SpaceView, problems: Mapping[str, str] | None, now: str) -> tuple[ConnectorStatus, ...]:
    """Return the state of each connector of a space, and which of its certificates ends soon.

    Args:
        view: the space with its connectors.
        problems: the last problem of connectors of the node, empty for none; None: no node has the space, as far
            as they can be reached.
        now: the present, RFC 3339 in UTC.
    """
    found = []
    warnings = {item.name: _ending(item.servers[0].secrets, datetime.fromisoformat(now)) for item in view.connectors}
    for connector in view.space.spec.connectors:
        name = connector.name
        if name in view.waiting:
            problem = f"it waits: {view.waiting[name]}"
        elif problems is None:
            problem = "no node that can be reached has the space yet"
        else:
            problem = problems.get(name, "")
        messages = (*filter(None, (problem,)), *warnings.get(name, ()))
        found.append(ConnectorStatus(name=name, is_ready=not problem, messages=messages))
    return tuple(found)


def _ending(secrets: Mapping[str, str], now: datetime) -> list[str]:
    """Return which certificates of a connector end soon, or have ended."""
    ours, theirs = ends_of(secrets.get("tls.crt", "")), ends_of(secrets.get("ca.crt", ""))
    # Our chain is as good as its first to end; of authorities others may do until the last has ended.
    ends = [("tls.clientCert", min(ours))] if ours else []
    ends += [("tls.caCert", max(theirs))] if theirs else []
    return [
        f"{field} {'ends' if end > now else 'has ended'} at {end:%Y-%m-%d %H:%M} UTC: renew it"
        for field, end in ends
        if end - now < _WARN
    ]
