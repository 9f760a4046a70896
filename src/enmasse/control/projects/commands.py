"""Deliver commands to devices: those that wait, as their devices listen, and those that are to be answered at once.

Rules:
1. A command goes over the tenant's own address ``command/T``, as any application's does; the node's outcome says
   whether the device has it. What is released waits on.
2. The commands of one device are delivered one after the other, in the order in which they were stored.
3. Changes of states are told as events on ``event/T``; they are asked for again after a restart.
4. Applications get an event of each device that was registered as it came, too. It is sent until it is accepted, or
   this process ends.
5. Each tenant has tasks of its own (``tenant_tasks``): one whose addresses or devices take nothing holds up no other.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import OrderedDict
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from enmasse.client import Message, Outcome
from enmasse.control.projects.tenant_tasks import TenantTasks
from enmasse.errors import EnmasseError
from enmasse.iot.command_store import document_of, payload_in, shown_payload
from enmasse.iot.commands import ACCEPTED, DELIVERED, QUEUED, REJECTED, Command, CommandRequest
from enmasse.iot.documents import RegistryError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from enmasse.client import Connection, Sender
    from enmasse.iot.command_store import CommandStore
    from enmasse.iot.lookups import Lookups

_log = logging.getLogger(__name__)

WORKERS: Final = 8
"""Devices of one tenant that are delivered to at a time."""

LOOK_S: Final = 1.0
"""Expiry is looked for so often."""

OUTCOME_S: Final = 30.0
ANSWER_S: Final = 30.0
MAX_ANSWER_S: Final = 120.0
FORGET_S: Final = 3_600.0
MAX_EVENTS: Final = 10
SAVE_S: Final = 10.0
"""So often it is kept when devices were last seen."""
MAX_SEEN: Final = 100_000
"""Devices of which it is known when they were seen, since the start."""

USED_UP: Final = "amqp:resource-limit-exceeded"
"""The condition with which a node refuses a command while the tenant's data volume is used up: it waits on."""

STATE_TYPE: Final = "application/vnd.enmasse-command-state+json"
PROVISIONED_TYPE: Final = "application/vnd.eclipse-hono-device-provisioning-notification"
MAX_NOTIFICATIONS: Final = 10_000
"""The most devices whose notifications wait to be sent; of more, the tenant that has the most loses its newest."""

_REPLIES: Final = "enmasse"
"""The name below ``command_response/T`` at which responses to these commands arrive."""

Document = dict[str, Any]


class Seen:
    """The time at which a device was seen, and the number of its connections.

    Attributes:
        at_ms: the time in milliseconds since 1970 UTC.
        is_connected: whether it was connected and not disconnected since.
        events: the time at which it was connected and disconnected, the latest last.
    """

    __slots__ = ("at_ms", "events", "is_connected")

    def __init__(self) -> None:
        self.at_ms = 0
        self.is_connected = False
        self.events: tuple[tuple[str, int], ...] = ()


class _Tenant:
    """The links of one tenant: they come with the first command, and go with their connection."""

    def __init__(self, commands: Sender, events: Sender) -> None:
        self.commands = commands
        self.events = events


