"""Routes that nodes answer: health, journals, connections, links and retained values of spaces, what users may do.

Control is ready when its resource store answers, because objects can be written then, whether or not the node is
reachable. The state of the node is only reported: its own ``/readyz`` decides on it. ``/readyz/nodes/NAME`` tells
that to probes, which cannot ask one node of several.

A node refuses to write to the journal of another installation until it is adopted.

Connections, links and retained values are not stored as objects: nodes report the present ones, in pages between
which they change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from enmasse.api.access.authorization import NODE_READINESS
from enmasse.api.kube.requests import OBJECTS, Query, place, read_body
from enmasse.api.kube.status import RequestError
from enmasse.control.errors import NodeUnavailableError, ResourceNotFoundError
from enmasse.model.schema.kinds import ADDRESS_SPACE, MESSAGING_USER
from enmasse.model.schema.schema import describe_value
from enmasse.model.schema.subresources import CHECK, CONNECTIONS, LINKS, RETAINED, SESSIONS, WILLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.api.metrics.nodes import Figures
    from enmasse.control.context import Context, Node
    from enmasse.control.ports import RetainedAdmin, SessionAdmin, UserJudge
    from enmasse.control.store.registry import Registry
    from enmasse.model.schema.subresources import ListedField, Subresource


Document = dict[str, Any]


def health_routes(registry: Registry, figures: Sequence[Figures], context: Context | None = None) -> list[Route]:
    """Return the routes.

    Args:
        registry: the registry of the resources.
        figures: the figures of each node.
        context: the context of the controllers; None: only what nodes report themselves is shown.
    """

    async def healthy(_request: Request) -> PlainTextResponse:
        """Show that the process runs."""
        return PlainTextResponse("ok")

    async def ready(request: Request) -> Response:
        """Show that the resource store answers; with ?verbose, the state of nodes."""
        registry.store.fact("version")
        wants_json = "application/json" in request.headers.get("accept", "")
        if not wants_json and "verbose" not in request.query_params:
            return PlainTextResponse("ok")
        nodes = await asyncio.gather(*(_node(item, context) for item in figures))
        if wants_json:
            return JSONResponse({"ready": True, "nodes": nodes})
        lines = ["[+] store"]
        for node in nodes:
            sign = "+" if node["ready"] and not node["problems"] else "!"
            lines.append(": ".join([f"[{sign}] node {node['name']}", *node["problems"]]))
        return PlainTextResponse("\n".join([*lines, "readyz passed", ""]))

    figures_of = {item.name: item for item in figures}

    async def node_ready(request: Request) -> PlainTextResponse:
        """Show whether a node is ready, as it says itself."""
        name: str = request.path_params["name"]
        if name not in figures_of:
            return PlainTextResponse("there is no such node", 404)
        is_ready = await figures_of[name].is_ready()
        return PlainTextResponse("ok" if is_ready else "not ready", 200 if is_ready else 503)

    return [
        Route("/healthz", healthy),
        Route("/livez", healthy),
        Route("/readyz", ready),
        Route(NODE_READINESS + "{name}", node_ready),
    ]


async def _node(figures: Figures, context: Context | None) -> Document:
    """Return the state of a node as it reports it, and differences from what is declared."""
    found = await figures.read()
    if found is None:
        return {"name": figures.name, "up": False, "ready": False, "problems": [figures.problem]}
    health = found.health
    problems = [str(problem) for problem in health.get("problems") or ()]
    is_known = True
    if context is not None:
        node = context.nodes[figures.name]
        # Until its first complete listing, differences from what is declared are not known.
        is_known = node.mirror.was_complete and not node.mirror.problem
        problems += node.problems() or ([] if is_known else ["its contents are not listed yet"])
    return {
        "name": figures.name,
        "up": True,
        "ready": bool(health.get("ready")) and is_known,
        "problems": problems,
    }


def node_routes(context: Context, figures: Sequence[Figures]) -> list[Route]:
    """Return the routes.

    Args:
        context: the context of the controllers.
        figures: the figures of each node.
    """
    figures_of = {item.name: item for item in figures}

    def find_node(name: str) -> Node:
        if name not in context.nodes:
            raise ResourceNotFoundError("Node", "", name)
        return context.nodes[name]

    async def journal(request: Request) -> Response:
        """Show which installation the journal of a node belongs to, and what it holds."""
        name: str = request.path_params["name"]
        node, asked = find_node(name), figures_of[name]
        found = await asked.read()
        if found is None:
            raise NodeUnavailableError(f"node {name}: {asked.problem}")
        answer: Document = await node.journal()
        answer |= {
            "spaces": len(found.spaces),
            "addresses": len(found.addresses),
            "messages": sum(address.get("messagesStored") or 0 for address in found.addresses),
        }
        return JSONResponse(answer)

    async def adopt(request: Request) -> Response:
        """Have the journal of a node belong to this installation."""
        name: str = request.path_params["name"]
        node = find_node(name)
        body = await read_body(request, OBJECTS)
        installation = body.get("installation")
        if not isinstance(installation, str) or not installation:
            raise RequestError(400, "installation: required: the one that the journal belongs to now")
        await node.take_in(installation)
        return JSONResponse(await node.journal())

    return [
        Route("/nodes/{name}/journal", journal),
        Route("/nodes/{name}/adopt", adopt, methods=["POST"]),
    ]


class _PageQuery(Query):
    after: Annotated[str, Field(alias="continue", pattern=r"^\d{1,9}(\.\d{1,4})?$")] = "0"
    """The offset in the list of a node, and after a dot the number of the node, which is left out for the first."""


_SPACE = f"/apis/{ADDRESS_SPACE.api_version}/namespaces/{{namespace}}/{ADDRESS_SPACE.plural}/{{name}}"

Pages = Callable[[str, int], Awaitable[tuple[list[Document], bool]]]
"""Returns a page of what a node reports of a space, from an offset on, and whether there are more."""


def connection_routes(registry: Registry, nodes: Sequence[SessionAdmin]) -> list[Route]:
    """Return the routes.

    Args:
        registry: the registry of the spaces.
        nodes: the ports to the connections of all nodes.
    """
    kind = ADDRESS_SPACE

    async def end_session(request: Request) -> Response:
        """End a client's session, with all that waits for the client."""
        namespace, name = place(request)
        client: str = request.path_params["client"]
        registry.store.get(kind.name, namespace, name)
        if not await _is_done(node.end_session(f"{namespace}/{name}", client) for node in nodes):
            raise RequestError(404, f"space {name} has no session of client {client}")
        return _done(name)

    async def close_connection(request: Request) -> Response:
        """Close a connection; its client can reconnect."""
        namespace, name = place(request)
        connection: str = request.path_params["connection"]
        registry.store.get(kind.name, namespace, name)
        if not await _is_done(node.close_connection(f"{namespace}/{name}", connection) for node in nodes):
            raise RequestError(404, f"space {name} has no connection {connection}")
        return _done(name)

    return [
        _list_route(registry, CONNECTIONS, [node.connections_of for node in nodes]),
        _list_route(registry, LINKS, [node.links_of for node in nodes]),
        _list_route(registry, SESSIONS, [node.mqtt_sessions_of for node in nodes]),
        _list_route(registry, WILLS, [node.wills_of for node in nodes]),
        Route(f"{_SPACE}/{SESSIONS.name}/{{client:path}}", end_session, methods=["DELETE"]),
        Route(f"{_SPACE}/{CONNECTIONS.name}/{{connection}}", close_connection, methods=["DELETE"]),
    ]


