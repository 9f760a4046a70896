"""Routes of the schema registry; paths, bodies and codes are those of Confluent's, below each space.

Rules:
1. What a client may do with a space's ``schemas`` (``addressspaces/schemas``) is what roles in its namespace say.
2. Who may not read them is told that there is no such space, as of one that there is not.
3. The registry blocks, and so is called in threads of its own.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from enmasse.api.kube.requests import media_type
from enmasse.api.kube.status import answer_error
from enmasse.api.schemas.operations import ACCEPTED, MEDIA_TYPE, OPERATIONS, PREFIX, SPACE, openapi_document
from enmasse.control.access.roles import SCHEMAS
from enmasse.errors import EnmasseError
from enmasse.identity.rbac import AccessRequest, describe_refusal
from enmasse.model.schema.kinds import ADDRESS_SPACE
from enmasse.schemas.compatibility import TYPES, Schema, read_level, read_schema
from enmasse.schemas.errors import UNPROCESSABLE, InvalidSchemaError, SchemaRegistryError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from enmasse.api.schemas.operations import Operation
    from enmasse.control.store.registry import Registry
    from enmasse.schemas.registry import SchemaRegistry
    from enmasse.schemas.store import Version

    Endpoint = Callable[[Request], Awaitable[Response]]

T = TypeVar("T")
Document = dict[str, Any]

_THREADS: Final = 4
_UNSUPPORTED: Final = ("references", "metadata", "ruleSet", "schemaTagsToAdd", "schemaTagsToRemove")


class _Answer(JSONResponse):
    media_type = MEDIA_TYPE


def schema_routes(schemas: SchemaRegistry, registry: Registry) -> list[Route]:
    """Return the routes.

    Args:
        schemas: the schema registry.
        registry: the registry of the resources, for the spaces.
    """
    routes = _Routes(schemas, registry)

    async def describe(_request: Request) -> JSONResponse:
        return JSONResponse(openapi_document())

    return [
        Route(f"{PREFIX}/openapi.json", describe),
        *(
            Route(SPACE + path, routes.answering(operation), methods=[operation.method])
            for operation in OPERATIONS
            for path in {operation.path, operation.path.rstrip("/")}
        ),
    ]


class _Routes:
    def __init__(self, schemas: SchemaRegistry, registry: Registry) -> None:
        self._schemas = schemas
        self._store = registry.store
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="schema registry")

    def answering(self, operation: Operation) -> Endpoint:
        """Return the endpoint of an operation, which answers errors in the form of Confluent's registry."""
        act: Endpoint = getattr(self, operation.name)

        async def safe(request: Request) -> Response:
            try:
                request.state.space_uid = self._space(request, operation.verb)
                return await act(request)
            except EnmasseError as error:
                return _refusal(error)

        return safe

    def _space(self, request: Request, verb: str) -> str:
        """Return the uid of a space, if the client may do something with its schemas.

        Raises:
            SchemaRegistryError: 404 when the client may not know of it, 403 when it may.
        """
        namespace, space = request.path_params["namespace"], request.path_params["space"]
        rights, requester = request.state.rights, request.state.requester
        ask = partial(AccessRequest, group=ADDRESS_SPACE.group, resource=SCHEMAS, namespace=namespace, name=space)
        found = None
        if rights.allows(requester, ask("get")):
            found = self._store.find(ADDRESS_SPACE.name, namespace, space)
        if found is None:
            raise SchemaRegistryError(404, f"there is no space '{space:.63}' in namespace '{namespace:.63}'")
        if not rights.allows(requester, ask(verb)):
            raise SchemaRegistryError(403, describe_refusal(requester, ask(verb)))
        return str(found["metadata"]["uid"])

    async def _run(self, act: Callable[..., T], request: Request, *arguments: Any, **options: Any) -> T:
        """Have something of the space done in a thread."""
        call = partial(act, request.state.space_uid, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    # Subjects and versions

    async def root(self, _request: Request) -> Response:
        return _Answer({})

    async def subjects(self, request: Request) -> Response:
        prefix = request.query_params.get("subjectPrefix", "")
        options = {"deleted": _flag(request, "deleted"), "only": _flag(request, "deletedOnly")}
        return _Answer(await self._run(self._schemas.subjects, request, prefix=prefix, **options))

    async def versions(self, request: Request) -> Response:
        options = {"deleted": _flag(request, "deleted"), "only": _flag(request, "deletedOnly")}
        found = await self._run(self._schemas.versions, request, _subject(request), **options)
        return _Answer([item.version for item in found])

    async def register(self, request: Request) -> Response:
        schema = await self._schema(request)
        found = await self._run(self._schemas.register, request, _subject(request), schema)
        request.state.written = [f"{found.subject} {found.version}"]  # for the audit log
        return _Answer({"id": found.id})

    async def lookup(self, request: Request) -> Response:
        schema, deleted = await self._schema(request), _flag(request, "deleted")
        return _Answer(
            _described(await self._run(self._schemas.lookup, request, _subject(request), schema, deleted=deleted))
        )

    async def delete_subject(self, request: Request) -> Response:
        permanent = _flag(request, "permanent")
        return _Answer(await self._run(self._schemas.delete_subject, request, _subject(request), permanent=permanent))

    async def version(self, request: Request) -> Response:
        return _Answer(_described(await self._version(request)))

    async def version_schema(self, request: Request) -> Response:
        return _Answer(_alone((await self._version(request)).schema))

    async def referenced_by(self, request: Request) -> Response:
        await self._version(request)
        return _Answer([])

    async def _version(self, request: Request) -> Version:
        version, deleted = request.path_params["version"], _flag(request, "deleted")
        return await self._run(self._schemas.version, request, _subject(request), version, deleted=deleted)

    async def delete_version(self, request: Request) -> Response:
        version, permanent = request.path_params["version"], _flag(request, "permanent")
        return _Answer(
            await self._run(self._schemas.delete_version, request, _subject(request), version, permanent=permanent)
        )

    # Schemas

    async def schemas(self, request: Request) -> Response:
        revision = await self._run(self._schemas.revision, request)
        if request.headers.get("if-none-match") == f'"{revision}"':
            return Response(status_code=304)
        options = {"prefix": request.query_params.get("subjectPrefix", ""), "deleted": _flag(request, "deleted")}
        revision, found = await self._run(self._schemas.all_versions, request, **options)
        if _flag(request, "latestOnly"):
            found = list({item.subject: item for item in found}.values())
        return _Answer([_described(item) for item in found], headers={"ETag": f'"{revision}"'})

    async def types(self, _request: Request) -> Response:
        return _Answer(list(TYPES))

    async def schema(self, request: Request) -> Response:
        return _Answer(_text(await self._run(self._schemas.by_id, request, request.path_params["id"])))

    async def schema_alone(self, request: Request) -> Response:
        return _Answer(_alone(await self._run(self._schemas.by_id, request, request.path_params["id"])))

    async def subjects_of_id(self, request: Request) -> Response:
        return _Answer(sorted({item.subject for item in await self._versions_of_id(request)}))

    async def versions_of_id(self, request: Request) -> Response:
        found = await self._versions_of_id(request)
        return _Answer([{"subject": item.subject, "version": item.version} for item in found])

    async def _versions_of_id(self, request: Request) -> list[Version]:
        deleted = _flag(request, "deleted")
        return await self._run(self._schemas.versions_of_id, request, request.path_params["id"], deleted=deleted)

    # Compatibility

    async def check(self, request: Request) -> Response:
        return await self._check(request, request.path_params["version"])

    async def check_all(self, request: Request) -> Response:
        return await self._check(request)

    async def _check(self, request: Request, *version: str) -> Response:
        schema = await self._schema(request)
        why = await self._run(self._schemas.check, request, _subject(request), schema, *version)
        messages: Document = {"messages": why} if _flag(request, "verbose") else {}
        return _Answer({"is_compatible": not why} | messages)

    async def level(self, request: Request) -> Response:
        return _Answer({"compatibilityLevel": await self._run(self._schemas.level, request)})

    async def level_of_subject(self, request: Request) -> Response:
        or_of_space = _flag(request, "defaultToGlobal")
        found = await self._run(self._schemas.level, request, _subject(request), or_of_space=or_of_space)
        return _Answer({"compatibilityLevel": found})

    async def set_level(self, request: Request) -> Response:
        return await self._set_level(request, "")

    async def set_level_of_subject(self, request: Request) -> Response:
        return await self._set_level(request, _subject(request))

    async def _set_level(self, request: Request, subject: str) -> Response:
        body = await _body(request)
        for name, value in body.items():
            if name not in ("compatibility", "compatibilityLevel") and value is not None:
                raise SchemaRegistryError(UNPROCESSABLE, f"{name:.60}: not supported; only compatibility is")
        level = read_level(body.get("compatibility", body.get("compatibilityLevel")))
        await self._run(self._schemas.set_level, request, subject, level)
        return _Answer({"compatibility": level})

    async def forget_level(self, request: Request) -> Response:
        return _Answer({"compatibilityLevel": await self._run(self._schemas.forget_level, request)})

    async def forget_level_of_subject(self, request: Request) -> Response:
        found = await self._run(self._schemas.forget_level, request, _subject(request))
        return _Answer({"compatibilityLevel": found})

    async def mode(self, _request: Request) -> Response:
        return _Answer({"mode": "READWRITE"})

    mode_of_subject = mode

    async def _schema(self, request: Request) -> Schema:
        body, normalize = await _body(request), _flag(request, "normalize")
        for name in _UNSUPPORTED:
            if body.get(name):
                raise SchemaRegistryError(UNPROCESSABLE, f"{name}: not supported; a schema is whole by itself")
        text, kind = body.get("schema"), body.get("schemaType") or TYPES[0]
        if not isinstance(text, str) or not isinstance(kind, str):
            raise InvalidSchemaError("expected schema, a text, and perhaps schemaType")
        read = partial(read_schema, kind, text, normalize=normalize)
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)


