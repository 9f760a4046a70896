"""The authorities that tenants trust: certificates of theirs prove devices, and nobody else.

Rules:
1. The registry keeps subject, key and validity of an authority, and not its certificate. TLS needs one to verify
   others with: it is made of these. Its own signature is worth nothing, and is not looked at.
2. A client whose host for TLS (SNI) names a tenant is verified by that tenant's authorities, proved or not: whoever
   registers another one's gains nothing, and harms nobody. Any other client is verified by those that are proved.
3. After the handshake the chain is verified anew, by the authorities of one tenant as they are then. A handshake may
   have begun before a change, and a session may be resumed under another host.
4. An authority with the name or the key of one of the operator's vouches for the operator's clients alone: a tenant
   must not take these for its devices.
"""

from __future__ import annotations

import functools
import itertools
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_der_public_key

from enmasse.identity.authorities import AuthorityId, issuers_of, read_name, verified_end

if TYPE_CHECKING:
    from enmasse.node.devices.tenants import Document, Tenant

_log = logging.getLogger(__name__)

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
        ValueError: the certificate cannot be made of what the registry has of it.
    """
    subject = read_name(anchor["subject-dn"])
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
        tenant: the tenant of the authority.
        auth_id: the name by which the certificate calls it.
        subject: the subject of the certificate.
        device_id: the id of a device that is registered as it comes; empty: the registry makes one up.
        is_new_welcome: true if a device that is not known is registered.
        is_gateway: true if that is as a gateway.
        authority: the public key of the authority, as the registry has it.
        ends_at: the time at which certificate or authority end, whichever is sooner, in seconds since 1970 UTC.
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


class _Trusted:
    """An authority of a tenant.

    Attributes:
        tenant: the tenant of the authority.
        anchor: the authority, as the registry has it.
        id: tells it from others.
        counts: true if it vouches for clients that name no tenant.
    """

    __slots__ = ("__dict__", "anchor", "counts", "id", "tenant")

    def __init__(self, tenant: Tenant, anchor: Document, identity: AuthorityId) -> None:
        self.tenant = tenant
        self.anchor = anchor
        self.id = identity
        self.counts = anchor.get("counts") is True

    @property
    def is_made(self) -> bool:
        """True if its certificate was made already."""
        return "certificate" in vars(self)

    @functools.cached_property
    def certificate(self) -> bytes | None:
        """A certificate of it in DER, made when it is first needed; None: it cannot be used."""
        try:
            return certificate_of(self.anchor)
        except (ValueError, KeyError, TypeError, UnsupportedAlgorithm) as error:
            _log.warning("devices: an authority of tenant %s cannot be used: %s", self.tenant.id, error)
            return None


class Authorities:
    """The authorities of all tenants, as a source of those that TLS verifies clients with.

    Args:
        named: returns the tenants that a host for TLS names; None: it names none, nor a space.
        later: calls a function once, a moment later.

    Attributes:
        changed: called when others count where no tenant is named, and when there is the first of all; again a moment
            later, if it returns true.
        version: another number after each change.
    """

    def __init__(
        self,
        named: Callable[[str | None], Collection[Tenant] | None],
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        self.changed: Callable[[], bool] = lambda: False
        self._later = later
        self._is_told_later = False
        self.version = 0
        self._named = named
        self._of: dict[str, list[_Trusted]] = {}
        self._by_name: dict[str, list[_Trusted]] = {}
        """Those that count where no tenant is named, by their canonical names."""
        self._names: frozenset[str] = frozenset()
        self._keys: frozenset[str] = frozenset()

    def put(self, identity: str, tenant: Tenant | None) -> None:
        """Take the authorities of a tenant as they are now; None: it is gone."""
        was_empty, before = self.is_empty, self._of.pop(identity, [])
        found = [] if tenant is None else list(_read(tenant))
        for one, former in itertools.product(found, before):
            if one.anchor == former.anchor:
                vars(one).update(vars(former))  # its certificate, if that was made
        if found:
            self._of[identity] = found
        for one in before:
            self._leave(one)
        for one in found:
            if one.counts:
                self._by_name.setdefault(one.id.name, []).append(one)
        if before or found:
            self.version += 1
        counted = [[one.anchor for one in some if one.counts] for some in (before, found)]
        if (counted[0] != counted[1] or was_empty != self.is_empty) and not self._is_told_later:
            self._is_told_later = True
            self._later(self._tell)

    def _tell(self) -> None:
        self._is_told_later = False
        if self.changed():
            self._is_told_later = True
            self._later(self._tell)

    def _leave(self, one: _Trusted) -> None:
        others = [other for other in self._by_name.get(one.id.name, ()) if other is not one]
        if others:
            self._by_name[one.id.name] = others
        else:
            self._by_name.pop(one.id.name, None)

    @property
    def is_empty(self) -> bool:
        """True if no tenant has any."""
        return not self._of

    def exclude(self, operators: Collection[AuthorityId]) -> None:
        """Have those that have the name or the key of one of the operator's vouch for nobody."""
        self._names = frozenset(one.name for one in operators)
        self._keys = frozenset(one.key for one in operators)
        self.version += 1

    def _usable(self, some: Sequence[_Trusted]) -> dict[bytes, _Trusted]:
        """Return those that may vouch for devices by their certificates."""
        usable = [one for one in some if one.id.name not in self._names and one.id.key not in self._keys]
        # The first of two that are the same is meant.
        return {one.certificate: one for one in reversed(usable) if one.certificate is not None}

    def counting(self, most: int) -> tuple[list[bytes], bool]:
        """Return the certificates of those that count where no tenant is named, in DER; and true if some are missing.

        Args:
            most: the most certificates to make, beside those that were made before: it takes time.
        """
        found: list[bytes] = []
        for some in self._by_name.values():
            most -= sum(not one.is_made for one in some)
            if most < 0:
                some = [one for one in some if one.is_made]  # noqa: PLW2901
            found += self._usable(some)
        return found, most < 0

    def of_host(self, host: str | None) -> tuple[bytes, ...] | None:
        """Return the certificates that vouch for a client who names a host for TLS, in DER.

        Returns:
            None for all that count where no tenant is named.
        """
        tenants = self._named(host)
        if tenants is None:
            return None
        return tuple(sorted({each for tenant in tenants for each in self._of_named(tenant, tenants)}))

    def _of_named(self, tenant: Tenant, tenants: Collection[Tenant]) -> dict[bytes, _Trusted]:
        """Return the authorities of one of the tenants that a host names: where these are several, what is proved."""
        found = self._of.get(tenant.id, [])
        return self._usable(found if len(tenants) == 1 else [one for one in found if one.counts])

    def shown(self, chain: tuple[bytes, ...], host: str | None) -> Shown | None:
        """Return what a client has shown, if an authority of a tenant vouches for it.

        Args:
            chain: certificates in DER, its own first.
            host: the host that the client has named for TLS.
        """
        found = Shown(self, chain, host)
        return found if found.holders() else None

    def holders(self, chain: tuple[bytes, ...], host: str | None) -> list[tuple[Tenant, Document]]:
        """Return the tenants whose authorities vouch for a chain, with these."""
        tenants = self._named(host)
        try:
            names = issuers_of(chain)
        except ValueError:
            return []
        if tenants is not None:
            return self._vouching(chain, [self._of_named(tenant, tenants) for tenant in tenants])
        for name in names:
            owners = {one.tenant.id for one in self._by_name.get(name, ())}
            some = [self._usable([one for one in self._of[owner] if one.counts]) for owner in owners]
            if found := self._vouching(chain, some):
                return found
        return []

    @staticmethod
    def _vouching(
        chain: tuple[bytes, ...], some: Sequence[Mapping[bytes, _Trusted]]
    ) -> list[tuple[Tenant, Document]]:
        """Return those of some tenants' authorities that the chain leads to, each tenant's by itself."""
        found = [each.get(verified_end(chain, each) or b"") for each in some if each]
        return [(one.tenant, one.anchor) for one in found if one is not None]


