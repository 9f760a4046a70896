"""Commands of devices, stored and looked at: what the API and the dispatcher of commands do with the table."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

from enmasse.iot.commands import (
    EXPIRED,
    FAILED,
    MAX_ANSWER,
    MAX_AT_ONCE,
    MAX_PAYLOAD,
    QUEUED,
    STATES,
    TTL_S,
    WAITING,
    Command,
    CommandRequest,
    payload_of,
)
from enmasse.iot.documents import DEVICE_ID, RegistryError, checked_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enmasse.iot.documents import Document, NewId
    from enmasse.iot.store import DeviceStore

PAGE: Final = 30
MAX_IN_PAGE: Final = 200


class CommandStore:
    """The commands of one installation; its methods block, and may be called from any thread.

    Args:
        store: the registry's file.
        new_id: makes ids.
        now_ms: returns the time in milliseconds since 1970 UTC.
    """

    def __init__(self, store: DeviceStore, *, new_id: NewId, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._new_id = new_id
        self._now_ms = now_ms

    # What clients ask for

    def queue(self, tenant: str, device: str, request: CommandRequest) -> str:
        """Store a command to a device, and return its id.

        Raises:
            RegistryError: 404 without the device; 429 when too many wait.
        """
        identity = self._new_id()
        now = self._now_ms()
        with self._store.writing() as tables:
            owner = tables.tenant(tenant)
            if owner is None or tables.device(owner.number, device) is None:
                raise RegistryError(404, f"there is no device '{device:.255}'")
            tables.commands.add(
                tenant,
                [(identity, device)],
                document_of(request),
                now=now,
                expires=now + (request.ttl or TTL_S) * 1000,
                key=request.supersede_key,
            )
        return identity

    def queue_many(self, tenant: str, request: CommandRequest) -> tuple[str, list[str]]:
        """Store a command to several devices, and return the id of all together, and the devices.

        Raises:
            RegistryError: 404 without the tenant, a device or any in the group; 413 with too many devices; 429.
        """
        batch, now = self._new_id(), self._now_ms()
        with self._store.writing() as tables:
            owner = tables.tenant(tenant)
            if owner is None:
                raise RegistryError(404, f"there is no tenant '{tenant:.255}'")
            if request.group is not None:
                devices = tables.devices_in_group(owner.number, request.group, MAX_AT_ONCE)
                if not devices:
                    raise RegistryError(404, f"no device names '{request.group}' in ext.groups")
                if len(devices) > MAX_AT_ONCE:
                    raise RegistryError(413, f"the group has more than {MAX_AT_ONCE} devices: name some of them")
            else:
                devices = list(dict.fromkeys(request.devices or ()))
                known: set[str] = set()
                for at in range(0, len(devices), 500):
                    known |= set(tables.present(owner.number, devices[at : at + 500]))
                if missing := [device for device in devices if device not in known]:
                    raise RegistryError(404, f"there is no device '{missing[0]:.255}'")
            document = document_of(request)
            if request.pace is not None:
                document["pace"] = request.pace.model_dump(by_alias=True, exclude_none=True)
            tables.commands.add(
                tenant,
                [(self._new_id(), device) for device in devices],
                document,
                now=now,
                expires=now + (request.ttl or TTL_S) * 1000,
                key=request.supersede_key,
                batch=batch,
            )
        return batch, devices

    def queue_message(self, question: Document) -> str:
        """Store a command that an application has sent as a message, and return its id.

        Raises:
            RegistryError: it is no command, or its device unknown.
        """
        tenant, device = str(question.get("tenant")), checked_id(DEVICE_ID, question.get("device-id"), "the device")
        payload = b64decode(str(question.get("payload") or ""))
        if len(payload) > MAX_PAYLOAD:
            raise RegistryError(413, f"the payload has more than {MAX_PAYLOAD} bytes")
        key = question.get("supersede-key")
        if key is not None and (not isinstance(key, str) or not 0 < len(key) <= 255):
            raise RegistryError(400, "supersede-key is a text of up to 255 characters")
        ttl_ms = question.get("ttl-ms")
        identity, now = self._new_id(), self._now_ms()
        document = {
            "name": str(question.get("name")),
            "content-type": str(question.get("content-type") or ""),
            "payload-base64": b64encode(payload).decode(),
            "reply-to": question.get("reply-to"),
            "correlation-id": question.get("correlation-id"),
        }
        with self._store.writing() as tables:
            owner = tables.tenant(tenant)
            if owner is None or tables.device(owner.number, device) is None:
                raise RegistryError(404, f"there is no device '{device}'")
            tables.commands.add(
                tenant,
                [(identity, device)],
                {name: value for name, value in document.items() if value},
                now=now,
                expires=now + (int(ttl_ms) if ttl_ms else TTL_S * 1000),
                key=key,
            )
        return identity

    def command(self, tenant: str, identity: str) -> Document:
        """Return a command as clients see it.

        Raises:
            RegistryError: 404.
        """
        with self._store.reading() as tables:
            found = tables.commands.command(tenant, identity)
        if found is None:
            raise RegistryError(404, f"there is no command '{identity:.255}'")
        return found.shown()

    def search(
        self,
        tenant: str,
        *,
        device: str | None = None,
        state: str | None = None,
        batch: str | None = None,
        size: int = PAGE,
        offset: int = 0,
    ) -> Document:
        """Return how many commands there are, and a page of them; of a batch, how many are in each state, too."""
        if state is not None and state not in STATES:
            raise RegistryError(400, f"state: expected one of {', '.join(STATES)}")
        with self._store.reading() as tables:
            total, found = tables.commands.search(tenant, device, state, batch, size, offset)
            counts = None if batch is None else tables.commands.counts(tenant, batch)
        answer: Document = {"total": total, "result": [command.shown() for command in found]}
        return answer if counts is None else answer | {"states": counts}

    def cancel(self, tenant: str, identity: str, user: str) -> None:
        """Take back a command that waits.

        Raises:
            RegistryError: 404; 409 when it does not wait any more.
        """
        with self._store.writing() as tables:
            found = tables.commands.command(tenant, identity)
            if found is None:
                raise RegistryError(404, f"there is no command '{identity:.255}'")
            if found.state != QUEUED:
                raise RegistryError(409, f"the command is {found.state}, and waits no more")
            tables.commands.change(found, FAILED, self._now_ms(), reason=f"cancelled by {user}")

    # When devices were seen

    def note_seen(self, rows: Sequence[tuple[str, str, int]]) -> None:
        """Keep when devices were last seen: tenant, device, milliseconds since 1970."""
        with self._store.writing() as tables:
            tables.note_seen(rows)

    def last_seen(self, tenant: str, ids: Sequence[str]) -> dict[str, int]:
        """Return when some devices were last seen, of those that were."""
        with self._store.reading() as tables:
            return tables.seen(tenant, ids)

    # What the dispatcher asks for

    def next_of(self, tenant: str, device: str) -> Command | None:
        """Return the first command that waits for a device."""
        with self._store.reading() as tables:
            return tables.commands.next_of(tenant, device, self._now_ms())

    def devices_that_wait(self, tenant: str | None = None) -> list[tuple[str, str]]:
        """Return the devices for which commands wait."""
        with self._store.reading() as tables:
            return tables.commands.devices_that_wait(tenant)

    def in_batch(self, batch: str) -> int:
        """Return how many devices of a batch have it and have not answered."""
        with self._store.reading() as tables:
            return tables.commands.in_batch(batch)

    def change(
        self, tenant: str, identity: str, state: str, *, since: Sequence[str] = WAITING, attempt: int = 0, **more: Any
    ) -> Command | None:
        """Give a command another state, if it is in one of some; return it as it was, or None."""
        with self._store.writing() as tables:
            found = tables.commands.command(tenant, identity)
            if found is None or found.state not in since:
                return None
            tables.commands.change(found, state, self._now_ms(), attempts=found.attempts + attempt, **more)
            return found

    def answered(self, tenant: str, identity: str, status: int, content_type: str, payload: bytes) -> None:
        """Take note of a device's response."""
        response: Document = {"status": status}
        if content_type:
            response["content-type"] = content_type
        if len(payload) <= MAX_ANSWER:
            response |= shown_payload(payload)
        else:
            response["left-out"] = True
        with self._store.writing() as tables:
            found = tables.commands.command(tenant, identity)
            if found is None or found.state not in WAITING:
                return
            now = self._now_ms()
            if status >= 500 and found.attempts < int(found.document.get("attempts", 1)):
                tables.commands.change(found, QUEUED, now, response=response)
            elif status >= 500:
                tables.commands.change(found, FAILED, now, response=response, reason=f"the device said {status}")
            else:
                state = "accepted" if status < 400 else "rejected"
                tables.commands.change(found, state, now, response=response)

    def end_what_is_over(self) -> list[tuple[str, str]]:
        """Expire, try again or fail what is due, and forget what is old; return devices to be tried again."""
        now = self._now_ms()
        again: list[tuple[str, str]] = []
        with self._store.reading() as tables:
            is_idle = not (tables.commands.expired(now) or tables.commands.unanswered(now))
        if not is_idle:
            with self._store.writing() as tables:
                for command in tables.commands.expired(now):
                    tables.commands.change(command, EXPIRED, now, reason="its time was over")
                for command in tables.commands.unanswered(now):
                    if command.attempts < int(command.document.get("attempts", 1)):
                        tables.commands.change(command, QUEUED, now)
                        again.append((command.tenant, command.device))
                    else:
                        tables.commands.change(command, FAILED, now, reason="the device has not answered")
        return again

    def forget_old(self) -> None:
        """Remove what was finished long ago."""
        is_left = True
        while is_left:
            with self._store.writing() as tables:
                is_left = tables.commands.forget(self._now_ms())

    def tenants_untold(self) -> list[str]:
        """Return the tenants of commands whose present state is not told yet."""
        with self._store.reading() as tables:
            return tables.commands.tenants_untold()

    def untold(self, tenant: str) -> list[Command]:
        """Return some of a tenant's commands whose present state is not told yet, in the order of their storing."""
        with self._store.reading() as tables:
            return tables.commands.untold(tenant)

    def tell(self, commands: Sequence[Command]) -> None:
        """Note that the states of commands are told."""
        with self._store.writing() as tables:
            for command in commands:
                tables.commands.tell(command)


def document_of(request: CommandRequest) -> Document:
    """Return what is kept of a command."""
    found: Document = {"name": request.name}
    if request.content_type:
        found["content-type"] = request.content_type
    found |= shown_payload(payload_of(request))
    if request.response_required:
        found["response-required"] = True
    if request.attempts is not None:
        found["attempts"] = request.attempts
    return found


def shown_payload(payload: bytes) -> Document:
    """Return a payload as JSON has it: as text where it is UTF-8, otherwise in base64."""
    if not payload:
        return {}
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload-base64": b64encode(payload).decode()}


def payload_in(document: Document) -> bytes:
    """Return the payload of a command, or of a response, that is kept."""
    if "payload-base64" in document:
        return b64decode(document["payload-base64"])
    return str(document.get("payload", "")).encode()
