"""The ASGI application of the API: its middleware, routes, and errors in the form of Kubernetes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from enmasse.api.access.account_routes import account_routes
from enmasse.api.access.audit import Audit, AuditLog, audit_routes
from enmasse.api.access.authentication import Authenticator
from enmasse.api.access.authorization import Access, review_routes
from enmasse.api.access.guard import Guard
from enmasse.api.broker.osb import broker_routes
from enmasse.api.connectors import connector_routes
from enmasse.api.console import console_routes
from enmasse.api.kube.actions import action_routes
from enmasse.api.kube.discovery import discovery_routes
from enmasse.api.kube.negotiation import Delivery
from enmasse.api.kube.resources import resource_routes
from enmasse.api.kube.served import SERVED
from enmasse.api.kube.status import answer, answer_error
from enmasse.api.kube.watch import Watches
from enmasse.api.live.connection_history import ConnectionHistory
from enmasse.api.live.feeds import Feeds
from enmasse.api.live.overview import Overview
from enmasse.api.live.routes import Live, rows_routes
from enmasse.api.live.rows import Rows
from enmasse.api.live.sampler import Sampler
from enmasse.api.live.series_routes import overview_routes, series_routes
from enmasse.api.messages.routes import message_routes
from enmasse.api.messages.traces import trace_routes
from enmasse.api.metrics.metrics import ApiFigures, ControllerTimes, metrics_routes
from enmasse.api.metrics.nodes import Figures
from enmasse.api.node_routes import (
    connection_routes,
    health_routes,
    node_routes,
    retained_routes,
    user_check_routes,
)
from enmasse.api.openapi.routes import openapi_routes
from enmasse.api.pipelines import builtin_routes, pipeline_routes
from enmasse.api.registry.routes import registry_routes
from enmasse.api.registry.rows import registry_rows_routes
from enmasse.api.schemas.routes import schema_routes
from enmasse.api.spark_ui import Tickets, spark_ui_routes
from enmasse.control.access.rights import Rights
from enmasse.errors import EnmasseError
from enmasse.model.schema.names import space_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping

    from enmasse.api.http_connections import HttpConnections
    from enmasse.api.metrics.nodes import Canary
    from enmasse.api.pipelines import PipelineHost
    from enmasse.control.context import Context
    from enmasse.control.ports import (
        ConnectorTester,
        FiguresSource,
        FrameTracer,
        MessageAdmin,
        RetainedAdmin,
        SessionAdmin,
        UserJudge,
    )
    from enmasse.control.projects.commands import CommandDispatcher
    from enmasse.control.store.registry import Registry
    from enmasse.iot.registry import DeviceRegistry
    from enmasse.schemas.registry import SchemaRegistry

_log = logging.getLogger(__name__)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccess:
    """The ports to one node; routes that need a missing one are not served.

    Attributes:
        messages: the messages of its addresses.
        figures: its statistics.
        sessions: its connections and links.
        retained: the retained values of its spaces.
        canary: tests messaging through it.
        traces: the frames of its connections.
        users: the judge of what its users may do.
        connectors: the tester of connectors.
    """

    messages: MessageAdmin | None = None
    figures: FiguresSource | None = None
    sessions: SessionAdmin | None = None
    retained: RetainedAdmin | None = None
    canary: Canary | None = None
    traces: FrameTracer | None = None
    users: UserJudge | None = None
    connectors: ConnectorTester | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiParts:
    """The parts of an installation that the API serves.

    Attributes:
        registry: the registry of the resources.
        stop: set when the server stops, so that watches end.
        nodes: the ports to the nodes, by name.
        context: the context of the controllers, with the placement of addresses.
        times: durations of reconciliations.
        authenticator: the authenticator of requests; None: every request is the local operator's.
        audit: the log of requests; None: there is none.
        pipelines: the client of the pipeline host.
        devices: the device registry; None: it is not served.
        commands: delivers commands to devices; None: that is not served.
        schemas: the schema registry; None: it is not served.
        connections: those of the API, for its metrics.
        is_own_name: returns true if a host, in lower case, is a name of the API.
        web_origins: origins of web pages that may use the device registry; ``*`` is all.
        sampler: the sampler of the nodes' figures, run by whoever made it.
        now: returns the present time, RFC 3339.
    """

    registry: Registry
    stop: asyncio.Event
    nodes: Mapping[str, NodeAccess] = field(default_factory=dict)
    context: Context | None = None
    times: ControllerTimes | None = None
    authenticator: Authenticator | None = None
    audit: AuditLog | None = None
    pipelines: PipelineHost | None = None
    devices: DeviceRegistry | None = None
    commands: CommandDispatcher | None = None
    schemas: SchemaRegistry | None = None
    connections: HttpConnections | None = None
    is_own_name: Callable[[str], bool] = lambda _host: False
    web_origins: tuple[str, ...] = ()
    sampler: Sampler = field(default_factory=lambda: Sampler(()))
    now: Callable[[], str] = _now


def create_app(parts: ApiParts) -> Starlette:
    """Return the application."""
    registry, context = parts.registry, parts.context
    authenticator = parts.authenticator or Authenticator()
    rights = Rights(registry.store)
    middleware = [
        *([Middleware(Audit, log=parts.audit)] if parts.audit is not None else ()),
        Middleware(Delivery),
        Middleware(Guard, is_local=authenticator.is_local, is_own_name=parts.is_own_name, origins=parts.web_origins),
        Middleware(Access, authenticator=authenticator, rights=rights),
    ]
    watches = Watches(parts.stop)
    # Routes are tried in order. Most requests are for addresses, which are the last of the kinds.
    routes: list[Route] = []
    for served in reversed(SERVED):
        routes += resource_routes(served, registry, watches)
    routes += account_routes(authenticator)
    routes += console_routes(authenticator)
    if parts.audit is not None:
        routes += audit_routes(parts.audit)
    routes += review_routes(rights)
    sessions = [node.sessions for node in parts.nodes.values() if node.sessions is not None]
    rows = Rows(registry.store, parts.sampler, sessions, time.monotonic)
    live = Live(registry.store, rights, rows, parts.sampler, watches, Feeds(parts.now))
    routes += rows_routes(live)
    routes += series_routes(live, ConnectionHistory(rows.connections, parts.sampler))
    routes += overview_routes(live, Overview(rows, parts.sampler, context))
    routes += discovery_routes()
    routes += openapi_routes()
    nodes = parts.nodes.values()
    figures = [Figures(node.figures) for node in nodes if node.figures is not None]
    routes += health_routes(registry, figures, context)
    if context is not None and figures:
        routes += node_routes(context, figures)
    own = ApiFigures(authenticator.logins, watches, parts.connections)
    canaries = [node.canary for node in nodes if node.canary is not None]
    routes += metrics_routes(registry, figures, parts.times or ControllerTimes(), canaries, own)
    messages = {name: node.messages for name, node in parts.nodes.items() if node.messages is not None}
    if messages:
        node_of = _placing(messages, context)
        routes += action_routes(registry, messages, node_of)
        routes += message_routes(registry, messages, node_of, watches)
    routes += broker_routes(registry)
    if parts.devices is not None:
        routes += registry_routes(parts.devices, registry, parts.commands)
        if parts.commands is not None:
            routes += registry_rows_routes(live, parts.devices, parts.commands)
    if parts.schemas is not None:
        routes += schema_routes(parts.schemas, registry)
    if sessions:
        routes += connection_routes(registry, sessions)
    if tracers := [node.traces for node in nodes if node.traces is not None]:
        routes += trace_routes(registry, tracers, watches)
    if retained := [node.retained for node in nodes if node.retained is not None]:
        routes += retained_routes(registry, retained)
    if users := [node.users for node in nodes if node.users is not None]:
        routes += user_check_routes(registry, users[0])  # each node has all users
    testers = {name: node.connectors for name, node in parts.nodes.items() if node.connectors is not None}
    if context is not None and testers:
        routes += connector_routes(context, testers)
    routes += builtin_routes()
    if parts.pipelines is not None:
        routes += pipeline_routes(registry, parts.pipelines)
        routes += spark_ui_routes(registry, parts.pipelines, Tickets(authenticator, rights))
    handlers = {
        EnmasseError: _on_error,
        HTTPException: _on_http_error,
        ClientDisconnect: _on_disconnect,
        Exception: _on_bug,
    }
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


def _placing(nodes: Iterable[str], context: Context | None) -> Callable[[str], str]:
    """Return a function from the key of an address to the name of its node."""
    first = next(iter(nodes))

    def place(key: str) -> str:
        if context is None:
            return first
        namespace, _, name = key.partition("/")
        node = context.node_of(f"{namespace}/{space_of(name)}")
        node.expect(key)
        return node.name

    return place


async def _on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, EnmasseError)
    return answer_error(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return answer(404, f"there is nothing at {request.url.path}; /apis lists what is there")
    refusal = answer(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    if error.status_code == 405:
        refusal.headers["Allow"] = ", ".join(_methods_of(request))
    return refusal


def _methods_of(request: Request) -> list[str]:
    """Return the methods that the path of a request supports: each may be a route of its own."""
    found = {
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        for route in request.app.routes
        if route.matches({**request.scope, "method": method})[0] == Match.FULL
    }
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


async def _on_disconnect(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # for the audit log: the client has disconnected


async def _on_bug(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer(500, "the server failed; its log says more")
