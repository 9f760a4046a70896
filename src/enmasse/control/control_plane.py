"""The control plane: all controllers of one installation, made, run and stopped together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from enmasse.control.access.rights import (
    BindingAdmission,
    Rights,
    SecretAdmission,
    WriterAdmission,
    store_built_in_roles,
)
from enmasse.control.addresses.controller import AddressController
from enmasse.control.addresses.plans import PlanController, QuotaController, SchemaController
from enmasse.control.addresses.preview import Preview
from enmasse.control.endpoints.admission import EndpointKeys, HostAdmission
from enmasse.control.endpoints.controller import EndpointController, EndpointSettings
from enmasse.control.nodes.controller import NodeAdmission, NodeController
from enmasse.control.nodes.homes import make_nodes
from enmasse.control.projects.controller import ProjectController, keep_open
from enmasse.control.runtime.collector import Collector
from enmasse.control.runtime.controller import Runtime
from enmasse.control.spaces.admission import SpaceAdmission
from enmasse.control.spaces.controller import SpaceController
from enmasse.control.spaces.schemas import SpaceSchemasController
from enmasse.control.users.controller import UserController
from enmasse.control.users.passwords import RealmPasswords, UserPasswords
from enmasse.control.users.realm_controller import RealmController
from enmasse.control.webhooks.controller import WebhookController

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from enmasse.control.context import Context
    from enmasse.control.ports import Certificates, ConnectRealmAdmin, UserAdmin
    from enmasse.control.projects.device_links import DeviceLinks
    from enmasse.control.runtime.controller import Controller
    from enmasse.control.webhooks.posting import Visit
    from enmasse.iot.registry import DeviceRegistry
    from enmasse.schemas.registry import SchemaRegistry


_ANYWHERE = EndpointSettings()


class ControlPlane:
    """Runs the controllers of one installation.

    A controller whose port is not given is left out.

    Args:
        context: the state that the controllers share.
        users: the ports to the users of the nodes, one for each node.
        certificates: the port to the certificates of endpoints.
        endpoints: hosts and ports of nodes.
        connect_realm: connects to a Keycloak.
        devices: the device registry.
        schemas: the schema registry.
        device_links: serves the devices' side of the nodes.
        webhooks: connects to spaces for them.
    """

    def __init__(
        self,
        context: Context,
        *,
        users: Iterable[UserAdmin] = (),
        certificates: Certificates | None = None,
        endpoints: EndpointSettings = _ANYWHERE,
        connect_realm: ConnectRealmAdmin | None = None,
        devices: DeviceRegistry | None = None,
        device_links: DeviceLinks | None = None,
        schemas: SchemaRegistry | None = None,
        webhooks: Visit | None = None,
    ) -> None:
        self.context = context
        self._device_links = device_links
        self._webhooks = webhooks
        self._schemas = schemas
        self._runtime = Runtime(context.store)
        for listener in context.listeners:
            self._runtime.listen(listener)
        for controller in self._controllers(tuple(users), certificates, endpoints, connect_realm, devices):
            context.controllers[controller.name] = controller
            self._runtime.add(controller)
        registry = context.registry
        registry.add_admission(
            SpaceAdmission(context.placements, context.desired, needs_bounds=endpoints.needs_bounds)
        )
        registry.unapplied = context.effects.of
        registry.tally = lambda: context.desired.phases
        registry.forwarders = lambda: context.desired.forwarders

    def _controllers(
        self,
        users: tuple[UserAdmin, ...],
        certificates: Certificates | None,
        endpoints: EndpointSettings,
        connect_realm: ConnectRealmAdmin | None,
        devices: DeviceRegistry | None,
    ) -> Iterator[Controller]:
        """Make all controllers, in the order in which they get a change."""
        context = self.context
        kept = None if certificates is None else EndpointController(context, certificates, endpoints)
        spaces, addresses = SpaceController(context, kept), AddressController(context)
        context.registry.preview = Preview(context, addresses, spaces)
        yield spaces
        yield addresses
        yield NodeController(context)
        yield PlanController(context)
        yield SchemaController(context)
        yield Collector(context)
        yield QuotaController(context)
        if kept is not None:
            yield kept
        if users:
            yield UserController(context, users)
        if connect_realm is not None:
            yield RealmController(context, connect_realm)
        if self._webhooks is not None:
            yield WebhookController(context, self._webhooks)
        if self._schemas is not None:
            yield SpaceSchemasController(context, self._schemas)
        if devices is not None:
            context.of_namespaces.append(devices.forget_namespace)
            yield ProjectController(context, devices, self._device_links)

    @property
    def is_settled(self) -> bool:
        """True when all changes are known, nothing that can be done is left to do, and all statuses are written."""
        return self._runtime.is_settled and self.context.is_settled

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._runtime.run(), name="controllers")
            tasks.create_task(self.context.run(), name="nodes and statuses")
            if self._device_links is not None:
                tasks.create_task(self._device_links.run(), name="devices")


def found_installation(context: Context, machine: frozenset[str]) -> None:
    """Register all admissions, and create the objects that an installation starts with.

    Args:
        context: the context of the controllers.
        machine: names of this machine, in lower case, which are no space's.
    """
    registry, rights = context.registry, Rights(context.store)
    for admission in (
        WriterAdmission(rights),
        BindingAdmission(rights),
        SecretAdmission(rights),
        # It is to see passwords, which the next one takes out.
        RealmPasswords(context.providers.keeps_users_in_keycloak),
        UserPasswords(),
        EndpointKeys(),
        HostAdmission(machine),
        NodeAdmission(context.homes),
    ):
        registry.add_admission(admission)
    registry.create_namespaces()
    registry.create_catalog()
    make_nodes(registry, context.homes.nodes)
    context.homes.begin()
    keep_open(registry)
    store_built_in_roles(registry)
