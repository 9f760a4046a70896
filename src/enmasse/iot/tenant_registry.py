"""The tenants of the device registry: what they are, the authorities that vouch for their devices, their aliases.

Rules:
1. A tenant belongs to the namespace that its id begins with, if there is a point in it; it goes with the namespace.
2. A tenant has a version, another one after each write; a client may say which versions it expects, and is refused
   with 412 otherwise. It is the same with devices and sets of credentials, in ``registry.py``.
3. A key of an authority that a tenant has proved to have is no other's, except among tenants of one namespace and
   trust anchor group. What is only written down is nobody's.
4. An alias counts for one tenant. Where aliases are granted, one that is not is kept, and anybody may ask for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from enmasse.iot.authorities import Proof
from enmasse.iot.certificates import bytes_of
from enmasse.iot.documents import TENANT_ID, RegistryError, checked_id, compact, validated
from enmasse.iot.possession import is_signed
from enmasse.iot.tables import TenantRow
from enmasse.iot.tenant import Possession, anchors_of, read_tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from enmasse.iot.authorities import Authority
    from enmasse.iot.documents import Document, NewId
    from enmasse.iot.possession import Nonces
    from enmasse.iot.search import Query
    from enmasse.iot.store import DeviceStore
    from enmasse.iot.tables import Tables


@dataclass(frozen=True, slots=True)
class Expected:
    """The versions that a client expects; None: any.

    Attributes:
        versions: one of which must be the present one; ``*`` is each.
    """

    versions: Collection[str] | None = None

    def check(self, version: str) -> None:
        """Refuse another version.

        Raises:
            RegistryError: 412.
        """
        if self.versions is not None and version not in self.versions and "*" not in self.versions:
            raise RegistryError(412, "the resource has changed: its version is another than the one in If-Match")


ANY: Final = Expected()

_UNUSABLE: Final = "cannot be used: its subject-dn is no name (RFC 4514), or its public-key no key"


class TenantRegistry:
    """The tenants of one installation; its methods block, and may be called from any thread.

    Args:
        store: the place of everything.
        now: gives the present, RFC 3339 in UTC.
        new_id: makes ids of tenants, devices and secrets that have none.
        new_version: makes versions; none is ever made twice.
        nonces: for proofs of possession of authorities' keys; None: there are none.
        grants_aliases: true if an alias counts only once it is granted.
    """

    def __init__(
        self,
        store: DeviceStore,
        *,
        now: Callable[[], str],
        new_id: NewId,
        new_version: Callable[[], str],
        nonces: Nonces | None = None,
        grants_aliases: bool = False,
    ) -> None:
        self._store = store
        self._now = now
        self._new_id = new_id
        self._new_version = new_version
        self._nonces = nonces
        self._grants_aliases = grants_aliases
        self.changed: Callable[[str, str], object] = lambda _tenant, _device: None
        """Called in any thread after a change, with the tenant and the device; no device stands for all of it."""

    # Tenants

    def new_tenant_id(self) -> str:
        """Return an id for a tenant that is given none."""
        return self._new_id()

    def create_tenant(self, tenant: str, document: Any, *, is_granted: bool = False) -> str:
        """Add a tenant and return its version.

        Args:
            tenant: its id.
            document: the tenant.
            is_granted: true if its alias counts at once.

        Raises:
            RegistryError: 400 when something is wrong, 409 when there is one, or something of it is another's.
        """
        checked_id(TENANT_ID, tenant, "the tenant's id")
        kept = read_tenant(document, self._new_id)
        now, version = self._now(), self._new_version()
        row = TenantRow(
            number=0,
            id=tenant,
            alias=kept.get("alias") if is_granted or not self._grants_aliases else None,
            namespace=namespace_of(tenant),
            enabled=kept.get("enabled", True),
            version=version,
            created=now,
            updated=now,
            body=compact(kept, "the tenant"),
        )
        with self._store.writing() as tables:
            if tables.tenant(tenant) is not None:
                raise RegistryError(409, f"tenant '{tenant}' exists already")
            self._expect_own_alias(tables, row, kept)
            alike = self._put_authorities(tables, tables.add_tenant(row), kept)
        self._tenant_changed(tenant, alike)
        return version

    def tenant(self, tenant: str) -> tuple[Document, str]:
        """Return a tenant with its version.

        Raises:
            RegistryError: 404.
        """
        with self._store.reading() as tables:
            row = tenant_row(tables, tenant)
        return json.loads(row.body), row.version

    def usage(self, tenant: str) -> dict[str, tuple[int, int]]:
        """Return by limit when its last period began, and the bytes or milliseconds that devices have used of it.

        Raises:
            RegistryError: 404.
        """
        with self._store.reading() as tables:
            tenant_row(tables, tenant)
            return tables.usage(tenant)

    def update_tenant(self, tenant: str, document: Any, expected: Expected = ANY, *, is_granted: bool = False) -> str:
        """Put a tenant in the place of the one there is and return its version; see ``create_tenant``.

        Raises:
            RegistryError: 400, 404, 409 or 412.
        """
        kept = read_tenant(document, self._new_id)
        body, version = compact(kept, "the tenant"), self._new_version()
        with self._store.writing() as tables:
            found = tenant_row(tables, tenant)
            expected.check(found.version)
            alias = kept.get("alias")
            counts = is_granted or not self._grants_aliases or alias == found.alias
            row = found._replace(
                alias=alias if counts else None,
                enabled=kept.get("enabled", True),
                version=version,
                updated=self._now(),
                body=body,
            )
            self._expect_own_alias(tables, row, kept)
            tables.change_tenant(row)
            alike = self._put_authorities(tables, row.number, kept)
        self._tenant_changed(tenant, alike)
        return version

    def delete_tenant(self, tenant: str, expected: Expected = ANY) -> None:
        """Remove a tenant with all that it has.

        Raises:
            RegistryError: 404 or 412.
        """
        with self._store.writing() as tables:
            row = tenant_row(tables, tenant)
            expected.check(row.version)
            alike = tables.authorities.tenants_like(row.number)
            tables.remove_tenant(row.number)
        self._tenant_changed(tenant, alike)
        self._store.sweep()

    def put_tenant(self, tenant: str, document: Document | None) -> None:
        """Let there be a tenant, as a document says; None: as it is.

        Raises:
            RegistryError: 400 or 409.
        """
        with self._store.reading() as tables:
            found = tables.tenant(tenant)
        if found is None:
            self.create_tenant(tenant, document or {})
        elif document is not None and json.loads(found.body) != document:
            self.update_tenant(tenant, document)

    def forget_tenant(self, tenant: str) -> None:
        """Remove a tenant with all that it has, if there is one."""
        with self._store.writing() as tables:
            found, alike = tables.tenant(tenant), set[str]()
            if found is not None:
                alike = tables.authorities.tenants_like(found.number)
                tables.remove_tenant(found.number)
        self._tenant_changed(tenant, alike)
        self._store.sweep()

    def search_tenants(self, query: Query, namespaces: Sequence[str] | None = None) -> tuple[int, list[Document]]:
        """Return how many tenants there are, and a page of them.

        Args:
            query: the search.
            namespaces: only of these; empty is that of tenants without one; None: all.
        """
        with self._store.reading() as tables:
            total, rows = tables.search_tenants(query, namespaces)
        return total, [{"id": row.id} | json.loads(row.body) for row in rows]

    def namespaces(self) -> list[str]:
        """Return the namespaces that have tenants."""
        with self._store.reading() as tables:
            return tables.namespaces()

    def forget_namespace(self, namespace: str) -> None:
        """Remove the tenants of a namespace, with all that they have."""
        with self._store.writing() as tables:
            alike: set[str] = set()
            for number in tables.tenants_of(namespace):
                alike |= tables.authorities.tenants_like(number)
                tables.remove_tenant(number)
        self._tenant_changed("", alike)
        self._store.sweep()

    def sweep(self, has_ended: Callable[[], bool]) -> None:
        """Remove what is left of tenants that are gone, as long as something has not ended."""
        self._store.sweep(has_ended)

    def _expect_own_alias(self, tables: Tables, row: TenantRow, document: Document) -> None:
        """Refuse an alias that is another tenant's, or its id."""
        alias = document.get("alias")
        if alias is not None and tables.tenant_of_alias(alias) not in (None, row.id):
            raise RegistryError(409, f"alias: '{alias}' is another tenant's")
        if alias is not None and alias != row.id and tables.tenant(alias) is not None:
            raise RegistryError(409, f"alias: '{alias}' is the id of another tenant")
        if tables.tenant_of_alias(row.id) not in (None, row.id):
            raise RegistryError(409, f"the tenant's id: '{row.id}' is the alias of another tenant")

    def _put_authorities(self, tables: Tables, number: int, document: Document) -> set[str]:
        """Keep the authorities of a tenant, and return the tenants that have, or had, something like them."""
        rows = tables.authorities
        alike, former = rows.tenants_like(number), rows.keys(number)
        rows.put(number, anchors_of(document))
        taken = {key for key in rows.proved_by_another(number) if key not in former}
        for item in document.get("trusted-ca", ()):
            if rows.key(number, item["id"]) in taken:
                subject = item["subject-dn"]
                raise RegistryError(409, f"trusted-ca: another tenant has proved to have the key of {subject}")
        return alike | rows.tenants_like(number)

    def _tenant_changed(self, tenant: str, alike: Iterable[str]) -> None:
        """Tell of a change of a tenant, and of others whose authorities count, or do not, as it has others."""
        for each in (tenant, *alike):
            self.changed(each, "")

    # Authorities

    def authorities(self, tenant: str) -> list[Document]:
        """Return the authorities of a tenant, and which of them are proved and count.

        Raises:
            RegistryError: 404 without the tenant.
        """
        with self._store.reading() as tables:
            row = tenant_row(tables, tenant)
            known = {one.id: one for one in tables.authorities.of(row.number)}
        return [_shown_authority(item, known.get(item["id"])) for item in json.loads(row.body).get("trusted-ca", ())]

    def nonce(self, tenant: str, authority: str) -> Document:
        """Return a nonce that the key of an authority is to sign, and when it ends in seconds since 1970.

        Raises:
            RegistryError: 404 without the tenant or the authority.
        """
        with self._store.reading() as tables:
            key, _ = _key_of(tables, tenant_row(tables, tenant), authority)
        nonce, ends = self._made_nonces().make(tenant, key)
        return {"nonce": nonce, "ends": ends}

    def prove_authority(self, tenant: str, authority: str, document: Any) -> None:
        """Take note that a tenant has the key of an authority, as it has signed a nonce.

        Raises:
            RegistryError: 400 when the nonce or the signature is wrong; 404 without the tenant or the authority; 409
                when another tenant has proved to have the key.
        """
        given = validated(Possession, document)
        signature = bytes_of(given.signature, "signature")
        with self._store.reading() as tables:
            key, public = _key_of(tables, tenant_row(tables, tenant), authority)
        self._made_nonces().check(given.nonce, tenant, key)
        if not is_signed(public, given.nonce, signature):
            raise RegistryError(400, "signature: it is not that of the nonce by the authority's key: sign every byte")
        self._prove(tenant, authority, Proof.SIGNED, key)

    def vouch_for_authority(self, tenant: str, authority: str) -> None:
        """Take note that the operator knows a tenant to have the key of an authority.

        Raises:
            RegistryError: 404 without the tenant or the authority; 409 when the key is proved to be another tenant's.
        """
        self._prove(tenant, authority, Proof.VOUCHED)

    def _prove(self, tenant: str, authority: str, kind: Proof, proved: str | None = None) -> None:
        with self._store.writing() as tables:
            row = tenant_row(tables, tenant)
            key, _ = _key_of(tables, row, authority)
            if proved not in (None, key):
                raise RegistryError(404, f"there is no authority '{authority:.255}' with this key any more")
            if key in tables.authorities.proved_by_another(row.number):
                raise RegistryError(409, "another tenant has proved to have the key of this authority")
            tables.authorities.prove(row.number, key, kind, self._now())
            alike = tables.authorities.tenants_like(row.number)
        self._tenant_changed(tenant, alike)

    def _made_nonces(self) -> Nonces:
        if self._nonces is None:
            raise RegistryError(503, "proofs of possession are not possible here")
        return self._nonces

    def grant_alias(self, tenant: str) -> str:
        """Have the alias that a tenant asks for count, and return it.

        Raises:
            RegistryError: 404 without the tenant, or if it asks for none; 409 when it is another's.
        """
        with self._store.writing() as tables:
            row = tenant_row(tables, tenant)
            document = json.loads(row.body)
            alias = document.get("alias")
            if alias is None:
                raise RegistryError(404, f"tenant '{tenant}' asks for no alias")
            self._expect_own_alias(tables, row, document)
            tables.change_tenant(row._replace(alias=alias))
        self.changed(tenant, "")
        return str(alias)

    def waits_for_alias(self, tenant: str) -> str:
        """Return the alias that a tenant asks for and that does not count; empty: there is none."""
        with self._store.reading() as tables:
            row = tables.tenant(tenant)
        alias = None if row is None or row.alias is not None else json.loads(row.body).get("alias")
        return str(alias or "")


