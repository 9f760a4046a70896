"""Rows of a space's connectors: what is declared, whether it works, and what its nodes count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Document = dict[str, Any]

_FLOWS: Final = ("messagesIn", "messagesOut")
COUNTS: Final = (
    "connections",
    "reconnects",
    "senders",
    "receivers",
    "creditGranted",
    "creditAsked",
    "unsettled",
    "bytesSent",
    "bytesReceived",
    "silence",
)


def flowing(
    found: Iterable[Document], before: Mapping[str, Document], passed: float
) -> Iterable[tuple[str, Document]]:
    """Yield connectors as a node tells of them, by their names, each with its rates.

    Args:
        found: the figures of the present reading.
        before: the ones that were yielded for the reading before.
        passed: the seconds since then.
    """
    for item in found:
        former = before.get(item["name"])
        rates: list[float | None] = [None, None]
        if former is not None and passed > 0:
            rates = [max(0, item[flow] - former[flow]) / passed for flow in _FLOWS]
        yield item["name"], item | {"rates": rates}


def connector_rows(space: Document, figures: Mapping[str, Document]) -> Iterable[Document]:
    """Yield a row for each connector of a space.

    Args:
        space: the space as it is stored.
        figures: the figures of its connectors that a node has reported, by their names.
    """
    states = {item["name"]: item for item in (space.get("status") or {}).get("connectors") or ()}
    for declared in space["spec"].get("connectors") or ():
        name = declared["name"]
        state, counted = states.get(name, {}), figures.get(name, {})
        row: Document = {
            "name": name,
            "ready": bool(state.get("isReady")),
            "hosts": [_place(**server) for server in declared["endpointHosts"]],
            "tls": "TLS" if declared.get("tls") is not None else "",
        }
        if messages := state.get("messages"):
            row["messages"] = messages
        row |= {count: counted.get(count) for count in COUNTS}
        for flow, rate in zip(_FLOWS, counted.get("rates", ()), strict=False):
            row[flow] = None if rate is None else round(rate, 2)
        yield row


def _place(host: str, port: int | None = None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"
