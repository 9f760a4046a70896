"""The parts that live routes share, and the routes of rows.

Rules:
1. Whoever may list a kind of objects may see its rows; of all spaces, those that the requester may list.
2. With ``watch=true`` the whole answer comes again, as a line, whenever it has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enmasse.api.kube.requests import Options, Query, place
from enmasse.api.kube.status import RequestError
from enmasse.api.kube.watch import WatchResponse
from enmasse.api.live.feeds import Feeds, FeedWatch, Source
from enmasse.api.live.rows import MAX_ROWS, SPACES, TABLES, Rows
from enmasse.api.live.rows import Query as RowQuery
from enmasse.identity.rbac import AccessRequest
from enmasse.model.schema.kinds import ADDRESS_SPACE

if TYPE_CHECKING:
    from enmasse.api.kube.watch import Watched, Watches
    from enmasse.api.live.rows import Table
    from enmasse.api.live.sampler import Sampler
    from enmasse.control.access.rights import Rights
    from enmasse.control.store.port import Store
    from enmasse.identity.rbac import Requester

Document = dict[str, Any]

_LONGEST = 1024  # of a search; no name is longer

Word = Annotated[str, Field(max_length=_LONGEST)]


class WatchedQuery(Query):
    """Parameters of what can be watched."""

    watch: bool = False
    """True to send the answer again whenever it has changed, each as a line of JSON."""


class PagedQuery(WatchedQuery):
    """Parameters of pages of rows."""

    sort: Word = ""
    offset: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """The number of rows that are skipped."""
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 50
    """The number of rows at most."""


class _TableQuery(PagedQuery):
    search: Word = ""
    """A part of the name, in upper or lower case."""
    type: Word = ""
    status: Word = ""


class _SpacesQuery(_TableQuery):
    namespace: Word = ""


class _RowsQuery(_TableQuery):
    address: Word = ""
    connection: Word = ""


class Live:
    """The parts that live routes share.

    Args:
        store: the store of the objects.
        rights: the rights of requesters.
        rows: the rows of tables.
        sampler: the sampler of the nodes' figures.
        watches: all open ones.
        feeds: those that somebody looks at.
    """

    def __init__(
        self, store: Store, rights: Rights, rows: Rows, sampler: Sampler, watches: Watches, feeds: Feeds
    ) -> None:
        self.store = store
        self.rights = rights
        self.rows = rows
        self.sampler = sampler
        self._watches = watches
        self._feeds = feeds

    def state(self) -> object:
        """Return what everything that is told depends on."""
        return self.store.version, self.sampler.latest.number

    async def reply(
        self, request: Request, source: Source, *, watch: bool, ask: AccessRequest | None = None
    ) -> Response:
        """Return the answer to a request: once, or again and again.

        Args:
            request: the request.
            source: the source of the answer.
            watch: whether again and again.
            ask: the right that it needs, beside that of its path.
        """
        if not watch:
            return Response(await self._feeds.answer(source), media_type="application/json")
        requester: Requester = request.state.requester

        def is_allowed() -> bool:
            return ask is None or self.rights.allows(requester, ask)

        name = request.url.path.rpartition("/")[2]
        watched = FeedWatch(name, self._feeds, source, is_allowed)
        return self.watch(request, watched, "" if ask is None else ask.namespace)

    def watch(self, request: Request, watched: Watched, namespace: str) -> Response:
        """Return the answer to a watch."""
        options = Options(request, ADDRESS_SPACE.api_version)
        return WatchResponse(self._watches, watched, (options.requester.name, namespace, options.network))

    async def namespaces(self, requester: Requester, only: str = "") -> tuple[str, ...]:
        """Return the namespaces whose spaces a requester may list."""
        await self.rows.spaces.follow()
        return tuple(
            namespace
            for namespace in sorted(self.rows.spaces.groups())
            if (not only or namespace == only) and self.rights.allows(requester, SPACES.access(namespace))
        )


def seen_by(requester: Requester) -> Requester | None:
    """Return what tells apart those who may see different things; administrators all see everything."""
    return None if requester.is_admin else requester


def rows_routes(live: Live) -> list[Route]:
    """Return the routes of tables."""
    kind = ADDRESS_SPACE
    base = f"/apis/{kind.api_version}"

    async def rows(request: Request) -> Response:
        """List rows of a table of what a space has, with live figures."""
        namespace, name = place(request)
        table: str = request.path_params["table"]
        asked = _RowsQuery.of(request)
        if table not in TABLES:
            raise RequestError(404, f"there is no table {table[:40]}; a space has {', '.join(sorted(TABLES))}")
        shown = TABLES[table]
        query = RowQuery(**{**asked.model_dump(exclude={"watch"}), "search": asked.search.lower()})
        _check_sort(shown, asked.sort)
        requester: Requester = request.state.requester
        ask = shown.access(namespace, name)
        live.rights.require(requester, ask)
        live.store.get(kind.name, namespace, name)  # a watch has to refuse before it begins
        space = f"{namespace}/{name}"

        async def answer() -> Document:
            live.store.get(kind.name, namespace, name)
            return row_list(await live.rows.answer(table, space, query))

        source = Source(
            (table, space, query),
            answer,
            live.state if shown.is_stored else object,  # another one each time
        )
        return await live.reply(request, source, watch=asked.watch, ask=ask)

    async def spaces(request: Request) -> Response:
        """List rows of all spaces that one may list, with live figures."""
        asked = _SpacesQuery.of(request)
        query = RowQuery(**{**asked.model_dump(exclude={"namespace", "watch"}), "search": asked.search.lower()})
        _check_sort(SPACES, asked.sort)
        requester: Requester = request.state.requester

        async def answer() -> Document:
            seen = await live.namespaces(requester, asked.namespace)
            return row_list(await live.rows.all_spaces(seen, query))

        # What each requester may list is looked up for each answer.
        source = Source(("spaces", seen_by(requester), asked.namespace, query), answer, live.state)
        return await live.reply(request, source, watch=asked.watch)

    return [
        Route(f"{base}/namespaces/{{namespace}}/{kind.plural}/{{name}}/rows/{{table}}", rows),
        Route(f"{base}/rows/{kind.plural}", spaces),
    ]


def row_list(found: Document, api_version: str = ADDRESS_SPACE.api_version) -> Document:
    """Return rows as an object of the API."""
    return {"kind": "RowList", "apiVersion": api_version, "metadata": {}, **found}


def _check_sort(table: Table, sort: str) -> None:
    if sort and sort.removeprefix("-") not in table.columns:
        raise RequestError(400, f"sort: expected one of {', '.join(table.columns)}, perhaps with - before it")
