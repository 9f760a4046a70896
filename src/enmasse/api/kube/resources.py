"""Routes for the verbs on one kind: get, create, replace, patch, apply, delete, and its status."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from enmasse.api.kube.collections import Collection
from enmasse.api.kube.negotiation import form_of
from enmasse.api.kube.patches import json_patch, merge_patch, strategic_merge
from enmasse.api.kube.requests import (
    OBJECTS,
    FieldValidation,
    Options,
    expect_map,
    fit_to_path,
    media_type,
    place,
    read_body,
    read_value,
)
from enmasse.api.kube.status import RequestError, deleted
from enmasse.api.kube.tables import Shape, include_of
from enmasse.control.addresses.preview import write_warnings
from enmasse.control.store.managed_fields import list_type_of
from enmasse.control.store.registry import Preconditions
from enmasse.control.store.writes import finish
from enmasse.model.schema.kinds import MAX_IN_LIST
from enmasse.model.schema.schema import describe_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from enmasse.api.kube.served import Served
    from enmasse.api.kube.watch import Watches
    from enmasse.control.store.registry import Registry
    from enmasse.model.schema.resource import Resource

    Endpoint = Callable[[Request], Awaitable[Response]]

APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"

Document = dict[str, Any]


def resource_routes(served: Served, registry: Registry, watches: Watches) -> list[Route]:
    """Return the routes of one kind in one version.

    Args:
        served: the kind and the version.
        registry: the registry of its objects.
        watches: all open ones.
    """
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
    if served.takes_lists:
        table.append((collection, routes.replace_listed, "PUT"))
    if any(below.name == "status" for below in served.subresources):
        table += [
            (f"{single}/status", routes.get, "GET"),
            (f"{single}/status", routes.replace_status, "PUT"),
            (f"{single}/status", routes.patch_status, "PATCH"),
        ]
    return [Route(served.prefix + path, endpoint, methods=[method]) for path, endpoint, method in table]


class _Routes:
    """The endpoints for single objects, and for lists of objects that are written together."""

    def __init__(self, served: Served, registry: Registry) -> None:
        self._served = served
        self._kind = served.kind
        self._registry = registry

    async def get(self, request: Request) -> Response:
        namespace, name = place(request)
        self._options(request).number("resourceVersion")  # validated only: the present object is never older
        return self._answer(request, self._registry.store.get(self._kind.name, namespace, name))

    async def create(self, request: Request) -> Response:
        namespace, _ = place(request)
        options, fields = self._options(request), FieldValidation(request)
        body = await fields.read_body(OBJECTS)
        if self._served.takes_lists and body.get("kind") == self._served.list_kind:
            return self._write_listed(request, options, fields, body, self._registry.create, 201)
        document = fit_to_path(body, self._served, namespace, None)
        resource = fields.decode(document)
        created = await finish(
            lambda: self._registry.create(
                resource, dry_run=options.is_dry, user=options.requester, manager=options.manager()
            )
        )
        return self._answer(request, created, resource, fields, 201)

    async def replace(self, request: Request) -> Response:
        options, fields = self._options(request), FieldValidation(request)
        document = fit_to_path(await fields.read_body(OBJECTS), self._served, *place(request))
        return await self._replace(request, options, fields, lambda: document)

    async def replace_listed(self, request: Request) -> Response:
        options, fields = self._options(request), FieldValidation(request)
        body = await fields.read_body(OBJECTS)
        return self._write_listed(request, options, fields, body, self._registry.replace, 200)

    async def patch(self, request: Request) -> Response:
        options, fields = self._options(request), FieldValidation(request)
        if media_type(request) == APPLY:
            return await self._apply(request, options, fields)
        return await self._replace(request, options, fields, await self._patch(request))

    async def delete(self, request: Request) -> Response:
        namespace, name = place(request)
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
        options, fields = self._options(request), FieldValidation(request)
        document = fit_to_path(await fields.read_body(OBJECTS), self._served, *place(request))
        return self._replace_status(request, options, document)

    async def patch_status(self, request: Request) -> Response:
        options, fields = self._options(request), FieldValidation(request)
        if media_type(request) != APPLY:
            return self._replace_status(request, options, (await self._patch(request))())
        manager = options.manager("Apply", "status")
        config = fit_to_path(expect_map(await read_value(request, (APPLY,))), self._served, *place(request))
        _refuse_managed_fields(config)
        force = options.flag("force")
        applied = self._registry.apply_status(config, manager, force=force, dry_run=options.is_dry)
        return self._answer(request, applied, None, fields)

    async def _apply(self, request: Request, options: Options, fields: FieldValidation) -> Response:
        manager = options.manager("Apply")
        config = fit_to_path(await fields.read_body((APPLY,)), self._served, *place(request))
        _refuse_managed_fields(config)
        applied, resource, is_new = await finish(
            lambda: self._registry.apply(
                config,
                manager,
                force=options.flag("force"),
                dry_run=options.is_dry,
                user=options.requester,
                decode=fields.decode,
            )
        )
        return self._answer(request, applied, resource, fields, 201 if is_new else 200)

    async def _patch(self, request: Request) -> Callable[[], Document]:
        """Return a function that applies the patch to the object as it is when it is called."""
        namespace, name = place(request)
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
                raise RequestError(422, "metadata: the patch removes it")
            return fit_to_path(found, self._served, namespace, name)

        return patched

    async def _replace(
        self, request: Request, options: Options, fields: FieldValidation, wanted: Callable[[], Document]
    ) -> Response:
        def write() -> tuple[Document, Resource]:
            document = wanted()
            resource = fields.decode(document)
            managed = (document.get("metadata") or {}).get("managedFields")
            replaced = self._registry.replace(
                resource,
                dry_run=options.is_dry,
                user=options.requester,
                manager=options.manager(),
                forget_managers=isinstance(managed, list) and not any(managed),
            )
            return replaced, resource

        return self._answer(request, *await finish(write), fields)

    def _write_listed(
        self,
        request: Request,
        options: Options,
        fields: FieldValidation,
        body: Document,
        write: Callable[..., Document],
        code: int,
    ) -> Response:
        """Write all objects of a list, or none of them."""
        documents = self._listed(request, body)
        resources = [fields.decode(document) for document in documents]
        # The audit log has a line for each.
        request.state.written = [resource.metadata.name for resource in resources]
        shape = Shape(self._kind.name, form_of(request, listing=True), include_of(options.text("includeObject")))
        with self._registry.store.transaction(dry_run=options.is_dry):
            written = [write(resource, user=options.requester, manager=options.manager()) for resource in resources]
            if options.is_dry and shape.is_plain:  # half of the work: not for those who leave the objects out
                written = [self._registry.preview(document) for document in written]
            version = str(self._registry.store.version)
        warnings = [*fields.warnings, *chain(*(write_warnings(resource, self._registry) for resource in resources))]
        listed = {
            "kind": self._served.list_kind,
            "apiVersion": self._served.api_version,
            "metadata": {"resourceVersion": version},
            "items": [self._in_version(document) for document in written],
        }
        answer = shape.many(listed)
        if warnings:  # of many objects they would be more than what clients read of headers
            answer["warnings"] = warnings
        return JSONResponse(answer, status_code=code)

    def _listed(self, request: Request, body: Document) -> list[Document]:
        kind, items = self._served.list_kind, body.get("items")
        if body.get("kind") != kind or body.get("apiVersion") != self._served.api_version:
            raise RequestError(400, f"expected a list of kind {kind} and apiVersion {self._served.api_version}")
        if not isinstance(items, list) or not items:
            raise RequestError(400, f"items: expected a list of objects, got {describe_value(items)}")
        if len(items) > MAX_IN_LIST:
            raise RequestError(413, f"items: at most {MAX_IN_LIST} objects are written at once, got {len(items)}")
        identity = {"apiVersion": self._served.api_version, "kind": self._kind.name}
        namespace, _ = place(request)
        return [fit_to_path(identity | expect_map(item), self._served, namespace, None) for item in items]

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
        fields: FieldValidation | None = None,
        code: int = 200,
    ) -> Response:
        include = include_of(request.query_params.get("includeObject", ""))
        shape = Shape(self._kind.name, form_of(request), include)
        response = JSONResponse(shape.one(self._in_version(document)), status_code=code)
        warnings = [*(fields.warnings if fields else ())]
        warnings += write_warnings(resource, self._registry) if resource else ()
        for warning in warnings:
            # [RFC 7234 5.5], as the Kubernetes API uses it; header values are ASCII.
            text = warning.encode("ascii", "replace").decode().replace("\\", "/").replace('"', "'")
            response.headers.append("Warning", f'299 - "{text}"')
        return response


def _refuse_managed_fields(config: Document) -> None:
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields"):
        raise RequestError(400, "metadata.managedFields must be nil: leave it out of what you apply")
