"""The verbs of one kind of resources, in the path and object conventions of Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from enmasse.api.bodies import OBJECTS, expect_map, fit_to_path, media_type, read_body, read_value
from enmasse.api.collections import Collection
from enmasse.api.intake import Intake
from enmasse.api.negotiation import form_of
from enmasse.api.options import Options
from enmasse.api.patches import json_patch, merge_patch, strategic_merge
from enmasse.api.status import RequestError, deleted
from enmasse.api.tables import Shape, include_of
from enmasse.control.advice import advice
from enmasse.control.list_types import list_type_of
from enmasse.control.registry import Preconditions
from enmasse.control.unfinished import finish

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import Request

    from enmasse.api.served import Served
    from enmasse.api.watch import Watches
    from enmasse.control.registry import Registry
    from enmasse.model.resource import Resource

    Endpoint = Callable[[Request], Awaitable[Response]]

__all__ = ["resource_routes"]

APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"

Document = dict[str, Any]


def resource_routes(served: Served, registry: Registry, watches: Watches) -> APIRouter:
    """Return the routes of one kind in one version.

    Args:
        served: the kind and the version.
        registry: where its objects lie.
        watches: those that are under way.
    """
    router = APIRouter()
    routes, many = _Routes(served, registry), Collection(served, registry, watches)
    everywhere = f"/{served.kind.plural}"
    collection = f"/namespaces/{{namespace}}{everywhere}" if served.is_namespaced else everywhere
    single = f"{collection}/{{name}}"
    table: list[tuple[str, Endpoint, str]] = [(collection, many.list_or_watch, "GET"), (single, routes.get, "GET")]
    if served.is_namespaced:
        table.append((everywhere, many.list_or_watch, "GET"))
    if not served.is_read_only:
        table += [
            (collection, routes.create, "POST"),
            (collection, many.delete_chosen, "DELETE"),
            (single, routes.replace, "PUT"),
            (single, routes.patch, "PATCH"),
            (single, routes.delete, "DELETE"),
        ]
    if any(below.name == "status" for below in served.subresources):
        table += [
            (f"{single}/status", routes.get, "GET"),
            (f"{single}/status", routes.replace_status, "PUT"),
            (f"{single}/status", routes.patch_status, "PATCH"),
        ]
    for path, endpoint, method in table:
        router.add_route(served.prefix + path, endpoint, methods=[method], include_in_schema=False)
    return router


class _Routes:
    """What is done to one object."""

    def __init__(self, served: Served, registry: Registry) -> None:
        self._served = served
        self._kind = served.kind
        self._registry = registry

    async def get(self, request: Request) -> Response:
        namespace, name = _place(request)
        self._options(request).number("resourceVersion")  # what is here is never older than what anybody has seen
        return self._answer(request, self._registry.store.get(self._kind.name, namespace, name))

    async def create(self, request: Request) -> Response:
        namespace, _ = _place(request)
        options, intake = self._options(request), Intake(request)
        document = fit_to_path(await intake.read_body(OBJECTS), self._served, namespace, None)
        resource = intake.decode(document)
        created = await finish(
            lambda: self._registry.create(
                resource, dry_run=options.is_dry, user=options.requester, manager=options.manager()
            )
        )
        return self._answer(request, created, resource, intake, 201)

    async def replace(self, request: Request) -> Response:
        options, intake = self._options(request), Intake(request)
        document = fit_to_path(await intake.read_body(OBJECTS), self._served, *_place(request))
        return await self._replace(request, options, intake, lambda: document)

    async def patch(self, request: Request) -> Response:
        options, intake = self._options(request), Intake(request)
        if media_type(request) == APPLY:
            return await self._apply(request, options, intake)
        return await self._replace(request, options, intake, await self._patch(request))

    async def delete(self, request: Request) -> Response:
        namespace, name = _place(request)
        options = self._options(request)
        body = await read_body(request, OBJECTS, optional=True)
        wanted = body.get("preconditions") or {}
        if not isinstance(wanted, dict):
            raise RequestError(400, "preconditions: expected a map with uid and resourceVersion")
        last = self._registry.delete(
            self._kind.name,
            namespace,
            name,
            preconditions=Preconditions(str(wanted.get("uid") or ""), str(wanted.get("resourceVersion") or "")),
            dry_run=options.is_dry or body.get("dryRun") == ["All"],
            user=options.requester,
            keep_dependents=not options.deletes_dependents(body.get("propagationPolicy")),
        )
        if last["metadata"].get("finalizers"):
            return self._answer(request, last)
        return JSONResponse(deleted(self._kind, last))

    async def replace_status(self, request: Request) -> Response:
        options, intake = self._options(request), Intake(request)
        document = fit_to_path(await intake.read_body(OBJECTS), self._served, *_place(request))
        return self._replace_status(request, options, document)

    async def patch_status(self, request: Request) -> Response:
        options, intake = self._options(request), Intake(request)
        if media_type(request) != APPLY:
            return self._replace_status(request, options, (await self._patch(request))())
        manager = options.manager("Apply", "status")
        config = fit_to_path(expect_map(await read_value(request, (APPLY,))), self._served, *_place(request))
        _refuse_managed_fields(config)
        force = options.flag("force")
        applied = self._registry.apply_status(config, manager, force=force, dry_run=options.is_dry)
        return self._answer(request, applied, None, intake)

    async def _apply(self, request: Request, options: Options, intake: Intake) -> Response:
        manager = options.manager("Apply")
        config = fit_to_path(await intake.read_body((APPLY,)), self._served, *_place(request))
        _refuse_managed_fields(config)
        applied, resource, is_new = await finish(
            lambda: self._registry.apply(
                config,
                manager,
                force=options.flag("force"),
                dry_run=options.is_dry,
                user=options.requester,
                decode=intake.decode,
            )
        )
        return self._answer(request, applied, resource, intake, 201 if is_new else 200)

    async def _patch(self, request: Request) -> Callable[[], Document]:
        """Return what gives the object as it is to be, from what it is then."""
        namespace, name = _place(request)
        accepted = (_JSON_PATCH, _MERGE_PATCH) if self._kind.is_ours else (_JSON_PATCH, _MERGE_PATCH, _STRATEGIC)
        patch = await read_value(request, (*accepted, APPLY))

        def patched() -> Document:
            present = self._in_version(self._registry.store.get(self._kind.name, namespace, name))
            match media_type(request):
                case "application/json-patch+json":
                    found = json_patch(present, patch)
                case "application/merge-patch+json":
                    found = merge_patch(present, expect_map(patch))
                case _:
                    found = strategic_merge(present, expect_map(patch), list_type_of(self._kind.name))
            if not isinstance(found.get("metadata"), dict):
                raise RequestError(422, "metadata: the patch leaves none")
            return fit_to_path(found, self._served, namespace, name)

        return patched

    async def _replace(
        self, request: Request, options: Options, intake: Intake, wanted: Callable[[], Document]
    ) -> Response:
        def write() -> tuple[Document, Resource]:
            document = wanted()
            resource = intake.decode(document)
            managed = (document.get("metadata") or {}).get("managedFields")
            replaced = self._registry.replace(
                resource,
                dry_run=options.is_dry,
                user=options.requester,
                manager=options.manager(),
                forget_managers=isinstance(managed, list) and not any(managed),
            )
            return replaced, resource

        return self._answer(request, *await finish(write), intake)

    def _replace_status(self, request: Request, options: Options, document: Document) -> Response:
        manager = options.manager("Update", "status")
        return self._answer(request, self._registry.replace_status(document, manager=manager, dry_run=options.is_dry))

    def _options(self, request: Request) -> Options:
        return Options(request, self._served.api_version)

    def _in_version(self, document: Document) -> Document:
        return document | {"apiVersion": self._served.api_version}

    def _answer(
        self,
        request: Request,
        document: Document,
        resource: Resource | None = None,
        intake: Intake | None = None,
        code: int = 200,
    ) -> Response:
        include = include_of(request.query_params.get("includeObject", ""))
        shape = Shape(self._kind.name, form_of(request), include)
        response = JSONResponse(shape.one(self._in_version(document)), status_code=code)
        warnings = [*(intake.warnings if intake else ())]
        warnings += advice(resource, self._registry.store) if resource else ()
        for warning in warnings:
            # [RFC 7234 5.5], as the Kubernetes API uses it; header values are ASCII.
            text = warning.encode("ascii", "replace").decode().replace("\\", "/").replace('"', "'")
            response.headers.append("Warning", f'299 - "{text}"')
        return response


def _place(request: Request) -> tuple[str, str]:
    """Return namespace and name of the path, empty where it has none."""
    return request.path_params.get("namespace", ""), request.path_params.get("name", "")


def _refuse_managed_fields(config: Document) -> None:
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields"):
        raise RequestError(400, "metadata.managedFields must be nil: leave it out of what you apply")