async def _body(request: Request) -> Document:
    if (kind := media_type(request)) not in ACCEPTED:
        raise SchemaRegistryError(415, f"expected content type {' or '.join(ACCEPTED)}, got '{kind:.100}'")
    try:
        found = json.loads(await request.body())
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise SchemaRegistryError(400, f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise SchemaRegistryError(400, "expected a JSON object as body")
    return found


def _refusal(error: EnmasseError) -> Response:
    if isinstance(error, SchemaRegistryError):
        status, code = error.status, error.code
    else:
        status = code = answer_error(error).status_code
    answer = _Answer({"error_code": code, "message": str(error)}, status_code=status)
    if status == 503:
        answer.headers["Retry-After"] = "1"
    return answer


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def _subject(request: Request) -> str:
    return str(request.path_params["subject"])


def _described(found: Version) -> Document:
    deleted = {"deleted": True} if found.is_deleted else {}
    return {"subject": found.subject, "version": found.version, "id": found.id} | _text(found.schema) | deleted


def _alone(schema: Schema) -> Any:
    return schema.text if schema.type == "PROTOBUF" else json.loads(schema.text)


def _text(schema: Schema) -> Document:
    kind = {} if schema.type == TYPES[0] else {"schemaType": schema.type}  # as Confluent's has it
    return kind | {"schema": schema.text}
