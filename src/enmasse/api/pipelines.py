"""Routes of pipelines beside their objects: queries over a space's tables and addresses, logs, what is built in.

Rules:
1. A query reads all tables of the space's lake, whichever pipeline wrote them, and the addresses of the space:
   anonymously, or as the user of a Secret that the requester may read.
2. The pipeline host answers queries and logs, by HTTP over its private socket; without it the answer is 503.
3. A query ends with its client.
4. An answer may be a file of Parquet, which the host makes: this process never loads what reads or writes tables.
5. Whoever may query a space has its Spark started by that; who may only see its tables has not.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx
from pydantic import Field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from enmasse.api.kube.negotiation import JSON, MediaRange, choose
from enmasse.api.kube.requests import OBJECTS, Query, media_type, place, read_body
from enmasse.api.kube.status import RequestError
from enmasse.errors import UnavailableError
from enmasse.identity.rbac import AccessRequest
from enmasse.model.kinds.pipelines.builtins import BUILTINS
from enmasse.model.kinds.pipelines.relations import table_problem
from enmasse.model.schema.kinds import ADDRESS_SPACE, PIPELINE, SECRET
from enmasse.model.schema.openapi import class_text, structural
from enmasse.model.schema.schema import describe_value
from enmasse.model.sql.asking import read_asked
from enmasse.model.sql.sql import SqlError
from enmasse.net.http_server import unless_gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from enmasse.control.store.registry import Registry

_CONNECT_S = 5.0
_QUERY_S = 150.0
"""The host itself ends a query earlier; includes the start of Spark, ten seconds and more."""
_FOLLOW_S = 3700.0
_PAGE_S = 60.0
"""One of Spark's pages; the host gives up before."""
_START_S = 10.0
"""So long a query waits for a host that is just starting."""
_PAUSE_S = 0.2
_AWAY = (
    "the host of pipelines does not answer: it is just starting, or was not started (`enmasse up` starts it, except "
    "with --no-pipelines)"
)

Document = dict[str, Any]


class PipelineHost:
    """Client of the pipeline host.

    Args:
        socket: the socket of the host.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def query(self, command: Document) -> Document:
        """Run an SQL query, and return columns, rows or a file, and an error if there is one.

        Args:
            command: ``space``, ``sql`` and ``limit``; without ``sql`` the answer is the tables of the space's lake.
                With ``mayStart`` false no Spark is started for it.

        Raises:
            UnavailableError: the host does not answer, or cannot run it now.
        """
        given_up = time.monotonic() + _START_S
        async with self._client(_QUERY_S) as http:
            while True:
                try:
                    response = await http.post("/query", json=command)
                    answer: Document = response.json()
                except httpx.ConnectError:
                    if time.monotonic() >= given_up:
                        raise UnavailableError(_AWAY) from None
                    await asyncio.sleep(_PAUSE_S)
                except (httpx.TransportError, ValueError):
                    raise UnavailableError(_AWAY) from None
                else:
                    if response.is_error:
                        raise UnavailableError(str(answer.get("message")))
                    return answer

    @asynccontextmanager
    async def log(self, namespace: str, name: str, tail: int, *, follow: bool) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the lines of a pipeline's log for the duration of the block.

        Raises:
            UnavailableError: the host does not answer, or too many logs are followed.
        """
        query = {"tail": str(tail), "follow": str(follow).lower()}
        async with self._client(_FOLLOW_S) as http:
            request = http.build_request("GET", f"/log/{namespace}/{name}", params=query)
            try:
                response = await http.send(request, stream=True)
            except httpx.TransportError:
                raise UnavailableError(_AWAY) from None
            try:
                if response.is_error:
                    await response.aread()
                    raise UnavailableError(str(response.json().get("message")))
                yield response.aiter_bytes()
            finally:
                await response.aclose()

    @asynccontextmanager
    async def spark_page(
        self, namespace: str, name: str, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """Stream one of Spark's pages of a pipeline's session for the duration of the block.

        Args:
            namespace: the namespace of the pipeline.
            name: the name of the pipeline.
            path: the path as Spark knows it, with its query and without the first slash.
            headers: the headers of the request.

        Raises:
            UnavailableError: the host does not answer.
            RequestError: the host says why there is no such page.
        """
        async with self._client(_PAGE_S) as http:
            try:
                # Not in one path, which what a client wrote could lead elsewhere.
                asked = {"namespace": namespace, "name": name, "path": path}
                request = http.build_request("GET", "/ui", params=asked, headers=headers)
                response = await http.send(request, stream=True)
            except (httpx.TransportError, httpx.InvalidURL):
                raise UnavailableError(_AWAY) from None
            try:
                if "host-error" in response.headers:
                    await response.aread()
                    raise RequestError(response.status_code, str(response.json()["message"]))
                yield response
            finally:
                await response.aclose()

    def _client(self, seconds: float) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            # A Unix socket needs no authorities, and loading them would block the event loop.
            transport=httpx.AsyncHTTPTransport(uds=str(self._socket), verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)),
            base_url="http://pipelines",
            timeout=httpx.Timeout(seconds, connect=_CONNECT_S),
            trust_env=False,
        )


