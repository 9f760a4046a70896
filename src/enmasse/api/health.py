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
    from enmasse.control.control_plane import ControlPlane
    from enmasse.control.registry import Registry

__all__ = ["health_routes"]

Document = dict[str, Any]


def health_routes(registry: Registry, figures: Figures | None, plane: ControlPlane | None = None) -> APIRouter:
    """Return the routes.

    Args:
        registry: where the resources lie.
        figures: of the node; without, nothing is told of it.
        plane: the control plane, which declares and deletes on the node; without it nothing is named as kept there.
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
        nodes = [] if figures is None else [await _node(figures, plane)]
        if wants_json:
            return JSONResponse({"ready": True, "nodes": nodes})
        lines = ["[+] store"]
        for node in nodes:
            sign = "+" if node["ready"] and not node["problems"] else "!"
            lines.append(": ".join([f"[{sign}] node {node['name']}", *node["problems"]]))
        return PlainTextResponse("\n".join([*lines, "readyz passed", ""]))

    return router


async def _node(figures: Figures, plane: ControlPlane | None) -> Document:
    """How a node is, by itself, or that it does not say; and what of it is not as it is declared here."""
    found = await figures.read()
    if found is None:
        return {"name": figures.name, "up": False, "ready": False, "problems": [figures.problem]}
    health = found.health
    problems = [str(problem) for problem in health.get("problems") or ()]
    is_known = True
    if plane is not None:
        # What is declared, and what will be because the node has it, is all known after that.
        is_known = plane.mirror.was_complete and not plane.mirror.problem
        problems += plane.problems() or ([] if is_known else ["control does not know yet what it has"])
    return {
        "name": figures.name,
        "up": True,
        "ready": bool(health.get("ready")) and is_known,
        "problems": problems,
    }
