"""The control process: resource store, API and controllers.

It runs under the supervisor or alone. Under the supervisor it ends at the end of its standard input, because that
means that the supervisor has died.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import secrets
import signal
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from enmasse.api.access.audit import AuditLevel, AuditLog
from enmasse.api.app import ApiParts, create_app
from enmasse.api.listeners import ListenerSettings, open_listeners
from enmasse.api.live.sampler import Sampler
from enmasse.api.metrics.metrics import ControllerTimes
from enmasse.api.pipelines import PipelineHost
from enmasse.control.context import Context
from enmasse.control.control_plane import ControlPlane, found_installation
from enmasse.control.endpoints.controller import EndpointSettings
from enmasse.control.projects.commands import CommandDispatcher
from enmasse.control.projects.device_links import DeviceLinks
from enmasse.control.runtime.events import EventRecorder
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.control_process.nodes import NodeLinks, visitor
from enmasse.drivers.data_directory import DEFAULT_NODE, DirectoryLock, Layout, make_private
from enmasse.drivers.endpoint_certificates import EndpointCertificates
from enmasse.drivers.keycloak_admin import KeycloakAdmin
from enmasse.drivers.supervisor.child import end_of_input
from enmasse.errors import EnmasseError
from enmasse.iot.command_store import CommandStore
from enmasse.iot.lookups import Lookups
from enmasse.iot.possession import Nonces
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.store import DeviceStore
from enmasse.net.logs import set_up_logging
from enmasse.schemas.registry import SchemaRegistry
from enmasse.schemas.store import SchemaStore

if TYPE_CHECKING:
    from pathlib import Path

    from enmasse.api.listeners import Listeners
    from enmasse.net.special_addresses import Network

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Settings of the control process.

    Attributes:
        data: the data directory.
        listeners: the listeners of the API.
        nodes: the nodes to manage, by name: the URL of its management; None: its socket in the data directory.
        supervised: whether a supervisor holds the other end of standard input.
        log_format: ``text`` or ``json``, for each line on standard error.
        endpoints: the endpoints of the nodes.
        wildcard: certificate and key that spaces may ask for; None: there is none.
        audit_file: the log of requests; None: a file in the data directory.
        audit_level: the requests that are logged.
        networks: the networks in which hosts that tenants name may be although that is not public.
    """

    data: Path
    listeners: ListenerSettings = field(default_factory=ListenerSettings)
    nodes: Mapping[str, str | None] = field(default_factory=lambda: {DEFAULT_NODE: None})
    supervised: bool = False
    log_format: str = "text"
    endpoints: EndpointSettings = field(default_factory=EndpointSettings)
    wildcard: tuple[Path, Path] | None = None
    audit_file: Path | None = None
    audit_level: AuditLevel = "writes"
    networks: tuple[Network, ...] = ()


def run_control(settings: ControlSettings) -> int:
    """Run the control process until a signal stops it; return its exit code.

    Raises:
        ConfigError: when the directory is in use or a port cannot be opened.
    """
    set_up_logging(settings.log_format)
    layout = Layout(settings.data)
    make_private(layout.data)
    os.umask(0o077)
    with (
        DirectoryLock(layout.control),
        open_listeners(settings.listeners, layout) as listeners,
        ResourceStore(layout.store) as store,
        DeviceStore(layout.devices) as devices,
        SchemaStore(layout.schemas) as schemas,
        AuditLog(settings.audit_file or layout.audit, settings.audit_level) as audit,
    ):
        asyncio.run(_serve(settings, layout, store, devices, SchemaRegistry(schemas), listeners, audit))
    return 0


async def _serve(
    settings: ControlSettings,
    layout: Layout,
    store: ResourceStore,
    devices: DeviceStore,
    schemas: SchemaRegistry,
    listeners: Listeners,
    audit: AuditLog,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    nodes = [NodeLinks(name, url, layout, _jitter) for name, url in settings.nodes.items()]
    admins = [node.admin for node in nodes]
    times = ControllerTimes()
    context = Context(
        Registry(store, now=_now, new_uid=lambda: str(uuid.uuid4())),
        admins,
        now=_now,
        jitter=_jitter,
        networks=settings.networks,
        observe=times.observe,
        events=EventRecorder(store, now=_now, new_uid=lambda: str(uuid.uuid4())),
    )
    found_installation(context, settings.endpoints.machine)
    visit = visitor(nodes, context)
    device_registry = DeviceRegistry(
        devices,
        now=_now,
        new_id=lambda: str(uuid.uuid4()),
        new_version=lambda: secrets.token_hex(8),
        nonces=Nonces(secrets.token_bytes(32), lambda: secrets.token_hex(16), time.time),
        grants_aliases=settings.listeners.auth == "required",
    )
    lookups = Lookups(devices)
    device_links = DeviceLinks(store, device_registry, lookups, [node.devices for node in nodes])
    commands = CommandDispatcher(
        CommandStore(devices, new_id=lambda: str(uuid.uuid4()), now_ms=lambda: int(time.time() * 1000)),
        lookups,
        device_links.space_of,
        visit,
    )
    device_links.note_taker = commands
    commands.notified = device_registry.note_notified
    plane = ControlPlane(
        context,
        users=[node.users for node in nodes],
        certificates=EndpointCertificates(layout.tls, settings.wildcard, lambda: datetime.now(UTC)),
        endpoints=settings.endpoints,
        connect_realm=KeycloakAdmin,
        devices=device_registry,
        device_links=device_links,
        schemas=schemas,
        webhooks=visit,
    )
    sampler = Sampler(admins)
    context.homes.busy = lambda name: (found.cpu or 0.0) if (found := sampler.latest.nodes.get(name)) else 0.0
    parts = ApiParts(
        registry=context.registry,
        stop=stop,
        nodes={node.name: node.access() for node in nodes},
        context=context,
        times=times,
        authenticator=listeners.authenticator,
        audit=audit,
        pipelines=PipelineHost(layout.pipelines_socket),
        devices=device_registry,
        commands=commands,
        schemas=schemas,
        connections=listeners.connections,
        is_own_name=listeners.is_own_name,
        web_origins=settings.listeners.web_origins,
        sampler=sampler,
    )
    async with asyncio.TaskGroup() as tasks:
        background = [
            tasks.create_task(plane.run(), name="control plane"),
            *(tasks.create_task(node.canary.run(), name=f"canary of {node.name}") for node in nodes),
            tasks.create_task(_sweep(device_registry, stop), name="devices of nobody"),
            tasks.create_task(sampler.run(), name="sampler"),
            tasks.create_task(commands.run(), name="commands of devices"),
        ]
        if settings.supervised:
            background.append(tasks.create_task(_stop_with_supervisor(stop), name="supervisor"))
        print(json.dumps({"event": "listening", "url": listeners.urls[0]}), flush=True)  # noqa: T201  # for the process that started this one
        managed = ", ".join(f"node {node.name} at {node.url}" for node in nodes)
        _log.info("API at %s, %s", " and ".join(listeners.urls), managed)
        try:
            await listeners.serve(create_app(parts), stop)
        finally:
            for task in background:
                task.cancel()
    _log.info("stopped")


async def _sweep(devices: DeviceRegistry, stop: asyncio.Event) -> None:
    try:
        await asyncio.to_thread(devices.sweep, stop.is_set)
    except EnmasseError as error:
        _log.warning("what is left of deleted tenants of devices stays until the next start: %s", error)


async def _stop_with_supervisor(stop: asyncio.Event) -> None:
    await end_of_input()
    stop.set()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _jitter() -> float:
    return random.uniform(0.8, 1.2)  # noqa: S311  # spreads retries; not a secret