DEFAULT_ROWS = 1_000
MAX_ROWS = 10_000
LONGEST_SQL = 64 * 1024
PARQUET = "application/vnd.apache.parquet"
DEFAULT_LINES = 100
MAX_LINES = 10_000

ONNX = "application/octet-stream"
"""The content type of a model's file: ONNX has none of its own."""


class _ImportQuery(Query):
    features: Annotated[str, Field(max_length=10_000)] = ""
    """The names of the features of the model, with commas between them."""
    output: Annotated[str, Field(max_length=255)] = ""
    """The output that is the prediction; empty: the first one."""
    held_back: Annotated[str, Field(alias="heldBack", max_length=255)] = ""
    """A table whose rows it is measured with."""
    target: Annotated[str, Field(max_length=255)] = ""
    """The column of that table with what is right."""


class _LogQuery(Query):
    tail: Annotated[int, Field(ge=0, le=MAX_LINES)] = DEFAULT_LINES
    """The number of the last lines."""
    follow: bool = False
    """True to go on with new lines as they are written."""


def pipeline_routes(registry: Registry, host: PipelineHost) -> list[Route]:
    """Return the routes.

    Args:
        registry: the registry of spaces and pipelines.
        host: the client of the pipeline host.
    """
    space, pipeline = ADDRESS_SPACE, PIPELINE
    base = f"/apis/{space.api_version}"

    async def asked_by(request: Request, command: Document) -> Document:
        answer = await unless_gone(request.receive, host.query(command))
        if answer is None:
            raise ClientDisconnect
        return answer

    def check_change(request: Request, namespace: str, name: str) -> None:
        # Whoever may declare what writes tables and models may also change them so.
        request.state.rights.require(
            request.state.requester, AccessRequest("update", pipeline.group, pipeline.plural, namespace)
        )
        registry.store.get(space.name, namespace, name)

    async def apply_change(request: Request, namespace: str, name: str, change: Document) -> Response:
        answer = await asked_by(request, {"space": f"{namespace}/{name}", "change": change})
        if answer.get("error"):
            raise RequestError(422, str(answer["error"]))
        return _result(answer)

    async def query(request: Request) -> Response:
        """Query the tables and addresses of a space with SQL."""
        namespace, name = place(request)
        offers: list[tuple[str, Callable[[MediaRange], bool], str]] = [
            (form, _anyhow, form) for form in (JSON, PARQUET)
        ]
        form = choose(request, offers)
        asked = _arguments(await read_body(request, OBJECTS))
        registry.store.get(space.name, namespace, name)
        try:
            read_asked(asked["sql"])
        except SqlError as error:
            # Without Spark, which may have to start first.
            raise RequestError(422, f"sql: {error}") from None
        secret = asked.get("credentialsSecret")
        if secret is not None:
            # A requester must not use a password that they cannot read.
            request.state.rights.require(
                request.state.requester, AccessRequest("get", resource="secrets", namespace=namespace, name=secret)
            )
            registry.store.get(SECRET.name, namespace, secret)
        command = {"space": f"{namespace}/{name}", **asked}
        if form == JSON:
            return _result(await asked_by(request, command))
        answer = _checked(await asked_by(request, command | {"as": "parquet"}))
        said = [_warning(text) for text in answer.get("warnings") or ()]
        if answer.get("truncated"):
            said.append(
                _warning(
                    f"there are more rows than the {asked['limit']} that were asked for, or than an answer may hold"
                )
            )
        return Response(
            base64.b64decode(answer["file"]),
            media_type=PARQUET,
            headers={"content-disposition": f'attachment; filename="{name}.parquet"'}
            | ({"warning": ", ".join(said)} if said else {}),
        )

    async def tables(request: Request) -> Response:
        """List the tables of the lake of a space."""
        namespace, name = place(request)
        registry.store.get(space.name, namespace, name)
        may_query = request.state.rights.allows(
            request.state.requester,
            AccessRequest("create", space.group, f"{space.plural}/query", namespace, name),
        )
        command = {"space": f"{namespace}/{name}", "limit": MAX_ROWS, "mayStart": may_query}
        return _result(await asked_by(request, command))

    async def change_table(request: Request) -> Response:
        """Compact a table of the lake, or have it be as it was."""
        namespace, name = place(request)
        table: str = request.path_params["table"]
        action: str = request.path_params["action"]
        check_change(request, namespace, name)
        change = _table_change(table, action, await read_body(request, OBJECTS))
        return await apply_change(request, namespace, name, change)

    async def roll_back(request: Request) -> Response:
        """Have another version of a model count."""
        namespace, name = place(request)
        model: str = request.path_params["model"]
        check_change(request, namespace, name)
        body = await read_body(request, OBJECTS)
        if unknown := next((field for field in body if field != "version"), None):
            raise RequestError(400, f"{unknown}: unknown; rollback takes version")
        version = body.get("version")
        if version is not None and not (isinstance(version, int | str) and str(version).isdecimal()):
            raise RequestError(400, f"version: expected a number, got {describe_value(version)}")
        if table_problem(model) is not None:
            raise RequestError(404, f"there is no model {describe_value(model)}")
        change = {"model": model, "version": version}
        return await apply_change(request, namespace, name, change)

    async def import_model(request: Request) -> Response:
        """Import a version of a model, as a file of ONNX."""
        namespace, name = place(request)
        model: str = request.path_params["model"]
        asked = _ImportQuery.of(request)
        check_change(request, namespace, name)
        if (problem := table_problem(model)) is not None:
            raise RequestError(400, f"the name of the model: {problem}")
        if media_type(request) != ONNX:
            raise RequestError(415, f"expected content type {ONNX}, got '{media_type(request)}'")
        named = [feature.strip() for feature in asked.features.split(",") if feature.strip()]
        content = base64.b64encode(await request.body()).decode()
        if bool(asked.held_back) != bool(asked.target) or (
            asked.held_back and table_problem(asked.held_back) is not None
        ):
            raise RequestError(
                400, "heldBack and target: expected a table of the lake and a column of it, or neither"
            )
        change = {"model": model, "file": content, "features": named, "output": asked.output or None}
        change |= {"heldBack": asked.held_back, "target": asked.target} if asked.held_back else {}
        return await apply_change(request, namespace, name, change)

    async def log(request: Request) -> Response:
        """Read the log of a pipeline."""
        namespace, name = place(request)
        asked = _LogQuery.of(request)
        registry.store.get(pipeline.name, namespace, name)
        stack = AsyncExitStack()
        # Opened before the response, whose status can still tell of an error.
        parts = await stack.enter_async_context(host.log(namespace, name, asked.tail, follow=asked.follow))
        return StreamingResponse(_forward(parts, stack), media_type="text/plain")

    spaces = f"{base}/namespaces/{{namespace}}/{space.plural}"
    return [
        Route(f"{spaces}/{{name}}/query", query, methods=["POST"]),
        Route(f"{spaces}/{{name}}/tables", tables),
        Route(f"{spaces}/{{name}}/tables/{{table}}/{{action}}", change_table, methods=["POST"]),
        Route(f"{spaces}/{{name}}/models/{{model}}/rollback", roll_back, methods=["POST"]),
        Route(f"{spaces}/{{name}}/models/{{model}}/import", import_model, methods=["POST"]),
        Route(f"{base}/namespaces/{{namespace}}/{pipeline.plural}/{{name}}/log", log),
    ]


