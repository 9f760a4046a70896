"""What clients ask first: which groups and kinds are here, and of which version."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from enmasse.api.actions import ACTIONS
from enmasse.model.kinds import KINDS
from enmasse.version import __version__

if TYPE_CHECKING:
    from enmasse.model.kinds import Kind

__all__ = ["discovery_routes"]

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]

Document = dict[str, Any]


def discovery_routes() -> APIRouter:
    """Return the routes for discovery and version."""
    router = APIRouter(tags=["discovery"])
    groups = [list(kinds) for _, kinds in groupby(KINDS, key=lambda kind: kind.group)]

    def serve(path: str, document: Document) -> None:
        async def endpoint() -> JSONResponse:
            return JSONResponse(document)

        router.add_api_route(path, endpoint, methods=["GET"], response_model=None, summary=document["kind"])

    # The core group is empty: Kubernetes' own kinds are not here.
    serve("/api", {"kind": "APIVersions", "versions": []})
    serve("/apis", {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(kinds) for kinds in groups]})
    for kinds in groups:
        serve(f"/apis/{kinds[0].group}", {"kind": "APIGroup", "apiVersion": "v1"} | _group(kinds))
        serve(f"/apis/{kinds[0].api_version}", _resources(kinds))

    @router.get("/version", summary="Version")
    async def version() -> JSONResponse:
        major, minor, *_ = __version__.split(".")
        return JSONResponse({"major": major, "minor": minor, "gitVersion": f"v{__version__}"})

    return router


def _group(kinds: list[Kind]) -> Document:
    version = {"groupVersion": kinds[0].api_version, "version": kinds[0].version}
    return {"name": kinds[0].group, "versions": [version], "preferredVersion": version}


def _resources(kinds: list[Kind]) -> Document:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": [*(_kind(kind) for kind in kinds), *(item for kind in kinds for item in _actions(kind))],
    }


def _kind(kind: Kind) -> Document:
    return {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": True,
        "kind": kind.name,
        "verbs": _VERBS,
        "shortNames": list(kind.short_names),
        "categories": ["enmasse"],
    }


def _actions(kind: Kind) -> list[Document]:
    return [
        {
            "name": f"{kind.plural}/{action}",
            "singularName": "",
            "namespaced": True,
            "kind": "Status",
            "group": "",
            "version": "v1",
            "verbs": ["create"],
        }
        for action in (ACTIONS if kind.name == "Address" else ())
    ]
