"""Reconcile projects of the IoT layer: make their spaces and addresses, and their tenants in the device registry.

Rules:
1. Addresses go with their project, by the reference to their owner. A space that was made for a project stays.
2. A project has a finalizer until its tenant is deleted, with all devices.
3. The project's configuration is the tenant's; without one, the tenant is what the registry's own API makes of it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from enmasse.control.projects.planning import (
    addresses_of_project,
    judge_logins,
    name_conditions,
    pipelines_of_project,
    project_conditions,
    space_of_project,
)
from enmasse.control.runtime.controller import Controller
from enmasse.control.runtime.verdicts import Verdict
from enmasse.errors import ConfigError, EnmasseError
from enmasse.identity.rbac import CONTROL_PROCESS
from enmasse.iot.documents import RegistryError
from enmasse.model.kinds.projects import IoTProject
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.conditions import with_effect
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, IOT_PROJECT, PIPELINE
from enmasse.model.schema.objects import decode, restore

if TYPE_CHECKING:
    from enmasse.control.context import Context
    from enmasse.control.projects.device_links import DeviceLinks
    from enmasse.control.store.port import Change, Document, Store
    from enmasse.control.store.registry import Registry
    from enmasse.iot.registry import DeviceRegistry

_log = logging.getLogger(__name__)

TENANT: Final = "iot.enmasse.io/tenant"
"""The finalizer of a project."""


_FACT: Final = "projects-login"
"""Set once what an older version stored was looked through."""


def keep_open(registry: Registry) -> None:
    """Let projects of an older version, in spaces that are open to everybody, stay as open as they were; once."""
    store = registry.store
    if store.fact(_FACT):
        return
    with store.transaction():
        for document in store.select(IOT_PROJECT.name):
            project = restore(document)
            assert isinstance(project, IoTProject)
            space = space_of(store, project)
            if space is not None and space.spec.authentication_service.is_none:
                spec = project.spec.model_copy(update={"anonymous": True})
                registry.replace(project.model_copy(update={"spec": spec}), user=CONTROL_PROCESS)
        store.write_fact(_FACT, 1)


def space_of(store: Store, project: IoTProject) -> AddressSpace | None:
    """Return the space that a project uses; None: it does not exist."""
    document = store.find(ADDRESS_SPACE.name, project.space_namespace, project.space)
    if document is None:
        return None
    space = restore(document)
    assert isinstance(space, AddressSpace)
    return space


class ProjectController(Controller):
    """Reconciles projects. A key is namespace and name.

    Args:
        context: the context of the controllers.
        devices: the device registry.
        links: tell the nodes of tenants; None: there are no nodes to tell.
    """

    name = "projects"
    workers = 4

    def __init__(self, context: Context, devices: DeviceRegistry, links: DeviceLinks | None = None) -> None:
        super().__init__(jitter=context.jitter, observe=context.observe)
        self._context = context
        self._registry = context.registry
        self._store = context.store
        self._devices = devices
        self._links = links
        if links is not None:
            links.tenant_changed = self._tenant_changed

    def load(self, store: Store) -> None:
        """Enqueue all projects."""
        for document in store.select(IOT_PROJECT.name):
            self._enqueue(document)

    def apply(self, change: Change) -> None:
        """Enqueue the projects that a change concerns."""
        document, metadata = change.document, change.document["metadata"]
        if document["kind"] == IOT_PROJECT.name:
            self._enqueue(document)
        elif document["kind"] in (ADDRESS.name, PIPELINE.name):
            for owner in metadata.get("ownerReferences") or ():
                if owner["kind"] == IOT_PROJECT.name:
                    self.enqueue(f"{metadata['namespace']}/{owner['name']}")
        elif document["kind"] == ADDRESS_SPACE.name:
            for project in self._store.select(IOT_PROJECT.name, metadata["namespace"]):
                self._enqueue(project)

    def _enqueue(self, document: Document) -> None:
        self.enqueue(f"{document['metadata']['namespace']}/{document['metadata']['name']}")

    def _tenant_changed(self, tenant: str) -> None:
        namespace, _, name = tenant.partition(".")
        if self._store.find(IOT_PROJECT.name, namespace, name) is not None:
            self.enqueue(f"{namespace}/{name}")

    async def reconcile(self, key: str) -> bool:
        """Make the tenant and the addresses of a project."""
        namespace, _, name = key.partition("/")
        document = self._store.find(IOT_PROJECT.name, namespace, name)
        if document is None:
            return True
        project = restore(document)
        assert isinstance(project, IoTProject)
        if project.metadata.deletion_timestamp:
            await asyncio.to_thread(self._devices.forget_tenant, project.tenant)
            self._change_finalizer(project, remove=TENANT)
            return True
        if TENANT not in project.metadata.finalizers:
            self._change_finalizer(project, add=TENANT)
            return True  # the change enqueues it again
        created = self._create(project)
        ready = self._readiness(project) if created.is_yes else Verdict("Waiting", created.message)
        accepted = await asyncio.to_thread(self._put_tenant, project)
        if self._links is not None:
            # With the first reconciliation the tenant has a space; the registry does not know of that.
            self._links.changed(project.tenant)
        generation = project.metadata.generation
        guarded = judge_logins(project, space_of(self._store, project))
        names = name_conditions(*await asyncio.to_thread(self._names, project.tenant), generation)
        conditions = [*project_conditions(created, ready, accepted, guarded, generation), *names]
        found = with_effect(conditions, self._context.effects.of(project), generation)
        status = project.status.model_copy(update={"tenant": project.tenant})
        status = status.with_conditions(found, self._context.now())
        self._context.statuses.publish(project, status, partial(self.enqueue, key))
        return True

    def _change_finalizer(self, project: IoTProject, *, add: str = "", remove: str = "") -> None:
        metadata = project.metadata
        self._registry.change_finalizers(
            project.kind, metadata.namespace, metadata.name, uid=metadata.uid, add=add, remove=remove
        )

    def _create(self, project: IoTProject) -> Verdict:
        """Create what the project needs, and return whether all of it is there."""
        namespace = project.metadata.namespace
        try:
            space = self._store.find(ADDRESS_SPACE.name, project.space_namespace, project.space)
            if space is None:
                wanted = space_of_project(project)
                if wanted is None:
                    return Verdict("SpaceMissing", f"address space '{project.space}' does not exist")
                self._registry.create(decode(wanted), user=CONTROL_PROCESS)
            for address in addresses_of_project(project):
                found = self._store.find(ADDRESS.name, namespace, address["metadata"]["name"])
                if found is None:
                    self._registry.create(decode(address), user=CONTROL_PROCESS)
                elif found["metadata"].get("ownerReferences") != address["metadata"]["ownerReferences"]:
                    name = address["metadata"]["name"]
                    return Verdict("AddressTaken", f"there is another address object '{name}': delete or rename it")
                elif found["spec"]["type"] != address["spec"]["type"] and not found["metadata"].get(
                    "deletionTimestamp"
                ):
                    # Of an earlier version; it stores nothing.
                    self._registry.delete(ADDRESS.name, namespace, found["metadata"]["name"], user=CONTROL_PROCESS)
                    return Verdict("AddressReplaced", f"address '{address['spec']['address']}' is made anew")
                elif any(found["spec"].get(field) != value for field, value in address["spec"].items()):
                    self._registry.replace(decode(address), user=CONTROL_PROCESS)
            return self._create_pipelines(project)
        except ConfigError as error:  # a quota, a rule, a namespace that goes
            return Verdict("Refused", str(error))

    def _create_pipelines(self, project: IoTProject) -> Verdict:
        """Create and change the pipelines of a project, and delete those that it asks for no more."""
        namespace, wanted = project.metadata.namespace, pipelines_of_project(project)
        for pipeline in wanted:
            metadata = pipeline["metadata"]
            found = self._store.find(PIPELINE.name, namespace, metadata["name"])
            if found is None:
                self._registry.create(decode(pipeline), user=CONTROL_PROCESS)
            elif found["metadata"].get("ownerReferences") != metadata["ownerReferences"]:
                name = metadata["name"]
                return Verdict("PipelineTaken", f"there is another pipeline '{name}': delete or rename it")
            elif any(found["spec"].get(field) != value for field, value in pipeline["spec"].items()):
                self._registry.replace(decode(pipeline), user=CONTROL_PROCESS)
        names = {pipeline["metadata"]["name"] for pipeline in wanted}
        for found in self._store.select(PIPELINE.name, namespace):
            metadata = found["metadata"]
            owners = [owner["uid"] for owner in metadata.get("ownerReferences") or ()]
            if (
                project.metadata.uid in owners
                and metadata["name"] not in names
                and not metadata.get("deletionTimestamp")
            ):
                self._registry.delete(PIPELINE.name, namespace, metadata["name"], user=CONTROL_PROCESS)
        return Verdict("Created")

    def _readiness(self, project: IoTProject) -> Verdict:
        for address in addresses_of_project(project):
            name = address["metadata"]["name"]
            found = self._store.find(ADDRESS.name, project.metadata.namespace, name)
            status = (found or {}).get("status") or {}
            if not status.get("isReady"):
                why = "; ".join(status.get("messages") or ("it is being configured",))
                return Verdict("AddressNotReady", f"address '{address['spec']['address']}' waits: {why}")
        return Verdict("Ready")

    def _names(self, tenant: str) -> tuple[str, list[str], str]:
        """Return a tenant, what keeps its authorities from counting everywhere, and an alias that does not count."""
        try:
            found = self._devices.authorities(tenant)
            problems = [f"{one['subject-dn']} {one['problem']}" for one in found if "problem" in one]
            return tenant, problems, self._devices.waits_for_alias(tenant)
        except EnmasseError as error:  # it could not be made, or the registry cannot be asked now
            _log.info("project of tenant %s: %s", tenant, error)
            return tenant, [], ""

    def _put_tenant(self, project: IoTProject) -> Verdict:
        configuration = project.spec.configuration
        try:
            self._devices.put_tenant(project.tenant, None if configuration is None else configuration.to_tenant())
        except RegistryError as error:
            return Verdict("TenantRefused", str(error))
        return Verdict("Accepted")