def namespace_of(tenant: str) -> str:
    """Return the namespace that a tenant belongs to; empty: none."""
    namespace, point, _ = tenant.partition(".")
    return namespace if point else ""


def tenant_row(tables: Tables, tenant: str) -> TenantRow:
    """Return a tenant as it is kept.

    Raises:
        RegistryError: 404.
    """
    row = tables.tenant(tenant)
    if row is None:
        raise RegistryError(404, no_tenant(tenant))
    return row


def no_tenant(identity: str) -> str:
    """Return what is said of a tenant that there is not, or that the client may not see."""
    return f"there is no tenant '{identity:.255}'"


def _key_of(tables: Tables, row: TenantRow, authority: str) -> tuple[str, bytes]:
    """Return the key of an authority, as its digest and in DER."""
    found = tables.authorities.key(row.number, authority)
    item = next((it for it in json.loads(row.body).get("trusted-ca", ()) if it["id"] == authority), None)
    if item is None:
        raise RegistryError(404, f"there is no authority '{authority:.255}'")
    if found is None:
        raise RegistryError(400, f"authority '{authority:.255}' {_UNUSABLE}")
    return found, bytes_of(item["public-key"], "public-key")


def _shown_authority(item: Document, known: Authority | None) -> Document:
    """Return an authority as clients see it."""
    found = {name: item[name] for name in ("id", "subject-dn", "not-before", "not-after") if name in item}
    if known is None:
        return found | {"counts": False, "problem": _UNUSABLE}
    proof = {} if known.proof is None else {"proof": known.proof.value, "proved": known.proved}
    return (
        found
        | {"key": known.key}
        | proof
        | {"counts": known.counts}
        | ({"problem": known.problem} if known.problem else {})
    )
