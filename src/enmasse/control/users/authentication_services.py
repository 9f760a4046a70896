"""Resolve the authentication of a space: the service that it names, as the settings that nodes need. Pure.

Rules:
1. A service that does not exist, or cannot be used as it is, is waited for; the verdict names what is missing.
2. A space changes the service's settings only where the service allows that, and never takes the secret of the
   service's client with it: that is for the issuer that it was configured for, as the service's authorities prove it.
   A host that it names has to be public, or in a network that the operator has named.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from enmasse.control.runtime.verdicts import ADMITTED, Verdict
from enmasse.control.users.passwords import node_pattern
from enmasse.errors import ConfigError, EnmasseError
from enmasse.identity.federation import CLIENT, realm_name
from enmasse.identity.oidc_settings import check_provider_url, read_settings
from enmasse.model.kinds.core import Secret
from enmasse.model.kinds.spaces import NO_AUTHENTICATION, AuthenticationOverrides
from enmasse.model.schema.names import PLAN_NAMESPACE

if TYPE_CHECKING:
    from enmasse.model.kinds.authentication import (
        AuthenticationService,
        KeycloakSettings,
        OidcSettings,
        ServiceSecret,
    )
    from enmasse.model.kinds.spaces import AddressSpace
    from enmasse.net.special_addresses import Network


EXTERNAL, STANDARD = "external", "standard"

_REALM = re.compile(r"(?!\.\.?$)[\w.~-]+", re.ASCII)

FindSecret = Callable[[str, str], Secret | None]
"""Returns a secret by namespace and name."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """The resolved authentication of a space.

    Attributes:
        verdict: whether the space can be served with it.
        kind: for the node: ``none``, ``standard`` or ``external``.
        oidc: the provider's settings for the node, if the users come from one.
        state: whether users can come in now, as far as that is known.
    """

    verdict: Verdict = ADMITTED
    kind: str = NO_AUTHENTICATION
    oidc: Mapping[str, Any] | None = field(default=None, repr=False)
    state: Verdict = ADMITTED

    @property
    def condition_verdict(self) -> Verdict:
        """The verdict that the space reports in its condition."""
        return self.verdict if not self.verdict.is_yes else self.state


PASSWORDS_MISSING = "PasswordsMissing"
"""The reason of a realm that is there, while some of its users cannot log in."""


def is_realm_missing(state: Verdict) -> bool:
    """Return whether a realm is not known to exist."""
    return not state.is_yes and state.reason != PASSWORDS_MISSING


def keycloak_of(service: AuthenticationService | None) -> KeycloakSettings | None:
    """Return the Keycloak in which a service keeps users, if it does."""
    if service is None or service.spec.type != STANDARD or service.spec.standard is None:
        return None
    return service.spec.standard.keycloak


class MissingError(EnmasseError):
    """Raised when something that a service needs is missing, or is not as it must be.

    Attributes:
        reason: one CamelCase word, for programs.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def service_of(space: AddressSpace, services: Mapping[str, AuthenticationService]) -> AuthenticationService | None:
    """Return the service that a space names, if it is declared.

    Args:
        space: the space as declared.
        services: those of the operator, by name.
    """
    asked = space.spec.authentication_service
    if asked.name is not None:
        return services.get(asked.name)
    if asked.type == EXTERNAL:
        found = [service for service in services.values() if service.spec.type == EXTERNAL]
        return found[0] if len(found) == 1 else None
    return None


def resolve_authentication(
    space: AddressSpace,
    services: Mapping[str, AuthenticationService],
    find_secret: FindSecret,
    networks: Sequence[Network] = (),
) -> Authentication:
    """Return the authentication of a space.

    Args:
        space: the space as declared.
        services: those of the operator, by name.
        find_secret: gives secrets.
        networks: the networks in which providers that spaces choose may be although that is not public.
    """
    asked = space.spec.authentication_service
    service = service_of(space, services)
    if service is None:
        if asked.kind is not None:
            return Authentication(kind=asked.kind)
        known = ", ".join(sorted({*services, NO_AUTHENTICATION, STANDARD}))
        named = asked.name or asked.type
        return _waits("UnknownAuthenticationService", f"unknown authentication service '{named}'; there are {known}")
    spec, name = service.spec, service.metadata.name
    if asked.type not in (None, spec.type):
        return _waits(
            "UnknownAuthenticationService",
            f"authentication service '{name}' is of type {spec.type}, and the space asks for type {asked.type}",
        )
    try:
        oidc = None
        if spec.type == EXTERNAL:
            oidc = _external(space, service, find_secret, networks)
        elif (keycloak := keycloak_of(service)) is not None:
            oidc = _keycloak(space, service, keycloak, find_secret)
        if oidc is None:
            return Authentication(kind=spec.type)
        read_settings(f"authentication service '{name}'", oidc)
    except MissingError as error:
        return _waits(error.reason, str(error))
    except ConfigError as error:
        return _waits("InvalidAuthenticationService", str(error))
    return Authentication(kind=EXTERNAL, oidc=oidc)


def judge_service(service: AuthenticationService, find_secret: FindSecret) -> Verdict:
    """Return whether a service can be used as it is declared, as far as that can be seen from here.

    Args:
        service: the service as declared.
        find_secret: gives secrets.
    """
    namespace, name = service.metadata.namespace, service.metadata.name
    try:
        if service.spec.type == EXTERNAL:
            read_settings(f"authentication service '{name}'", _external_fields(service, find_secret))
        elif (keycloak := keycloak_of(service)) is not None:
            check_provider_url(f"authentication service '{name}': keycloak.url", keycloak.url)
            _authorities(keycloak.ca_cert_secret, namespace, find_secret)
    except MissingError as error:
        return Verdict(error.reason, str(error))
    except ConfigError as error:
        return Verdict("InvalidAuthenticationService", str(error))
    return Verdict("Valid")


