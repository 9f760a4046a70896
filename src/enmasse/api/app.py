"""The API application: guard, routes, and errors in the form that Kubernetes clients know."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from enmasse.api.account_routes import account_routes
from enmasse.api.actions import action_routes
from enmasse.api.audit import Audit, AuditLog
from enmasse.api.authentication import Authenticator
from enmasse.api.authorization import Access
from enmasse.api.connections import connection_routes
from enmasse.api.delivery import Delivery
from enmasse.api.discovery import discovery_routes
from enmasse.api.figures import Figures
from enmasse.api.guard import Guard
from enmasse.api.health import health_routes
from enmasse.api.metrics import ControllerTimes, metrics_routes
from enmasse.api.node_routes import node_routes
from enmasse.api.openapi import openapi_routes
from enmasse.api.osb import broker_routes
from enmasse.api.pipeline_routes import pipeline_routes
from enmasse.api.resources import resource_routes
from enmasse.api.reviews import review_routes
from enmasse.api.served import SERVED
from enmasse.api.status import answer, answer_error
from enmasse.api.watch import Watches
from enmasse.control.rights import Rights
from enmasse.errors import EnmasseError
from enmasse.version import __version__

if TYPE_CHECKING:
    import asyncio

    from enmasse.api.canary import Canary
    from enmasse.api.pipeline_host import PipelineHost
    from enmasse.control.control_plane import ControlPlane
    from enmasse.control.ports import FiguresSource, MessageAdmin, SessionAdmin
    from enmasse.control.registry import Registry

__all__ = ["create_app"]

_log = logging.getLogger(__name__)


def create_app(
    registry: Registry,
    stop: asyncio.Event,
    messages: MessageAdmin,
    figures: FiguresSource | None = None,
    times: ControllerTimes | None = None,
    canary: Canary | None = None,
    authenticator: Authenticator | None = None,
    audit: AuditLog | None = None,
    sessions: SessionAdmin | None = None,
    pipelines: PipelineHost | None = None,
    plane: ControlPlane | None = None,
) -> FastAPI:
    """Return the application.

    Args:
        registry: where the resources lie.
        stop: set when the server stops, so that watches end.
        messages: the way to what the addresses store.
        figures: the way to what the node says of itself.
        times: how long the controller's looks take.
        canary: what tries whether messaging works.
        authenticator: knows who asks; without, everybody is the local operator.
        audit: where requests are written down.
        sessions: the way to who is connected.
        pipelines: the way to what runs pipelines.
        plane: the control plane, which declares and deletes on the node.
    """
    app = FastAPI(
        title="EnMasse", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    authenticator = authenticator or Authenticator()
    rights = Rights(registry.store)
    app.add_middleware(Access, authenticator=authenticator, rights=rights)
    app.add_middleware(Guard, is_open=not authenticator.is_required)
    app.add_middleware(Delivery)
    if audit is not None:
        app.add_middleware(Audit, log=audit)
    app.include_router(account_routes(authenticator))
    app.include_router(review_routes(rights))
    app.include_router(discovery_routes())
    app.include_router(openapi_routes())
    asked = None if figures is None else Figures(figures)
    app.include_router(health_routes(registry, asked, plane))
    if plane is not None and asked is not None:
        app.include_router(node_routes(plane, asked))
    app.include_router(metrics_routes(registry, asked, times or ControllerTimes(), canary))
    watches = Watches(stop)
    for served in SERVED:
        app.include_router(resource_routes(served, registry, watches))
    expect = (plane.expect_on_node,) if plane is not None else ()
    app.include_router(action_routes(registry, messages, *expect))
    app.include_router(broker_routes(registry))
    if sessions is not None:
        app.include_router(connection_routes(registry, sessions))
    if pipelines is not None:
        app.include_router(pipeline_routes(registry, pipelines))
    app.add_exception_handler(EnmasseError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_wrong_parameter)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_bug)
    return app


async def _on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, EnmasseError)
    return answer_error(error)


async def _on_wrong_parameter(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [f"{item['loc'][-1]}: {item['msg']}" for item in error.errors()]
    return answer(400, "; ".join(found))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return answer(404, f"there is nothing at {request.url.path}; /apis lists what is there")
    refusal = answer(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    if error.status_code == 405:
        refusal.headers["Allow"] = ", ".join(_methods_of(request))
    return refusal


def _methods_of(request: Request) -> list[str]:
    """Return what the path of a request can be asked with: each method may be a route of its own."""
    found = {
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        for route in request.app.routes
        if route.matches({**request.scope, "method": method})[0] == Match.FULL
    }
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


async def _on_bug(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer(500, "the server failed; its log says more")
