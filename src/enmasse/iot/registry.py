"""The device registry: what clients may do with devices and credentials, beside tenants, and what they get for it.

Rules:
1. Each device and set of credentials has a version, as a tenant has (``tenant_registry.py``).
2. Within a tenant, an auth-id of one type is one device's.
3. Slow work (hashes of passwords) is done before a transaction begins.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from enmasse.iot.bulk import Imported, Line
from enmasse.iot.credentials import (
    count_plain,
    hash_passwords,
    key_of,
    read_credentials,
    without_secrets,
)
from enmasse.iot.device import NOTIFIED, PROVISIONED, links_of, read_device
from enmasse.iot.documents import DEVICE_ID, RegistryError, checked_id, compact
from enmasse.iot.tables import DeviceRow, Link
from enmasse.iot.tenant import limit_of, templates_of
from enmasse.iot.tenant_registry import ANY, Expected, TenantRegistry, tenant_row

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from enmasse.iot.bulk import Existing
    from enmasse.iot.documents import Document
    from enmasse.iot.search import Query
    from enmasse.iot.tables import Tables, TenantRow

MAX_DEVICES: Final = 10_000_000
"""Of one tenant, whatever its own limit is."""

MAX_PLAIN: Final = 100
"""Passwords that one request may have hashed: some seconds of a core."""

_PAGE = 1_000


@dataclass(slots=True)
class _Arrived:
    """A line of an import, read as far as that goes without what is stored."""

    line: Line
    id: str = ""
    document: Document = field(default_factory=dict)
    body: str = ""
    credentials: list[Document] | None = None


class DeviceRegistry(TenantRegistry):
    """The tenants of one installation with their devices and credentials; see ``TenantRegistry``."""

    # Devices

    def create_device(
        self, tenant: str, device: str | None, document: Any, user: str, *, is_provisioned: bool = False
    ) -> tuple[str, str]:
        """Add a device and return its id and version.

        Args:
            tenant: its id.
            device: its id; None: one is made.
            document: the device.
            user: the one who does it.
            is_provisioned: true if it is registered as it comes, or as its gateway sends for it.

        Raises:
            RegistryError: 400; 403 when the tenant may have no more; 404 without the tenant; 409 when there is one.
        """
        identity = self._new_id() if device is None else checked_id(DEVICE_ID, device, "the device's id")
        kept, now, version = read_device(document), self._now(), self._new_version()
        if is_provisioned:
            kept["status"] = {PROVISIONED: True, NOTIFIED: False}
        body = compact(kept, "the device")
        with self._store.writing() as tables:
            owner = tenant_row(tables, tenant)
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
            row = _device(tables, tenant_row(tables, tenant), device)
        return _shown(row), row.version

    def update_device(self, tenant: str, device: str, document: Any, user: str, expected: Expected = ANY) -> str:
        """Put a device in the place of the one there is and return its version.

        Raises:
            RegistryError: 400, 404 or 412.
        """
        kept, version = read_device(document), self._new_version()
        compact(kept, "the device")
        with self._store.writing() as tables:
            found = _device(tables, tenant_row(tables, tenant), device)
            expected.check(found.version)
            body = compact(kept | _status_in(found), "the device")
            row = found._replace(
                enabled=kept.get("enabled", True), version=version, updated=self._now(), user=user, body=body
            )
            tables.change_devices([row], _links(found, json.loads(found.body)), _links(row, kept))
        self.changed(tenant, device)
        return version

    def note_notified(self, tenant: str, device: str) -> None:
        """Note that applications were told of a device that was registered as it came; its version stays.

        Raises:
            RegistryError: 404.
        """
        with self._store.writing() as tables:
            found = _device(tables, tenant_row(tables, tenant), device)
            document = json.loads(found.body)
            if not _status_in(found):
                return
            links = _links(found, document)
            document["status"][NOTIFIED] = True
            tables.change_devices([found._replace(body=compact(document, "the device"))], links, links)

    def delete_device(self, tenant: str, device: str, expected: Expected = ANY) -> None:
        """Remove a device with its credentials.

        Raises:
            RegistryError: 404 or 412.
        """
        with self._store.writing() as tables:
            row = _device(tables, tenant_row(tables, tenant), device)
            expected.check(row.version)
            tables.remove_device(row, _links(row, json.loads(row.body)))
        self.changed(tenant, device)

    def delete_devices(self, tenant: str) -> None:
        """Remove all devices of a tenant, with their credentials.

        Raises:
            RegistryError: 404.
        """
        with self._store.writing() as tables:
            tables.clear_devices(tenant_row(tables, tenant))
        self.changed(tenant, "")
        self._store.sweep()

    def search_devices(self, tenant: str, query: Query) -> tuple[int, list[Document]]:
        """Return how many devices of a tenant a query finds, and a page of them.

        Raises:
            RegistryError: 404 without the tenant.
        """
        with self._store.reading() as tables:
            total, rows = tables.search_devices(tenant_row(tables, tenant).number, query)
        return total, [{"id": row.id} | _shown(row) for row in rows]

    def all_devices(self, tenant: str) -> Iterator[list[Document]]:
        """Yield the devices of a tenant by id, some at a time; what is written meanwhile may be among them.

        Raises:
            RegistryError: 404 without the tenant.
        """
        after = ""
        while True:
            with self._store.reading() as tables:
                rows = tables.page_of_devices(tenant_row(tables, tenant).number, after, _PAGE)
            if not rows:
                return
            yield [{"id": row.id} | _without_status(row) for row in rows]
            after = rows[-1].id

    def expected_devices(self, tenant: str) -> list[str]:
        """Return the ids of the devices that may send for themselves, in their order; none of a disabled tenant.

        Raises:
            RegistryError: 404 without the tenant.
        """
        with self._store.reading() as tables:
            row = tenant_row(tables, tenant)
            return tables.expected_devices(row.number) if row.enabled else []

    def import_devices(self, tenant: str, lines: Sequence[Line], existing: Existing, user: str) -> Imported:
        """Add many devices in one transaction; a line that is wrong is left out, and the others are not.

        Args:
            tenant: its id.
            lines: the devices.
            existing: the fate of a line whose device is there already.
            user: the one who does it.

        Raises:
            RegistryError: 404 without the tenant, 413 with too many plain passwords.
        """
        with self._store.reading() as tables:
            owner = tenant_row(tables, tenant)
            known = tables.present(owner.number, _ids(lines))
            former = {identity: _credentials(tables, row) for identity, row in known.items() if existing == "replace"}
        of_tenant = json.loads(owner.body)
        arrived = [self._arrived(of_tenant, line, former) for line in lines]
        if sum(count_plain(item.credentials or ()) for item in arrived) > MAX_PLAIN:
            raise RegistryError(
                413, f"at most {MAX_PLAIN} passwords are hashed for one request: send hashes, or less"
            )
        for item in arrived:
            hash_passwords(item.credentials or (), former.get(item.id, ()))
        done = Imported()
        with self._store.writing() as tables:
            owner = tenant_row(tables, tenant)
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
                body = compact(item.document | _status_in(found), "the device")
                row = found._replace(enabled=is_enabled, version=version, updated=now, user=user, body=body)
                changed[item.id] = row
            links[item.id] = _links(row, item.document)
            if item.credentials is not None:
                proofs = compact(item.credentials, "the credentials") if item.credentials else None
                keys = [key_of(one) for one in item.credentials]
                tables.put_credentials(number, item.id, proofs, keys, version)
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
            owner = tenant_row(tables, tenant)
            row = _device(tables, owner, device)
            found = _credentials(tables, row)
        return without_secrets(found), row.proofs

    def update_credentials(self, tenant: str, device: str, given: Any, expected: Expected = ANY) -> str:
        """Put credentials in the place of those that a device has and return their version.

        Raises:
            RegistryError: 400; 403 when there are too many; 404; 409 when an auth-id is another device's; 412.
        """
        with self._store.reading() as tables:
            row, former, kept = self._read_credentials(tables, tenant, device, given, expected)
        if count_plain(kept) > MAX_PLAIN:
            raise RegistryError(413, f"at most {MAX_PLAIN} passwords are hashed for one request")
        hash_passwords(kept, former)
        body, version = compact(kept, "the credentials") if kept else None, self._new_version()
        with self._store.writing() as tables:
            # What kept secrets refer to must still be what it was.
            owner = tenant_row(tables, tenant)
            _expect_proofs(_device(tables, owner, device), row)
            self._expect_free(tables, owner.number, device, kept)
            tables.put_credentials(owner.number, device, body, [key_of(item) for item in kept], version)
        self.changed(tenant, device)
        return version

    def _read_credentials(
        self, tables: Tables, tenant: str, device: str, given: Any, expected: Expected
    ) -> tuple[DeviceRow, list[Document], list[Document]]:
        owner = tenant_row(tables, tenant)
        row = _device(tables, owner, device)
        expected.check(row.proofs)
        former = _credentials(tables, row)
        kept = self._checked(json.loads(owner.body), given, former)
        self._expect_free(tables, owner.number, device, kept)
        return row, former, kept

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


def _device(tables: Tables, tenant: TenantRow, device: str) -> DeviceRow:
    row = tables.device(tenant.number, device)
    if row is None:
        raise RegistryError(404, f"there is no device '{device:.255}'")
    return row


def _credentials(tables: Tables, row: DeviceRow) -> list[Document]:
    text = tables.credentials(row.tenant, row.id)
    found: list[Document] = [] if text is None else json.loads(text)
    return found


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
    if tenant.devices + more > (MAX_DEVICES if most < 0 else min(most, MAX_DEVICES)):
        raise RegistryError(403, f"the tenant has {tenant.devices} devices, and may have no more")


def _links(row: DeviceRow, document: Document) -> list[Link]:
    return [Link(row.tenant, kind, target, row.id) for kind, target in links_of(document)]


def _shown(row: DeviceRow) -> Document:
    """Return a device as clients see it."""
    document: Document = json.loads(row.body)
    status = {"created": row.created, "updated": row.updated, "last-user": row.user} | document.get("status", {})
    return document | {"status": {name: value for name, value in status.items() if value}}


def _status_in(row: DeviceRow) -> Document:
    """Return the part of a device that says how it was registered, which no client changes."""
    document: Document = json.loads(row.body)
    return {"status": document["status"]} if "status" in document else {}


def _without_status(row: DeviceRow) -> Document:
    return {name: value for name, value in json.loads(row.body).items() if name != "status"}
