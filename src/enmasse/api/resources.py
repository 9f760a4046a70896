"""The verbs of one kind of resources, in the path and object conventions of Kubernetes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from enmasse.api.bodies import MERGE_PATCH, OBJECTS, fit_to_path, merge, read_body
from enmasse.api.intake import Intake
from enmasse.api.negotiation import form_of
from enmasse.api.status import RequestError, deleted
from enmasse.api.tables import Shape, include_of
from enmasse.api.watch import MAX_WATCH_S, watch_events
from enmasse.control.registry import Preconditions
from enmasse.model.selectors import Selector, parse_selector

if TYPE_CHECKING:
    from enmasse.control.registry import Registry
    from enmasse.model.kinds import Kind
    from enmasse.model.resource import Resource

__all__ = ["resource_routes"]

DryRun = Annotated[list[str] | None, Query(alias="dryRun", description="`All`: check, but write nothing")]
Watch = Annotated[bool, Query(description="stream the changes instead of a list")]
Version = Annotated[str, Query(alias="resourceVersion", description="watch from this version on")]
Timeout = Annotated[float | None, Query(alias="timeoutSeconds", ge=0, description="when the watch ends")]
Labels = Annotated[str, Query(alias="labelSelector")]
Fields = Annotated[str, Query(alias="fieldSelector")]
Included = Annotated[str, Query(alias="includeObject", description="what of each object goes with a row of a table")]

Document = dict[str, Any]


def resource_routes(kind: Kind, registry: Registry, stop: asyncio.Event) -> APIRouter:
    """Return the routes of one kind.

    Args:
        kind: the kind.
        registry: where its objects lie.
        stop: set when the server stops, so that watches end.
    """
    routes = _Routes(kind, registry, stop)
    router = APIRouter(prefix=kind.base_path(), tags=[kind.name])
    collection, single = (
        f"/namespaces/{{namespace}}/{kind.plural}",
        f"/namespaces/{{namespace}}/{kind.plural}/{{name}}",
    )
    for path, endpoint, method, verb in (
        (f"/{kind.plural}", routes.list_all, "GET", "list or watch in all namespaces"),
        (collection, routes.list, "GET", "list or watch"),
        (collection, routes.create, "POST", "create"),
        (single, routes.get, "GET", "get"),
        (single, routes.replace, "PUT", "replace"),
        (single, routes.patch, "PATCH", "merge-patch"),
        (single, routes.delete, "DELETE", "delete"),
    ):
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            summary=f"{kind.name}: {verb}",
            response_class=JSONResponse,
            response_model=None,
            operation_id=f"{endpoint.__name__}_{kind.plural}",
        )
    return router


class _Routes:
    def __init__(self, kind: Kind, registry: Registry, stop: asyncio.Event) -> None:
        self._kind = kind
        self._registry = registry
        self._stop = stop

    async def list_all(
        self,
        request: Request,
        watch: Watch = False,
        version: Version = "",
        timeout_s: Timeout = None,
        labels: Labels = "",
        fields: Fields = "",
        include: Included = "",
    ) -> Response:
        shape = self._shape(request, include, listing=not watch)
        return self._list(None, watch, version, timeout_s, parse_selector(labels, fields), shape)

    async def list(
        self,
        request: Request,
        namespace: str,
        watch: Watch = False,
        version: Version = "",
        timeout_s: Timeout = None,
        labels: Labels = "",
        fields: Fields = "",
        include: Included = "",
    ) -> Response:
        shape = self._shape(request, include, listing=not watch)
        return self._list(namespace, watch, version, timeout_s, parse_selector(labels, fields), shape)

    async def get(self, request: Request, namespace: str, name: str, include: Included = "") -> Response:
        shape = self._shape(request, include)
        return JSONResponse(shape.one(self._registry.store.get(self._kind.name, namespace, name)))

    async def create(self, request: Request, namespace: str, dry_run: DryRun = None) -> Response:
        intake = Intake(request)
        document = fit_to_path(await intake.read_body(OBJECTS), self._kind, namespace, None)
        resource = intake.decode(document)
        created = self._registry.create(resource, dry_run=_is_dry(dry_run))
        return _object(created, resource, intake, 201)

    async def replace(self, request: Request, namespace: str, name: str, dry_run: DryRun = None) -> Response:
        intake = Intake(request)
        document = fit_to_path(await intake.read_body(OBJECTS), self._kind, namespace, name)
        return self._replace(intake, document, dry_run)

    async def patch(self, request: Request, namespace: str, name: str, dry_run: DryRun = None) -> Response:
        intake = Intake(request)
        patch = await intake.read_body(MERGE_PATCH)
        present = self._registry.store.get(self._kind.name, namespace, name)
        document = fit_to_path(merge(present, patch), self._kind, namespace, name)
        return self._replace(intake, document, dry_run)

    async def delete(self, request: Request, namespace: str, name: str, dry_run: DryRun = None) -> Response:
        options = await read_body(request, OBJECTS, optional=True)
        wanted = options.get("preconditions") or {}
        if not isinstance(wanted, dict):
            raise RequestError(400, "preconditions: expected a map with uid and resourceVersion")
        last = self._registry.delete(
            self._kind.name,
            namespace,
            name,
            preconditions=Preconditions(str(wanted.get("uid") or ""), str(wanted.get("resourceVersion") or "")),
            dry_run=_is_dry(dry_run) or options.get("dryRun") == ["All"],
        )
        return JSONResponse(deleted(self._kind, last))

    def _shape(self, request: Request, include: str, *, listing: bool = False) -> Shape:
        return Shape(self._kind.name, form_of(request, listing=listing), include_of(include))

    def _replace(self, intake: Intake, document: Document, dry_run: DryRun) -> Response:
        resource = intake.decode(document)
        return _object(self._registry.replace(resource, dry_run=_is_dry(dry_run)), resource, intake, 200)

    def _list(
        self,
        namespace: str | None,
        watch: bool,
        version: str,
        timeout_s: float | None,
        selector: Selector,
        shape: Shape,
    ) -> Response:
        store = self._registry.store
        if not watch:
            items = [item for item in store.select(self._kind.name, namespace) if selector.matches(item)]
            listed = {
                "kind": f"{self._kind.name}List",
                "apiVersion": self._kind.api_version,
                "metadata": {"resourceVersion": str(store.version)},
                "items": items,
            }
            return JSONResponse(shape.many(listed))
        after = _parse_version(version)
        if after is not None:
            store.changes(after, limit=1)  # raises while the answer can still say 410
        events = watch_events(
            store,
            self._kind.name,
            namespace,
            after=after,
            selector=selector,
            timeout_s=min(timeout_s or MAX_WATCH_S, MAX_WATCH_S),
            stop=self._stop,
            shape=shape,
        )
        return StreamingResponse(events, media_type="application/json")


def _parse_version(version: str) -> int | None:
    """Return the version to watch from; None: begin with all that is there, as 0 means in Kubernetes."""
    if version in ("", "0"):
        return None
    if not version.isascii() or not version.isdigit() or len(version) > 18:
        raise RequestError(400, f"resourceVersion: expected a version as a list gave it, got '{version}'")
    return int(version)


def _is_dry(dry_run: DryRun) -> bool:
    if not dry_run:
        return False
    if dry_run != ["All"]:
        raise RequestError(400, f"dryRun: expected All, got '{', '.join(dry_run)}'")
    return True


def _object(document: Document, resource: Resource, intake: Intake, code: int) -> Response:
    response = JSONResponse(document, status_code=code)
    for warning in (*intake.warnings, *resource.unapplied()):
        # [RFC 7234 5.5], as the Kubernetes API uses it; header values are ASCII.
        text = warning.encode("ascii", "replace").decode().replace("\\", "/").replace('"', "'")
        response.headers.append("Warning", f'299 - "{text}"')
    return response
