"""``enmasse get connections``, ``links``, ``sessions`` and ``wills``: the clients of a space."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from enmasse.cli.columns import age, present
from enmasse.cli.options import Output
from enmasse.cli.output import make_table, write_structured
from enmasse.model.schema.kinds import ADDRESS_SPACE

if TYPE_CHECKING:
    from enmasse.cli.api_client import ApiClient
    from enmasse.cli.output import Writer


CONNECTED = ("connections", "connection", "links", "link", "sessions", "session", "wills", "will")
"""Words that list clients; they are no kinds of objects."""

_CONNECTION = ("NAME", "CONTAINER", "HOST", "VIA", "USER", "SENDERS", "RECEIVERS", "IN", "OUT", "AGE", "NOT READ")
_SESSION = ("CLIENT", "USER", "CONNECTED", "FILTERS", "WAITING", "BYTES", "LOST", "IN-FLIGHT", "EXPIRY")
_WILL = ("CLIENT", "LINK", "USER", "ADDRESS", "STATE", "DELAY", "BYTES")
_LINK = ("CONNECTION", "ROLE", "ADDRESS", "NAME", "CREDIT", "UNSETTLED", "DELIVERIES", "ACCEPTED")


def sessions_of(api: ApiClient, what: str, namespace: str, space: str) -> list[dict[str, Any]]:
    """Return all connections, links, sessions or wills of a space."""
    path = f"{_path(namespace, space)}/{what.removesuffix('s')}s"
    found: list[dict[str, Any]] = []
    page = api.call("GET", path)
    found += page["items"]
    while place := page["metadata"].get("continue"):
        page = api.call("GET", path, params={"continue": place})
        found += page["items"]
    return found


def close_session(api: ApiClient, namespace: str, space: str, name: str) -> None:
    """Close a connection of a space."""
    api.call("DELETE", f"{_path(namespace, space)}/connections/{_encoded(name)}")


def end_session(api: ApiClient, namespace: str, space: str, client: str) -> None:
    """End the session of a client of MQTT."""
    api.call("DELETE", f"{_path(namespace, space)}/sessions/{_encoded(client)}")


def _encoded(name: str) -> str:
    """Return a name as the last part of a path, where `..` must not lead to the space."""
    return quote(name, safe="").replace(".", "%2E")


def _path(namespace: str, space: str) -> str:
    kind = ADDRESS_SPACE
    return f"{kind.base_path()}/namespaces/{namespace}/{kind.plural}/{space}"


def write_sessions(writer: Writer, form: Output, what: str, items: list[dict[str, Any]]) -> None:
    """Write connections, links, sessions or wills in the form that was asked for."""
    if form in (Output.YAML, Output.JSON):
        write_structured(writer, form.value, {"apiVersion": "v1", "kind": "List", "items": items})
    elif form is Output.NAME:
        for item in items:
            writer.say(f"{what.removesuffix('s')}/{item['name']}")
    elif not items:
        writer.note(f"There are no {what.removesuffix('s')}s.")
    else:
        columns, cells = _TABLES[what.removesuffix("s")]
        rows = [cells(item) for item in items]
        if "VIA" in columns and not any(item.get("via") for item in items):
            at = columns.index("VIA")  # as with one node
            columns = columns[:at] + columns[at + 1 :]
            rows = [row[:at] + row[at + 1 :] for row in rows]
        writer.out.print(make_table(columns, rows))


def _connection(item: dict[str, Any]) -> list[str]:
    cells = (
        item["name"], item.get("containerId", ""), item.get("host", ""), item.get("via", ""), item.get("user", ""),
        item["senders"], item["receivers"], item["messagesIn"], item["messagesOut"],
        age(item["openedAt"], present()), item.get("notRead", ""),
    )  # fmt: skip
    return [str(cell) for cell in cells]


def _session(item: dict[str, Any]) -> list[str]:
    expiry = item.get("expiry")
    cells = (
        item["name"], item.get("user", ""), "yes" if item["connected"] else "no", item["filterCount"],
        item["messagesStored"], item["bytesStored"], item["dropped"], item["inFlightOut"] + item["inFlightIn"],
        "never" if expiry is None else f"{expiry} s",
    )  # fmt: skip
    return [str(cell) for cell in cells]


def _will(item: dict[str, Any]) -> list[str]:
    names = ("client", "link", "user", "address", "state", "delay", "bytes")
    return [str(item.get(name, "-")) for name in names]


def _link(item: dict[str, Any]) -> list[str]:
    names = ("connection", "role", "address", "name", "credit", "unsettled", "deliveries", "accepted")
    return [str(item.get(name, "-")) for name in names]


_TABLES: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], list[str]]]] = {
    "connection": (_CONNECTION, _connection),
    "link": (_LINK, _link),
    "session": (_SESSION, _session),
    "will": (_WILL, _will),
}
