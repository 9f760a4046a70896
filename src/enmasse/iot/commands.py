# ruff: noqa: S608  what is put into statements is names of columns; values are bound
"""Commands that wait for their devices: what is asked for, their states, and the table that keeps them.

A command is ``queued`` until its device listens, ``delivered`` while a response is awaited, and then ``accepted``
(the device has it, or has answered that it has done it), ``rejected`` (it was malformed, or the device has answered
that it will not), ``expired`` (its time was over, or another has taken its place) or ``failed`` (it was cancelled, or
tried as often as it may be).

Rules:
1. A command is on disk before anybody is told that it is stored. One that is delivered as the control process dies
   may be delivered again, with the same id.
2. An expired command is never delivered: the device's node is told how long it may wait, too.
3. Each change of state is told as an event, and is known to be told before it is forgotten.
4. What waits is bounded for a device and for a tenant; what is finished is kept for ``KEPT_MS``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import Field

from enmasse.iot.certificates import bytes_of
from enmasse.iot.documents import DEVICE_ID, Part, RegistryError, checked_id, validated

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from enmasse.iot.documents import Document

QUEUED, DELIVERED, ACCEPTED, REJECTED, EXPIRED, FAILED = (
    "queued",
    "delivered",
    "accepted",
    "rejected",
    "expired",
    "failed",
)
WAITING: Final = (QUEUED, DELIVERED)
STATES: Final = (*WAITING, ACCEPTED, REJECTED, EXPIRED, FAILED)

MAX_OF_DEVICE: Final = 100
MAX_OF_TENANT: Final = 100_000
MAX_AT_ONCE: Final = 10_000
"""Devices of one request."""

MAX_PAYLOAD: Final = 64 * 1024
MAX_ANSWER: Final = 16 * 1024
"""Bytes of a response that are kept."""

TTL_S: Final = 7 * 24 * 3_600
"""The time that a command waits that says nothing of it."""

MAX_TTL_S: Final = 366 * 24 * 3_600
RESPONSE_MS: Final = 60_000
"""The time that a response is awaited before the command is tried again, or has failed."""

KEPT_MS: Final = 7 * 24 * 3_600 * 1_000
_PART: Final = 1_000

COMMANDS_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS commands (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, device TEXT NOT NULL,
    batch TEXT, state TEXT NOT NULL, told TEXT NOT NULL, created INTEGER NOT NULL, changed INTEGER NOT NULL,
    expires INTEGER NOT NULL, attempts INTEGER NOT NULL, key TEXT, body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS commands_of_device ON commands (tenant, device, state, number);
CREATE INDEX IF NOT EXISTS commands_of_tenant ON commands (tenant, state, number);
CREATE INDEX IF NOT EXISTS commands_of_batch ON commands (batch, state) WHERE batch IS NOT NULL;
CREATE INDEX IF NOT EXISTS commands_by_end ON commands (expires) WHERE state IN ('queued', 'delivered');
CREATE INDEX IF NOT EXISTS commands_by_change ON commands (changed) WHERE state NOT IN ('queued', 'delivered');
CREATE INDEX IF NOT EXISTS commands_untold ON commands (tenant, number) WHERE told <> state;
"""

_COLUMNS: Final = "number, id, tenant, device, batch, state, told, created, changed, expires, attempts, key, body"


