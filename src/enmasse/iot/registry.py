"""The device registry: what clients may do with tenants, devices and credentials, and what they get for it.

Rules:
1. A tenant belongs to the namespace that its id begins with, if there is a point in it; it goes with the namespace.
2. Each tenant, device and set of credentials has a version, another one after each write; a client may say which
   versions it expects, and is refused with 412 otherwise.
3. Within a tenant, an auth-id of one type is one device's. A key of an authority that a tenant has proved to have is
   no other's, except among tenants of one namespace and trust anchor group. What is only written down is nobody's.
4. An alias counts for one tenant. Where aliases are granted, one that is not is kept, and anybody may ask for it.
5. Slow work (hashes of passwords) is done before a transaction begins.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from enmasse.iot.authorities import Proof
from enmasse.iot.bulk import Imported, Line
from enmasse.iot.certificates import bytes_of
from enmasse.iot.credentials import (
    count_plain,
    hash_passwords,
    key_of,
    read_credentials,
    without_secrets,
)
from enmasse.iot.device import links_of, read_device
from enmasse.iot.documents import DEVICE_ID, TENANT_ID, RegistryError, checked_id, compact, validated
from enmasse.iot.possession import is_signed
from enmasse.iot.tables import DeviceRow, Link, TenantRow
from enmasse.iot.tenant import Possession, anchors_of, limit_of, read_tenant, templates_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from enmasse.iot.authorities import Authority
    from enmasse.iot.bulk import Existing
    from enmasse.iot.documents import Document, NewId
    from enmasse.iot.possession import Nonces
    from enmasse.iot.search import Query
    from enmasse.iot.store import DeviceStore
    from enmasse.iot.tables import Tables

MOST_DEVICES: Final = 10_000_000
"""Of one tenant, whatever its own limit is."""

MOST_PLAIN: Final = 100
"""Passwords that one request may have hashed: some seconds of a core."""

_PAGE = 1_000


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


@dataclass(slots=True)
class _Arrived:
    """A line of an import, read as far as that goes without what is stored."""

    line: Line
    id: str = ""
    document: Document = field(default_factory=dict)
    body: str = ""
    credentials: list[Document] | None = None


class DeviceRegistry:
    """The registry of one installation; its methods block, and may be called from any thread.

    Args:
        store: where everything lies.
        now: gives the present, RFC 3339 in UTC.
        new_id: makes ids of tenants, devices and secrets that have none.
        new_version: makes versions; none is ever made twice.
        nonces: for proofs of possession of authorities' keys; None: there are none.
        grants_aliases: whether an alias counts only once it is granted.
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
            is_granted: whether its alias counts at once.

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
            row = _tenant(tables, tenant)
        return json.loads(row.body), row.version

    def usage(self, tenant: str) -> dict[str, tuple[int, int]]:
        """Return by limit when its last period began, and the bytes or milliseconds that devices have used of it.

        Raises:
            RegistryError: 404.
        """
        with self._store.reading() as tables:
            _tenant(tables, tenant)
            return tables.usage(tenant)

    def update_tenant(self, tenant: str, document: Any, expected: Expected = ANY, *, is_granted: bool = False) -> str:
        """Put a tenant in the place of the one there is and return its version; see ``create_tenant``.

        Raises:
            RegistryError: 400, 404, 409 or 412.
        """
        kept = read_tenant(document, self._new_id)
        body, version = compact(kept, "the tenant"), self._new_version()
        with self._store.writing() as tables:
            found = _tenant(tables, tenant)
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
            row = _tenant(tables, tenant)
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
            query: what is searched for.
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
            row = _tenant(tables, tenant)
            known = {one.id: one for one in tables.authorities.of(row.number)}
        return [_shown_authority(item, known.get(item["id"])) for item in json.loads(row.body).get("trusted-ca", ())]

    def nonce(self, tenant: str, authority: str) -> Document:
        """Return a nonce that the key of an authority is to sign, and when it ends in seconds since 1970.

        Raises:
            RegistryError: 404 without the tenant or the authority.
        """
        with self._store.reading() as tables:
            key, _ = _key_of(tables, _tenant(tables, tenant), authority)
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
            key, public = _key_of(tables, _tenant(tables, tenant), authority)
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
            row = _tenant(tables, tenant)
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
            row = _tenant(tables, tenant)
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

    # Devices

    def create_device(self, tenant: str, device: str | None, document: Any, user: str) -> tuple[str, str]:
        """Add a device and return its id and version.

        Args:
            tenant: its id.
            device: its id; None: one is made.
            document: the device.
            user: who does it.

        Raises:
            RegistryError: 400; 403 when the tenant may have no more; 404 without the tenant; 409 when there is one.
        """
        identity = self._new_id() if device is None else checked_id(DEVICE_ID, device, "the device's id")
        kept, now, version = read_device(document), self._now(), self._new_version()
        body = compact(kept, "the device")
        with self._store.writing() as tables:
            owner = _tenant(tables, tenant)
            if tables.device(owner.number, identity) is not None:
                raise RegistryError(409, f"device '{identity}' exists already")
            _expect_room(owner, 1)
            row = DeviceRow(owner.number, identity, kept.get("enabled", True), version, version, now, now, user, body)
            tables.add_devices([row], _links(row, kept))
        self.changed(tenant, identity)
        return identity, version

    def device(self, tenant: str, device: str) -> tuple[Document, str]:
        """Return a device with its version.

        Raises:
            RegistryError: 404.
        """
        with self._store.reading() as tables:
            row = _device(tables, _tenant(tables, tenant), device)
        return _shown(row), row.version

    def update_device(self, tenant: str, device: str, document: Any, user: str, expected: Expected = ANY) -> str:
        """Put a device in the place of the one there is and return its version.

        Raises:
            RegistryError: 400, 404 or 412.
        """
        kept, version = read_device(document), self._new_version()
        body = compact(kept, "the device")
        with self._store.writing() as tables:
            found = _device(tables, _tenant(tables, tenant), device)
            expected.check(found.version)
            row = found._replace(
                enabled=kept.get("enabled", True), version=version, updated=self._now(), user=user, body=body
            )
            tables.change_devices([row], _links(found, json.loads(found.body)), _links(row, kept))
        self.changed(tenant, device)
        return version

    def delete_device(self, tenant: str, device: str, expected: Expected = ANY) -> None:
        """Remove a device with its credentials.

        Raises:
            RegistryError: 404 or 412.
        """
        with self._store.writing() as tables:
            row = _device(tables, _tenant(tables, tenant), device)
            expected.check(row.version)
            tables.remove_device(row, _links(row, json.loads(row.body)))
        self.changed(tenant, device)

    def delete_devices(self, tenant: str) -> None:
        """Remove all devices of a tenant, with their credentials.

        Raises:
            RegistryError: 404.
        """
        with self._store.writing() as tables:
            tables.clear_devices(_tenant(tables, tenant))
        self.changed(tenant, "")
        self._store.sweep()

    def search_devices(self, tenant: str, query: Query) -> tuple[int, list[Document]]:
        """Return how many devices of a tenant a query finds, and a page of them.

        Raises:
            RegistryError: 404 without the tenant.
        """
        with self._store.reading() as tables:
            total, rows = tables.search_devices(_tenant(tables, tenant).number, query)
        return total, [{"id": row.id} | _shown(row) for row in rows]

    def all_devices(self, tenant: str) -> Iterator[list[Document]]:
        """Yield the devices of a tenant by id, some at a time; what is written meanwhile may be among them.

        Raises:
            RegistryError: 404 without the tenant.
        """
        after = ""
        while True:
            with self._store.reading() as tables:
                rows = tables.page_of_devices(_tenant(tables, tenant).number, after, _PAGE)
            if not rows:
                return
            yield [{"id": row.id} | json.loads(row.body) for row in rows]
            after = rows[-1].id

    def import_devices(self, tenant: str, lines: Sequence[Line], existing: Existing, user: str) -> Imported:
        """Add many devices in one transaction; a line that is wrong is left out, and the others are not.

        Args:
            tenant: its id.
            lines: the devices.
            existing: what becomes of a line whose device is there already.
            user: who does it.

        Raises:
            RegistryError: 404 without the tenant, 413 with too many plain passwords.
        """
        with self._store.reading() as tables:
            owner = _tenant(tables, tenant)
            known = tables.present(owner.number, _ids(lines))
            former = {identity: _credentials(tables, row) for identity, row in known.items() if existing == "replace"}
        of_tenant = json.loads(owner.body)
        arrived = [self._arrived(of_tenant, line, former) for line in lines]
        if sum(count_plain(item.credentials or ()) for item in arrived) > MOST_PLAIN:
            raise RegistryError(
                413, f"at most {MOST_PLAIN} passwords are hashed for one request: send hashes, or less"
            )
        for item in arrived:
            hash_passwords(item.credentials or ())
        done = Imported()
        with self._store.writing() as tables:
            owner = _tenant(tables, tenant)
            self._put(tables, owner, arrived, existing, user, known, done)
        for item in arrived:
            if item.line.problem is None:
                self.changed(tenant, item.id)
        done.failed += [line.failure() for line in lines if line.problem is not None]
        return done

    def _arrived(self, tenant: Document, line: Line, former: Mapping[str, list[Document]]) -> _Arrived:
        item, document = _Arrived(line), dict(line.device)
        if line.problem is not None:
            return item
        given = document.pop("credentials", None)
        try:
            item.id = checked_id(DEVICE_ID, document.pop("id", None), "id")
            item.document = read_device(document)
            item.body = compact(item.document, "the device")
            if given is not None:
                item.credentials = self._checked(tenant, given, former.get(item.id, ()))
        except RegistryError as error:
            line.refuse(error)
        return item

    def _put(
        self,
        tables: Tables,
        tenant: TenantRow,
        arrived: Sequence[_Arrived],
        existing: Existing,
        user: str,
        before: Mapping[str, DeviceRow],
        done: Imported,
    ) -> None:
        known = tables.present(tenant.number, _ids([it.line for it in arrived]))
        now, number = self._now(), tenant.number
        added: dict[str, DeviceRow] = {}
        changed: dict[str, DeviceRow] = {}
        links: dict[str, list[Link]] = {}
        for item in arrived:
            if item.line.problem is not None:
                continue
            found = known.get(item.id)
            if found is not None and existing == "skip":
                done.skipped += 1
                continue
            try:
                _expect_once(item.id, found if existing == "fail" else None, links)
                if found is None:
                    _expect_room(tenant, len(added) + 1)
                elif item.credentials is not None:
                    # What kept secrets refer to must still be what it was.
                    _expect_proofs(found, before.get(item.id))
                self._expect_free(tables, number, item.id, item.credentials or ())
            except RegistryError as error:
                item.line.refuse(error)
                continue
            version, is_enabled = self._new_version(), item.document.get("enabled", True)
            if found is None:
                row = DeviceRow(number, item.id, is_enabled, version, version, now, now, user, item.body)
                added[item.id] = row
            else:
                row = found._replace(enabled=is_enabled, version=version, updated=now, user=user, body=item.body)
                changed[item.id] = row
            links[item.id] = _links(row, item.document)
            if item.credentials is not None:
                body = compact(item.credentials, "the credentials") if item.credentials else None
                keys = [key_of(one) for one in item.credentials]
                tables.put_credentials(number, item.id, body, keys, version)
        tables.add_devices(added.values(), [link for one in added for link in links[one]])
        former = [link for one in changed for link in _links(known[one], json.loads(known[one].body))]
        tables.change_devices(changed.values(), former, [link for one in changed for link in links[one]])
        done.created, done.updated = len(added), len(changed)

    # Credentials

    def credentials(self, tenant: str, device: str) -> tuple[list[Document], str]:
        """Return the credentials of a device without what is secret, and their version.

        Raises:
            RegistryError: 404.
        """
        with self._store.reading() as tables:
            owner = _tenant(tables, tenant)
            row = _device(tables, owner, device)
            found = _credentials(tables, row)
        return without_secrets(found), row.proofs

    def update_credentials(self, tenant: str, device: str, given: Any, expected: Expected = ANY) -> str:
        """Put credentials in the place of those that a device has and return their version.

        Raises:
            RegistryError: 400; 403 when there are too many; 404; 409 when an auth-id is another device's; 412.
        """
        with self._store.reading() as tables:
            row, kept = self._read_credentials(tables, tenant, device, given, expected)
        if count_plain(kept) > MOST_PLAIN:
            raise RegistryError(413, f"at most {MOST_PLAIN} passwords are hashed for one request")
        hash_passwords(kept)
        body, version = compact(kept, "the credentials") if kept else None, self._new_version()
        with self._store.writing() as tables:
            # What kept secrets refer to must still be what it was.
            owner = _tenant(tables, tenant)
            _expect_proofs(_device(tables, owner, device), row)
            self._expect_free(tables, owner.number, device, kept)
            tables.put_credentials(owner.number, device, body, [key_of(item) for item in kept], version)
        self.changed(tenant, device)
        return version

    def _read_credentials(
        self, tables: Tables, tenant: str, device: str, given: Any, expected: Expected
    ) -> tuple[DeviceRow, list[Document]]:
        owner = _tenant(tables, tenant)
        row = _device(tables, owner, device)
        expected.check(row.proofs)
        kept = self._checked(json.loads(owner.body), given, _credentials(tables, row))
        self._expect_free(tables, owner.number, device, kept)
        return row, kept

    def _checked(self, tenant: Document, given: Any, former: Sequence[Document]) -> list[Document]:
        kept = read_credentials(given, former, new_id=self._new_id, templates=templates_of(tenant))
        most = limit_of(tenant, "max-credentials-per-device")
        if 0 <= most < len(kept):
            raise RegistryError(403, f"the tenant allows {most} credentials for each device, got {len(kept)}")
        compact(kept, "the credentials")
        return kept

    def _expect_free(self, tables: Tables, tenant: int, device: str, kept: Sequence[Document]) -> None:
        for kind, identity in map(key_of, kept):
            if tables.device_of_login(tenant, kind, identity) not in (None, device):
                raise RegistryError(409, f"auth-id '{identity:.100}' of type {kind} is another device's")


