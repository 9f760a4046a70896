"""``enmasse check user``: whether a messaging user may do something."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import FAILED, UsageError
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, write_structured
from enmasse.cli.targets import find
from enmasse.model.schema.kinds import MESSAGING_USER
from enmasse.model.schema.subresources import CHECK

check = typer.Typer(no_args_is_help=True, help="Check whether somebody may do something.")


class Operation(StrEnum):
    """The operations that users may do or not."""

    SEND = "send"
    RECV = "recv"
    VIEW = "view"
    MANAGE = "manage"


@check.callback()
def _check() -> None:
    """Check whether somebody may do something."""


@check.command("user")
def check_user(
    name: Annotated[str, typer.Argument(metavar="USERNAME", help="The user, or the name of its object.")],
    may: Annotated[Operation, typer.Option("--may", help="What it wants to do.", show_default=False)],
    address: Annotated[
        str, typer.Option("--address", "-a", metavar="ADDRESS", help="Where it wants to send or receive.")
    ] = "",
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show whether a messaging user may do something, and by which permission or why not, as the node decides it.

    The exit code is 0 if it may, and 1 if not.
    """
    writer, kind = Writer(), MESSAGING_USER
    if may in (Operation.SEND, Operation.RECV) and not address:
        raise UsageError(f"where does it want to {may.value}? Name it by --address")
    with ApiClient.find(data, warn=writer.warn) as api:
        found = find(api, kind, namespace or kind.default_namespace, name, space)
        told = api.act(found, CHECK.name, {"operation": may.value} | ({"address": address} if address else {}))
    if output is StructuredOutput.TABLE:
        writer.say(f"{'yes' if told['allowed'] else 'no'}: {told['reason']}")
    else:
        asked = {"user": found["spec"]["username"], "operation": may.value, "address": address}
        write_structured(writer, output.value, asked | {name: told[name] for name in ("allowed", "reason")})
    if not told["allowed"]:
        raise typer.Exit(FAILED)
