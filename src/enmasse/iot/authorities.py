"""The authorities of tenants: who has proved to have the key of one, and which count where nothing names a tenant.

Rules:
1. Subject and key of an authority are public, so whoever writes them down has proved nothing. An authority that is
   not proved vouches for devices alone that name its tenant themselves, by the host for TLS (SNI).
2. A proof is a signature with the authority's key under a nonce of ours, or the operator's word. What one tenant
   alone had before there were proofs is presumed to be proved.
3. Of two proved authorities of one name, or with one key, the later one counts with SNI alone. A proof by a key comes
   before what is presumed, where the key is the same.
4. Tenants of one namespace with the same trust anchor group may share a key; their devices are told apart by SNI.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from enmasse.identity.authorities import AuthorityId

AUTHORITIES_SCHEMA: Final = """
CREATE TABLE authorities (
    tenant INTEGER NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX authorities_by_name ON authorities (name);
CREATE INDEX authorities_by_key ON authorities (key);
CREATE TABLE proofs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, tenant INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL,
    at TEXT NOT NULL, UNIQUE (tenant, key)
);
"""


class Proof(enum.StrEnum):
    """The reason why a tenant is believed to have the key of an authority."""

    SIGNED = "signed"
    """The tenant has signed a nonce with it."""
    VOUCHED = "vouched"
    """The operator has said so."""
    PRESUMED = "presumed"
    """True if it was the only one that had it when there were no proofs yet."""


class Authority(NamedTuple):
    """An authority of a tenant, and what is known of it.

    Attributes:
        id: among those of its tenant.
        key: a digest of its key.
        proof: why its tenant is believed to have its key; None: it is not.
        proved: the time at which that was shown, RFC 3339; empty: never.
        counts: true if it vouches for devices that name no tenant.
        problem: why it does not, as a sentence without its subject; empty: it does.
    """

    id: str
    key: str
    proof: Proof | None
    proved: str
    counts: bool
    problem: str


class _Row(NamedTuple):
    tenant: int
    id: str
    name: str
    key: str
    number: int | None
    kind: str | None
    at: str | None
    namespace: str
    group: str | None


_SELECT: Final = """
SELECT a.tenant, a.id, a.name, a.key, p.number, p.kind, p.at, t.namespace,
    json_extract(t.body, '$."trust-anchor-group"')
