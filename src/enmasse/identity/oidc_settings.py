"""Settings of an OpenID provider: which of its tokens are accepted, and what they grant."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any
from urllib.parse import urlsplit

from enmasse.errors import ConfigError
from enmasse.identity.permissions import ADDRESS_OPERATIONS, OPERATIONS, Grant

MAX_LEEWAY_S = 300
"""Clocks that differ by more should be corrected."""

MAX_PASSWORD_CACHE_S = 3_600


@dataclass(frozen=True, slots=True)
class ClaimGrant:
    """A grant to everybody whose token has a group or a scope.

    Attributes:
        claim: ``group`` or ``scope``.
        value: the group's or the scope's name.
        grant: the allowed operations.
    """

    claim: str
    value: str
    grant: Grant


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The settings by which the tokens of a provider are verified and mapped.

    Attributes:
        issuer: the provider's URL, exactly as in ``iss``.
        audience: one of these must be in ``aud``.
        client_id: the id of our client at the provider.
        client_secret: the secret of that client; empty for a public one.
        username_claim: the claim with the name of the user.
        groups_claim: the claim with groups; empty: there is none.
        group_grants: true if groups called ``send_<address>``, ``recv_<address>``, ``monitor`` and ``manage``
            grant what their names say.
        grants: the grants of other groups and scopes.
        scopes: to request with a password.
        password_grant: true if passwords are accepted and checked by the provider.
        has_our_users: true if the provider has nobody but the MessagingUsers of the space, who are made anew there
            when they get another password.
        ca_cert: PEM of the authorities to trust instead of the system's; empty: the system's.
        leeway_s: the seconds that clocks may differ.
        password_cache_s: seconds for which a correct password is not checked by the provider again.
        networks: the networks in which the provider may be although that is not public, as a tenant has named its
            host; None: an operator has, who may name any.
        revision: identifies one version of these settings.
    """

    issuer: str
    audience: tuple[str, ...]
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    username_claim: str = "preferred_username"
    groups_claim: str = ""
    group_grants: bool = False
    grants: tuple[ClaimGrant, ...] = ()
    scopes: str = "openid"
    password_grant: bool = False
    has_our_users: bool = False
    ca_cert: str = field(default="", repr=False)
    leeway_s: int = 10
    password_cache_s: int = 60
    networks: tuple[IPv4Network | IPv6Network, ...] | None = None
    revision: str = ""


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_provider_url(where: str, url: Any) -> str:
    """Return the URL of a provider if it is https, or on this machine.

    Raises:
        ConfigError: it is anything else.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    host = parts.hostname or ""
    if not host or port == 0 or parts.scheme not in {"https", "http"} or parts.query or parts.fragment:
        raise ConfigError(f"{where}: the URL of a provider is expected, such as https://id.example.com/realms/shop")
    if parts.username is not None:
        raise ConfigError(f"{where}: no user nor password belongs into the URL of a provider")
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(f"{where}: https is expected; without TLS a provider may only be on this machine")
    return str(url)


def read_settings(where: str, fields: Any) -> OidcSettings:
    """Read settings from a map with names in camel case.

    Args:
        where: the name of the map in errors.
        fields: the map.

    Raises:
        ConfigError: the map is invalid; the message contains no secrets.
    """
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{where}: a map is expected")
    for key in fields:
        if key not in _READERS:
            raise ConfigError(f"{where}: there is no field {key!r:.100}; there are {', '.join(_READERS)}")
    found = {name: read(f"{where}.{key}", fields[key]) for key, (name, read) in _READERS.items() if key in fields}
    if "issuer" not in found:
        raise ConfigError(f"{where}.issuer: the URL of the provider is expected")
    if not found.get("audience"):
        if not found.get("client_id"):
            raise ConfigError(
                f"{where}.audience: for whom tokens have to be is expected (or clientId, which stands for it): "
                "without that the tokens of every other application would be good here"
            )
        found["audience"] = (found["client_id"],)
    if found.get("password_grant") and not found.get("client_id"):
        raise ConfigError(f"{where}.clientId: passwordGrant needs a client that passwords are shown in the name of")
    if found.get("group_grants") and not found.get("groups_claim"):
        found["groups_claim"] = "groups"
    return OidcSettings(**found)


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: a text is expected")
    return value


def _flag(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: true or false is expected")
    return value


def _words(where: str, value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) and word for word in words):
        raise ConfigError(f"{where}: a text or a list of texts is expected")
    return tuple(words)


def _networks(where: str, value: Any) -> tuple[IPv4Network | IPv6Network, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: a list is expected")
    try:
        return tuple(ip_network(_text(where, item)) for item in value)
    except ValueError:
        raise ConfigError(f"{where}: networks such as 10.1.0.0/16 are expected") from None


def _seconds(most: int) -> Callable[[str, Any], int]:
    def read(where: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ConfigError(f"{where}: seconds from 0 to {most} are expected")
        return value

    return read


def _grants(where: str, value: Any) -> tuple[ClaimGrant, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: a list is expected")
    return tuple(_claim_grant(f"{where}[{index}]", item) for index, item in enumerate(value))


def _claim_grant(where: str, item: Any) -> ClaimGrant:
    if not isinstance(item, Mapping) or not set(item) <= {"group", "scope", "operations", "addresses"}:
        raise ConfigError(f"{where}: group or scope, operations and addresses are expected")
    named = [claim for claim in ("group", "scope") if item.get(claim)]
    if len(named) != 1:
        raise ConfigError(f"{where}: either group or scope is expected")
    operations = _words(f"{where}.operations", item.get("operations"))
    for operation in operations:
        if operation not in OPERATIONS:
            raise ConfigError(
                f"{where}.operations: {operation!r:.50} is no operation; there are {', '.join(OPERATIONS)}"
            )
    addresses = _words(f"{where}.addresses", item.get("addresses") or ())
    if not operations or (ADDRESS_OPERATIONS & set(operations) and not addresses):
        raise ConfigError(f"{where}: at least one operation is expected, and addresses to send to or receive from")
    return ClaimGrant(named[0], _text(f"{where}.{named[0]}", item[named[0]]), Grant(operations, addresses))


_READERS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "issuer": ("issuer", check_provider_url),
    "audience": ("audience", _words),
    "clientId": ("client_id", _text),
    "clientSecret": ("client_secret", _text),
    "usernameClaim": ("username_claim", _text),
    "groupsClaim": ("groups_claim", _text),
    "groupGrants": ("group_grants", _flag),
    "grants": ("grants", _grants),
    "scopes": ("scopes", _text),
    "passwordGrant": ("password_grant", _flag),
    "ourUsers": ("has_our_users", _flag),
    "caCert": ("ca_cert", _text),
    "leeway": ("leeway_s", _seconds(MAX_LEEWAY_S)),
    "passwordCache": ("password_cache_s", _seconds(MAX_PASSWORD_CACHE_S)),
    "networks": ("networks", _networks),
    "revision": ("revision", _text),
}