def builtin_routes() -> list[Route]:
    """Return the route that lists the built-in pipelines."""
    base = f"/apis/{PIPELINE.api_version}"

    async def builtins(_request: Request) -> Response:
        """List the pipelines that are built in, with their parameters."""
        items = [
            {"name": name, "does": kind.does, "schema": structural(kind) | {"description": class_text(kind)}}
            for name, kind in BUILTINS.items()
        ]
        return JSONResponse(
            {"kind": "BuiltinPipelineList", "apiVersion": PIPELINE.api_version, "metadata": {}, "items": items}
        )

    return [Route(f"{base}/builtinpipelines", builtins)]


def _checked(answer: Document) -> Document:
    if error := answer.get("error"):
        raise RequestError(422, f"sql: {error.removeprefix('sql: ')}")
    return answer


def _result(answer: Document) -> Response:
    fields = {key: _checked(answer).get(key) for key in ("columns", "rows", "truncated")}
    fields["warnings"] = answer.get("warnings") or []
    return JSONResponse({"kind": "QueryResult", "apiVersion": ADDRESS_SPACE.api_version, "metadata": {}, **fields})


def _warning(text: str) -> str:
    """Return a text as a header `Warning` has it, which is of ASCII alone."""
    return '299 - "' + text.encode("ascii", "replace").decode().replace("\\", "").replace('"', "'") + '"'