class Pace(Part):
    """The pace at which a group is sent a command."""

    at_once: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Devices that have it and have not answered yet."""
    per_second: Annotated[float, Field(gt=0, le=10_000)] | None = None
    """Devices that are sent it in a second."""


class CommandRequest(Part):
    """A command as clients ask for it."""

    name: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f#+/]+$")]
    payload: str | None = None
    """Text; bytes are in `payload-base64`."""
    payload_base64: Annotated[str, Field(alias="payload-base64")] | None = None
    content_type: Annotated[str, Field(max_length=255, pattern=r"^[\x21-\x7e ]*$")] | None = None
    mode: Annotated[str, Field(pattern="^(direct|stored)$")] | None = None
    """`stored`: it waits for its device; `direct`: it is delivered now or not at all."""
    ttl: Annotated[int, Field(ge=1, le=MAX_TTL_S)] | None = None
    """Seconds after which it is worthless."""
    supersede_key: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """It takes the place of those that wait with the same key for the same device."""
    response_required: bool | None = None
    """True if the device is to answer."""
    attempts: Annotated[int, Field(ge=1, le=100)] | None = None
    """The number of times that it is tried with a device that gives no answer, or says that it has failed (5xx)."""
    devices: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=MAX_AT_ONCE)] | None = None
    group: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """The devices that name it in `ext.groups`."""
    pace: Pace | None = None


class Command(NamedTuple):
    """A command as it is kept; times are in milliseconds since 1970 UTC."""

    number: int
    id: str
    tenant: str
    device: str
    batch: str | None
    state: str
    told: str
    created: int
    changed: int
    expires: int
    attempts: int
    key: str | None
    body: str

    @property
    def document(self) -> Document:
        """Its content, and its outcome."""
        found: Document = json.loads(self.body)
        return found

    def shown(self) -> Document:
        """Return it as clients see it."""
        document = self.document
        found = {
            "id": self.id,
            "device": self.device,
            "state": self.state,
            "created": self.created,
            "changed": self.changed,
            "expires": self.expires,
            "attempts": self.attempts,
        }
        if self.batch is not None:
            found["batch"] = self.batch
        if self.key is not None:
            found["supersede-key"] = self.key
        return found | {name: value for name, value in document.items() if not name.startswith("_")}


def read_command(given: Any, *, to_many: bool) -> CommandRequest:
    """Return what a client asks for.

    Raises:
        RegistryError: 400 or 413.
    """
    request = validated(CommandRequest, given)
    if request.payload is not None and request.payload_base64 is not None:
        raise RegistryError(400, "expected payload or payload-base64, not both")
    if to_many != bool(request.devices or request.group) or (request.devices and request.group):
        raise RegistryError(
            400, "expected devices or group" if to_many else "the path names the device: leave out devices and group"
        )
    if to_many and request.mode == "direct":
        raise RegistryError(400, "mode: a command to several devices is stored")
    for device in request.devices or ():
        checked_id(DEVICE_ID, device, "devices")
    if len(payload_of(request)) > MAX_PAYLOAD:
        raise RegistryError(413, f"the payload has more than {MAX_PAYLOAD} bytes")
    return request


def payload_of(request: CommandRequest) -> bytes:
    """Return the payload of a command.

    Raises:
        RegistryError: 400.
    """
    if request.payload_base64 is not None:
        return bytes_of(request.payload_base64, "payload-base64") if request.payload_base64 else b""
    return (request.payload or "").encode()


class CommandRows:
    """The table of commands, over one connection and within one transaction.

    Args:
        database: the connection.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def _rows(self, sql: str, *values: object) -> list[Any]:
        return self._database.execute(sql, values).fetchall()

    def _find(self, clause: str, *values: object) -> list[Command]:
        return [Command(*row) for row in self._rows(f"SELECT {_COLUMNS} FROM commands WHERE {clause}", *values)]

    def add(
        self,
        tenant: str,
        devices: Sequence[tuple[str, str]],
        document: Document,
        *,
        now: int,
        expires: int,
        key: str | None,
        batch: str | None = None,
    ) -> None:
        """Queue a command.

        Args:
            tenant: the tenant of the devices.
            devices: the id of the command for each, and the device.
            document: the content.
            now: the time.
            expires: the time at which it is worthless.
            key: the key of those that it takes the place of.
            batch: the id of all these commands together.

        Raises:
            RegistryError: 429: too many wait.
        """
        ((waiting,),) = self._rows(
            "SELECT count(*) FROM commands WHERE tenant = ? AND state IN ('queued', 'delivered')", tenant
        )
        if waiting + len(devices) > MAX_OF_TENANT:
            raise RegistryError(429, f"the tenant has {waiting} commands that wait: {MAX_OF_TENANT} are the most")
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        for identity, device in devices:
            if key is not None:
                for former in self._find(
                    "tenant = ? AND device = ? AND state = 'queued' AND key = ?", tenant, device, key
                ):
                    self.change(former, EXPIRED, now, reason=f"superseded by {identity}")
            ((of_device,),) = self._rows(
                "SELECT count(*) FROM commands WHERE tenant = ? AND device = ? AND state IN ('queued', 'delivered')",
                tenant,
                device,
            )
            if of_device >= MAX_OF_DEVICE:
                raise RegistryError(429, f"{MAX_OF_DEVICE} commands wait for device '{device}': no more are taken")
            self._rows(
                "INSERT INTO commands (id, tenant, device, batch, state, told, created, changed, expires, attempts,"
                " key, body) VALUES (?, ?, ?, ?, 'queued', '', ?, ?, ?, 0, ?, ?)",
                identity,
                tenant,
                device,
                batch,
                now,
                now,
                expires,
                key,
                body,
            )

    def change(self, command: Command, state: str, now: int, *, attempts: int | None = None, **more: Any) -> None:
        """Give a command another state, and note what else became of it; None takes a note away."""
        document = {name: value for name, value in (command.document | more).items() if value is not None}
        self._rows(
            "UPDATE commands SET state = ?, changed = ?, attempts = ?, body = ? WHERE number = ?",
            state,
            now,
            command.attempts if attempts is None else attempts,
            json.dumps(document, ensure_ascii=False, separators=(",", ":")),
            command.number,
        )

    def command(self, tenant: str, identity: str) -> Command | None:
        """Return a command."""
        found = self._find("id = ? AND tenant = ?", identity, tenant)
        return found[0] if found else None

    def search(
        self, tenant: str, device: str | None, state: str | None, batch: str | None, size: int, offset: int
    ) -> tuple[int, list[Command]]:
        """Return how many commands there are, and a page of them, the latest first."""
        clause, values = "tenant = ?", [tenant]
        for column, value in (("device", device), ("state", state), ("batch", batch)):
            if value is not None:
                clause += f" AND {column} = ?"
                values.append(value)
        ((total,),) = self._rows(f"SELECT count(*) FROM commands WHERE {clause}", *values)
        return total, self._find(f"{clause} ORDER BY number DESC LIMIT ? OFFSET ?", *values, size, offset)

    def counts(self, tenant: str, batch: str) -> dict[str, int]:
        """Return how many commands of a batch are in each state."""
        return dict(
            self._rows(
                "SELECT state, count(*) FROM commands WHERE batch = ? AND tenant = ? GROUP BY state", batch, tenant
            )
        )

    def next_of(self, tenant: str, device: str, now: int) -> Command | None:
        """Return the first command that waits for a device and has not expired."""
        found = self._find(
            "tenant = ? AND device = ? AND state = 'queued' AND expires > ? ORDER BY number LIMIT 1",
            tenant,
            device,
            now,
        )
        return found[0] if found else None

    def devices_that_wait(self, tenant: str | None = None) -> list[tuple[str, str]]:
        """Return the devices for which commands wait, of a tenant or of all."""
        if tenant is None:
            return self._rows("SELECT DISTINCT tenant, device FROM commands WHERE state = 'queued'")
        return self._rows(
            "SELECT DISTINCT tenant, device FROM commands WHERE tenant = ? AND state = 'queued'", tenant
        )

    def in_batch(self, batch: str) -> int:
        """Return how many devices of a batch have it and have not answered."""
        ((found,),) = self._rows("SELECT count(*) FROM commands WHERE batch = ? AND state = 'delivered'", batch)
        return int(found)

    def expired(self, now: int) -> list[Command]:
        """Return some of the commands that have expired."""
        return self._find("state IN ('queued', 'delivered') AND expires <= ? LIMIT ?", now, _PART)

    def unanswered(self, now: int) -> list[Command]:
        """Return some of the commands whose devices have not answered in time."""
        return self._find("state = 'delivered' AND changed <= ? LIMIT ?", now - RESPONSE_MS, _PART)

    def tenants_untold(self) -> list[str]:
        """Return the tenants of commands whose present state is not told yet."""
        return [tenant for (tenant,) in self._rows("SELECT DISTINCT tenant FROM commands WHERE told <> state")]

    def untold(self, tenant: str) -> list[Command]:
        """Return some of a tenant's commands whose present state is not told yet."""
        return self._find("tenant = ? AND told <> state ORDER BY number LIMIT ?", tenant, _PART)

    def tell(self, command: Command) -> None:
        """Note that the state of a command is told."""
        self._rows("UPDATE commands SET told = ? WHERE number = ?", command.state, command.number)

    def forget(self, now: int) -> bool:
        """Remove some of what was finished long ago; return whether there may be more."""
        found = self._database.execute(
            "DELETE FROM commands WHERE number IN (SELECT number FROM commands WHERE changed <= ?"
            " AND state NOT IN ('queued', 'delivered') LIMIT ?)",
            (now - KEPT_MS, _PART),
        )
        return found.rowcount == _PART
