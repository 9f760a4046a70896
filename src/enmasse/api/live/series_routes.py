"""Routes of the last hour: series of an address, a pipeline, or a whole space; the overview; and nodes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enmasse.api.kube.requests import place
from enmasse.api.kube.status import RequestError
from enmasse.api.kube.watch import MAX_WATCH_S
from enmasse.api.live.feeds import PAUSE_S, Source
from enmasse.api.live.history import KEPT_S, Recorded
from enmasse.api.live.routes import Live, WatchedQuery, Word, seen_by
from enmasse.api.live.sampler import STEP_S
from enmasse.control.errors import ResourceNotFoundError
from enmasse.identity.rbac import AccessRequest
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, PIPELINE
from enmasse.model.schema.names import space_of
from enmasse.model.schema.subresources import CONNECTIONS, NODES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from enmasse.api.kube.watch import Watches
    from enmasse.api.live.connection_history import ConnectionHistory
    from enmasse.api.live.overview import Overview
    from enmasse.api.live.sampler import Sampler
    from enmasse.identity.rbac import Requester

Document = dict[str, Any]

_MAX_MINUTES = int(KEPT_S // 60)


class _SeriesQuery(WatchedQuery):
    address: Word = ""
    pipeline: Word = ""
    connection: Word = ""
    minutes: Annotated[int, Field(ge=1, le=_MAX_MINUTES)] = _MAX_MINUTES
    """The minutes that the series go back."""


@dataclass(frozen=True, slots=True)
class SeriesWatch:
    """The series of one thing: all of it first, then what is new.

    Attributes:
        sampler: reads the figures.
        recorded: of things of this sort.
        key: the key of the thing.
        after: seconds since 1970.
        is_allowed: whether the viewer may still see it.
    """

    sampler: Sampler
    recorded: Recorded
    key: str
    after: float
    is_allowed: Callable[[], bool]

    @property
    def name(self) -> str:
        """Its name in the log."""
        return "series"

    async def events(self, watches: Watches) -> AsyncIterator[bytes]:
        """Yield one line for each part, until the server stops or the viewer may no longer see it."""
        loop = asyncio.get_running_loop()
        deadline, after, number = loop.time() + MAX_WATCH_S, self.after, -1
        while loop.time() < deadline and not watches.stop.is_set() and self.is_allowed():
            if self.sampler.latest.number != number:
                number = self.sampler.latest.number
                part = series_of(self.sampler, self.recorded, self.key, after)
                if self.sampler.times:
                    after = self.sampler.times[-1]
                yield json.dumps(part, separators=(",", ":")).encode() + b"\n"
            await asyncio.sleep(PAUSE_S)


def series_of(sampler: Sampler, recorded: Recorded, key: str, after: float) -> Document:
    """Return what was read of a thing after a time."""
    times, series = recorded.series(key, sampler.times, after)
    return {
        "kind": "Series",
        "apiVersion": ADDRESS_SPACE.api_version,
        "metadata": {},
        "step": STEP_S,
        "times": [round(time, 3) for time in times],
        "series": series,
    }


def series_routes(live: Live, connections: ConnectionHistory) -> list[Route]:
    """Return the routes.

    Args:
        live: the parts that live routes share.
        connections: the history of each connection.
    """
    kind = ADDRESS_SPACE
    base = f"/apis/{kind.api_version}"

    async def series(request: Request) -> Response:
        """Tell what flowed in the last hour: in all, at an address or pipeline, over a connection."""
        namespace, name = place(request)
        asked = _SeriesQuery.of(request)
        address, pipeline, connection = asked.address, asked.pipeline, asked.connection
        if len([word for word in (address, pipeline, connection) if word]) > 1:
            raise RequestError(400, "expected one of address, pipeline and connection")
        requester: Requester = request.state.requester
        of = ADDRESS if address else PIPELINE if pipeline else kind
        resource = f"{kind.plural}/{CONNECTIONS.name}" if connection else of.plural
        ask = AccessRequest("get", of.group, resource, namespace, address or pipeline or name)
        live.rights.require(requester, ask)
        live.store.get(kind.name, namespace, name)
        if member := address or pipeline:
            live.store.get(of.name, namespace, member)
            if space_of(member) != name:
                raise ResourceNotFoundError(of.name, namespace, member)
        recorded = {ADDRESS: live.sampler.addresses, PIPELINE: live.rows.piped, kind: live.sampler.spaces}[of]
        key = f"{namespace}/{address or pipeline or name}"
        if connection:
            present, _ = await live.rows.connections.of(key)
            if not any(row["name"] == connection for row in present):
                raise ResourceNotFoundError("Connection", namespace, connection)
            connections.record_space(key)
            recorded, key = connections.recorded, f"{key}/{connection}"
        after = live.sampler.latest.at - asked.minutes * 60
        if asked.watch:
            watched = SeriesWatch(live.sampler, recorded, key, after, lambda: live.rights.allows(requester, ask))
            return live.watch(request, watched, namespace)
        body = json.dumps(series_of(live.sampler, recorded, key, after), separators=(",", ":"))
        return Response(body, media_type="application/json")

    return [Route(f"{base}/namespaces/{{namespace}}/{kind.plural}/{{name}}/series", series)]


def overview_routes(live: Live, overview: Overview) -> list[Route]:
    """Return the routes of the overview and of nodes."""
    kind = ADDRESS_SPACE
    base = f"/apis/{kind.api_version}"
    see_nodes = AccessRequest("list", kind.group, NODES.resource)

    async def read(request: Request) -> Response:
        """Tell what is wrong and how to mend it, sums, and nodes: of what one may see."""
        watch = WatchedQuery.of(request).watch
        requester: Requester = request.state.requester

        async def answer() -> Document:
            seen = await live.namespaces(requester)
            return await overview.answer(seen, shows_nodes=live.rights.allows(requester, see_nodes))

        return await live.reply(request, Source(("overview", seen_by(requester)), answer, live.state), watch=watch)

    async def nodes(request: Request) -> Response:
        watch = WatchedQuery.of(request).watch

        async def answer() -> Document:
            return {"kind": "NodeList", "apiVersion": kind.api_version, "metadata": {}, "items": overview.nodes()}

        return await live.reply(request, Source(("nodes",), answer, live.state), watch=watch)

    return [
        Route(f"{base}/overview", read),
        Route(f"{base}/nodes", nodes),
    ]