class Shown:
    """The certificates that a client has shown, which an authority of a tenant vouches for, or did.

    Args:
        authorities: those of all tenants.
        chain: the certificates in DER, its own first.
        host: the host that the client has named for TLS.
    """

    __slots__ = ("_authorities", "_chain", "_found", "_host", "_version")

    def __init__(self, authorities: Authorities, chain: tuple[bytes, ...], host: str | None) -> None:
        self._authorities = authorities
        self._chain = chain
        self._host = host
        self._version = -1
        self._found: list[tuple[Tenant, Document]] = []

    def holders(self) -> list[tuple[Tenant, Document]]:
        """Return the tenants whose authorities vouch for it now, with these."""
        if self._version != self._authorities.version:
            self._version = self._authorities.version
            self._found = self._authorities.holders(self._chain, self._host)
        return self._found

    def proves(self, tenant: str) -> bool:
        """Return true if it proves a device of a tenant now."""
        return [owner.id for owner, _ in self.holders()] == [tenant]

    def presented(self) -> Presented:
        """Return what the device's certificate says.

        Raises:
            ValueError: it proves no device, for the reason given.
        """
        from enmasse.iot.documents import RegistryError  # noqa: PLC0415  as above

        match self.holders():
            case [(tenant, anchor)]:
                try:
                    return Presented(tenant, anchor, self._chain[0])
                except RegistryError as error:
                    raise ValueError(str(error)) from None
            case []:
                raise ValueError("no authority of a tenant vouches for the certificate any more")
            case _:
                raise ValueError("several tenants have the authority of the certificate: name one by the host (SNI)")


def _read(tenant: Tenant) -> Iterator[_Trusted]:
    for anchor in tenant.anchors:
        identity = AuthorityId.of(str(anchor.get("subject-dn")), str(anchor.get("public-key")))
        if identity is None:
            _log.warning("devices: an authority of tenant %s cannot be used: no subject, or no key", tenant.id)
        else:
            yield _Trusted(tenant, anchor, identity)
