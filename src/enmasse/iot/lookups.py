"""The questions of nodes to the device registry: tenants, devices, and credentials with their secrets.

Nothing of it goes to a client of the registry's API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from enmasse.iot.device import read_device
from enmasse.iot.documents import RegistryError

if TYPE_CHECKING:
    from enmasse.iot.documents import Document
    from enmasse.iot.registry import DeviceRegistry
    from enmasse.iot.store import DeviceStore
    from enmasse.iot.tables import DeviceRow

_REVIEW_CHARACTERS: Final = 1 << 20
"""Of one answer about many devices, unless the first alone takes more."""


class Lookups:
    """The registry as nodes ask it; its methods block, and may be called from any thread.

    Args:
        store: the registry's file.
    """

    def __init__(self, store: DeviceStore) -> None:
        self._store = store

    def tenant(self, tenant: str) -> Document | None:
        """Return a tenant with the alias that counts, and which authorities do; None: there is none."""
        with self._store.reading() as tables:
            row = tables.tenant(tenant)
            counting = set() if row is None else {one.id for one in tables.authorities.of(row.number) if one.counts}
        if row is None:
            return None
        found = _document(row.body, row.enabled) | {"alias": row.alias}
        if "trusted-ca" in found:
            found["trusted-ca"] = [item | {"counts": item["id"] in counting} for item in found["trusted-ca"]]
        return found

    def device(self, tenant: str, device: str) -> Document | None:
        """Return a device; None: there is none."""
        with self._store.reading() as tables:
            owner = tables.tenant(tenant)
            row = None if owner is None else tables.device(owner.number, device)
        return None if row is None else _device(row)

    def credentials(self, tenant: str, kind: str, auth_id: str) -> Document | None:
        """Return the credentials of a type with an auth-id, and their device; None: there are none."""
        with self._store.reading() as tables:
            owner = tables.tenant(tenant)
            if owner is None:
                return None
            device = tables.device_of_login(owner.number, kind, auth_id)
            row = None if device is None else tables.device(owner.number, device)
            text = None if row is None else tables.credentials(owner.number, row.id)
        if row is None or text is None:
            return None
        for item in json.loads(text):
            if (item["type"], item["auth-id"]) == (kind, auth_id):
                return {"device-id": row.id, "device": _device(row), "credentials": item}
        return None

    def review(self, tenant: str, rows: Sequence[Sequence[str]]) -> list[Document | None]:
        """Return devices, and of each the credentials of one type and name; as many of them as one answer holds.

        Args:
            tenant: its id.
            rows: device, and type and auth-id of the credentials; empty: they are not asked for.

        Returns:
            For each row ``device`` and ``credentials``, None where there are none; or None where there is no device.
        """
        found: list[Document | None] = []
        size = 0
        with self._store.reading() as tables:
            owner = tables.tenant(tenant)
            for identity, kind, auth_id in rows:
                row = None if owner is None else tables.device(owner.number, identity)
                if owner is None or row is None:
                    found.append(None)
                    continue
                text = tables.credentials(owner.number, row.id) if kind else None
                size += len(row.body) + len(text or "")
                if found and size > _REVIEW_CHARACTERS:
                    break
                credentials = next(
                    (it for it in json.loads(text or "[]") if (it["type"], it["auth-id"]) == (kind, auth_id)), None
                )
                found.append({"device": _device(row), "credentials": credentials})
        return found

    def password_cost(self, tenant: str) -> int:
        """Return what the check of a wrong password of a tenant's devices costs at most, in rounds of bcrypt."""
        with self._store.reading() as tables:
            owner = tables.tenant(tenant)
            return 0 if owner is None else tables.password_cost(owner.number)

    def note_usage(self, source: str, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Keep what a start of a node has counted, and return what all others have counted of the same.

        Args:
            source: the start of a node.
            rows: tenant, name of the limit, when the period began in seconds since 1970, and what was used of it.
        """
        with self._store.writing() as tables:
            return [
                [tenant, name, since, tables.note_usage(str(tenant), str(name), source, int(since), int(used))]
                for tenant, name, since, used in rows
                if tables.tenant(str(tenant)) is not None
            ]

    def devices_of_gateway(self, tenant: str, gateway: str) -> Iterator[str]:
        """Yield the ids of the devices that name a gateway, or a group that it belongs to."""
        with self._store.reading() as tables:
            owner = tables.tenant(tenant)
            row = None if owner is None else tables.device(owner.number, gateway)
            if owner is None or row is None:
                return
            groups = json.loads(row.body).get("memberOf", ())
            found = tables.devices_with_links(owner.number, [(0, gateway), *((1, group) for group in groups)])
        yield from found


def provision(registry: DeviceRegistry, tenant: str, device: str, gateway: str) -> Document:
    """Register a device that a gateway sends for, and return it.

    Raises:
        RegistryError: it cannot be registered.
    """
    document: dict[str, Any] = read_device({"via": [gateway]})
    registry.create_device(tenant, device, document, gateway, is_provisioned=True)
    return document


def provision_certificate(
    registry: DeviceRegistry, tenant: str, device: str, auth_id: str, *, is_gateway: bool
) -> tuple[str, Document]:
    """Register the device of a certificate that an authority of its tenant has vouched for, and return its id and it.

    Raises:
        RegistryError: it cannot be registered.
    """
    authorities = ["auto-provisioning-enabled"] if is_gateway else []
    document = read_device({"authorities": authorities} if authorities else {})
    identity, _ = registry.create_device(tenant, device or None, document, auth_id, is_provisioned=True)
    try:
        registry.update_credentials(tenant, identity, [{"type": "x509-cert", "auth-id": auth_id, "secrets": [{}]}])
    except RegistryError:
        registry.delete_device(tenant, identity)
        raise
    return identity, document


def _device(row: DeviceRow) -> Document:
    """Return a device with when it was registered, which tells it from a former one of its id."""
    return _document(row.body, row.enabled) | {"made": row.created}


def _document(body: str, enabled: bool) -> Document:
    found: Document = json.loads(body)
    return found | {"enabled": bool(enabled)}
