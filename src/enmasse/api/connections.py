"""Who is connected to a space, by which links, and how to send somebody out.

Connections and links are no objects: they lie in the nodes, are told as they are at that moment, and in pages
between which they may change.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from enmasse.api.status import RequestError
from enmasse.model.kinds import kind_named

if TYPE_CHECKING:
    from enmasse.control.ports import SessionAdmin
    from enmasse.control.registry import Registry

__all__ = ["connection_routes"]

Continue = Annotated[int, Query(alias="continue", ge=0, description="where the former page ended")]

Document = dict[str, Any]

_CONNECTION = {
    "name": "name",
    "container": "containerId",
    "host": "host",
    "user": "user",
    "mechanism": "mechanism",
    "senders": "senders",
    "receivers": "receivers",
    "messagesIn": "messagesIn",
    "messagesOut": "messagesOut",
    "bytesIn": "bytesIn",
    "bytesOut": "bytesOut",
}
_LINK = {
    name: name
    for name in (
        "name", "connection", "role", "address", "credit", "unsettled", "deliveries", "accepted", "rejected",
        "released", "modified",
    )
}  # fmt: skip


def connection_routes(registry: Registry, sessions: SessionAdmin) -> APIRouter:
    """Return the routes.

    Args:
        registry: where the spaces are declared.
        sessions: the way to who is connected.
    """
    kind = kind_named("AddressSpace")
    assert kind is not None
    router = APIRouter(prefix=f"/apis/{kind.api_version}", tags=[kind.name])
    path = f"/namespaces/{{namespace}}/{kind.plural}/{{name}}"

    @router.get(
        f"{path}/connections",
        summary="AddressSpace: who is connected",
        operation_id="list_connections",
        response_class=JSONResponse,
    )
    async def list_connections(namespace: str, name: str, offset: Continue = 0) -> Response:
        registry.store.get(kind.name, namespace, name)
        found, has_more = await sessions.connections_of(f"{namespace}/{name}", offset)
        items = [_told(item, _CONNECTION) | {"openedAt": _time(item["openedAt"])} for item in found]
        return _list("ConnectionList", kind.api_version, items, offset, has_more=has_more)

    @router.get(
        f"{path}/links",
        summary="AddressSpace: the links of who is connected",
        operation_id="list_links",
        response_class=JSONResponse,
    )
    async def list_links(namespace: str, name: str, offset: Continue = 0) -> Response:
        registry.store.get(kind.name, namespace, name)
        found, has_more = await sessions.links_of(f"{namespace}/{name}", offset)
        return _list("LinkList", kind.api_version, [_told(item, _LINK) for item in found], offset, has_more=has_more)

    @router.delete(
        f"{path}/connections/{{connection}}",
        summary="AddressSpace: close a connection; its client may come again",
        operation_id="close_connection",
        response_class=JSONResponse,
    )
    async def close_connection(namespace: str, name: str, connection: str) -> Response:
        registry.store.get(kind.name, namespace, name)
        if not await sessions.close_connection(f"{namespace}/{name}", connection):
            raise RequestError(404, f"space {name} has no connection {connection}")
        details = {"name": name, "group": kind.group, "kind": kind.plural}
        return JSONResponse(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        )

    return router


def _told(entity: Document, fields: dict[str, str]) -> Document:
    return {told: entity[known] for known, told in fields.items() if entity.get(known) is not None}


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _list(kind: str, api_version: str, items: list[Document], offset: int, *, has_more: bool) -> Response:
    metadata = {"continue": str(offset + len(items))} if has_more else {}
    return JSONResponse({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items})