class CommandDispatcher:
    """Delivers the commands of all tenants.

    Args:
        store: the store of the commands.
        lookups: the lookups of devices.
        space_of: returns the space of a tenant; None: it has no project.
        visit: connects to a space at its node, as an administrator whom its limits do not concern.
    """

    def __init__(
        self,
        store: CommandStore,
        lookups: Lookups,
        space_of: Callable[[str], str | None],
        visit: Callable[[str], AbstractAsyncContextManager[Connection]],
    ) -> None:
        self.store = store
        self._lookups = lookups
        self._space_of = space_of
        self._visit = visit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deliveries: TenantTasks[str] = TenantTasks("commands", self._visit_device, WORKERS)
        self._active: set[tuple[str, str]] = set()
        self._tenants: dict[str, _Tenant] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._visits: set[asyncio.Task[None]] = set()
        self._asked: dict[str, asyncio.Future[Document]] = {}
        self._told = asyncio.Event()
        self._states: TenantTasks[None] = TenantTasks("states of commands", self._tell_states)
        self._provisioned: TenantTasks[tuple[str, str]] = TenantTasks("new devices", self._notify)
        self.notified: Callable[[str, str], object] = lambda _tenant, _device: None
        """Called, in a thread, with the tenant and device of a notification that was accepted."""
        self._next_at: dict[str, float] = {}
        self._seen: OrderedDict[tuple[str, str], Seen] = OrderedDict()
        self._unsaved: dict[tuple[str, str], int] = {}

    # What is told of devices

    def note(self, notes: list[list[Any]]) -> None:
        """Take note of what devices do: those that listen may have commands that wait."""
        for what, tenant, device, at_ms in notes:
            key = (tenant, device)
            seen = self._seen.pop(key, None) or Seen()
            if len(self._seen) >= MAX_SEEN:
                self._seen.popitem(last=False)
            self._seen[key] = seen
            seen.at_ms = int(at_ms)
            if len(self._unsaved) < MAX_SEEN:
                self._unsaved[key] = seen.at_ms
            if what in ("connected", "disconnected"):
                seen.is_connected = what == "connected"
                seen.events = (*seen.events[1 - MAX_EVENTS :], (what, seen.at_ms))
            elif what == "present":
                seen.is_connected = True
            elif what == "listening":
                self.wake(tenant, device)
                self._background(self._wake_devices_of(tenant, device))

    def seen(self, tenant: str, device: str, since_ms: int) -> Seen | None:
        """Return when a device was seen; None: not since the start of this process, or since it was registered.

        Args:
            tenant: the tenant of the device.
            device: its id, which a former one may have had.
            since_ms: the time at which it was registered.
        """
        found = self._seen.get((tenant, device))
        if found is None or found.at_ms < since_ms:
            return None
        seen = Seen()
        seen.at_ms, seen.is_connected = found.at_ms, found.is_connected
        seen.events = tuple(event for event in found.events if event[1] >= since_ms)
        return seen

    def _save_seen(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        if unsaved:
            self.store.note_seen([(*key, at_ms) for key, at_ms in unsaved.items()])

    async def _wake_devices_of(self, tenant: str, gateway: str) -> None:
        for device in await asyncio.to_thread(lambda: list(self._lookups.devices_of_gateway(tenant, gateway))):
            self.wake(tenant, device)

    def wake(self, tenant: str, device: str) -> None:
        """Try to deliver what waits for a device."""
        self._deliveries.add(tenant, device)

    def changed(self) -> None:
        """Have changes of states told."""
        self._told.set()

    def store_message(self, question: Document) -> Document:
        """Store a command that came as a message, and return its id; blocks, and may be called from any thread."""
        identity = self.store.queue_message(question)
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.wake, str(question["tenant"]), str(question["device-id"]))
        return {"id": identity}

    def provisioned(self, tenant: str, device: str, gateway: str) -> None:
        """Have applications notified of a device that was registered as it came; may be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._to_notify, tenant, device, gateway)

    def _to_notify(self, tenant: str, device: str, gateway: str) -> None:
        self._provisioned.add(tenant, (device, gateway))
        if len(self._provisioned) > MAX_NOTIFICATIONS:
            loser, (lost, _) = self._provisioned.give_up()
            _log.warning("no notification of device %s of %s: %d wait already", lost, loser, MAX_NOTIFICATIONS)

    # Running

    async def run(self) -> None:
        """Deliver until cancelled."""
        self._loop = asyncio.get_running_loop()
        for tenant, device in await asyncio.to_thread(self.store.devices_that_wait):
            self.wake(tenant, device)
        self._told.set()
        try:
            async with asyncio.TaskGroup() as tasks:
                for each in (self._deliveries, self._states, self._provisioned):
                    tasks.create_task(each.run())
                tasks.create_task(self._look(), name="commands that are over")
                tasks.create_task(self._tell(), name="states of commands")
        finally:
            for task in self._visits:
                task.cancel()
            with suppress(EnmasseError):
                self._save_seen()

    def _background(self, work: Any) -> None:
        task = asyncio.create_task(_guarded(work), name="commands of a gateway's devices")
        self._visits.add(task)
        task.add_done_callback(self._visits.discard)

    async def _visit_device(self, tenant: str, device: str) -> None:
        key = (tenant, device)
        if key in self._active:
            # Its commands are being delivered; what has come since is found by who does that, or after it.
            await asyncio.sleep(LOOK_S / 10)
            self.wake(*key)
            return
        self._active.add(key)
        try:
            await self._deliver_all(*key)
        except EnmasseError as error:
            _log.info("commands of device %s of %s wait: %s", device, tenant, error)
            asyncio.get_running_loop().call_later(2 * LOOK_S, self.wake, *key)
        finally:
            self._active.discard(key)

    async def _look(self) -> None:
        forgotten = saved = 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                for tenant, device in await asyncio.to_thread(self.store.end_what_is_over):
                    self.wake(tenant, device)
                if time.monotonic() - saved > SAVE_S:
                    saved = time.monotonic()
                    await asyncio.to_thread(self._save_seen)
                if time.monotonic() - forgotten > FORGET_S:
                    forgotten = time.monotonic()
                    await asyncio.to_thread(self.store.forget_old)
            except EnmasseError as error:
                _log.warning("commands: %s", error)
            self._told.set()

    # Delivering

    async def _deliver_all(self, tenant: str, device: str) -> None:
        while (command := await asyncio.to_thread(self.store.next_of, tenant, device)) is not None:
            if not await self._keep_pace(command) or not await self._deliver(command):
                return
            self._told.set()

    async def _keep_pace(self, command: Command) -> bool:
        """Wait until a group may have one more; return false if it is tried again later."""
        pace = command.document.get("pace") or {}
        if command.batch is None or not pace:
            return True
        if "at-once" in pace and await asyncio.to_thread(self.store.in_batch, command.batch) >= pace["at-once"]:
            asyncio.get_running_loop().call_later(LOOK_S, self.wake, command.tenant, command.device)
            return False
        if "per-second" in pace:
            now = time.monotonic()
            at = max(now, self._next_at.get(command.batch, now))
            if at - now > LOOK_S:
                asyncio.get_running_loop().call_later(at - now, self.wake, command.tenant, command.device)
                return False
            self._next_at[command.batch] = at + 1 / pace["per-second"]
            await asyncio.sleep(at - now)
        return True

    async def _deliver(self, command: Command) -> bool:
        """Deliver a command; return true if the next one may follow."""
        document = command.document
        left_ms = command.expires - int(time.time() * 1000)
        if left_ms <= 0:
            return True  # it expires, and is not looked at again
        awaits = bool(document.get("response-required"))
        change = self.store.change
        outcome = await self._send(
            command.tenant,
            command.device,
            document,
            ttl_s=left_ms / 1000,
            reply_to=document.get("reply-to") or (self._reply_to(command.tenant) if awaits else None),
            correlation_id=document.get("correlation-id") or (command.id if awaits else None),
            identity=command.id,
        )
        if outcome.name in (Outcome.ACCEPTED.name, Outcome.SETTLED.name):
            state = DELIVERED if awaits else ACCEPTED
            await asyncio.to_thread(change, command.tenant, command.id, state, since=(QUEUED,), attempt=1)
            return True
        if outcome == Outcome.REJECTED and outcome.condition != USED_UP:
            reason = outcome.description or outcome.condition or "it was rejected"
            await asyncio.to_thread(change, command.tenant, command.id, REJECTED, since=(QUEUED,), reason=reason)
            return True
        return False

    async def _send(
        self,
        tenant: str,
        device: str,
        document: Document,
        *,
        ttl_s: float,
        reply_to: str | None,
        correlation_id: Any,
        identity: str,
    ) -> Outcome:
        links = await self._links(tenant)
        message = Message(
            payload_in(document),
            to=f"command/{tenant}/{device}",
            subject=document["name"],
            content_type=document.get("content-type"),
            reply_to=reply_to,
            correlation_id=correlation_id,
            ttl=ttl_s,
            properties={"command-id": identity},
        )
        return await links.commands.send(message, timeout=OUTCOME_S)

    @staticmethod
    def _reply_to(tenant: str) -> str:
        return f"command_response/{tenant}/{_REPLIES}"

    # Asking

    async def ask(self, tenant: str, device: str, request: CommandRequest, wait_s: float) -> Document:
        """Send a device a command that does not wait, and return its response; without one, its outcome.

        Raises:
            RegistryError: 503 when the device does not listen, 504 when it does not answer, 400 when it is refused,
                429 when its tenant's data volume is used up.
        """
        identity = secrets.token_hex(16)
        awaits = bool(request.response_required) or wait_s > 0
        answer: asyncio.Future[Document] = asyncio.get_running_loop().create_future()
        if awaits:
            self._asked[identity] = answer
        try:
            async with asyncio.timeout(wait_s or ANSWER_S):
                outcome = await self._send(
                    tenant,
                    device,
                    document_of(request),
                    ttl_s=float(request.ttl or ANSWER_S),
                    reply_to=self._reply_to(tenant) if awaits else None,
                    correlation_id=identity if awaits else None,
                    identity=identity,
                )
                if outcome == Outcome.REJECTED and outcome.condition == USED_UP:
                    raise RegistryError(429, outcome.description or "the devices have used up their data volume")
                if outcome == Outcome.REJECTED:
                    raise RegistryError(400, outcome.description or "the command was rejected")
                if outcome != Outcome.ACCEPTED:
                    raise RegistryError(503, f"device '{device}' does not listen for commands now: have it stored")
                return await answer if awaits else {"state": ACCEPTED}
        except TimeoutError:
            raise RegistryError(504, f"device '{device}' has not answered within {wait_s or ANSWER_S:g} s") from None
        finally:
            self._asked.pop(identity, None)

    # The links of a tenant

    async def _links(self, tenant: str) -> _Tenant:
        async with self._opening.setdefault(tenant, asyncio.Lock()):
            found = self._tenants.get(tenant)
            if found is not None:
                return found
            space = self._space_of(tenant)
            if space is None:
                raise RegistryError(409, f"tenant '{tenant}' has no IoTProject, and so no addresses")
            opened: asyncio.Future[_Tenant] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._stay(tenant, space, opened), name=f"commands of {tenant}")
            self._visits.add(task)
            task.add_done_callback(self._visits.discard)
            return await opened

    async def _stay(self, tenant: str, space: str, opened: asyncio.Future[_Tenant]) -> None:
        """Keep the links of a tenant, and take the responses of its devices, until the connection is lost."""
        try:
            async with self._opened(tenant, space) as (links, responses):
                self._tenants[tenant] = links
                opened.set_result(links)
                while (delivery := await responses.receive()) is not None:
                    await self._take(tenant, delivery.message)
                    await delivery.accept()
        except EnmasseError as error:
            if not opened.done():
                opened.set_exception(RegistryError(503, f"the tenant's addresses cannot be reached: {error}"))
            else:
                _log.info("commands of %s: %s", tenant, error)
        finally:
            self._tenants.pop(tenant, None)
            if not opened.done():
                opened.cancel()

    @asynccontextmanager
    async def _opened(self, tenant: str, space: str) -> AsyncIterator[tuple[_Tenant, Any]]:
        async with (
            self._visit(space) as connection,
            connection.sender(f"command/{tenant}") as commands,
            connection.sender(f"event/{tenant}") as events,
            connection.receiver(self._reply_to(tenant), credit=100) as responses,
        ):
            yield _Tenant(commands, events), responses

    async def _take(self, tenant: str, message: Any) -> None:
        """Take a device's response."""
        identity = str(message.correlation_id)
        status = int(message.properties.get("status", 0))
        body = message.body if isinstance(message.body, bytes) else str(message.body or "").encode()
        asked = self._asked.get(identity)
        if asked is not None:
            if not asked.done():
                found: Document = {"status": status} | shown_payload(body)
                asked.set_result(found | ({"content-type": message.content_type} if message.content_type else {}))
            return
        await asyncio.to_thread(self.store.answered, tenant, identity, status, message.content_type or "", body)
        self._told.set()

    # Events

    async def _tell(self) -> None:
        """Have changes of states told, each once it is on disk."""
        while True:
            await self._told.wait()
            self._told.clear()
            try:
                for tenant in await asyncio.to_thread(self.store.tenants_untold):
                    self._states.add(tenant, None)
            except EnmasseError as error:
                _log.info("states of commands are told later: %s", error)

    async def _tell_states(self, tenant: str, _: None) -> None:
        """Tell the states of a tenant's commands, as far as its applications take them; the rest is tried again."""
        try:
            while commands := await asyncio.to_thread(self.store.untold, tenant):
                told = await self._told_of(tenant, commands)
                await asyncio.to_thread(self.store.tell, commands[:told])
                if told < len(commands):
                    await asyncio.sleep(2 * LOOK_S)
        except EnmasseError as error:
            _log.info("states of commands of %s are told later: %s", tenant, error)

    async def _told_of(self, tenant: str, commands: list[Command]) -> int:
        """Return of how many commands, from the first on, applications have been told, or there are none."""
        for told, command in enumerate(commands):
            if self._space_of(tenant) is not None and not await self._tell_applications(tenant, _event_of(command)):
                return told
        return len(commands)

    async def _notify(self, tenant: str, provisioned: tuple[str, str]) -> None:
        """Tell of a device that was registered as it came, until that is accepted."""
        device, gateway = provisioned
        while self._space_of(tenant) is not None:
            if await self._tell_applications(tenant, _notification_of(tenant, device, gateway)):
                with suppress(EnmasseError):  # it may be gone again
                    await asyncio.to_thread(self.notified, tenant, device)
                return
            await asyncio.sleep(2 * LOOK_S)

    async def _tell_applications(self, tenant: str, event: Message) -> bool:
        """Send an event to the applications of a tenant; return true if it was taken for them."""
        try:
            links = await self._links(tenant)
            outcome = await links.events.send(event, timeout=OUTCOME_S)
        except EnmasseError as error:
            _log.info("applications of %s are told later: %s", tenant, error)
            return False
        return outcome == Outcome.ACCEPTED


def _event_of(command: Command) -> Message:
    """Return the event that tells the state of a command."""
    document = command.document
    body = {"id": command.id, "device": command.device, "name": document["name"], "state": command.state}
    body |= {name: document[name] for name in ("reason", "response") if name in document}
    if command.batch is not None:
        body["batch"] = command.batch
    return Message(
        json.dumps(body).encode(),
        content_type=STATE_TYPE,
        durable=True,
        creation_time=command.changed / 1000,
        properties={"device_id": command.device, "tenant_id": command.tenant},
    )


def _notification_of(tenant: str, device: str, gateway: str) -> Message:
    """Return the event that tells of a device which was registered as it came, or as its gateway sent for it."""
    told = {
        "tenant_id": tenant,
        "device_id": device,
        "orig_adapter": "hono-device-registry",
        "orig_address": "event",
        "hono_registration_status": "NEW",
    }
    return Message(
        b"",
        content_type=PROVISIONED_TYPE,
        durable=True,
        creation_time=time.time(),
        properties=told | ({"gateway_id": gateway} if gateway else {}),
    )


async def _guarded(work: Any) -> None:
    try:
        await work
    except EnmasseError as error:
        _log.info("commands: %s", error)
