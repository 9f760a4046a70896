"""The control process's side of the devices: it tells the nodes of tenants and changes, and answers what they ask.

Rules:
1. A node that becomes reachable is told of every tenant anew, and of changes from then on.
2. A tenant's devices are served in the space of its project; a tenant without a project is not.
3. The registry is asked in threads; as many questions are answered at a time as it has connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from enmasse.control.errors import NodeUnavailableError
from enmasse.control.installation import admit_node
from enmasse.errors import EnmasseError
from enmasse.iot.documents import RegistryError
from enmasse.iot.lookups import provision, provision_certificate
from enmasse.model.kinds.projects import IoTProject
from enmasse.model.schema.kinds import IOT_PROJECT
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from enmasse.control.store.port import Store
    from enmasse.iot.lookups import Lookups
    from enmasse.iot.registry import DeviceRegistry

_log = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Questions that are answered at a time: the registry has as many connections."""

MAX_TOLD: Final = 1_000
"""Devices that one message names: as many as one request of many changes."""

Document = dict[str, Any]


class DeviceAdmin(Protocol):
    """The port to the devices' side of a node."""

    @property
    def name(self) -> str:
        """The node's name."""

    async def installation(self) -> str:
        """Return the id of the installation that its journal belongs to; empty: to none yet."""

    async def since(self) -> str:
        """Return since when it belongs to that, RFC 3339; empty: it belongs to none."""

    async def join(self, installation: str) -> None:
        """Make its journal belong to an installation, unless it belongs to another one."""

    async def take_over(self, former: str, installation: str) -> None:
        """Make its journal belong to an installation instead of another one, which it belongs to now."""

    def connections(self) -> AsyncIterator[bool]:
        """Yield True whenever the node has become reachable, False when it no longer is; for ever."""

    def told(self) -> AsyncIterator[Document]:
        """Yield what the node asks and tells, until the connection ends."""

    async def tell(self, document: Document) -> None:
        """Tell the node something, or answer it.

        Raises:
            NodeUnavailableError: it is not reachable.
        """


class NoteTaker(Protocol):
    """Takes note of what devices do, and of commands that are to be stored."""

    def note(self, notes: list[list[Any]]) -> None:
        """Take note of what has happened: rows of what, tenant, device, and the time in milliseconds."""

    def provisioned(self, tenant: str, device: str, gateway: str) -> None:
        """Have applications told of a device that was registered as it came, or as its gateway sent for it."""

    def store_message(self, question: Document) -> Document:
        """Store a command that came as a message, and return its id; blocks.

        Raises:
            RegistryError: it cannot be stored.
        """


