"""``enmasse overview``: what is wrong, and sums of all that one may see. ``enmasse audit``: who did what.

``enmasse get nodes`` lists nodes by what is here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.columns import age, present
from enmasse.cli.options import DEFAULT_DATA, Data, Output, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.model.schema.kinds import ADDRESS_SPACE
from enmasse.model.schema.subresources import AUDIT, NODES, OVERVIEW

if TYPE_CHECKING:
    from enmasse.cli.api_client import Document
    from enmasse.model.schema.subresources import Subresource

_NODE_COLUMNS = ("NAME", "UP", "READY", "CPU", "MEMORY", "CONNECTIONS", "LINKS", "ADDRESSES", "UPTIME", "MESSAGE")
_AUDIT_COLUMNS = ("WHEN", "USER", "VERB", "WHAT", "CODE", "MS", "FROM", "AGENT")
_MIB = 1 << 20


def overview(output: StructuredChoice = StructuredOutput.TABLE, data: Data = DEFAULT_DATA) -> None:
    """Show what is wrong and how to mend it, and sums of all that you may see."""
    writer = Writer()
    found = _told(writer, data, OVERVIEW)
    if output is not StructuredOutput.TABLE:
        write_structured(writer, output.value, found)
        return
    problems, totals = found["problems"], found["totals"]
    for problem in problems:
        where = "/".join(problem[part] for part in ("namespace", "name") if problem.get(part))
        writer.say(f"{problem['kind']} {where}: {problem['text']}")
        writer.say(f"  {problem['remedy']}")
    if found["problemCount"] > len(problems):
        writer.say(f"and {found['problemCount'] - len(problems)} more problems")
    if not problems:
        writer.say("Nothing is wrong.")
    writer.say("")
    flows = [f"{totals['messagesIn']:g} in, {totals['messagesOut']:g} out a second"]
    pipelines = [f"{count} {phase}" for phase, count in sorted(totals["pipelines"].items())]
    facts = {
        "Spaces": totals["spaces"],
        "Addresses": totals["addresses"],
        "Connections": totals["connections"],
        "Messages": ", ".join([*flows, f"{totals['stored']:g} stored"]),
        **({"Pipelines": ", ".join(pipelines)} if pipelines else {}),
    }
    for fact, value in facts.items():
        writer.say(f"{fact + ':':<13}{value}")
    if nodes := found.get("nodes"):
        writer.say("")
        writer.out.print(make_table(_NODE_COLUMNS, [_node(node) for node in nodes]))


def audit(
    count: Annotated[int, typer.Option("--count", "-c", min=1, max=500, help="Show at most so many.")] = 50,
    search: Annotated[str, typer.Option("--search", metavar="TEXT", help="Only lines with a text in them.")] = "",
    user: Annotated[str, typer.Option("--user", "-u", metavar="NAME", help="Only what this user did.")] = "",
    before: Annotated[
        str, typer.Option("--before", metavar="TIME", help="Only what came before, as in 2026-01-31T12:00:00Z.")
    ] = "",
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show who did what through the API, what came last at the end; for administrators."""
    writer = Writer()
    asked = {"limit": str(count), "search": search, "user": user, "before": before}
    found = _told(writer, data, AUDIT, {name: value for name, value in asked.items() if value})
    items = found["items"][::-1]
    if output is not StructuredOutput.TABLE:
        write_structured(writer, output.value, {"apiVersion": "v1", "kind": "List", "items": items})
        return
    if not items:
        writer.note("Nothing of that is in the audit log.")
        return
    now = present()
    writer.out.print(make_table(_AUDIT_COLUMNS, [[age(item["time"], now), *_entry(item)] for item in items]))
    if found["metadata"].get("hasMore"):
        writer.note(f"there is more: --before {items[0]['time']} shows what came before")


def _entry(item: Document) -> list[str]:
    place = "/".join(item[part] for part in ("namespace", "resource", "name") if item.get(part))
    dry = " (dry run)" if item.get("dryRun") else ""
    cells = [item["user"], item["verb"], (place or item.get("path", "")) + dry, item["code"], item["ms"]]
    return [str(cell) for cell in (*cells, item.get("from", ""), item.get("agent", ""))]


NODE_WORDS = ("nodes", "node")
"""Words that list nodes; they are no kind of objects."""


def write_nodes(writer: Writer, data: Data, form: Output) -> None:
    """Write the nodes of an installation in the form that was asked for."""
    items = _told(writer, data, NODES)["items"]
    if form in (Output.YAML, Output.JSON):
        write_structured(writer, form.value, {"apiVersion": "v1", "kind": "List", "items": items})
    elif form is Output.NAME:
        for item in items:
            writer.say(f"node/{item['name']}")
    elif not items:
        writer.note("There are no nodes.")
    else:
        writer.out.print(make_table(_NODE_COLUMNS, [_node(item) for item in items]))


def _node(item: Document) -> list[str]:
    cpu, memory, uptime = item.get("cpu"), item.get("memory"), item.get("uptime")
    return [
        item["name"],
        str(item["up"]),
        str(item["ready"]),
        "-" if cpu is None else f"{cpu * 100:.0f} %",
        "-" if memory is None else f"{memory // _MIB} MiB",
        *(str(item.get(name, "-")) for name in ("connections", "links", "addresses")),
        "-" if uptime is None else f"{uptime // 1000} s",
        "; ".join(item["problems"]),
    ]


def _told(writer: Writer, data: Any, what: Subresource, asked: dict[str, str] | None = None) -> Document:
    with ApiClient.find(data, warn=writer.warn) as api:
        return api.call("GET", f"{ADDRESS_SPACE.base_path()}/{what.name}", params=asked or {})
