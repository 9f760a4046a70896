"""``enmasse get connections`` and ``get links``: who is connected to a space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.cli.columns import age, present
from enmasse.cli.options import Output
from enmasse.cli.output import make_table, write_structured
from enmasse.model.kinds import kind_named

if TYPE_CHECKING:
    from enmasse.cli.api_client import ApiClient
    from enmasse.cli.output import Writer

__all__ = ["CONNECTED", "close_session", "sessions_of", "write_sessions"]

CONNECTED = ("connections", "connection", "links", "link")
"""What lists those who are connected, and is no kind of objects."""

_CONNECTION = ("NAME", "CONTAINER", "HOST", "USER", "SENDERS", "RECEIVERS", "IN", "OUT", "AGE")
_LINK = ("CONNECTION", "ROLE", "ADDRESS", "NAME", "CREDIT", "UNSETTLED", "DELIVERIES", "ACCEPTED")


def sessions_of(api: ApiClient, what: str, namespace: str, space: str) -> list[dict[str, Any]]:
    """Return all connections or links of a space."""
    path = f"{_path(namespace, space)}/{'links' if what.startswith('link') else 'connections'}"
    found: list[dict[str, Any]] = []
    page = api.call("GET", path)
    found += page["items"]
    while place := page["metadata"].get("continue"):
        page = api.call("GET", path, params={"continue": place})
        found += page["items"]
    return found


def close_session(api: ApiClient, namespace: str, space: str, name: str) -> None:
    """Close a connection of a space."""
    api.call("DELETE", f"{_path(namespace, space)}/connections/{name}")


def _path(namespace: str, space: str) -> str:
    kind = kind_named("AddressSpace")
    assert kind is not None
    return f"{kind.base_path()}/namespaces/{namespace}/{kind.plural}/{space}"


def write_sessions(writer: Writer, form: Output, what: str, items: list[dict[str, Any]]) -> None:
    """Write connections or links in the form that was asked for."""
    if form in (Output.YAML, Output.JSON):
        write_structured(writer.out, form.value, {"apiVersion": "v1", "kind": "List", "items": items})
    elif form is Output.NAME:
        for item in items:
            writer.say(f"{what.removesuffix('s')}/{item['name']}")
    elif not items:
        writer.note(f"There are no {what.removesuffix('s')}s.")
    else:
        is_links = what.startswith("link")
        rows = [_link(item) if is_links else _connection(item) for item in items]
        writer.out.print(make_table(_LINK if is_links else _CONNECTION, rows))


def _connection(item: dict[str, Any]) -> list[str]:
    cells = (
        item["name"], item.get("containerId", ""), item.get("host", ""), item.get("user", ""), item["senders"],
        item["receivers"], item["messagesIn"], item["messagesOut"], age(item["openedAt"], present()),
    )  # fmt: skip
    return [str(cell) for cell in cells]


def _link(item: dict[str, Any]) -> list[str]:
    names = ("connection", "role", "address", "name", "credit", "unsettled", "deliveries", "accepted")
    return [str(item.get(name, "-")) for name in names]