async def _is_done(attempts: Iterable[Awaitable[bool]]) -> bool:
    """Return whether one of the nodes has done it, of which another one may be away.

    Raises:
        NodeUnavailableError: none has, and one is away.
    """
    problem: NodeUnavailableError | None = None
    for attempt in attempts:
        try:
            if await attempt:
                return True
        except NodeUnavailableError as error:
            problem = error
    if problem is not None:
        raise problem
    return False


def _list_route(registry: Registry, listed: Subresource, nodes: Sequence[Pages]) -> Route:
    """Return the route to the pages of what all nodes report of a space."""

    async def list_items(request: Request) -> Response:
        namespace, name = place(request)
        after = _PageQuery.of(request).after
        registry.store.get(ADDRESS_SPACE.name, namespace, name)
        while True:
            index, offset = _position(after, nodes)
            found, has_more = await nodes[index](f"{namespace}/{name}", offset)
            after = _next(nodes, index, offset + len(found), has_more=has_more)
            # A space is at home on one node, and the pages of the others are empty.
            if found or not after:
                return _list(listed, found, after)

    return Route(f"{_SPACE}/{listed.name}", list_items)


Filter = Annotated[str, Field(min_length=1, max_length=65_535)]
"""A name, or a pattern of names: + and * are a word, # the rest."""


class _RetainedQuery(_PageQuery):
    filter: Filter = "#"


class _ClearedQuery(Query):
    filter: Filter


