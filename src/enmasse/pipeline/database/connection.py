"""Connects to PostgreSQL: which address, which user, how it is proved, and what its errors mean.

Rules:
1. What a connection is made of is ours: a tenant says host, port and names, and no option of libpq.
2. An operator has allowed the host; the host of pipelines saw to it. Addresses where clouds tell secrets are refused
   nevertheless, and the address that was looked at is the one that is connected to.
3. A password goes to a server alone that has proved its name, or, where ``tls`` is ``off``, not in clear.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import adbc_driver_manager as adbc
from adbc_driver_postgresql import dbapi

from enmasse.pipeline.credentials import Login, authorities_file
from enmasse.pipeline.errors import AccessError, DatabaseAwayError, DatabaseError, RowRefusedError
from enmasse.pipeline.host.reach import RELAYED, is_never, may_lead_to, place_of

if TYPE_CHECKING:
    from enmasse.errors import EnmasseError
    from enmasse.model.kinds.pipelines.databases import Database

_CONNECT_S: Final = 10
_SILENT_MS: Final = 30_000
"""A server that confirms nothing for so long is gone."""
_KEEPALIVE_S: Final = 10
"""A server from which no answer comes is asked so often whether it is there, which it confirms or is gone."""
_LOCK_S: Final = 60
"""Whoever holds a row for longer is named by an error, and the batch begins again."""
_SESSION: Final = f"-c lock_timeout={_LOCK_S}s -c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601"


@contextmanager
def transaction(database: Database, application: str) -> Iterator[Any]:
    """Give a cursor of a transaction, which is committed at the end of the block, or undone by an error.

    Args:
        database: of whose table it is.
        application: the name of the connection for the server.

    Raises:
        DatabaseAwayError: it cannot be reached.
        DatabaseError: it does not let the user in, or lacks what is asked of it.
        RowRefusedError: a row breaks a constraint.
    """
    settings = _settings(database, application)
    try:
        connection = dbapi.connect(" ".join(f"{name}={_value(text)}" for name, text in settings.items()))
    except adbc.Error as error:
        raise _unconnected(database, str(error), settings["user"]) from None
    try:
        with connection, connection.cursor() as cursor:
            yield cursor
            connection.commit()
    except adbc.Error as error:
        raise _failed(database, settings["user"], error) from None


def _settings(database: Database, application: str) -> dict[str, str]:
    """Return what libpq is told."""
    secret = database.credentials_secret
    known = Login(secret).arguments()
    addresses = addresses_of(database.host, database.port)
    settings = {
        "host": ",".join([database.host] * len(addresses)),
        "hostaddr": ",".join(addresses),
        "port": str(database.port),
        "dbname": database.database,
        "user": known["user"] or "",
        "password": known["password"] or "",
        "passfile": os.devnull,
        "application_name": application,
        "options": _SESSION,
        "connect_timeout": str(_CONNECT_S),
        "tcp_user_timeout": str(_SILENT_MS),
        "keepalives_idle": str(_KEEPALIVE_S),
        "keepalives_interval": str(_KEEPALIVE_S),
        "keepalives_count": "2",
        "gssencmode": "disable",
    }
    if database.tls == "off":
        return settings | {"sslmode": "disable", "require_auth": "!password"}
    authorities = authorities_file(secret)
    if not authorities.is_file():
        raise AccessError(
            f"the Secret {secret} has no entry ca.crt, by which the certificate of {database.host} is verified: add "
            "it, or, where the network is trusted, say tls: off"
        )
    return settings | {"sslmode": "verify-full", "sslrootcert": str(authorities)}


def _value(text: str) -> str:
    """Return a value as libpq reads it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def addresses_of(host: str, port: int) -> list[str]:
    """Return the addresses of a host that may be connected to.

    Raises:
        DatabaseAwayError: there are none.
    """
    where = f"the database host {host} port {port}"
    try:
        place = place_of(host.lower(), port)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no host"
        raise DatabaseAwayError(f"{where} cannot be found: {why}") from None
    addresses = list(dict.fromkeys(str(item[4][0]) for item in found))
    is_relayed = RELAYED in os.environ
    allowed = [
        address for address in addresses if not is_never(address) and (is_relayed or may_lead_to(place, address))
    ]
    if not allowed:
        raise DatabaseAwayError(f"{where} leads to no address that a name may lead to, but to {addresses[0]}")
    return allowed


def _unconnected(database: Database, text: str, user: str) -> EnmasseError:
    """Return why there is no connection; libpq gives words alone."""
    plain = " ".join(text.rpartition("failed: ")[2].split()).rstrip(".")
    secret = database.credentials_secret
    where = f"the database at {_where(database)}"
    _, is_answer, said = plain.partition("FATAL: ")
    if is_answer:
        if any(word in said for word in ("starting up", "shutting down", "too many", "reserved")):
            return DatabaseAwayError(f"{where} takes no connection now: {said}")
        return DatabaseError(
            f"{where} does not let user {user} in: {said}; username and password are those of the Secret {secret}"
        )
    is_cut = "SSL SYSCALL" in plain or "closed" in plain
    if not is_cut and ("SSL" in plain or "certificate" in plain):
        return DatabaseError(
            f"{where} does not prove its name: {plain}; it is verified by ca.crt of the Secret {secret}, unless tls "
            "is off"
        )
    return DatabaseAwayError(f"{where} cannot be reached: {plain}; it is tried again")


_GONE: Final = ("08", "40", "53", "55", "57")
"""Classes of SQLSTATE for what another attempt may mend: connections, conflicts, resources, locks, the operator."""
_REFUSED: Final = ("22", "23")
"""Of values, and of constraints."""


_DENIED: Final = "42501"


def _failed(database: Database, user: str, error: Any) -> EnmasseError:
    """Return what an error of a statement means."""
    state = error.sqlstate or ""
    told = _told(error)
    table = f"the table {database.table} of the database at {_where(database)}"
    if not state or state.startswith(_GONE):
        return DatabaseAwayError(f"{table}: {told}; it is tried again")
    if state.startswith(_REFUSED):
        return RowRefusedError(f"{table} does not take a row: {told}")
    if state == _DENIED:
        told += f" for user {user}, who is that of the Secret {database.credentials_secret}: GRANT what is needed"
    return DatabaseError(f"{table}: {told}")


def _told(error: Any) -> str:
    """Return the words of an error, with the constraint and the row if it has them."""
    parts: Mapping[str, str] = {
        name.rpartition("PG_DIAG_")[2]: value.decode(errors="replace")
        for name, value in ((_text(name), value) for name, value in error.details or ())
    }
    found = [parts[name] for name in ("MESSAGE_PRIMARY", "MESSAGE_DETAIL", "MESSAGE_HINT") if name in parts]
    name = parts.get("CONSTRAINT_NAME")
    if name is not None and not any(name in part for part in found):
        found.append(f"constraint {name}")
    if found:
        return "; ".join(part.rstrip(".") for part in found)
    return " ".join(str(error).split())


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _where(database: Database) -> str:
    return f"{database.host}:{database.port}/{database.database}"
