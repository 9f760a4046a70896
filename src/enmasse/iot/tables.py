# ruff: noqa: S608  what is put into statements is names of tables and columns; values are bound
"""The tables of the registry: tenants, devices, the gateways that they name, and credentials.

Rules:
1. How many devices a tenant has is counted by triggers, not anew at each search.
2. A tenant that is gone is gone at once, with all that it had; its rows are removed in parts, after a crash at the
   next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from enmasse.iot.authorities import AUTHORITIES_SCHEMA, AuthorityRows
from enmasse.iot.commands import CommandRows
from enmasse.iot.search import Clause, Filter, condition, order

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from enmasse.iot.search import Query

FORMAT: Final = 3
"""1 had the authorities of tenants in another form; 2 had no checksums of rows."""
_PART = 5_000  # rows of a removal in one transaction

SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE tenants (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, alias TEXT UNIQUE,
    namespace TEXT NOT NULL, enabled INTEGER NOT NULL, version TEXT NOT NULL,
    created TEXT NOT NULL, updated TEXT NOT NULL, body TEXT NOT NULL, devices INTEGER NOT NULL DEFAULT 0,
    enabled_devices INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX tenants_by_namespace ON tenants (namespace, id);
{AUTHORITIES_SCHEMA}
CREATE TABLE devices (
    number INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, id TEXT NOT NULL, enabled INTEGER NOT NULL,
    version TEXT NOT NULL, proofs TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, user TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE UNIQUE INDEX devices_by_id ON devices (tenant, id);
CREATE INDEX devices_by_enabled ON devices (tenant, enabled, id);
CREATE TABLE links (
    tenant INTEGER NOT NULL, kind INTEGER NOT NULL, target TEXT NOT NULL, device TEXT NOT NULL,
    PRIMARY KEY (tenant, kind, target, device)
) WITHOUT ROWID;
CREATE TABLE credentials (
    tenant INTEGER NOT NULL, device TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, device)
) WITHOUT ROWID;
CREATE TABLE logins (
    tenant INTEGER NOT NULL, type TEXT NOT NULL, auth_id TEXT NOT NULL, device TEXT NOT NULL,
    PRIMARY KEY (tenant, type, auth_id)
) WITHOUT ROWID;
CREATE INDEX logins_by_device ON logins (tenant, device);
CREATE TABLE gone (tenant INTEGER PRIMARY KEY);
CREATE TRIGGER device_added AFTER INSERT ON devices
    BEGIN UPDATE tenants SET devices = devices + 1, enabled_devices = enabled_devices + NEW.enabled
        WHERE number = NEW.tenant; END;
CREATE TRIGGER device_removed AFTER DELETE ON devices
    BEGIN UPDATE tenants SET devices = devices - 1, enabled_devices = enabled_devices - OLD.enabled
        WHERE number = OLD.tenant; END;
CREATE TRIGGER device_enabled AFTER UPDATE OF enabled ON devices WHEN NEW.enabled <> OLD.enabled
    BEGIN UPDATE tenants SET enabled_devices = enabled_devices + NEW.enabled - OLD.enabled
        WHERE number = NEW.tenant; END;
PRAGMA user_version = {FORMAT};
COMMIT;
"""

AUTHORITIES_UPDATE: Final = f"DROP TABLE anchors; {AUTHORITIES_SCHEMA}"
"""The statements that make the tables of format 1 those of format 2, but for the authorities of tenants."""

SEEN_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS seen (
    tenant TEXT NOT NULL, device TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (tenant, device)
) WITHOUT ROWID;
"""
"""The times at which devices were last seen, in milliseconds since 1970; added to what older versions wrote."""

USAGE_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS usage (
    tenant TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL, since INTEGER NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, source)
) WITHOUT ROWID;
"""
"""The part of a limit that devices of a tenant have used in a period, by the starts of nodes that counted;
added to what older versions wrote."""


