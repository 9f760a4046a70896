"""``enmasse control``: the control process alone."""

from __future__ import annotations

from typing import Annotated

import typer

from enmasse.cli.options import DEFAULT_DATA, Data, LogFormat, LogFormatChoice
from enmasse.engines.embedded.paths import DEFAULT_NODE
from enmasse.engines.supervisor.parent import die_with_parent
from enmasse.engines.supervisor.ports import API_PORT

__all__ = ["control"]


def control(
    host: Annotated[str, typer.Option("--host", help="Loopback interface of the API.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the API.")] = API_PORT,
    node: Annotated[str, typer.Option("--node", metavar="NAME", help="The node to manage.")] = DEFAULT_NODE,
    node_url: Annotated[
        str | None,
        typer.Option("--node-url", metavar="URL", help="Its management; by default its socket in DIR."),
    ] = None,
    supervised: Annotated[
        bool, typer.Option("--supervised", help="Die with the supervisor that started it.")
    ] = False,
    log_format: LogFormat = LogFormatChoice.TEXT,
    data: Data = DEFAULT_DATA,
) -> None:
    """Run the control process alone: resource store, API and controllers, for one node."""
    from enmasse.api.process import ControlSettings, run_control  # noqa: PLC0415  # slow; only needed here

    if supervised:
        die_with_parent()
    raise typer.Exit(run_control(ControlSettings(data, host, port, node, node_url, supervised, log_format.value)))
