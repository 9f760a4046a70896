"""AuthenticationService: a service that authenticates the users of spaces.

ConsoleService is beside it: the web console of EnMasse 1.0, kept so that YAML with it applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from enmasse.model.kinds.users import Operation
from enmasse.model.schema.conditions import Unapplied, set_fields
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.quantities import Quantity
from enmasse.model.schema.resource import Resource, ResourceStatus
from enmasse.model.schema.schema import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

AuthenticationServiceType = Literal["none", "standard", "external"]


class ServiceSecret(Model):
    """The name of a secret, in the service's namespace unless another one is named."""

    name: str
    namespace: str | None = None


class NoAuthentication(Model):
    """Settings of a service that admits everyone."""

    certificate_secret: ServiceSecret | None = None
    image: dict[str, str] | None = None
    replicas: int | None = Field(default=None, ge=0)
    resources: dict[str, Any] | None = None
    service_account_name: str | None = None
    deployment_name: str | None = None
    service_name: str | None = None


class Datasource(Model):
    """The database in which EnMasse 1.0's Keycloak kept its users."""

    type: Literal["h2", "postgresql"]
    host: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    database: str | None = None
    credentials_secret: ServiceSecret | None = None


class ServiceStorage(Model):
    """The volume of EnMasse 1.0's Keycloak."""

    type: Literal["ephemeral", "persistent-claim"]
    size: Quantity | None = None
    storage_class: str | None = Field(default=None, alias="class")
    claim_name: str | None = None
    delete_claim: bool | None = None


class KeycloakSettings(Model):
    """A Keycloak of our own: each space gets a realm, and its users are kept there."""

    url: str
    """The URL of the service, as `https://keycloak.example.com`."""
    credentials_secret: ServiceSecret
    """The credentials of an administrator of the realm `master`: entries `admin.username` and `admin.password`."""
    ca_cert_secret: ServiceSecret | None = None
    """The authority to trust: entry `ca.crt`."""


class StandardAuthentication(Model):
    """Settings of a service that keeps messaging users: in our own store, or in a Keycloak."""

    certificate_secret: ServiceSecret | None = None
    credentials_secret: ServiceSecret | None = None
    datasource: Datasource | None = None
    storage: ServiceStorage | None = None
    keycloak: KeycloakSettings | None = None
    """The service that keeps the users; left out: our own store."""
    image: dict[str, str] | None = None
    init_image: dict[str, str] | None = None
    replicas: int | None = Field(default=None, ge=0)
    jvm_options: str | None = None
    resources: dict[str, Any] | None = None
    service_account_name: str | None = None
    security_context: dict[str, Any] | None = None
    deployment_name: str | None = None
    service_name: str | None = None
    route_name: str | None = None


class ServiceSecretKey(ServiceSecret):
    """One entry of a secret, in the service's namespace unless another one is named."""

    key: str = "client-secret"


class ClaimGrant(Model):
    """Rights of everybody whose token names a group or a scope."""

    group: str | None = Field(default=None, min_length=1)
    scope: str | None = Field(default=None, min_length=1)
    operations: tuple[Operation, ...] = Field(strict=False, min_length=1)
    """As a MessagingUser has them."""
    addresses: tuple[str, ...] = Field(default=(), strict=False)
    """As a MessagingUser has them."""


class OidcSettings(Model):
    """A provider of OpenID Connect: who shows its tokens is let in."""

    issuer: str
    """The provider, as its tokens name it; its document of discovery lies below."""
    audience: str | None = Field(default=None, min_length=1)
    """The audience that tokens must be made out for; left out: the client id."""
    client_id: str | None = None
    """The client that asks for tokens on behalf of users that log in with a password."""
    client_secret: ServiceSecretKey | None = None
    """Its secret; left out: a public client."""
    password_grant: bool = False
    """True if users may log in with a password, which is shown to the provider."""
    scopes: str = "openid"
    """The scopes to ask for beside a password, divided by spaces."""
    username_claim: str = Field(default="preferred_username", min_length=1)
    """The claim that names the user."""
    groups_claim: str = "groups"
    """The claim that names the user's groups."""
    group_grants: bool = False
    """True if groups named `send_<address>`, `recv_<address>`, `monitor` and `manage` grant what they say."""
    grants: tuple[ClaimGrant, ...] = Field(default=(), strict=False)
    """The grants of other groups and scopes. Where a space has a MessagingUser of the same name, that one decides."""
    leeway: int = Field(default=10, ge=0, le=300)
    """The seconds that clocks may differ."""
    password_cache: int = Field(default=60, ge=0, le=3600)
    """The seconds that a password that was right is not shown to the provider again."""


