"""``enmasse nodes``: list the nodes of an installation, and say which of them get new spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.options import DEFAULT_DATA, Data, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.model.schema.kinds import ADDRESS_SPACE, MESSAGING_NODE
from enmasse.model.schema.subresources import NODES

if TYPE_CHECKING:
    from typing import Any

    Document = dict[str, Any]

_COLUMNS = ["NAME", "STATE", "ROLES", "LABELS", "CORDONED", "SPACES", "CONNECTIONS", "BUSY", "STATUS"]

nodes = typer.Typer(help="List the nodes, and say which of them get new spaces.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The node, such as node-1.")]


@nodes.callback(invoke_without_command=True)
def list_nodes(
    context: typer.Context, output: StructuredChoice = StructuredOutput.TABLE, data: Data = DEFAULT_DATA
) -> None:
    """List the nodes, and say which of them get new spaces.

    BUSY is the share of a processor that a node uses, SPACES the number of spaces that are at home on it.
    """
    if context.invoked_subcommand is not None:
        return
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        declared = api.select(MESSAGING_NODE, None)
        found = {item["name"]: item for item in api.call("GET", f"{ADDRESS_SPACE.base_path()}/{NODES.name}")["items"]}
    items = [_told(item, found.get(item["metadata"]["name"], {})) for item in declared]
    if output is StructuredOutput.TABLE:
        writer.out.print(make_table(_COLUMNS, [_row(item) for item in items]))
    else:
        write_structured(writer, output.value, {"apiVersion": "v1", "kind": "List", "items": items})


def _told(node: Document, figures: Document) -> Document:
    """Return what there is to tell of a node."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return {
        "name": node["metadata"]["name"],
        "state": status.get("phase", "Pending"),
        "roles": spec.get("roles", []),
        "labels": node["metadata"].get("labels", {}),
        "cordoned": spec.get("unschedulable", False),
        "spaces": status.get("spaces", 0),
        "connections": figures.get("connections"),
        "busy": figures.get("cpu"),
        # Figures are some seconds old: whether it can be reached is better known from its status.
        "problems": [*status.get("messages", ()), *(figures.get("problems", ()) if figures.get("up") else ())],
    }


def _row(item: Document) -> list[str]:
    labels = ",".join(f"{name}={value}" for name, value in sorted(item["labels"].items()))
    busy, connections = item["busy"], item["connections"]
    return [
        item["name"],
        item["state"],
        ",".join(item["roles"]) or "-",
        labels or "-",
        str(item["cordoned"]),
        str(item["spaces"]),
        "-" if connections is None else str(connections),
        "-" if busy is None else f"{busy * 100:.0f} %",
        "; ".join(dict.fromkeys(item["problems"])),
    ]


@nodes.command()
def cordon(name: _Name, data: Data = DEFAULT_DATA) -> None:
    """Place no new space on a node; those that it has stay."""
    _cordon(name, True, "gets no new space", data)


@nodes.command()
def uncordon(name: _Name, data: Data = DEFAULT_DATA) -> None:
    """Place new spaces on a node again."""
    _cordon(name, False, "gets new spaces", data)


def _cordon(name: str, is_cordoned: bool, said: str, data: Data) -> None:
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        api.merge(api.get(MESSAGING_NODE, "", name), {"spec": {"unschedulable": is_cordoned}})
    writer.say(f"node {name} {said}")
