"""Route to the frames of a connection, as they come and go.

Rules:
1. A trace is of one connection of one space. What authenticates somebody is masked by the node.
2. What messages say is shown only to who may read them (``addresses/messages`` in the namespace).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enmasse.api.kube.requests import Options, place
from enmasse.api.kube.status import RequestError, answer_error
from enmasse.api.kube.watch import MAX_WATCH_S, WatchResponse
from enmasse.errors import EnmasseError
from enmasse.identity.rbac import AccessRequest
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from enmasse.api.kube.watch import Watches
    from enmasse.control.ports import FrameTracer, TracedFrame
    from enmasse.control.store.registry import Registry

PAYLOAD_BYTES = 1024
"""Bytes that are shown of each message."""


def trace_routes(registry: Registry, nodes: Sequence[FrameTracer], watches: Watches) -> list[Route]:
    """Return the route.

    Args:
        registry: the registry of the spaces.
        nodes: the ports to the frames of all nodes.
        watches: all open ones.
    """
    kind = ADDRESS_SPACE
    base = f"/apis/{kind.api_version}"

    async def trace(request: Request) -> Response:
        """Follow the frames of a connection."""
        namespace, name = place(request)
        connection: str = request.path_params["connection"]
        options = Options(request, kind.api_version)
        if not options.flag("watch"):
            raise RequestError(400, "watch: expected true: a trace shows what happens from now on")
        registry.store.get(kind.name, namespace, name)
        with_bodies = options.flag("bodies")
        if with_bodies:
            request.state.rights.require(
                request.state.requester,
                AccessRequest("get", ADDRESS.group, f"{ADDRESS.plural}/messages", namespace),
            )
        tracing = _Tracing(
            f"frames of connection {connection:.40}",
            nodes,
            f"{namespace}/{name}",
            connection,
            PAYLOAD_BYTES if with_bodies else 0,
        )
        return WatchResponse(watches, tracing, (options.requester.name, namespace, options.network))

    return [Route(f"{base}/namespaces/{{namespace}}/{kind.plural}/{{name}}/connections/{{connection}}/trace", trace)]


@dataclass(frozen=True, slots=True)
class _Tracing:
    """A watch of the frames of a connection."""

    name: str
    nodes: Sequence[FrameTracer]
    space: str
    connection: str
    payload: int

    async def events(self, watches: Watches) -> AsyncIterator[bytes]:
        """Yield one line for each frame, until the connection or the server ends."""
        failure: EnmasseError | None = None
        for node in self.nodes:
            try:
                async with (
                    asyncio.timeout(MAX_WATCH_S),
                    node.trace(self.space, self.connection, self.payload) as frames,
                ):
                    yield _line({"remark": "what follows happens from now on"})
                    async for frame in frames:
                        yield _line(_document(frame))
                    return
            except TimeoutError:
                return
            except EnmasseError as error:
                failure = error
        if failure is not None:
            yield _line({"type": "ERROR", "object": json.loads(bytes(answer_error(failure).body))})


def _document(frame: TracedFrame) -> dict[str, Any]:
    if not frame.time:
        return {"remark": frame.text}
    direction = "out" if frame.is_outgoing else "in"
    return {"time": frame.time, "direction": direction, "frame": frame.text, "bytes": frame.size}


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
