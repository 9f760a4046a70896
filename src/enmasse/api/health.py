"""``/healthz`` and ``/readyz`` of control, and what is known there of nodes.

Control is ready when its resource store answers: whoever declares something is served then, whether the
node can do it now or not. How the node is, is told beside it, and is a matter of the node's own ``/readyz``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

if TYPE_CHECKING:
    from enmasse.api.figures import Figures
    from enmasse.control.registry import Registry

__all__ = ["health_routes"]

Document = dict[str, Any]


def health_routes(registry: Registry, figures: Figures | None) -> APIRouter:
    """Return the routes.

    Args:
        registry: where the resources lie.
        figures: of the node; without, nothing is told of it.
    """
    router = APIRouter(tags=["operations"])

    @router.get("/healthz", summary="Whether the process runs")
    async def healthy() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @router.get("/readyz", summary="Whether the resource store answers; with ?verbose, how the node is")
    async def ready(request: Request) -> Response:
        registry.store.fact("version")
        wants_json = "application/json" in request.headers.get("accept", "")
        if not wants_json and "verbose" not in request.query_params:
            return PlainTextResponse("ok")
        nodes = [] if figures is None else [await _node(figures)]
        if wants_json:
            return JSONResponse({"ready": True, "nodes": nodes})
        lines = ["[+] store"]
        for node in nodes:
            sign = "+" if node["ready"] and not node["problems"] else "!"
            lines.append(": ".join([f"[{sign}] node {node['name']}", *node["problems"]]))
        return PlainTextResponse("\n".join([*lines, "readyz passed", ""]))

    return router


async def _node(figures: Figures) -> Document:
    """How a node is: by itself, or that it does not say."""
    found = await figures.read()
    if found is None:
        return {"name": figures.name, "up": False, "ready": False, "problems": [figures.problem]}
    health = found.health
    return {
        "name": figures.name,
        "up": True,
        "ready": bool(health.get("ready")),
        "problems": [str(problem) for problem in health.get("problems") or ()],
    }
