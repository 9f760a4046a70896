"""A tenant of the registry: what its devices have in common, and how many there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from enmasse.identity.authorities import AuthorityId
from enmasse.iot.certificates import PLACEHOLDERS, facts_of
from enmasse.iot.documents import Free, Limit, Part, RegistryError, Time, validated

if TYPE_CHECKING:
    from enmasse.iot.documents import Document, NewId

Name = Annotated[str, Field(min_length=1, max_length=255)]
Base64 = Annotated[str, Field(max_length=32 * 1024)]


class Adapter(Part):
    """One type of protocol adapters, and whether devices of the tenant may use it."""

    type: Name
    enabled: bool | None = None
    device_authentication_required: bool | None = None
    ext: Free | None = None


class RegistrationLimits(Part):
    """The most that the tenant may register."""

    max_devices: Limit | None = None
    max_credentials_per_device: Limit | None = None


class Period(Part):
    """The period after which accounting begins again."""

    mode: Literal["days", "monthly"]
    no_of_days: Annotated[int, Field(ge=1, le=36_600)] | None = None


class DataVolume(Part):
    """The bytes that the tenant's devices may send and receive in a period."""

    effective_since: Time
    max_bytes: Limit | None = None
    period: Period | None = None


class ConnectionDuration(Part):
    """The time that the tenant's devices may be connected in a period."""

    effective_since: Time
    max_minutes: Limit | None = None
    period: Period | None = None


class ResourceLimits(Part):
    """The most that the tenant's devices may use; times to live are in seconds."""

    max_connections: Limit | None = None
    max_ttl: Limit | None = None
    max_ttl_telemetry_qos0: Limit | None = None
    max_ttl_telemetry_qos1: Limit | None = None
    max_ttl_command_response: Limit | None = None
    data_volume: DataVolume | None = None
    connection_duration: ConnectionDuration | None = None
    ext: Free | None = None


Sampling = Literal["default", "all", "none"]


class Tracing(Part):
    """The tracing of the tenant's requests."""

    sampling_mode: Sampling | None = None
    sampling_mode_per_auth_id: dict[str, Sampling] | None = None


class TrustedCa(Part):
    """An authority whose certificates devices of the tenant may present: a certificate, or what is in one."""

    id: Name | None = None
    subject_dn: Annotated[str, Field(max_length=1024)] | None = None
    subject_dn_bytes: Base64 | None = None
    public_key: Base64 | None = None
    cert: Base64 | None = None
    algorithm: Literal["RSA", "EC", "EdDSA"] | None = None
    not_before: Time | None = None
    not_after: Time | None = None
    auth_id_template: Name | None = None
    auto_provisioning_enabled: bool | None = None
    auto_provision_as_gateway: bool | None = None
    auto_provisioning_device_id_template: Name | None = None
    ocsp_revocation_enabled: bool | None = None
    ocsp_responder_uri: Name | None = None
    ocsp_responder_cert: Base64 | None = None
    ocsp_nonce_enabled: bool | None = None


class Tenant(Part):
    """A tenant as clients write it."""

    enabled: bool | None = None
    alias: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,63}$")] | None = None
    ext: Free | None = None
    defaults: Free | None = None
    adapters: Annotated[tuple[Adapter, ...], Field(strict=False, min_length=1, max_length=50)] | None = None
    minimum_message_size: Annotated[int, Field(ge=0, le=2**31)] | None = None
    registration_limits: RegistrationLimits | None = None
    resource_limits: ResourceLimits | None = None
    tracing: Tracing | None = None
    trust_anchor_group: Name | None = None
    trusted_ca: Annotated[tuple[TrustedCa, ...], Field(strict=False, max_length=20)] | None = None


class Possession(Part):
    """A proof that a tenant has the key of an authority: a nonce that it was given, and its signature."""

    nonce: Annotated[str, Field(max_length=2048)]
    signature: Base64


def read_tenant(document: Any, new_id: NewId) -> Document:
    """Return a tenant's document as it is kept: valid, and its certificates replaced by what is in them.

    Raises:
        RegistryError: 400.
    """
    tenant = validated(Tenant, document)
    types = [adapter.type for adapter in tenant.adapters or ()]
    if len(set(types)) < len(types):
        raise RegistryError(400, "adapters: a type may occur once")
    kept: Document = {key: value for key, value in document.items() if value is not None}
    if "trusted-ca" in kept:
        kept["trusted-ca"] = [
            _read_ca({key: value for key, value in item.items() if value is not None}, f"trusted-ca[{at}]", new_id)
            for at, item in enumerate(kept["trusted-ca"])
        ]
        ids = [item["id"] for item in kept["trusted-ca"]]
        if len(set(ids)) < len(ids):
            raise RegistryError(400, "trusted-ca: ids have to differ")
    return kept


def _read_ca(found: Document, path: str, new_id: NewId) -> Document:
    needed = ("subject-dn", "public-key", "not-before", "not-after")
    if "cert" in found:
        facts = facts_of(found.pop("cert"), f"{path}.cert")
        found |= {
            "subject-dn": facts.subject,
            "public-key": facts.key,
            "algorithm": facts.algorithm,
            "not-before": facts.not_before,
            "not-after": facts.not_after,
        }
    elif missing := [name for name in needed if name not in found]:
        raise RegistryError(400, f"{path}: expected cert, or {', '.join(needed)}; {', '.join(missing)} is missing")
    for name in ("auth-id-template", "auto-provisioning-device-id-template"):
        if name in found and not any(placeholder in found[name] for placeholder in PLACEHOLDERS):
            raise RegistryError(400, f"{path}.{name}: expected one of {', '.join(PLACEHOLDERS)} in it")
    return found | {"id": found.get("id") or new_id()}


def anchors_of(document: Document) -> dict[str, AuthorityId]:
    """Return the authorities that a tenant trusts by their ids; what makes none is left out."""
    found = {
        item["id"]: AuthorityId.of(item["subject-dn"], item["public-key"]) for item in document.get("trusted-ca", ())
    }
    return {identity: authority for identity, authority in found.items() if authority is not None}


def templates_of(document: Document) -> dict[str, str]:
    """Return by the canonical name of an authority how ids are made from certificates that it has issued."""
    names = anchors_of(document)
    return {
        names[item["id"]].name: item["auth-id-template"]
        for item in document.get("trusted-ca", ())
        if "auth-id-template" in item and item["id"] in names
    }


def limit_of(document: Document, name: str) -> int:
    """Return a limit of what may be registered; -1 is none."""
    return int((document.get("registration-limits") or {}).get(name, -1))
