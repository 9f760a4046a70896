"""Connectors of spaces with everything that a node needs to connect: hosts, ports, and what lies in secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from enmasse.control.ports import ConnectorServer
from enmasse.control.users.authentication_services import secret_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.model.kinds.connectors import Connector
    from enmasse.model.kinds.core import Secret

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