def _anyhow(_range: MediaRange) -> bool:
    return True


async def _forward(parts: AsyncIterator[bytes], stack: AsyncExitStack) -> AsyncIterator[bytes]:
    async with stack:
        try:
            async for part in parts:
                yield part
        except OSError as error:
            raise UnavailableError(f"the pipeline host closed the connection: {error}") from None


def _table_change(table: str, action: str, body: Document) -> Document:
    known = {"optimize": ("zOrderBy",), "restore": ("version", "at")}
    if action not in known:
        raise RequestError(404, f"there is no action '{action}' for tables; there are {', '.join(known)}")
    for name in body:
        if name not in known[action]:
            expected = ", ".join(known[action]) or "nothing"
            raise RequestError(400, f"{name}: unknown; {action} takes {expected}")
    change: Document = {"name": table, "action": action}
    columns = body.get("zOrderBy")
    if columns is not None:
        if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
            raise RequestError(400, f"zOrderBy: expected names of columns, got {describe_value(columns)}")
        change["zOrderBy"] = columns
    if action == "restore":
        version, at = body.get("version"), body.get("at")
        if (version is None) == (at is None):
            raise RequestError(400, "restore takes either version or at")
        if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 0):
            raise RequestError(400, f"version: expected a number from 0 on, got {describe_value(version)}")
        if at is not None and not isinstance(at, str):
            raise RequestError(400, f"at: expected a moment, RFC 3339, got {describe_value(at)}")
        change |= {"version": version} if at is None else {"at": at}
    return change


def _arguments(body: Document) -> Document:
    known = ("sql", "limit", "credentialsSecret")
    for name in body:
        if name not in known:
            raise RequestError(400, f"{name}: unknown; a query takes {', '.join(known)}")
    sql, limit, secret = body.get("sql"), body.get("limit", DEFAULT_ROWS), body.get("credentialsSecret")
    if not isinstance(sql, str) or not sql.strip():
        raise RequestError(400, f"sql: required: a query in Spark's SQL, got {describe_value(sql)}")
    if len(sql) > LONGEST_SQL:
        raise RequestError(400, f"sql: expected at most {LONGEST_SQL} characters, got {len(sql)}")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_ROWS:
        raise RequestError(400, f"limit: expected a number from 1 to {MAX_ROWS}, got {describe_value(limit)}")
    if secret is not None and (not isinstance(secret, str) or not secret):
        raise RequestError(400, f"credentialsSecret: expected the name of a Secret, got {describe_value(secret)}")
    return {"sql": sql, "limit": limit} | ({} if secret is None else {"credentialsSecret": secret})