_COSTS_OF: Final = """
SELECT {row}.tenant, (
    SELECT coalesce(sum(1 << CAST(substr(json_extract(secret.value, '$."pwd-hash"'), 5, 2) AS INTEGER)), 0)
    FROM json_each(item.value, '$.secrets') AS secret
    WHERE json_extract(secret.value, '$."hash-function"') = 'bcrypt'
) AS cost, {sign}count(*)
FROM {rows}json_each({row}.body) AS item WHERE json_extract(item.value, '$.type') = 'hashed-password'
GROUP BY {row}.tenant, cost
ON CONFLICT DO UPDATE SET logins = logins + excluded.logins
"""
COSTS_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE costs (
    tenant INTEGER NOT NULL, cost INTEGER NOT NULL, logins INTEGER NOT NULL, PRIMARY KEY (tenant, cost)
) WITHOUT ROWID;
CREATE TRIGGER credentials_added AFTER INSERT ON credentials
    BEGIN INSERT INTO costs {_COSTS_OF.format(row="NEW", sign="", rows="")}; END;
CREATE TRIGGER credentials_removed AFTER DELETE ON credentials
    BEGIN INSERT INTO costs {_COSTS_OF.format(row="OLD", sign="-", rows="")};
        DELETE FROM costs WHERE tenant = OLD.tenant AND logins <= 0; END;