def namespace_of(tenant: str) -> str:
    """Return the namespace that a tenant belongs to; empty: none."""
    namespace, point, _ = tenant.partition(".")
    return namespace if point else ""


def _tenant(tables: Tables, tenant: str) -> TenantRow:
    row = tables.tenant(tenant)
    if row is None:
        raise RegistryError(404, no_tenant(tenant))
    return row


def no_tenant(identity: str) -> str:
    """Return what is said of a tenant that there is not, or that the client may not see."""
    return f"there is no tenant '{identity:.255}'"


def _device(tables: Tables, tenant: TenantRow, device: str) -> DeviceRow:
    row = tables.device(tenant.number, device)
    if row is None:
        raise RegistryError(404, f"there is no device '{device:.255}'")
    return row


def _credentials(tables: Tables, row: DeviceRow) -> list[Document]:
    text = tables.credentials(row.tenant, row.id)
    found: list[Document] = [] if text is None else json.loads(text)
    return found


def _key_of(tables: Tables, row: TenantRow, authority: str) -> tuple[str, bytes]:
    """Return the key of an authority, as its digest and in DER."""
    found = tables.authorities.key(row.number, authority)
    item = next((it for it in json.loads(row.body).get("trusted-ca", ()) if it["id"] == authority), None)
    if item is None:
        raise RegistryError(404, f"there is no authority '{authority:.255}'")
    if found is None:
        raise RegistryError(400, f"authority '{authority:.255}' cannot be used: its subject or its key is none")
    return found, bytes_of(item["public-key"], "public-key")


