"""The host's private socket: what control asks it for users, over HTTP.

    POST /query                  {"space", "sql", "limit", ...} -> {"columns", "rows", "error"}; with "as": "parquet"
                                 {"file", "error"}, the file in Base64; without "sql" the lake's tables; with
                                 "mayStart": false only if a runner is there
    GET  /log/NAMESPACE/NAME     ?tail=N&follow=true -> lines of text
    GET  /ui                     ?namespace=&name=&path= -> a page of Spark's of the session in which the pipeline
                                 runs; only what the host says itself, an error, has the header host-error
    GET  /state                  -> the runners

Control has checked what a user may ask before it asks here. No other user reaches the socket: its mode is 0600.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from enmasse.drivers.data_directory import make_private
from enmasse.errors import ConfigError, EnmasseError
from enmasse.net.http_server import has_dot_segments, serve_until, unless_gone
from enmasse.pipeline.host.supervise import BoundedLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.pipeline.host.host import Host

QUERY_S = 120.0
"""Seconds for the whole of a query, Spark's start included."""
MAX_ROWS = 10_000
MAX_BYTES = 8 * 1024 * 1024
"""Bytes of an answer to a query, as JSON."""
MAX_LINES = 10_000
FOLLOW_S = 3600.0
MAX_FOLLOWING = 100
_POLL_S = 0.5
MAX_PAGE_BYTES = 64 << 20
PAGE_S = 40.0
"""Bytes of one of Spark's pages, which are a tenant's word, and seconds for all of it; the rest is left out.

A runner waits a little less for Spark to begin.
"""
_TO_SPARK, _OF_SPARK = ("accept", "x-forwarded-context"), ("content-type", "location")
_STATUSES = frozenset(range(200, 600)) - {204, 205, 304}
"""Those of answers that have a body."""

Document = dict[str, Any]


async def serve_socket(host: Host, path: Path, stop: asyncio.Event) -> None:
    """Serve the socket until ``stop`` is set.

    Raises:
        ConfigError: the socket cannot be made.
    """
    handlers = _Handlers(host)
    routes = [
        Route("/query", handlers.query, methods=["POST"]),
        Route("/log/{namespace}/{name}", handlers.log, methods=["GET"]),
        Route("/ui", handlers.ui, methods=["GET"]),
        Route("/state", handlers.state, methods=["GET"]),
    ]
    with _listening(path) as listener:
        config = uvicorn.Config(
            Starlette(routes=routes),
            http="h11",
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        await serve_until(stop, config, listener)


class _Handlers:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._following = 0

    async def query(self, request: Request) -> Response:
        asked = await request.json()
        try:
            command: Document = {name: str(asked[name]) for name in ("sql", "as") if name in asked}
            if isinstance(asked.get("change"), dict):
                command["change"] = asked["change"]
            command["limit"] = min(int(asked.get("limit") or MAX_ROWS), MAX_ROWS)
            asking = self._host.query(
                str(asked["space"]),
                command,
                asked.get("credentialsSecret"),
                QUERY_S,
                may_start=asked.get("mayStart") is not False,
            )
            answer = await unless_gone(request.receive, asking)
        except EnmasseError as error:
            return JSONResponse({"message": str(error)}, status_code=503)
        if answer is None:
            return Response(status_code=400)  # for nobody: the client has disconnected
        response = JSONResponse(answer)
        if len(response.body) > MAX_BYTES:
            text = f"the answer has more than {MAX_BYTES} bytes: ask for fewer rows or columns"
            return JSONResponse({"columns": [], "rows": [], "error": text})
        return response

    async def log(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        log = self._host.log_of(namespace, name)
        count = min(int(request.query_params.get("tail", "100")), MAX_LINES)
        lines = "".join(f"{line}\n" for line in log.tail(count))
        if request.query_params.get("follow") != "true":
            return Response(lines, media_type="text/plain")
        if self._following >= MAX_FOLLOWING:
            return JSONResponse({"message": f"{MAX_FOLLOWING} logs are followed, and that is all"}, status_code=503)
        return StreamingResponse(self._follow(log, lines, log.position()), media_type="text/plain")

    async def ui(self, request: Request) -> Response:
        namespace, name, path = (request.query_params[key] for key in ("namespace", "name", "path"))
        if has_dot_segments(path):
            return _own_error(404, "Spark has no page whose path has . or .. in it")
        headers = {key: value for key in _TO_SPARK if (value := request.headers.get(key))}
        stack, until = AsyncExitStack(), asyncio.get_running_loop().time() + PAGE_S

        async def begin() -> httpx.Response:
            ui = self._host.ui_of(namespace, name)
            async with asyncio.timeout_at(until):
                return await stack.enter_async_context(ui.get(f"/{path}", headers))

        try:
            answer = await unless_gone(request.receive, begin())
        except EnmasseError as error:
            return _own_error(503, str(error))
        except TimeoutError:
            return _own_error(503, f"the space's Spark session does not answer within {PAGE_S:g} seconds")
        if answer is None:
            return Response(status_code=400)  # for nobody: the client has disconnected
        # Whatever comes is a tenant's word: what HTTP has no such answer for is not passed on.
        kept = {key: value for key in _OF_SPARK if (value := answer.headers.get(key)) and value.isascii()}
        status = answer.status_code if answer.status_code in _STATUSES else 502
        return StreamingResponse(_bounded(answer, stack, until), status, kept)

    async def state(self, _request: Request) -> Response:
        return JSONResponse({"runners": self._host.state()})

    async def _follow(self, log: BoundedLog, lines: str, position: tuple[int, int]) -> AsyncIterator[str]:
        self._following += 1
        try:
            yield lines
            async with asyncio.timeout(FOLLOW_S):
                while True:
                    await asyncio.sleep(_POLL_S)
                    more, position = log.since(position)
                    if more:
                        yield "".join(f"{line}\n" for line in more)
        except TimeoutError:
            return
        finally:
            self._following -= 1


def _own_error(status: int, message: str) -> Response:
    return JSONResponse({"message": message}, status, headers={"host-error": "true"})


async def _bounded(answer: httpx.Response, stack: AsyncExitStack, until: float) -> AsyncIterator[bytes]:
    size, parts = 0, answer.aiter_raw()
    async with stack:
        while size <= MAX_PAGE_BYTES:
            try:
                async with asyncio.timeout_at(until):
                    part = await anext(parts)
            except (StopAsyncIteration, TimeoutError, httpx.TransportError):
                return
            size += len(part)
            yield part


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    make_private(path.parent)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # It gets its mode before it gets its name.
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=path.parent)) / "s"
    try:
        listener.bind(str(temporary))
        temporary.chmod(0o600)
        listener.listen(64)
        temporary.rename(path)
        temporary.parent.rmdir()
        yield listener
    except OSError as error:
        raise ConfigError(f"the socket {path} cannot be made: {error.strerror}") from None
    finally:
        listener.close()
        with suppress(OSError):
            path.unlink()