class DeviceLinks:
    """Serves the devices' side of every node.

    Args:
        store: the store of the resources.
        registry: the registry of devices.
        lookups: the answers to the nodes' questions.
        admins: the ports to the nodes.
    """

    def __init__(
        self, store: Store, registry: DeviceRegistry, lookups: Lookups, admins: Iterable[DeviceAdmin]
    ) -> None:
        self.store = store
        self._registry = registry
        self._lookups = lookups
        self._links = [_Link(self, admin) for admin in admins]
        self._loop: asyncio.AbstractEventLoop | None = None
        self.note_taker: NoteTaker | None = None
        self.tenant_changed: Callable[[str], object] = lambda _tenant: None
        """Called with a tenant that the registry has changed, or whose authorities count otherwise than before."""
        registry.changed = self._changed

    async def run(self) -> None:
        """Serve the nodes until cancelled."""
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            for link in self._links:
                tasks.create_task(link.run(), name=f"devices of node {link.admin.name}")

    def projects(self) -> dict[str, str]:
        """Return the space of each tenant that has a project."""
        found = (restore(document) for document in self.store.select(IOT_PROJECT.name))
        return {
            project.tenant: f"{project.space_namespace}/{project.space}"
            for project in found
            if isinstance(project, IoTProject) and not project.metadata.deletion_timestamp
        }

    def space_of(self, tenant: str) -> str | None:
        """Return the space of a tenant; None: it has no project."""
        namespace, _, name = tenant.partition(".")
        document = self.store.find(IOT_PROJECT.name, namespace, name)
        if document is None:
            return None
        project = restore(document)
        assert isinstance(project, IoTProject)
        return f"{project.space_namespace}/{project.space}" if not project.metadata.deletion_timestamp else None

    def _changed(self, tenant: str, device: str) -> None:
        """Take note of a change of the registry, in whatever thread it was made."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._told, tenant, device)

    def _told(self, tenant: str, device: str) -> None:
        self.changed(tenant, device)
        if tenant and not device:
            self.tenant_changed(tenant)

    def changed(self, tenant: str, device: str = "") -> None:
        """Have the nodes told that a device has changed, or with none the tenant and any of its devices."""
        for link in self._links:
            if link.is_serving:
                link.changes.put_nowait((tenant, device))

    async def tenant(self, tenant: str) -> Document | None:
        """Return what nodes are told of a tenant; None: they do not serve it."""
        space = self.space_of(tenant)
        if space is None or (document := await asyncio.to_thread(self._lookups.tenant, tenant)) is None:
            return None
        cost = await asyncio.to_thread(self._lookups.password_cost, tenant)
        return {"id": tenant, "space": space, "document": document, "password-cost": cost}

    def answer(self, question: Document) -> Document:
        """Return the answer to a question; blocks."""
        tenant = str(question.get("tenant"))
        try:
            match question.get("what"):
                case "credentials":
                    found = self._lookups.credentials(tenant, str(question["type"]), str(question["auth-id"]))
                    return {"found": found, "password-cost": self._lookups.password_cost(tenant)}
                case "device":
                    device = self._lookups.device(tenant, str(question["device-id"]))
                    found = None if device is None else {"device": device}
                case "provision" if "auth-id" in question:
                    device_id, auth_id = str(question["device-id"]), str(question["auth-id"])
                    is_gateway = question.get("is-gateway") is True
                    identity, made = provision_certificate(
                        self._registry, tenant, device_id, auth_id, is_gateway=is_gateway
                    )
                    self._notify(tenant, identity, "")
                    found = {"device": made}
                case "provision":
                    device_id, gateway = str(question["device-id"]), str(question["gateway"])
                    made = provision(self._registry, tenant, device_id, gateway)
                    self._notify(tenant, device_id, gateway)
                    found = {"device": made}
                case "review":
                    return {"found": self._lookups.review(tenant, question["of"])}
                case "usage":
                    return {"found": self._lookups.note_usage(str(question["source"]), question["rows"])}
                case "store" if self.note_taker is not None:
                    found = self.note_taker.store_message(question)
                case what:
                    return {"error": f"this version cannot be asked for {what!r}"}
        except RegistryError as error:
            _log.info("devices: asked for %s of tenant %s: %s", question.get("what"), tenant, error)
            return {"error": str(error)}
        return {"found": found}

    def _notify(self, tenant: str, device: str, gateway: str) -> None:
        if self.note_taker is not None:
            self.note_taker.provisioned(tenant, device, gateway)


class _Link:
    """The link to one node, which is told of changes and asks."""

    def __init__(self, links: DeviceLinks, admin: DeviceAdmin) -> None:
        self.admin = admin
        self.changes: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.is_serving = False
        """True while the node is told of changes; it looks at everything again as this begins."""
        self._links = links
        self._room = asyncio.Semaphore(AT_ONCE)
        self._answering: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        serving: asyncio.Task[None] | None = None
        try:
            async for is_reachable in self.admin.connections():
                if serving is not None:
                    serving.cancel()
                    await asyncio.gather(serving, return_exceptions=True)
                    serving = None
                if is_reachable:
                    serving = asyncio.create_task(self._serve())
        finally:
            for task in (serving, *self._answering):
                if task is not None:
                    task.cancel()

    async def _serve(self) -> None:
        # From now on, and not once the tenants were told: the node may ask before, and be answered what was before.
        self.changes = asyncio.Queue()
        self.is_serving = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tell())
                tasks.create_task(self._listen())
        except* EnmasseError as errors:
            _log.info("devices: node %s is not served: %s", self.admin.name, errors.exceptions[0])
        finally:
            self.is_serving = False

    async def _tell(self) -> None:
        # A node of another installation is told nothing: what is told are secrets.
        await admit_node(self._links.store, self.admin)
        tenants = list(self._links.projects())
        for tenant in tenants:
            await self._tell_tenant(tenant)
        await self.admin.tell({"only": tenants})
        while True:
            for tenant, devices in (await self._changed()).items():
                if not tenant:
                    await self.admin.tell({"only": list(self._links.projects())})
                    continue
                if "" in devices:
                    await self._tell_tenant(tenant)
                # The tenant may be what it was, and any of its devices another.
                await self.admin.tell({"changed": [tenant, *([""] if "" in devices else devices)]})

    async def _changed(self) -> dict[str, dict[str, None]]:
        """Return the devices that have changed since this was last asked, by their tenants, once there are some."""
        found: dict[str, dict[str, None]] = {}
        tenant, device = await self.changes.get()
        while True:
            found.setdefault(tenant, {})[device] = None
            if self.changes.empty() or len(found[tenant]) >= MAX_TOLD:
                return found
            tenant, device = self.changes.get_nowait()

    async def _tell_tenant(self, tenant: str) -> None:
        found = await self._links.tenant(tenant)
        await self.admin.tell({"gone": tenant} if found is None else {"tenant": found})

    async def _listen(self) -> None:
        async for document in self.admin.told():
            if "notes" in document:
                if self._links.note_taker is not None:
                    self._links.note_taker.note(document["notes"])
                continue
            await self._room.acquire()
            task = asyncio.create_task(self._answer(document), name="answers a node's question")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, document: Document) -> None:
        try:
            answer = await asyncio.to_thread(self._links.answer, document)
            await self.admin.tell({"answer": document["ask"], **answer})
        except NodeUnavailableError:
            pass  # it asks again when it is back
        except EnmasseError as error:
            _log.warning("devices: a question of node %s was not answered: %s", self.admin.name, error)
        finally:
            self._room.release()