class ExternalAuthentication(Model):
    """Settings of a service that others run."""

    host: str | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    ca_cert_secret: ServiceSecret | None = None
    """The authority to trust: entry `ca.crt`."""
    client_cert_secret: ServiceSecret | None = None
    """The certificate to show: entries `tls.crt` and `tls.key`."""
    allow_override: bool = False
    """True if a space may name another host, port, realm or authority."""
    oidc: OidcSettings | None = None
    """A provider of OpenID Connect."""


class AuthenticationServiceSpec(Model):
    """The type of a service, and its settings."""

    type: AuthenticationServiceType
    """`none`: everyone is let in; `standard`: messaging users; `external`: whom another service knows."""
    realm: str | None = None
    """The realm of the service that is asked; left out: one for each space."""
    none: NoAuthentication | None = None
    standard: StandardAuthentication | None = None
    external: ExternalAuthentication | None = None


class AuthenticationServiceStatus(ResourceStatus):
    """The state of a service."""

    message: str | None = None
    """The problem, if there is one."""
    host: str | None = None
    port: int | None = None
    ca_cert_secret: ServiceSecret | None = None


class AuthenticationService(Resource):
    """A service that knows the users of spaces."""

    api_version: Literal["admin.enmasse.io/v1beta1"] = "admin.enmasse.io/v1beta1"
    kind: Literal["AuthenticationService"] = "AuthenticationService"
    spec: AuthenticationServiceSpec
    status: AuthenticationServiceStatus = AuthenticationServiceStatus()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        spec = self.spec
        for name in ("none", "standard", "external"):
            if getattr(spec, name) is not None and name != spec.type:
                yield Problem(f"spec.{name}", f"only a service of type {name} has it, this is {spec.type}")
        if spec.type != "external":
            return
        external = spec.external
        if external is None:
            yield Problem("spec.external", "required for a service of type external")
        elif external.oidc is None:
            for name in ("host", "port"):
                if getattr(external, name) is None:
                    yield Problem(f"spec.external.{name}", "required where there is no spec.external.oidc")

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing."""
        spec = self.spec
        applied = {"none": (), "standard": ("keycloak",), "external": ("ca_cert_secret", "allow_override", "oidc")}
        part = getattr(spec, spec.type)
        for field, _ in set_fields(part):
            if field not in applied[spec.type]:
                name = f"spec.{spec.type}.{type(part).model_fields[field].alias}"
                yield Unapplied(name, _BESIDE_OIDC if spec.type == "external" else _NO_PROCESS)
        if spec.realm is not None:
            yield Unapplied("spec.realm", "the users of a space are its own, or those of the issuer in external.oidc")


_NO_PROCESS = "it is about a program that EnMasse 1.0 ran for this; this service knows the users itself"
_BESIDE_OIDC = "tokens and passwords are judged by the provider that spec.external.oidc names"


class ConsoleServiceSpec(Model):
    """The URL of the console, and the way people log in to it."""

    discovery_metadata_url: str | None = Field(default=None, alias="discoveryMetadataURL")
    """The document of discovery of the provider of OpenID Connect."""
    scope: str | None = None
    oauth_client_secret: ServiceSecret | None = None
    sso_cookie_secret: ServiceSecret | None = None
    sso_cookie_domain: str | None = None
    certificate_secret: ServiceSecret | None = None
    host: str | None = None
    replicas: int | None = Field(default=None, ge=0)
    resources: dict[str, Any] | None = None
    impersonation: dict[str, Any] | None = None
    """The headers that name the user to the API."""


class ConsoleService(Resource):
    """A web console."""

    api_version: Literal["admin.enmasse.io/v1beta1"] = "admin.enmasse.io/v1beta1"
    kind: Literal["ConsoleService"] = "ConsoleService"
    spec: ConsoleServiceSpec = ConsoleServiceSpec()
    status: ResourceStatus = ResourceStatus()

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield all of it: it is kept and shown, but changes nothing."""
        yield Unapplied("spec", "the console is part of the service, at the address of its API")
