"""Connectors: another messaging service that a space is connected to, as whom, and what of it is reached.

Names:
1. ``<connector>/<address>`` leads to an address of the other service, so no address of the space may begin with a
   connector's name.
2. Devices reach their endpoints by words, with and without a space's addresses of that name: these are no connectors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from pydantic import Field

from enmasse.model.kinds.address_settings import wire_name
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import pattern_problem
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICE_WORDS: Final = frozenset(("telemetry", "t", "event", "e", "command", "c", "inquiry", "i", "error"))
"""The words with which the names of devices' endpoints begin, in any protocol, and their short forms."""

MAX_HOSTS: Final = 16
"""The most servers of one connector: each may take seconds to be tried."""

_TLS_ENTRIES: Final = {"ca_cert": "ca.crt", "client_cert": "tls.crt", "client_key": "tls.key"}
_LOGIN_ENTRIES: Final = {"username": "username", "password": "password"}
_PATHS: Final = {
    **{entry: f"tls.{wire_name(field)}" for field, entry in _TLS_ENTRIES.items()},
    **{entry: f"credentials.{field}" for field, entry in _LOGIN_ENTRIES.items()},
}
"""The fields of a connector by the entries of secrets that they are by default."""

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]?")
"""Names and addresses; an address of IPv6 with brackets and without."""


class HostPort(Model):
    """A server of another messaging service."""

    host: str
    """Its host name or address."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Left out: 5672, or 5671 with TLS."""


class SecretKey(Model):
    """One entry of a secret."""

    name: str
    """The name of the secret, in the namespace of the space."""
    key: str | None = None
    """The entry; left out: `ca.crt`, `tls.crt`, `tls.key`, `username` or `password`, by what is asked for."""


class ValueOrSecret(Model):
    """A value given here, or the place in a secret where it lies."""

    value: str | None = Field(default=None, repr=False)
    """The value itself, which whoever may read the space sees."""
    value_from_secret: SecretKey | None = None
    """The entry that holds it."""


class ConnectorTls(Model):
    """Certificates towards another messaging service."""

    ca_cert: ValueOrSecret | None = None
    """The authorities to trust, PEM; left out: those of the machine."""
    client_cert: ValueOrSecret | None = None
    """The certificate to show, PEM, with its chain."""
    client_key: ValueOrSecret | None = None
    """Its key, PEM."""


class ConnectorCredentials(Model):
    """User and password at another messaging service."""

    username: ValueOrSecret
    """The user."""
    password: ValueOrSecret
    """Its password."""


class ConnectorAddress(Model):
    """A pattern of addresses that another messaging service serves."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """Told apart by it."""
    pattern: str
    """Words between `/`; `*` is one word, `#` any rest. What begins with `$` is reached by patterns that begin so."""


class Connector(Model):
    """A connection to another messaging service."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)
    telling_empty: ClassVar[frozenset[str]] = frozenset({"tls"})

    name: str = Field(pattern=r"^[a-zA-Z0-9]+$")
    """Letters and digits; forwarders name it."""
    endpoint_hosts: tuple[HostPort, ...] = Field(strict=False, min_length=1, max_length=MAX_HOSTS)
    """The servers: the first, and others for when it fails."""
    role: Literal["route-container", "normal", "edge"] = "route-container"
    """The role of the connection to the other side."""
    idle_timeout: int | None = Field(default=None, ge=0)
    """Seconds of silence after which it is closed; 0: never."""
    max_frame_size: int | None = Field(default=None, ge=512)
    """Bytes."""
    tls: ConnectorTls | None = None
    """The authorities to trust and the certificate to show; `{}`: TLS with those of the machine; left out: no TLS."""
    credentials: ConnectorCredentials | None = None
    """The user to log in as; left out: anonymously."""
    addresses: tuple[ConnectorAddress, ...] = Field(default=(), strict=False)
    """The addresses that are reached over there."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of the secrets in which its certificates and credentials lie, each once."""
        return tuple(
            dict.fromkeys(given.value_from_secret.name for _, given in self.given() if given.value_from_secret)
        )

    def given(self) -> Iterator[tuple[str, ValueOrSecret]]:
        """Yield certificates and credentials that are given, each with the entry that it is by default."""
        for part, entries in ((self.tls, _TLS_ENTRIES), (self.credentials, _LOGIN_ENTRIES)):
            for field, entry in entries.items() if part is not None else ():
                found: ValueOrSecret | None = getattr(part, field)
                if found is not None:
                    yield entry, found


def first_word(address: str) -> str:
    """Return the part of an address that a connector's name would take."""
    return address.partition("/")[0]


def name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a connector, beyond its letters."""
    if name not in DEVICE_WORDS:
        return None
    return f"'{name}' is a word by which devices reach their endpoints: give the connector another name"


def connector_problems(path: str, connector: Connector) -> Iterator[Problem]:
    """Yield what is wrong with a connector beyond the types of single fields."""
    for index, place in enumerate(connector.endpoint_hosts):
        if not _HOST.fullmatch(place.host):
            got = describe_value(place.host)
            yield Problem(f"{path}.endpointHosts[{index}].host", f"expected a host name or an address, got {got}")
    tls = connector.tls
    if tls is not None and (tls.client_cert is None) != (tls.client_key is None):
        yield Problem(f"{path}.tls", "clientCert and clientKey belong together: give both")
    for entry, given in connector.given():
        if (given.value is None) == (given.value_from_secret is None):
            yield Problem(f"{path}.{_PATHS[entry]}", "expected either value or valueFromSecret")
    yield from repeated(f"{path}.addresses", [item.name for item in connector.addresses])
    for number, address in enumerate(connector.addresses):
        # Names with a dollar sign are those of the other service itself, not of this one.
        pattern = address.pattern if address.pattern.startswith("${") else address.pattern.removeprefix("$")
        if problem := pattern_problem(pattern):
            yield Problem(f"{path}.addresses[{number}].pattern", problem)


def repeated(path: str, names: list[str]) -> Iterator[Problem]:
    """Yield a problem for each name that occurs before in a list."""
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(f"{path}[{index}].name", f"expected a name used once, but '{name}' occurs before")
