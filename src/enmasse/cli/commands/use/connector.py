"""``enmasse connector``: test a space's connection to another messaging service."""

from __future__ import annotations

from typing import Annotated

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import FAILED
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.cli.targets import find_space
from enmasse.model.schema.kinds import ADDRESS_SPACE
from enmasse.model.schema.subresources import CONNECTOR_TEST

_RESULTS = {True: "ok", False: "failed"}

connector = typer.Typer(no_args_is_help=True, help="Connections of spaces to other messaging services.")


@connector.callback()
def _connector() -> None:
    """Connections of spaces to other messaging services."""


@connector.command("test")
def try_connector(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The connector, as its space declares it.")],
    address: Annotated[
        str,
        typer.Option(
            "--address",
            "-a",
            metavar="ADDRESS",
            help="An address over there to which a receiver without credit is attached; else the first that the "
            "connector declares without wildcards.",
        ),
    ] = "",
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show how far the node comes at each server of a connector: DNS, TCP, TLS, SASL, open, and one attach.

    Each step has its time, or the reason why it failed and what to do. The exit code is 0 if every server lets the
    node in, and 1 if not.
    """
    writer, kind = Writer(), ADDRESS_SPACE
    with ApiClient.find(data, warn=writer.warn) as api:
        where = namespace or kind.default_namespace
        found = api.get(kind, where, find_space(api, where, space))
        action = CONNECTOR_TEST.name.format(connector=name)
        items = api.act(found, action, {"address": address} if address else {})["items"]
    if output is StructuredOutput.TABLE:
        for item in items:
            rows = [
                [step["step"], _RESULTS[step["succeeded"]], f"{step['milliseconds']:.1f} ms", step["message"]]
                for step in item["steps"]
            ]
            writer.out.print(make_table(["STEP", "RESULT", "TIME", f"AT {item['host']}:{item['port']}"], rows))
    else:
        write_structured(writer, output.value, items)
    if not all(item["succeeded"] for item in items):
        raise typer.Exit(FAILED)