def _waits(reason: str, message: str) -> Authentication:
    return Authentication(Verdict(reason, message))


def _keycloak(
    space: AddressSpace, service: AuthenticationService, keycloak: KeycloakSettings, find_secret: FindSecret
) -> dict[str, Any]:
    """Return the settings of a space's realm in a Keycloak of ours, as the controller of realms makes it."""
    if service.spec.realm is not None:
        raise MissingError(
            "InvalidAuthenticationService",
            f"authentication service '{service.metadata.name}' has spec.realm; in Keycloak each space has its own",
        )
    realm = realm_name(space.metadata.namespace, space.metadata.name)
    return {
        "issuer": f"{keycloak.url.rstrip('/')}/realms/{realm}",
        "audience": CLIENT,
        "clientId": CLIENT,
        "passwordGrant": True,
        "groupGrants": True,
        "ourUsers": True,
        **_authorities(keycloak.ca_cert_secret, service.metadata.namespace, find_secret),
    }


def _external_fields(service: AuthenticationService, find_secret: FindSecret) -> dict[str, Any]:
    """Return a service's settings of its provider."""
    external, namespace = service.spec.external, service.metadata.namespace
    if external is None or external.oidc is None:
        raise MissingError(
            "InvalidAuthenticationService",
            f"authentication service '{service.metadata.name}' has no spec.external.oidc; other protocols are not "
            "spoken",
        )
    fields = _agreed(external.oidc) | _authorities(external.ca_cert_secret, namespace, find_secret)
    secret = external.oidc.client_secret
    if secret is not None:
        fields["clientSecret"] = secret_entry(find_secret, secret.namespace or namespace, secret.name, secret.key)
    return fields


def _external(
    space: AddressSpace, service: AuthenticationService, find_secret: FindSecret, networks: Sequence[Network]
) -> dict[str, Any]:
    """Return a service's settings of its provider, with the changes of a space."""
    fields = _external_fields(service, find_secret)
    external = service.spec.external
    assert external is not None
    overrides = space.spec.authentication_service.overrides
    if overrides == AuthenticationOverrides():
        overrides = None
    if overrides is not None and not external.allow_override:
        raise MissingError(
            "OverrideNotAllowed",
            f"authentication service '{service.metadata.name}' does not allow overrides: "
            "spec.external.allowOverride is not set",
        )
    if overrides is None:
        return fields
    own_issuer = fields["issuer"]
    issuer = _overridden(own_issuer, overrides)
    if issuer != own_issuer or overrides.ca_cert_secret is not None:
        fields.pop("clientSecret", None)
    fields["issuer"] = issuer
    if overrides.ca_cert_secret is not None:
        namespace = space.metadata.namespace
        fields["caCert"] = secret_entry(find_secret, namespace, overrides.ca_cert_secret.name, "ca.crt")
    if urlsplit(issuer).netloc != urlsplit(own_issuer).netloc:
        # The operator's own provider may be anywhere.
        fields["networks"] = list(map(str, networks))
    return fields


def _agreed(oidc: OidcSettings) -> dict[str, Any]:
    fields = oidc.to_dict()
    fields.pop("clientSecret", None)
    for grant in fields.get("grants", ()):
        grant["addresses"] = [node_pattern(pattern) for pattern in grant.get("addresses", ())]
    return fields


def _overridden(issuer: str, overrides: AuthenticationOverrides) -> str:
    """Return the URL of a provider with the changes of a space."""
    parts = urlsplit(issuer)
    host = overrides.host or parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    # A port belongs to its host.
    port = overrides.port or (None if overrides.host else parts.port)
    path = parts.path
    if overrides.realm is not None:
        if "/realms/" not in path:
            raise MissingError(
                "OverrideNotAllowed", "overrides.realm: the issuer of the authentication service has no realms"
            )
        if _REALM.fullmatch(overrides.realm) is None:
            raise MissingError(
                "OverrideNotAllowed", "overrides.realm: one word of a URL is expected: letters, digits, '.', '_', '-'"
            )
        path = f"{path.partition('/realms/')[0]}/realms/{overrides.realm}"
    return urlunsplit((parts.scheme, f"{shown}:{port}" if port else shown, path, "", ""))


def _authorities(secret: ServiceSecret | None, namespace: str, find_secret: FindSecret) -> dict[str, str]:
    if secret is None:
        return {}
    return {"caCert": secret_entry(find_secret, secret.namespace or namespace, secret.name, "ca.crt")}


def secret_entry(find_secret: FindSecret, namespace: str, name: str, key: str) -> str:
    """Return the text of one entry of a secret.

    Raises:
        MissingError: it is not there.
    """
    namespace = namespace or PLAN_NAMESPACE
    found = find_secret(namespace, name)
    if found is None:
        raise MissingError("SecretMissing", f"there is no Secret {namespace}/{name}")
    value = found.settled().data.get(key)
    if value is None:
        raise MissingError("SecretMissing", f"Secret {namespace}/{name} has no entry {key!r}")
    try:
        return b64decode(value).decode().rstrip("\r\n")
    except ValueError:
        raise MissingError("SecretMissing", f"entry {key!r} of Secret {namespace}/{name} is no text") from None