FROM authorities a JOIN tenants t ON t.number = a.tenant LEFT JOIN proofs p ON p.tenant = a.tenant AND p.key = a.key
"""

NOT_PROVED: Final = "counts only where a device names the tenant by SNI, as nobody has proved to have its key"
SHARED: Final = "has a name or a key that another tenant has registered, too"
LATER: Final = "counts only where a device names the tenant by SNI: another tenant has proved one of this name or key"


class AuthorityRows:
    """The authorities of all tenants, and their proofs, within one transaction.

    Args:
        database: the connection.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def put(self, tenant: int, authorities: Mapping[str, AuthorityId]) -> None:
        """Put the authorities of a tenant in the place of those that it had; proofs go with their keys."""
        self._database.execute("DELETE FROM authorities WHERE tenant = ?", (tenant,))
        self._database.executemany(
            "INSERT INTO authorities VALUES (?, ?, ?, ?)",
            [(tenant, identity, one.name, one.key) for identity, one in authorities.items()],
        )
        self._database.execute(
            "DELETE FROM proofs WHERE tenant = ? AND key NOT IN (SELECT key FROM authorities WHERE tenant = ?)",
            (tenant, tenant),
        )

    def move(self, tenant: int, number: int) -> None:
        """Give what a tenant has to its new number."""
        for table in ("authorities", "proofs"):
            self._database.execute(f"UPDATE {table} SET tenant = ? WHERE tenant = ?", (number, tenant))  # noqa: S608

    def remove(self, tenant: int) -> None:
        """Remove all that a tenant has."""
        for table in ("authorities", "proofs"):
            self._database.execute(f"DELETE FROM {table} WHERE tenant = ?", (tenant,))  # noqa: S608

    def prove(self, tenant: int, key: str, kind: Proof, at: str) -> None:
        """Take note of a proof; one by the key replaces what was presumed, and keeps its place in time."""
        self._database.execute(
            "INSERT INTO proofs (tenant, key, kind, at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (tenant, key) DO UPDATE SET kind = excluded.kind, at = excluded.at"
            " WHERE proofs.kind = 'presumed'",
            (tenant, key, kind, at),
        )

    def presume(self, at: str) -> None:
        """Take as proved what one tenant alone has."""
        self._database.execute(
            "INSERT INTO proofs (tenant, key, kind, at) SELECT DISTINCT a.tenant, a.key, ?, ? FROM authorities a"
            " WHERE NOT EXISTS (SELECT 1 FROM authorities o WHERE o.tenant <> a.tenant AND o.name = a.name)"
            " AND NOT EXISTS (SELECT 1 FROM authorities o WHERE o.tenant <> a.tenant AND o.key = a.key)",
            (Proof.PRESUMED, at),
        )

    def key(self, tenant: int, identity: str) -> str | None:
        """Return the key of an authority, as its digest; None: there is none that can be used."""
        found = self._database.execute(
            "SELECT key FROM authorities WHERE tenant = ? AND id = ?", (tenant, identity)
        ).fetchone()
        return None if found is None else str(found[0])

    def of(self, tenant: int) -> list[Authority]:
        """Return the authorities of a tenant."""
        rows = self._rows("WHERE a.tenant = ? ORDER BY a.id", tenant)
        return [_judged(row, self._rivals(row)) for row in rows]

    def _rivals(self, row: _Row) -> list[_Row]:
        """Return the authorities of other tenants with the name or the key of one, but those that share it."""
        found = self._rows("WHERE a.tenant <> ? AND (a.name = ? OR a.key = ?)", row.tenant, row.name, row.key)
        return [other for other in found if not _is_shared(row, other)]

    def keys(self, tenant: int) -> set[str]:
        """Return the keys of the authorities of a tenant, as their digests."""
        return {row[0] for row in self._database.execute("SELECT key FROM authorities WHERE tenant = ?", (tenant,))}

    def proved_by_another(self, tenant: int) -> set[str]:
        """Return those keys that another tenant has proved to have, and does not share."""
        return {
            row.key
            for row in self._rows("WHERE a.tenant = ?", tenant)
            if any(other.key == row.key and other.kind in _BY_KEY for other in self._rivals(row))
        }

    def tenants_like(self, tenant: int) -> set[str]:
        """Return the ids of the tenants that have an authority with a name or key of one of a tenant's."""
        found: set[str] = set()
        for column in ("name", "key"):
            found |= {
                row[0]
                for row in self._database.execute(
                    "SELECT DISTINCT t.id FROM authorities mine JOIN authorities other"  # noqa: S608  a column's name
                    f" ON other.{column} = mine.{column} JOIN tenants t ON t.number = other.tenant"
                    " WHERE mine.tenant = ? AND other.tenant <> mine.tenant",
                    (tenant,),
                )
            }
        return found

    def _rows(self, clause: str, *values: object) -> list[_Row]:
        return [_Row(*row) for row in self._database.execute(_SELECT + clause, values)]


_BY_KEY: Final = (Proof.SIGNED, Proof.VOUCHED)


def _is_shared(row: _Row, other: _Row) -> bool:
    """Return true if two tenants have one authority together."""
    return (
        row.group is not None
        and (row.group, row.namespace, row.key) == (other.group, other.namespace, other.key)
        and row.namespace != ""
    )


def _judged(row: _Row, rivals: Iterable[_Row]) -> Authority:
    kind = None if row.kind is None else Proof(row.kind)
    problem = ""
    if kind is None:
        problem = NOT_PROVED + (f", and {SHARED}" if any(True for _ in rivals) else "")
    elif any(_comes_before(other, row) for other in rivals):
        problem = LATER
    return Authority(row.id, row.key, kind, row.at or "", not problem, problem)


def _comes_before(other: _Row, row: _Row) -> bool:
    if other.number is None or row.number is None:
        return False
    is_presumed, is_other_presumed = row.kind == Proof.PRESUMED, other.kind == Proof.PRESUMED
    if other.key == row.key and is_presumed != is_other_presumed:
        return is_presumed
    return other.number < row.number
