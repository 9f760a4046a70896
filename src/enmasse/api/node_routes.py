"""Routes that show which installation a node's journal belongs to, and that take in one of another installation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from enmasse.api.bodies import OBJECTS, read_body
from enmasse.api.status import RequestError
from enmasse.control.errors import NodeUnavailableError, ResourceNotFoundError

if TYPE_CHECKING:
    from enmasse.api.figures import Figures
    from enmasse.control.control_plane import ControlPlane

__all__ = ["node_routes"]

Document = dict[str, Any]


def node_routes(plane: ControlPlane, figures: Figures) -> APIRouter:
    """Return the routes.

    Args:
        plane: the control plane, which declares and deletes on the node.
        figures: of the node.
    """
    router = APIRouter(tags=["operations"])

    def expect_node(name: str) -> None:
        if name != plane.mirror.name:
            raise ResourceNotFoundError("Node", "", name)

    @router.get(
        "/nodes/{name}/journal", summary="Show which installation the journal of a node belongs to, and what it holds"
    )
    async def journal(name: str) -> Response:
        expect_node(name)
        found = await figures.read()
        if found is None:
            raise NodeUnavailableError(f"node {name}: {figures.problem}")
        answer: Document = await plane.journal()
        answer |= {
            "spaces": len(found.spaces),
            "addresses": len(found.addresses),
            "messages": sum(address.get("messagesStored") or 0 for address in found.addresses),
        }
        return JSONResponse(answer)

    @router.post("/nodes/{name}/adopt", summary="Have the journal of a node belong to this installation")
    async def adopt(name: str, request: Request) -> Response:
        expect_node(name)
        body = await read_body(request, OBJECTS)
        installation = body.get("installation")
        if not isinstance(installation, str) or not installation:
            raise RequestError(400, "installation: required: the one that the journal belongs to now")
        await plane.take_node_in(installation)
        return JSONResponse(await plane.journal())

    return router
