"""``enmasse status``: the readiness of what is declared; ``enmasse endpoints``: every URL, ready to paste."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.columns import is_ready, sentence_of
from enmasse.cli.errors import CliError, UnreachableError
from enmasse.cli.installation import find_endpoints, find_url, wait_until
from enmasse.cli.objects import object_label, write_objects
from enmasse.cli.options import DEFAULT_DATA, Data, Output, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.drivers.supervisor.probes import failed_probes
from enmasse.errors import EnmasseError
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, IOT_PROJECT, PIPELINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from enmasse.cli.api_client import Document

_KINDS = {"spaces": ADDRESS_SPACE, "addresses": ADDRESS}
"""By their names in documents."""

_WARNINGS = ("LoginRequired", "AuthoritiesProved", "AliasGranted")
"""Conditions of projects that are ready nevertheless."""

_NAMED = 5  # objects that a message names; the table has them all


@dataclass
class _Found:
    """The state of the installation at one moment."""

    items: dict[str, list[Document]] = field(default_factory=dict)
    nodes: list[Document] = field(default_factory=list)
    pipelines: list[Document] = field(default_factory=list)
    """They may rest, wait or fail: the installation is ready without."""
    warnings: list[str] = field(default_factory=list)
    """Whatever is ready and open to more than it should be, or has names that do not count."""
    host: int | None = None
    """The process that runs them; None: there is none."""
    error: EnmasseError | None = None
    """Why the installation as a whole does not answer."""

    @property
    def waiting(self) -> list[Document]:
        """The declared objects that are not ready."""
        return [item for items in self.items.values() for item in items if not is_ready(item)]

    @property
    def is_all_ready(self) -> bool:
        """True if everything answers and is ready."""
        return self.error is None and not self.waiting and all(node["ready"] for node in self.nodes)


def status(
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="SECONDS", help="Wait so long until everything declared is ready."),
    ] = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show spaces, addresses and nodes, and whether all of them are ready.

    The exit code is 0 if everything that is declared is ready, 1 if something
    is not, and 4 if it was not in the time of --wait or nothing answers.
    """
    writer = Writer()
    found = _Found()

    def read() -> bool:
        nonlocal found
        found = _read(data)
        return found.is_all_ready

    in_time = wait_until(read, wait or 0.0)
    if found.error is not None and not found.items:
        raise found.error
    _write(writer, output, found)
    if in_time:
        return
    error = UnreachableError if wait is not None or found.error is not None else CliError
    raise error(_explain(found, wait))


def _read(data: Path) -> _Found:
    found = _Found()
    try:
        endpoints = find_endpoints(data)
        with ApiClient.find(data, warn=lambda _warning: None) as api:
            for name, kind in _KINDS.items():
                found.items[name] = api.select(kind, None)
            found.nodes = api.nodes()
            found.pipelines = api.select(PIPELINE, None)
            found.warnings = [text for item in api.select(IOT_PROJECT, None) for text in _warnings_of(item)]
        found.host = next((item.pid for item in endpoints.processes if item.kind == "pipelines"), None)
        find_url(data, "amqp")  # a node has said where it serves
        # The resources have what the node reported last; probes show that it still serves.
        if failed := failed_probes(endpoints):
            nodes = [item.name for item in endpoints.processes if item.kind == "node"]
            logs = f"enmasse logs {nodes[0]}" if len(nodes) == 1 else "enmasse logs"
            raise UnreachableError(f"{'; '.join(failed)}; `{logs}` may show why")
    except EnmasseError as error:
        found.error = error
    return found


def _write(writer: Writer, output: StructuredOutput, found: _Found) -> None:
    if output != StructuredOutput.TABLE:
        document: dict[str, Any] = {"ready": found.is_all_ready, "warnings": found.warnings}
        document |= found.items
        document |= {"nodes": found.nodes, "pipelines": found.pipelines}
        write_structured(writer, output.value, document)
        return
    if not any(found.items.values()):
        writer.say("Nothing is declared yet. Begin with `enmasse create space NAME`.")
    for name, items in found.items.items():
        if items:
            write_objects(writer, Output.WIDE, _KINDS[name], items, with_namespace=_is_spread(items))
            writer.say("")
    if found.pipelines:
        write_objects(writer, Output.WIDE, PIPELINE, found.pipelines, with_namespace=_is_spread(found.pipelines))
        if found.host is None:
            writer.say(
                "Pipelines are not run: their host is not there. It starts seconds after the node, and not at all "
                "with --no-pipelines."
            )
        writer.say("")
    if found.nodes:
        rows = [[node["name"], str(node["ready"]), "; ".join(node["problems"])] for node in found.nodes]
        writer.out.print(make_table(["NODE", "READY", "MESSAGE"], rows))
    for warning in found.warnings:
        writer.warn(warning)


def _warnings_of(project: Document) -> Iterator[str]:
    for condition in (project.get("status") or {}).get("conditions") or ():
        if condition["type"] in _WARNINGS and condition["status"] == "False":
            yield f"{object_label(project)} in namespace {project['metadata']['namespace']}: {condition['message']}"


def _is_spread(items: list[Document]) -> bool:
    return any(item["metadata"]["namespace"] != "default" for item in items)


def _explain(found: _Found, wait: float | None) -> str:
    late = f"after {wait:g} s " if wait is not None else ""
    if found.error is not None:
        return f"{late}{found.error}"
    unready = [(f"node {node['name']}", "; ".join(node["problems"])) for node in found.nodes if not node["ready"]]
    unready += [(object_label(item), sentence_of(item)) for item in found.waiting]
    sentences = [f"{name} is not ready" + f" ({why})" * bool(why) for name, why in unready[:_NAMED]]
    if len(unready) > _NAMED:
        sentences.append(f"{len(unready) - _NAMED} more of the table above are not ready")
    return late + "; ".join(sentences)


def endpoints(output: StructuredChoice = StructuredOutput.TABLE, data: Data = DEFAULT_DATA) -> None:
    """Show every URL that the installation serves."""
    writer = Writer()
    found = find_endpoints(data)
    if output != StructuredOutput.TABLE:
        write_structured(writer, output.value, [asdict(item) for item in found.endpoints])
        return
    rows = [[item.protocol, item.url] for item in found.endpoints]
    writer.out.print(make_table(["PROTOCOL", "URL"], rows))
