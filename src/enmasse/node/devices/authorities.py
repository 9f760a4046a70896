"""The authorities that tenants trust: certificates of theirs prove devices, and nobody else.

Rules:
1. The registry keeps subject, key and validity of an authority, and not its certificate. TLS needs one to verify
   others with: it is made of these. Its own signature is worth nothing, and is not looked at.
2. Which authority has vouched for a client is told by the end of the chain that TLS has verified, byte by byte.
3. An authority that is the operator's, too, is left out by TLS: a tenant must not take the operator's clients for its
   devices. One that was a tenant's once vouches for nobody else later: a handshake may have begun before.
"""

from __future__ import annotations

import functools
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_der_public_key

if TYPE_CHECKING:
    from enmasse.node.devices.tenants import Document, Tenant

_log = logging.getLogger(__name__)

SETTLE_S: Final = 0.1
"""Tenants that change at once are taken together."""

_KEYS: Final[dict[str, Callable[[], Any]]] = {
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "EC": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@functools.cache
def _some_key(algorithm: str) -> Any:
    """Return a key for signatures that nobody looks at; TLS wants their algorithm to fit the certified key."""
    return _KEYS[algorithm]()


def certificate_of(anchor: Document) -> bytes:
    """Return a certificate of an authority, in DER, for TLS to verify others with.

    Raises:
        ValueError: what the registry has of it makes none.
    """
    subject = x509.Name.from_rfc4514_string(anchor["subject-dn"])
    algorithm = str(anchor.get("algorithm") or "RSA")
    key = load_der_public_key(b64decode(anchor["public-key"]))
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key)  # type: ignore[arg-type]  # of the kinds that are registered
        .serial_number(1)
        .not_valid_before(datetime.fromisoformat(anchor["not-before"]))
        .not_valid_after(datetime.fromisoformat(anchor["not-after"]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(_some_key(algorithm), None if algorithm == "EdDSA" else hashes.SHA256())
    )
    return made.public_bytes(Encoding.DER)


class Presented:
    """A device's certificate that an authority of a tenant has vouched for.

    Attributes:
        tenant: whose authority it is.
        auth_id: what the certificate says who it is.
        subject: of the certificate.
        device_id: of a device that is registered as it comes; empty: the registry makes one up.
        is_new_welcome: whether a device that is not known is registered.
        is_gateway: whether it is as a gateway.
        authority: the public key of the authority, as the registry has it.
        ends_at: when certificate or authority end, whichever is sooner, in seconds since 1970 UTC.
    """

    __slots__ = (
        "auth_id", "authority", "device_id", "ends_at", "is_gateway", "is_new_welcome", "subject", "tenant"
    )  # fmt: skip

    def __init__(self, tenant: Tenant, anchor: Document, certificate: bytes) -> None:
        # Many nodes never meet it, and what reads certificates loads much.
        from enmasse.iot.certificates import facts_of  # noqa: PLC0415

        facts = facts_of(b64encode(certificate).decode(), "the client's certificate")
        self.tenant = tenant
        self.subject = facts.subject
        self.authority = str(anchor.get("public-key"))
        ends = (facts.not_after, str(anchor.get("not-after") or facts.not_after))
        self.ends_at = min(datetime.fromisoformat(end).timestamp() for end in ends)
        template = anchor.get("auth-id-template")
        self.auth_id = facts.fill(template) if template else facts.subject
        self.is_new_welcome = anchor.get("auto-provisioning-enabled") is True
        self.is_gateway = anchor.get("auto-provision-as-gateway") is True
        template = anchor.get("auto-provisioning-device-id-template")
        self.device_id = facts.fill(template) if template and self.is_new_welcome else ""


class Authorities:
    """The authorities of all tenants.

    Attributes:
        changed: called with the certificates of all of them when they are others.
    """

    def __init__(self) -> None:
        self.changed: Callable[[tuple[bytes, ...]], None] = lambda _certificates: None
        self._made: dict[tuple[str, ...], bytes] = {}
        self._owners: dict[bytes, list[tuple[str, Document]]] = {}
        self._known: set[bytes] = set()
        """Digests of all that there ever were."""

    def take(self, tenants: Iterable[Tenant]) -> None:
        """Take the authorities of all tenants, as they are now."""
        made: dict[tuple[str, ...], bytes] = {}
        owners: dict[bytes, list[tuple[str, Document]]] = {}
        for tenant in tenants:
            for anchor in tenant.anchors:
                key = tuple(str(anchor.get(name)) for name in ("subject-dn", "public-key", "not-before", "not-after"))
                try:
                    found = made[key] = self._made.get(key) or made.get(key) or certificate_of(anchor)
                except (ValueError, KeyError, TypeError, UnsupportedAlgorithm) as error:
                    _log.warning("devices: an authority of tenant %s cannot be used: %s", tenant.id, error)
                    continue
                owners.setdefault(found, []).append((tenant.id, anchor))
        self._made = made
        self._known.update(sha256(found).digest() for found in owners)
        is_changed = owners.keys() != self._owners.keys()
        self._owners = owners
        if is_changed:
            self.changed(tuple(owners))

    def has(self, authority: bytes) -> bool:
        """Return true if a certificate is that of an authority of a tenant, or was."""
        return sha256(authority).digest() in self._known

    def presented(self, certificate: bytes, authority: bytes, tenants: Callable[[str], Tenant | None]) -> Presented:
        """Return what a device's certificate says.

        Args:
            certificate: of the device, verified.
            authority: which has vouched for it.
            tenants: return a tenant by its id.

        Raises:
            ValueError: it proves no device, for the reason given.
        """
        from enmasse.iot.documents import RegistryError  # noqa: PLC0415  as above

        owners = self._owners.get(authority, [])
        if len(owners) != 1:
            raise ValueError("the authority of the certificate is that of no tenant, or of several")
        identity, anchor = owners[0]
        tenant = tenants(identity)
        if tenant is None:
            raise ValueError("the tenant of the certificate's authority is gone")
        try:
            return Presented(tenant, anchor, certificate)
        except RegistryError as error:
            raise ValueError(str(error)) from None
