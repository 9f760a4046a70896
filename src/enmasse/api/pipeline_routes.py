"""What can be asked of pipelines that are running: queries over a space's tables and addresses, and logs.

Rules:
1. A query reads all tables of the space's lake, whichever pipeline wrote them, and the addresses of the space:
   as nobody in particular, or as the user of a Secret that whoever asks may read.
2. Everything here is answered by the host of pipelines; while it is away, 503 says so.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from enmasse.api.bodies import OBJECTS, read_body
from enmasse.api.status import RequestError
from enmasse.errors import UnavailableError
from enmasse.identity.rbac import Ask
from enmasse.model.kinds import kind_named
from enmasse.model.schema import describe_value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from enmasse.api.pipeline_host import PipelineHost
    from enmasse.control.registry import Registry

__all__ = ["pipeline_routes"]

DEFAULT_ROWS = 1_000
MOST_ROWS = 10_000
LONGEST_SQL = 64 * 1024
DEFAULT_LINES = 100
MOST_LINES = 10_000

Lines = Annotated[int, Query(ge=0, le=MOST_LINES, description="the last so many lines")]
Follow = Annotated[bool, Query(description="go on with lines as they come")]

Document = dict[str, Any]


def pipeline_routes(registry: Registry, host: PipelineHost) -> APIRouter:
    """Return the routes.

    Args:
        registry: where spaces and pipelines are declared.
        host: the way to what runs.
    """
    space, pipeline = kind_named("AddressSpace"), kind_named("Pipeline")
    assert space is not None
    assert pipeline is not None
    router = APIRouter(prefix=f"/apis/{space.api_version}", tags=[pipeline.name])

    @router.post(
        f"/namespaces/{{namespace}}/{space.plural}/{{name}}/query",
        summary="AddressSpace: query its tables and addresses with SQL",
        operation_id="query_addressspaces",
        response_class=JSONResponse,
    )
    async def query(request: Request, namespace: str, name: str) -> Response:
        asked = _arguments(await read_body(request, OBJECTS))
        registry.store.get(space.name, namespace, name)
        secret = asked.get("credentialsSecret")
        if secret is not None:
            # Whoever has a password used must be one who could have used it.
            request.state.rights.require(
                request.state.requester, Ask("get", resource="secrets", namespace=namespace, name=secret)
            )
            registry.store.get("Secret", namespace, secret)
        answer = await host.query({"space": f"{namespace}/{name}", **asked})
        if answer.get("error"):
            raise RequestError(422, f"sql: {answer['error']}")
        fields = {key: answer.get(key) for key in ("columns", "rows", "truncated")}
        return JSONResponse({"kind": "QueryResult", "apiVersion": space.api_version, "metadata": {}, **fields})

    @router.get(
        f"/namespaces/{{namespace}}/{pipeline.plural}/{{name}}/log",
        summary="Pipeline: its log",
        operation_id="read_pipelines_log",
        response_class=Response,
    )
    async def log(namespace: str, name: str, tail: Lines = DEFAULT_LINES, follow: Follow = False) -> Response:
        registry.store.get(pipeline.name, namespace, name)
        stack = AsyncExitStack()
        # Here, so that what is wrong can still be said.
        parts = await stack.enter_async_context(host.log(namespace, name, tail, follow=follow))
        return StreamingResponse(_passed_on(parts, stack), media_type="text/plain")

    return router


async def _passed_on(parts: AsyncIterator[bytes], stack: AsyncExitStack) -> AsyncIterator[bytes]:
    async with stack:
        try:
            async for part in parts:
                yield part
        except OSError as error:
            raise UnavailableError(f"the host of pipelines went away: {error}") from None


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
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_ROWS:
        raise RequestError(400, f"limit: expected a number from 1 to {MOST_ROWS}, got {describe_value(limit)}")
    if secret is not None and (not isinstance(secret, str) or not secret):
        raise RequestError(400, f"credentialsSecret: expected the name of a Secret, got {describe_value(secret)}")
    return {"sql": sql, "limit": limit} | ({} if secret is None else {"credentialsSecret": secret})
