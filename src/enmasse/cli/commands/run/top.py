"""``enmasse top``: what flows through the addresses now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import ApiError
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer, make_table
from enmasse.cli.targets import find_space
from enmasse.model.schema.kinds import ADDRESS_SPACE
from enmasse.model.schema.subresources import NODES, ROWS_OF_SPACES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.cli.api_client import Document

_COLUMNS = ("SPACE", "ADDRESS", "TYPE", "IN/S", "OUT/S", "STORED", "BYTES", "SENDERS", "RECEIVERS")
_FIGURES = ("messagesIn", "messagesOut", "stored", "bytes", "senders", "receivers")
_UNITS = ("", "k", "M", "G", "T")
_MAX_SPACES = 50  # that are asked for each table, the busiest first
_BUSIEST = {"sort": "-flow"}


def top(
    interval: Annotated[float, typer.Option("--interval", "-i", min=1.0, help="Seconds between two tables.")] = 5.0,
    count: Annotated[int, typer.Option("--count", "-c", min=0, help="How many tables; 0: until Ctrl-C.")] = 0,
    lines: Annotated[
        int, typer.Option("--lines", min=1, max=500, help="How many addresses, the busiest first.")
    ] = 20,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show the busiest addresses with their rates, again and again.

    They are those of all spaces that you may list, unless you name a space or
    a namespace. Rates are those of the last reading, every five seconds.
    """
    writer = Writer()
    shown = 0
    with ApiClient.find(data, warn=writer.warn) as api:
        while True:
            rows, number = _busiest(api, namespace, space, lines)
            if writer.out.is_terminal:
                writer.out.clear()
            writer.out.print(make_table(_COLUMNS, [_cells(row) for row in rows]))
            if number > len(rows):
                writer.note(f"{number - len(rows)} more addresses")
            for node, problem in _silent(api):
                writer.warn(f"{node} does not answer: {problem}; what flows through it is not shown")
            shown += 1
            if shown == count:
                return
            time.sleep(interval)


def _busiest(api: ApiClient, namespace: str | None, space: str | None, lines: int) -> tuple[list[Document], int]:
    """Return the rows of the busiest addresses, and how many addresses there are."""
    base = ADDRESS_SPACE.base_path()
    asked: dict[str, Any] = _BUSIEST | {"limit": _MAX_SPACES} | ({"namespace": namespace} if namespace else {})
    spaces = api.call("GET", f"{base}/{ROWS_OF_SPACES.name}", params=asked | ({"search": space} if space else {}))
    found: list[Document] = []
    number = 0
    if space is not None and all(row["name"] != space for row in spaces["items"]):
        find_space(api, namespace or ADDRESS_SPACE.default_namespace, space)
    for row in spaces["items"]:
        if space and row["name"] != space:
            continue
        number += row["addresses"]
        if len(found) >= lines and not row.get("messagesIn") and not row.get("messagesOut"):
            continue  # nothing flows there
        path = f"{base}/namespaces/{row['namespace']}/{ADDRESS_SPACE.plural}/{row['name']}/rows/addresses"
        items = api.call("GET", path, params=_BUSIEST | {"limit": lines})["items"]
        found += [item | {"space": f"{row['namespace']}/{row['name']}"} for item in items]
    found.sort(key=lambda row: (-_flow(row), row["space"], row["address"]))
    return found[:lines], number


def _flow(row: Document) -> float:
    return float(row.get("messagesIn", 0.0) + row.get("messagesOut", 0.0))


def _silent(api: ApiClient) -> Iterator[tuple[str, str]]:
    """Yield the nodes that do not answer, and why, where one may list them."""
    try:
        nodes = api.call("GET", f"{ADDRESS_SPACE.base_path()}/{NODES.name}")["items"]
    except ApiError as error:
        if error.status != 403:
            raise
        return
    for node in nodes:
        if not node["up"]:
            yield node["name"], "; ".join(node["problems"])


def _cells(row: Document) -> list[str]:
    figures = [row.get(name) for name in _FIGURES]
    named = [row["space"], row["address"], row["type"]]
    return [*named, *("-" if value is None else _short(value) for value in figures)]


def _short(value: float) -> str:
    """Write a number in four characters or so: ``12``, ``1.2k``, ``340M``."""
    unit = 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    digits = 1 if value < 100 and value != int(value) else 0
    return f"{value:.{digits}f}{_UNITS[unit]}"