def retained_routes(registry: Registry, nodes: Sequence[RetainedAdmin]) -> list[Route]:
    """Return the routes.

    Args:
        registry: the registry of the spaces.
        nodes: the ports to the retained values of all nodes.
    """
    kind = ADDRESS_SPACE
    path = f"{_SPACE}/{RETAINED.name}"

    async def list_values(request: Request) -> Response:
        """List the retained values of a space, without their messages."""
        namespace, name = place(request)
        asked = _RetainedQuery.of(request)
        registry.store.get(kind.name, namespace, name)
        index, offset = _position(asked.after, nodes)
        found, following = await nodes[index].retained_of(f"{namespace}/{name}", asked.filter, offset)
        return _list(RETAINED, found, _next(nodes, index, following or 0, has_more=following is not None))

    async def clear_values(request: Request) -> Response:
        """Clear retained values of a space."""
        namespace, name = place(request)
        asked = _ClearedQuery.of(request)
        space = registry.store.get(kind.name, namespace, name)
        counts = [await node.clear_retained(f"{namespace}/{name}", asked.filter) for node in nodes]
        count = sum(counts)
        details = {
            "name": name,
            "group": kind.group,
            "kind": kind.plural,
            "uid": space["metadata"]["uid"],
            "count": count,
        }
        message = f"{count} retained value{'s' * (count != 1)} cleared"
        return JSONResponse(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "message": message,
                "details": details,
            }
        )

    return [
        Route(path, list_values),
        Route(path, clear_values, methods=["DELETE"]),
    ]


def _fields_of(entity: Document, fields: tuple[ListedField, ...]) -> Document:
    found = {field: entity.get(field.of_node or field.name) for field in fields}
    return {
        field.name: _time(value) if field.type == "time" else value
        for field, value in found.items()
        if value is not None
    }


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _position(after: str, nodes: Sequence[Any]) -> tuple[int, int]:
    """Return the node and the offset that a list continues with."""
    offset, _, index = after.partition(".")
    if int(index or 0) >= len(nodes):
        raise RequestError(400, "continue: expected the token of a former page")
    return int(index or 0), int(offset)


def _next(nodes: Sequence[Any], index: int, offset: int, *, has_more: bool) -> str:
    """Return the token that continues a list; empty at its end."""
    if not has_more:
        index, offset = index + 1, 0
    if index >= len(nodes):
        return ""
    return f"{offset}.{index}" if index else str(offset)


def _done(space: str) -> Response:
    """Return the answer to an operation on a space that has succeeded."""
    details = {"name": space, "group": ADDRESS_SPACE.group, "kind": ADDRESS_SPACE.plural}
    return JSONResponse(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    )


def _list(listed: Subresource, found: list[Document], token: str) -> Response:
    items = [_fields_of(entity, listed.fields) for entity in found]
    metadata = {"continue": token} if token else {}
    return JSONResponse(
        {"kind": listed.kind, "apiVersion": ADDRESS_SPACE.api_version, "metadata": metadata, "items": items}
    )


_OPERATIONS: Final = {"send": True, "recv": True, "view": False, "manage": False}
"""True if each is of an address."""

_LONGEST: Final = 1024


def user_check_routes(registry: Registry, node: UserJudge) -> list[Route]:
    """Return the routes.

    Args:
        registry: the registry of the users.
        node: the port to a node with all of them.
    """
    kind = MESSAGING_USER
    base = f"/apis/{kind.api_version}"

    async def check(request: Request) -> Response:
        """Tell whether a user may do something."""
        namespace, name = place(request)
        body = await read_body(request, OBJECTS)
        operation, address = body.get("operation"), body.get("address", "")
        if operation not in _OPERATIONS:
            raise RequestError(400, f"operation: one of {', '.join(_OPERATIONS)}, got {describe_value(operation)}")
        if not isinstance(address, str) or len(address) > _LONGEST or (_OPERATIONS[operation] and not address):
            raise RequestError(400, f"address: required: an address, got {describe_value(address)}")
        user = registry.store.get(kind.name, namespace, name)
        space = name.partition(".")[0]
        entity = f"{namespace}/{space}.{user['spec']['username']}"
        allowed, reason = await node.may(entity, operation, address)
        told = {"kind": CHECK.kind, "apiVersion": kind.api_version, "metadata": {}}
        return JSONResponse(told | {"allowed": allowed, "reason": reason})

    return [Route(f"{base}/namespaces/{{namespace}}/{kind.plural}/{{name}}/{CHECK.name}", check, methods=["POST"])]
