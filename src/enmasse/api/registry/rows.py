"""Rows of a project's devices and of their commands, as pages and watches of the console show them.

Rules:
1. Whoever may list the devices, or the commands, of the tenant in the registry may see their rows.
2. A search looks at every device of the tenant: while somebody looks on, it is repeated less often than a page is.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enmasse.api.kube.requests import place
from enmasse.api.kube.status import RequestError
from enmasse.api.live.feeds import Source
from enmasse.api.live.routes import PagedQuery, Word, row_list
from enmasse.control.access.roles import DEVICE_REGISTRY
from enmasse.identity.rbac import AccessRequest
from enmasse.iot.commands import STATES
from enmasse.iot.search import MAX_IN_PAGE, Filter, Sort
from enmasse.iot.search import Query as DeviceQuery
from enmasse.model.schema.kinds import IOT_PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.api.live.routes import Live
    from enmasse.control.projects.commands import CommandDispatcher
    from enmasse.iot.registry import DeviceRegistry

Document = dict[str, Any]

_TABLES: Final = ("commands", "devices")
_SEARCH_S: Final = 2.0
_LONGEST = 255  # no id is longer

_STATUS: Final = {"enabled": True, "disabled": False}


class _RowsQuery(PagedQuery):
    search: Annotated[str, Field(max_length=_LONGEST)] = ""
    """A part of a device's id; of commands: all of it."""
    status: Word = ""
    device: Word = ""


def registry_rows_routes(live: Live, devices: DeviceRegistry, commands: CommandDispatcher) -> list[Route]:
    """Return the route of the rows of what projects have in the registry."""
    kind = IOT_PROJECT
    base = f"/apis/{kind.api_version}"

    async def rows(request: Request) -> Response:
        """List rows of the devices of a project, or of the commands to them."""
        namespace, name = place(request)
        table: str = request.path_params["table"]
        asked = _RowsQuery.of(request)
        search, status, device, sort, offset = asked.search, asked.status, asked.device, asked.sort, asked.offset
        if table not in _TABLES:
            raise RequestError(404, f"there is no table {table[:40]}; a project has {' and '.join(_TABLES)}")
        tenant, size = f"{namespace}.{name}", min(asked.limit, MAX_IN_PAGE)
        ask = AccessRequest("list", DEVICE_REGISTRY, table, namespace, name)
        live.rights.require(request.state.requester, ask)
        live.store.get(kind.name, namespace, name)  # a watch has to refuse before it begins
        find: Callable[[], Document]
        if table == "devices":
            if sort.removeprefix("-") not in ("", "id") or status not in ("", *_STATUS):
                raise RequestError(400, f"sort: expected id or -id; status: one of {', '.join(_STATUS)}")
            filters = (
                *((Filter("/id", device),) if device else ()),
                *((Filter("/id", f"*{search}*"),) if search else ()),
                *((Filter("/enabled", _STATUS[status]),) if status else ()),
            )
            sorts = (Sort("/id", is_descending=sort.startswith("-")),)
            query = DeviceQuery(size, offset, filters, sorts)
            find = partial(_devices, devices, commands, tenant, query)
        else:
            if status not in ("", *STATES):
                raise RequestError(400, f"status: expected one of {', '.join(STATES)}")
            find = partial(_commands, commands, tenant, device or search, status, size, offset)

        async def answer() -> Document:
            live.store.get(kind.name, namespace, name)
            return row_list(await asyncio.to_thread(find), kind.api_version)

        source = Source(
            ("registry", table, tenant, search, status, device, sort, size, offset),
            answer,
            (lambda: int(time.monotonic() / _SEARCH_S)) if search else object,  # another one each time
        )
        return await live.reply(request, source, watch=asked.watch, ask=ask)

    return [Route(f"{base}/namespaces/{{namespace}}/{kind.plural}/{{name}}/rows/{{table}}", rows)]


def _devices(devices: DeviceRegistry, commands: CommandDispatcher, tenant: str, query: DeviceQuery) -> Document:
    total, found = devices.search_devices(tenant, query)
    kept = commands.store.last_seen(tenant, [document["id"] for document in found])
    rows = []
    for document in found:
        row: Document = {"id": document["id"], "enabled": document.get("enabled", True)}
        row |= {key: document[key] for key in ("via", "viaGroups", "memberOf") if key in document}
        row |= {key: document["status"].get(key) for key in ("created", "updated") if document["status"].get(key)}
        # A former device of the id may have been seen before.
        since_ms = ms_of(document["status"].get("created"))
        if (seen := commands.seen(tenant, document["id"], since_ms)) is not None:
            row |= {"connected": seen.is_connected, "lastSeen": time_of(seen.at_ms)}
        elif kept.get(document["id"], 0) >= since_ms:
            row |= {"connected": False, "lastSeen": time_of(kept[document["id"]])}
        rows.append(row)
    return {"total": total, "items": rows}


def _commands(commands: CommandDispatcher, tenant: str, device: str, state: str, size: int, offset: int) -> Document:
    found = commands.store.search(tenant, device=device or None, state=state or None, size=size, offset=offset)
    return {"total": found["total"], "items": found["result"]}


def ms_of(text: str | None) -> int:
    """Return a time as the registry writes it in milliseconds since 1970; 0: there is none."""
    return int(datetime.fromisoformat(text).timestamp() * 1_000) if text else 0


def time_of(at_ms: int) -> str:
    """Return a time as the registry writes it."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
