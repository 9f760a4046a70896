"""Routes to the messages of an address: browse and follow, send, take.

Rules:
1. Reading bodies is a right of its own (``addresses/messages``), which a viewer lacks. A requester needs no user of
   the space: the API checks the right, and the node serves the control process within that space alone.
2. Bodies are never logged.
3. A page is bounded by its number of messages and by their bytes; who follows an address and reads too slowly is
   disconnected.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from enmasse.api.kube.requests import OBJECTS, Options, place, read_body
from enmasse.api.kube.status import RequestError, answer_error
from enmasse.api.kube.watch import MAX_WATCH_S, WatchResponse, event_line
from enmasse.api.messages.bodies import SHOWN_BYTES, WHOLE_BYTES, Declared
from enmasse.api.messages.documents import read_message, write_message, write_outcome
from enmasse.control.errors import ResourceNotFoundError
from enmasse.control.ports import Browsing
from enmasse.errors import EnmasseError
from enmasse.message.text_search import TextSearch
from enmasse.model.schema.kinds import ADDRESS
from enmasse.model.schema.schema import describe_value
from enmasse.model.schema.subresources import MESSAGES
from enmasse.wire.sparkplug.edge_node import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from enmasse.api.kube.watch import Watches
    from enmasse.client import Message
    from enmasse.control.ports import BrowsedMessage, MessageAdmin
    from enmasse.control.store.registry import Registry

DEFAULT_LIMIT = 50
MAX_MESSAGES = 500
"""Of one page, or taken at once."""

MAX_SENT = 100
LONGEST_WAIT_S = 30.0

Document = dict[str, Any]


def message_routes(
    registry: Registry, nodes: Mapping[str, MessageAdmin], node_of: Callable[[str], str], watches: Watches
) -> list[Route]:
    """Return the routes.

    Args:
        registry: the registry of the addresses.
        nodes: the ports to their messages, by the names of nodes.
        node_of: as for ``action_routes``.
        watches: all open ones.
    """
    kind = ADDRESS
    base = f"/apis/{kind.api_version}"
    path = f"/namespaces/{{namespace}}/{kind.plural}/{{name}}"

    def find(namespace: str, name: str) -> tuple[MessageAdmin, str, _Form]:
        spec = registry.store.get(kind.name, namespace, name)["spec"]
        schema = spec.get("schema") or {}
        key = f"{namespace}/{name}"
        declared = Declared(schema.get("format") or "", schema.get("definition") or "")
        return nodes[node_of(key)], key, _Form(spec["address"], declared)

    async def browse(request: Request) -> Response:
        """Browse the messages of an address, or follow those that come, and take nothing away."""
        namespace, name = place(request)
        asked = _asked(request)
        node, key, form = find(namespace, name)
        form = replace(form, most_bytes=asked.most_bytes, with_bodies=asked.with_bodies)
        if asked.is_watch:
            following = _Following(f"messages of {key}", node, key, asked.browsing, form)
            return WatchResponse(watches, following, (asked.requester, namespace, asked.network))
        page = await node.browse(key, asked.browsing)
        if asked.browsing.id and not page.messages:
            raise ResourceNotFoundError("Message", namespace, asked.browsing.id)
        return await asyncio.to_thread(_list, page.messages, form, page.after)

    async def send(request: Request) -> Response:
        """Send messages to an address."""
        namespace, name = place(request)
        messages = _to_send(await read_body(request, OBJECTS))
        node, key, _ = find(namespace, name)
        results = await node.send(key, messages)
        items = [write_outcome(result) for result in results]
        return JSONResponse({"kind": "OutcomeList", "apiVersion": kind.api_version, "metadata": {}, "items": items})

    async def receive(request: Request) -> Response:
        """Take messages from an address."""
        namespace, name = place(request)
        limit, wait_s = _to_receive(await read_body(request, OBJECTS))
        node, key, form = find(namespace, name)
        taken = await node.receive(key, limit, wait_s)
        return await asyncio.to_thread(_list, taken, form, "")

    return [
        Route(f"{base}{path}/messages", browse),
        Route(f"{base}{path}/messages", send, methods=["POST"]),
        Route(f"{base}{path}/receive", receive, methods=["POST"]),
    ]


@dataclass(frozen=True, slots=True)
class _Form:
    """The form in which the messages of an answer are shown.

    Attributes:
        address: the name of their address.
        declared: the declared encoding of their bodies.
        most_bytes: the most bytes of a body.
        with_bodies: whether bodies are shown at all.
        reader: has read those before.
    """

    address: str
    declared: Declared
    most_bytes: int = WHOLE_BYTES
    with_bodies: bool = True
    reader: Reader = field(default_factory=Reader)

    def write(self, browsed: BrowsedMessage) -> Document:
        return write_message(
            browsed, self.address, self.declared, self.reader, self.most_bytes, with_body=self.with_bodies
        )


def _list(messages: list[BrowsedMessage], form: _Form, after: str) -> Response:
    """Return the answer; decoding a page takes longer than others should wait, so it has a thread of its own."""
    return JSONResponse(
        {
            "kind": "MessageList",
            "apiVersion": ADDRESS.api_version,
            "metadata": {"continue": after} if after else {},
            "items": [form.write(message) for message in messages],
        }
    )


@dataclass(frozen=True, slots=True)
class _Following:
    """A watch of the messages that come to an address.

    Attributes:
        name: the name of what is watched, for the log.
        node: the port to it.
        key: the key of the address.
        wanted: the messages that are followed.
        form: of the messages.
    """

    name: str
    node: MessageAdmin
    key: str
    wanted: Browsing
    form: _Form

    async def events(self, watches: Watches) -> AsyncIterator[bytes]:
        """Yield one line for each message, until the server stops or the address ends."""
        try:
            async with asyncio.timeout(MAX_WATCH_S), self.node.follow(self.key, self.wanted) as messages:
                # The client learns that what comes from now on is seen.
                yield event_line("BOOKMARK", {"kind": "Message", "apiVersion": ADDRESS.api_version, "metadata": {}})
                async for browsed in messages:
                    yield event_line("ADDED", await asyncio.to_thread(self.form.write, browsed))
        except TimeoutError:
            return
        except EnmasseError as error:
            yield event_line("ERROR", json.loads(bytes(answer_error(error).body)))


# What is asked


@dataclass(frozen=True, slots=True)
class _Asked:
    """The query of a request for messages."""

    browsing: Browsing
    is_watch: bool
    with_bodies: bool
    most_bytes: int
    requester: str
    network: str


def _asked(request: Request) -> _Asked:
    options = Options(request, ADDRESS.api_version)
    for name in request.query_params:
        if name not in MESSAGES.query:
            raise RequestError(400, f"{name}: unknown; messages are browsed by {', '.join(MESSAGES.query)}")
    if options.flag("whole") and not options.text("id"):
        raise RequestError(400, "whole: only together with id, of one message")
    offset, search = options.text("offset"), options.text("search")
    if offset and options.text("time"):
        raise RequestError(400, "offset: not together with time")
    limit = options.number("limit") or DEFAULT_LIMIT
    if limit > MAX_MESSAGES:
        raise RequestError(400, f"limit: expected at most {MAX_MESSAGES}, got {limit}")
    browsing = Browsing(
        limit=limit,
        after=options.text("continue"),
        id=options.text("id"),
        selector=options.text("selector") or None,
        offset=options.number("offset") if offset else None,
        time_ms=_time(options.text("time")),
        matches=TextSearch(search).matches if search else None,
    )
    return _Asked(
        browsing=browsing,
        is_watch=options.flag("watch"),
        with_bodies=options.flag("bodies") if options.text("bodies") else True,
        most_bytes=WHOLE_BYTES if options.flag("whole") else SHOWN_BYTES,
        requester=options.requester.name,
        network=options.network,
    )


def _time(text: str) -> int | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(400, f"time: expected a time as in 2026-01-31T12:00:00Z, got '{text[:40]}'") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


def _to_send(body: Document) -> list[Message]:
    messages = body.get("messages")
    if unknown := [name for name in body if name != "messages"]:
        raise RequestError(400, f"{unknown[0]}: unknown; only messages are sent")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MAX_SENT:
        raise RequestError(400, f"messages: expected a list of 1 to {MAX_SENT}, got {describe_value(messages)}")
    return [read_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _to_receive(body: Document) -> tuple[int, float]:
    for name in body:
        if name not in ("limit", "waitSeconds"):
            raise RequestError(400, f"{name}: unknown; receive takes limit and waitSeconds")
    limit, wait_s = body.get("limit", 1), body.get("waitSeconds", 5)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_MESSAGES:
        raise RequestError(400, f"limit: expected a number from 1 to {MAX_MESSAGES}, got {describe_value(limit)}")
    is_number = isinstance(wait_s, int | float) and not isinstance(wait_s, bool)
    if not is_number or not 0 <= wait_s <= LONGEST_WAIT_S:
        raise RequestError(
            400, f"waitSeconds: expected a number from 0 to {LONGEST_WAIT_S:g}, got {describe_value(wait_s)}"
        )
    return limit, float(wait_s)