def _shown_authority(item: Document, known: Authority | None) -> Document:
    """Return an authority as clients see it."""
    found = {name: item[name] for name in ("id", "subject-dn", "not-before", "not-after") if name in item}
    if known is None:
        return found | {"counts": False, "problem": "cannot be used: its subject or its key is none"}
    proof = {} if known.proof is None else {"proof": known.proof.value, "proved": known.proved}
    return (
        found
        | {"key": known.key}
        | proof
        | {"counts": known.counts}
        | ({"problem": known.problem} if known.problem else {})
    )


def _expect_once(identity: str, found: DeviceRow | None, seen: Collection[str]) -> None:
    if found is not None:
        raise RegistryError(409, f"device '{identity}' exists already")
    if identity in seen:
        raise RegistryError(409, f"device '{identity}' occurs twice")


def _expect_proofs(found: DeviceRow, before: DeviceRow | None) -> None:
    if before is None or found.proofs != before.proofs:
        raise RegistryError(412, "the credentials have been changed meanwhile: read them again")


def _ids(lines: Sequence[Line]) -> list[str]:
    found = (line.device.get("id") for line in lines)
    return [identity for identity in found if isinstance(identity, str) and DEVICE_ID.fullmatch(identity)]


def _expect_room(tenant: TenantRow, more: int) -> None:
    most = limit_of(json.loads(tenant.body), "max-devices")
    if tenant.devices + more > (MOST_DEVICES if most < 0 else min(most, MOST_DEVICES)):
        raise RegistryError(403, f"the tenant has {tenant.devices} devices, and may have no more")


def _links(row: DeviceRow, document: Document) -> list[Link]:
    return [Link(row.tenant, kind, target, row.id) for kind, target in links_of(document)]


def _shown(row: DeviceRow) -> Document:
    """Return a device as clients see it."""
    status = {"created": row.created, "updated": row.updated, "last-user": row.user}
    document: Document = json.loads(row.body)
    return document | {"status": {name: value for name, value in status.items() if value}}
