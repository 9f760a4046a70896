"""The control process: resource store, API and controller, put together.

It runs under the supervisor or alone. Under the supervisor it ends when its
standard input does, because that means that the supervisor has died.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import sys
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from enmasse.api.app import create_app
from enmasse.api.audit import AuditLevel, AuditLog
from enmasse.api.canary import Canary
from enmasse.api.doors import DoorSettings, open_doors
from enmasse.api.metrics import ControllerTimes
from enmasse.api.pipeline_host import PipelineHost
from enmasse.control.collector import Collector
from enmasse.control.control_plane import ControlPlane
from enmasse.control.endpoint_controller import EndpointLooks, EndpointSettings
from enmasse.control.endpoint_keys import EndpointKeys
from enmasse.control.events import EventRecorder
from enmasse.control.lock import DirectoryLock
from enmasse.control.realm_controller import RealmController
from enmasse.control.realm_passwords import RealmPasswords
from enmasse.control.registry import Registry
from enmasse.control.rights import Rights
from enmasse.control.role_admission import BindingAdmission, WriterAdmission, plant_roles
from enmasse.control.store import ResourceStore
from enmasse.control.user_controller import UserController
from enmasse.control.user_passwords import UserPasswords
from enmasse.engines.embedded.node_admin import AmqpNodeAdmin
from enmasse.engines.embedded.node_tls import node_tls
from enmasse.engines.embedded.paths import DEFAULT_NODE, Layout
from enmasse.engines.embedded.user_admin import AmqpUserAdmin
from enmasse.engines.endpoint_certificates import EndpointCertificates
from enmasse.engines.keycloak.realm_admin import KeycloakAdmin
from enmasse.net.logs import set_up_logging

if TYPE_CHECKING:
    from pathlib import Path

    from enmasse.api.doors import Doors

__all__ = ["ControlSettings", "run_control"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """What the control process needs to know.

    Attributes:
        data: the data directory.
        doors: how the API is reached.
        node: the name of the node to manage.
        node_url: its management; None: its socket in the data directory.
        supervised: whether a supervisor holds the other end of standard input.
        log_format: ``text`` or ``json``, for each line on standard error.
        endpoints: where nodes are reached.
        wildcard: certificate and key that spaces may show on request; None: there is none.
        audit_file: where requests are written down; None: a file in the data directory.
        audit_level: which requests.
    """

    data: Path
    doors: DoorSettings = field(default_factory=DoorSettings)
    node: str = DEFAULT_NODE
    node_url: str | None = None
    supervised: bool = False
    log_format: str = "text"
    endpoints: EndpointSettings = field(default_factory=EndpointSettings)
    wildcard: tuple[Path, Path] | None = None
    audit_file: Path | None = None
    audit_level: AuditLevel = "writes"


def run_control(settings: ControlSettings) -> int:
    """Run the control process until it is told to stop; return its exit code.

    Raises:
        ConfigError: when the directory is in use or a port cannot be opened.
    """
    set_up_logging(settings.log_format)
    layout = Layout(settings.data)
    with (
        DirectoryLock(layout.control),
        open_doors(settings.doors, layout) as doors,
        ResourceStore(layout.store) as store,
        AuditLog(settings.audit_file or layout.audit, settings.audit_level) as audit,
    ):
        asyncio.run(_serve(settings, layout, store, doors, audit))
    return 0


async def _serve(
    settings: ControlSettings, layout: Layout, store: ResourceStore, doors: Doors, audit: AuditLog
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    registry = Registry(store, now=_now, new_uid=lambda: str(uuid.uuid4()))
    rights = Rights(store)
    registry.ask(WriterAdmission(rights))
    registry.ask(BindingAdmission(rights))
    # It is to see passwords, which the next one takes out.
    registry.ask(RealmPasswords(lambda key: controller.providers.keeps_users_in_keycloak(key)))  # noqa: PLW0108  made below
    registry.ask(UserPasswords())
    registry.ask(EndpointKeys())
    registry.plant_namespaces()
    registry.plant_catalog()
    plant_roles(registry)
    node_url = settings.node_url or f"amqp+unix://{layout.admin_socket(settings.node)}"
    tls = node_tls(layout) if node_url.startswith("amqps") else None
    node = AmqpNodeAdmin(settings.node, node_url, jitter=_jitter, tls=tls)
    times = ControllerTimes()
    canary = Canary(node)
    events = EventRecorder(store, now=_now, new_uid=lambda: str(uuid.uuid4()))
    controller = ControlPlane(registry, node, now=_now, jitter=_jitter, looked=times.observe, events=events)
    collector = Collector(registry, jitter=_jitter)
    controller.add(collector.controller, collector)
    shown = EndpointCertificates(layout.tls, settings.wildcard, lambda: datetime.now(UTC))
    endpoints = EndpointLooks(
        registry,
        shown,
        settings.endpoints,
        events,
        now=_now,
        jitter=_jitter,
        hosts_changed=controller.look_at_space,
    )
    controller.hosts_of = endpoints.hosts_of
    controller.port_of = endpoints.port_of
    controller.add(endpoints.controller, endpoints)
    user_admin = AmqpUserAdmin(settings.node, node_url, jitter=_jitter, tls=tls)
    users = UserController(
        registry,
        user_admin,
        controller.removals,
        controller.kept,
        now=_now,
        jitter=_jitter,
        authentication_of=controller.providers.kind_of,
        events=events,
        looked=times.observe,
    )
    controller.add(users.controller, users)
    realms = RealmController(
        store,
        lambda: controller.declared.spaces,
        controller.providers,
        KeycloakAdmin,
        now=_now,
        jitter=_jitter,
    )
    controller.add(realms.controller, realms)
    pipelines = PipelineHost(layout.pipelines_socket)
    app = create_app(
        registry, stop, node, node, times, canary, doors.authenticator, audit, node, pipelines, controller
    )
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(controller.run(), name="controller")]
        background.append(tasks.create_task(events.run(), name="events"))
        background.append(tasks.create_task(users.run(), name="users"))
        background.append(tasks.create_task(endpoints.run(), name="endpoints"))
        background.append(tasks.create_task(realms.run(), name="realms"))
        background.append(tasks.create_task(canary.run(), name="canary"))
        if settings.supervised:
            background.append(tasks.create_task(_stop_at_end_of_input(stop), name="supervisor"))
        print(json.dumps({"event": "listening", "url": doors.urls[0]}), flush=True)  # noqa: T201  # for whoever started us
        _log.info("API at %s, node %s at %s", " and ".join(doors.urls), settings.node, node_url)
        try:
            await doors.serve(app, stop)
        finally:
            for task in background:
                task.cancel()
    _log.info("stopped")


async def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while await reader.read(4096):
            pass
        stop.set()
    finally:
        transport.close()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _jitter() -> float:
    return random.uniform(0.8, 1.2)  # noqa: S311  # spreads retries, hides nothing