INSERT INTO costs {_COSTS_OF.format(row="credentials", sign="", rows="credentials, ")};
COMMIT;
"""
"""The cost of the check of a wrong password, and how many logins of a tenant cost that: rounds of bcrypt, over all
secrets of a login; hashes that are quick cost none. Added to what older versions wrote, in seconds for a million
devices."""


class TenantRow(NamedTuple):
    """A tenant as it is kept; ``alias`` is the one that counts, which may be another than it asks for."""

    number: int
    id: str
    alias: str | None
    namespace: str
    enabled: bool
    version: str
    created: str
    updated: str
    body: str
    devices: int = 0


class DeviceRow(NamedTuple):
    """A device as it is kept; ``proofs`` is the version of its credentials, ``user`` who has written it last."""

    tenant: int
    id: str
    enabled: bool
    version: str
    proofs: str
    created: str
    updated: str
    user: str
    body: str


class Link(NamedTuple):
    """A gateway, or a group of them, that a device names; ``kind`` is the place of the field in ``LINKS``."""

    tenant: int
    kind: int
    target: str
    device: str


_TENANT = "number, id, alias, namespace, enabled, version, created, updated, body, devices"
_DEVICE = "tenant, id, enabled, version, proofs, created, updated, user, body"

_GATEWAYS: Final = """
WITH RECURSIVE named (target) AS (
    SELECT min(target) FROM links WHERE tenant = ? AND kind = 0
    UNION ALL
    SELECT (SELECT min(target) FROM links WHERE tenant = ? AND kind = 0 AND target > named.target)
    FROM named WHERE target IS NOT NULL
)
SELECT target FROM named WHERE target IS NOT NULL UNION SELECT device FROM links WHERE tenant = ? AND kind = 2
"""
"""The gateways that devices name (kind 0), one step in the index for each, and the members of groups (kind 2)."""

_KEYS: Final = {
    "devices": "number",
    "links": "kind, target, device",
    "credentials": "device",
    "logins": "type, auth_id",
}
"""By which the rows of one tenant are told apart."""


class Tables:
    """The tables, over one connection and within one transaction.

    Args:
        database: the connection.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def _rows(self, sql: str, *values: object) -> list[Any]:
        return self._database.execute(sql, values).fetchall()

    @property
    def commands(self) -> CommandRows:
        """The commands that wait, and what became of others."""
        return CommandRows(self._database)

    @property
    def authorities(self) -> AuthorityRows:
        """The authorities of tenants."""
        return AuthorityRows(self._database)

    # Tenants

    def tenant(self, identity: str) -> TenantRow | None:
        """Return a tenant."""
        rows = self._rows(f"SELECT {_TENANT} FROM tenants WHERE id = ?", identity)
        return TenantRow(*rows[0]) if rows else None

    def tenant_of_alias(self, alias: str) -> str | None:
        """Return the id of the tenant that has an alias."""
        rows = self._rows("SELECT id FROM tenants WHERE alias = ?", alias)
        return str(rows[0][0]) if rows else None

    def add_tenant(self, row: TenantRow) -> int:
        """Add a tenant, whose number is made here, and return that."""
        found = self._database.execute(
            "INSERT INTO tenants (id, alias, namespace, enabled, version, created, updated, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row[1:-1],
        )
        return int(found.lastrowid or 0)

    def change_tenant(self, row: TenantRow) -> None:
        """Put a tenant in the place of its former version."""
        self._rows(
            "UPDATE tenants SET alias = ?, enabled = ?, version = ?, updated = ?, body = ? WHERE number = ?",
            row.alias,
            row.enabled,
            row.version,
            row.updated,
            row.body,
            row.number,
        )

    def remove_tenant(self, number: int) -> None:
        """Remove a tenant: what it had cannot be reached any more, and is to be swept."""
        for table in ("commands", "seen", "usage"):
            self._rows(f"DELETE FROM {table} WHERE tenant = (SELECT id FROM tenants WHERE number = ?)", number)
        self._rows("DELETE FROM tenants WHERE number = ?", number)
        self.authorities.remove(number)
        self._rows("INSERT INTO gone VALUES (?)", number)

    def bodies(self) -> list[tuple[int, str]]:
        """Return numbers and documents of all tenants."""
        return self._rows("SELECT number, body FROM tenants")

    def namespaces(self) -> list[str]:
        """Return the namespaces that have tenants."""
        return [row[0] for row in self._rows("SELECT DISTINCT namespace FROM tenants")]

    def tenants_of(self, namespace: str) -> list[int]:
        """Return the numbers of the tenants of a namespace."""
        return [row[0] for row in self._rows("SELECT number FROM tenants WHERE namespace = ?", namespace)]

    def search_tenants(self, query: Query, namespaces: Sequence[str] | None) -> tuple[int, list[TenantRow]]:
        """Return how many tenants a query finds, and a page of them.

        Args:
            query: the search.
            namespaces: only of these; None: all.
        """
        clause = Clause("1", [])
        if namespaces is not None:
            clause.also(f"item.namespace IN ({', '.join('?' * len(namespaces))})", *namespaces)
        return self._page("tenants", _TENANT, clause, query, TenantRow, None, None)

    # Devices

    def device(self, tenant: int, identity: str) -> DeviceRow | None:
        """Return a device."""
        rows = self._rows(f"SELECT {_DEVICE} FROM devices WHERE tenant = ? AND id = ?", tenant, identity)
        return DeviceRow(*rows[0]) if rows else None

    def present(self, tenant: int, ids: Sequence[str]) -> dict[str, DeviceRow]:
        """Return those of some devices that there are; a thousand at most."""
        marks = ", ".join("?" * len(ids))
        rows = self._rows(f"SELECT {_DEVICE} FROM devices WHERE tenant = ? AND id IN ({marks})", tenant, *ids)
        return {row[1]: DeviceRow(*row) for row in rows}

    def add_devices(self, rows: Iterable[DeviceRow], links: Iterable[Link]) -> None:
        """Add devices."""
        self._database.executemany(f"INSERT INTO devices ({_DEVICE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._database.executemany("INSERT INTO links VALUES (?, ?, ?, ?)", links)

    def change_devices(self, rows: Iterable[DeviceRow], former: Iterable[Link], links: Iterable[Link]) -> None:
        """Put devices in the place of their former versions; their credentials stay."""
        self._database.executemany(
            "UPDATE devices SET enabled = ?, version = ?, updated = ?, user = ?, body = ?"
            " WHERE tenant = ? AND id = ?",
            [(row.enabled, row.version, row.updated, row.user, row.body, row.tenant, row.id) for row in rows],
        )
        self._remove_links(former)
        self._database.executemany("INSERT INTO links VALUES (?, ?, ?, ?)", links)

    def remove_device(self, row: DeviceRow, links: Iterable[Link]) -> None:
        """Remove a device with its credentials."""
        self._rows("DELETE FROM devices WHERE tenant = ? AND id = ?", row.tenant, row.id)
        self._rows("DELETE FROM credentials WHERE tenant = ? AND device = ?", row.tenant, row.id)
        self._rows("DELETE FROM logins WHERE tenant = ? AND device = ?", row.tenant, row.id)
        for table in ("commands", "seen"):
            owner = "(SELECT id FROM tenants WHERE number = ?)"
            self._rows(f"DELETE FROM {table} WHERE tenant = {owner} AND device = ?", row.tenant, row.id)
        self._remove_links(links)

    def _remove_links(self, links: Iterable[Link]) -> None:
        self._database.executemany(
            "DELETE FROM links WHERE tenant = ? AND kind = ? AND target = ? AND device = ?", links
        )

    def clear_devices(self, row: TenantRow) -> None:
        """Remove all devices of a tenant: it gets another number, and what it had is to be swept."""
        self.authorities.move(row.number, -row.number)
        self.remove_tenant(row.number)
        self.authorities.move(-row.number, self.add_tenant(row))

    def note_seen(self, rows: Iterable[tuple[str, str, int]]) -> None:
        """Keep when devices were seen: tenant, device, milliseconds since 1970."""
        self._database.executemany(
            "INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT (tenant, device) DO UPDATE SET at = excluded.at", rows
        )

    def seen(self, tenant: str, ids: Sequence[str]) -> dict[str, int]:
        """Return when some devices were seen, of those that were; a thousand at most."""
        marks = ", ".join("?" * len(ids))
        return dict(self._rows(f"SELECT device, at FROM seen WHERE tenant = ? AND device IN ({marks})", tenant, *ids))

    def note_usage(self, tenant: str, name: str, source: str, since: int, used: int) -> int:
        """Keep what a start of a node has counted of a period, and return what all others have counted of it."""
        self._rows("DELETE FROM usage WHERE tenant = ? AND name = ? AND since < ?", tenant, name, since)
        self._rows("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?)", tenant, name, source, since, used)
        others = (
            "SELECT COALESCE(SUM(used), 0) FROM usage WHERE tenant = ? AND name = ? AND since = ? AND source <> ?"
        )
        return int(self._rows(others, tenant, name, since, source)[0][0])

    def usage(self, tenant: str) -> dict[str, tuple[int, int]]:
        """Return by limit when its last period began, in seconds since 1970, and what was used of it."""
        rows = self._rows(
            "SELECT name, since, SUM(used) FROM usage WHERE tenant = ? GROUP BY name, since ORDER BY since", tenant
        )
        return {name: (since, used) for name, since, used in rows}

    def page_of_devices(self, tenant: int, after: str, limit: int) -> list[DeviceRow]:
        """Return the next devices by id."""
        rows = self._rows(
            f"SELECT {_DEVICE} FROM devices WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?", tenant, after, limit
        )
        return [DeviceRow(*row) for row in rows]

    def expected_devices(self, tenant: int) -> list[str]:
        """Return the ids of the devices that are enabled, and no gateways, in their order."""
        rows = self._rows(
            f"SELECT id FROM devices WHERE tenant = ? AND enabled AND id NOT IN ({_GATEWAYS}) ORDER BY id",
            tenant,
            tenant,
            tenant,
            tenant,
        )
        return [row[0] for row in rows]

    def devices_in_group(self, tenant: int, group: str, most: int) -> list[str]:
        """Return the ids of the devices that name a group in ``ext.groups``, or one more than the most."""
        rows = self._rows(
            "SELECT id FROM devices WHERE tenant = ? AND EXISTS (SELECT 1 FROM json_each(body, '$.ext.groups')"
            " WHERE value = ?) LIMIT ?",
            tenant,
            group,
            most + 1,
        )
        return [row[0] for row in rows]

    def devices_with_links(self, tenant: int, targets: Iterable[tuple[int, str]]) -> list[str]:
        """Return the ids of the devices that name any of some gateways or groups, with the number of the field."""
        found: dict[str, None] = {}
        for kind, target in targets:
            rows = self._rows(
                "SELECT device FROM links WHERE tenant = ? AND kind = ? AND target = ?", tenant, kind, target
            )
            found |= dict.fromkeys(row[0] for row in rows)
        return list(found)

    def search_devices(self, tenant: int, query: Query) -> tuple[int, list[DeviceRow]]:
        """Return how many devices of a tenant a query finds, and a page of them."""
        clause = Clause("item.tenant = ?", [tenant])
        if query.gateways is not None:
            word = "" if query.gateways else "NOT "
            clause.also(f"item.id {word}IN ({_GATEWAYS})", tenant, tenant, tenant)
        return self._page("devices", _DEVICE, clause, query, DeviceRow, self._counted(tenant, query), tenant)

    def _counted(self, tenant: int, query: Query) -> int | None:
        """Return how many devices a query finds, if that is counted already."""
        if query.gateways is not None or query.filters[1:]:
            return None
        ((every, enabled),) = self._rows("SELECT devices, enabled_devices FROM tenants WHERE number = ?", tenant)
        match query.filters:
            case ():
                return int(every)
            case (Filter(field="/enabled", value=bool() as wanted),):
                return int(enabled if wanted else every - enabled)
        return None

    def _page(
        self,
        table: str,
        columns: str,
        clause: Clause,
        query: Query,
        row: Any,
        total: int | None,
        tenant: int | None,
    ) -> tuple[int, list[Any]]:
        for item in query.filters:
            condition(item, clause, tenant)
        if total is None:
            ((total,),) = self._rows(f"SELECT count(*) FROM {table} AS item WHERE {clause.text}", *clause.values)
        by, values = order(query.sorts)
        size, offset = min(query.size, max(total - query.offset, 0)), query.offset
        # What is left out is stepped over in an index, which is shorter from the nearer end.
        is_backwards = not query.sorts and offset > total // 2
        if is_backwards:
            by, offset = f"{by} DESC", total - offset - size
        numbers = f"SELECT item.number FROM {table} AS item WHERE {clause.text} ORDER BY {by} LIMIT ? OFFSET ?"
        chosen = [found[0] for found in self._rows(numbers, *clause.values, *values, size, max(offset, 0))]
        if is_backwards:
            chosen.reverse()
        marks = ", ".join("?" * len(chosen))
        found = self._rows(f"SELECT number, {columns} FROM {table} WHERE number IN ({marks})", *chosen)
        rows = {item[0]: row(*item[1:]) for item in found}
        return total, [rows[number] for number in chosen]

    # Credentials

    def credentials(self, tenant: int, device: str) -> str | None:
        """Return the credentials of a device, in JSON; None when it has none."""
        rows = self._rows("SELECT body FROM credentials WHERE tenant = ? AND device = ?", tenant, device)
        return str(rows[0][0]) if rows else None

    def device_of_login(self, tenant: int, kind: str, identity: str) -> str | None:
        """Return the device that has an auth-id."""
        rows = self._rows(
            "SELECT device FROM logins WHERE tenant = ? AND type = ? AND auth_id = ?", tenant, kind, identity
        )
        return str(rows[0][0]) if rows else None

    def password_cost(self, tenant: int) -> int:
        """Return what the check of a wrong password costs at most, in rounds of bcrypt."""
        ((found,),) = self._rows("SELECT coalesce(max(cost), 0) FROM costs WHERE tenant = ?", tenant)
        return int(found)

    def put_credentials(
        self, tenant: int, device: str, body: str | None, keys: Iterable[tuple[str, str]], version: str
    ) -> None:
        """Keep the credentials of a device; types and auth-ids are known to be no other's."""
        self._rows("DELETE FROM credentials WHERE tenant = ? AND device = ?", tenant, device)
        self._rows("DELETE FROM logins WHERE tenant = ? AND device = ?", tenant, device)
        if body is not None:
            self._rows("INSERT INTO credentials VALUES (?, ?, ?)", tenant, device, body)
        rows = [(tenant, kind, identity, device) for kind, identity in keys]
        self._database.executemany("INSERT INTO logins VALUES (?, ?, ?, ?)", rows)
        self._rows("UPDATE devices SET proofs = ? WHERE tenant = ? AND id = ?", version, tenant, device)

    # What is left of tenants that are gone

    def sweep(self) -> bool:
        """Remove some rows of what is gone; return whether there may be others."""
        rows = self._rows("SELECT tenant FROM gone LIMIT 1")
        for (tenant,) in rows:
            for table, keys in _KEYS.items():
                part = f"SELECT {keys} FROM {table} WHERE tenant = ? LIMIT {_PART}"
                removed = self._database.execute(
                    f"DELETE FROM {table} WHERE tenant = ? AND ({keys}) IN ({part})", (tenant, tenant)
                )
                if removed.rowcount:
                    return True
            self._rows("DELETE FROM gone WHERE tenant = ?", tenant)
        return bool(rows)
