"""``enmasse address``: what can be done to the messages that an address stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.browse import browse_messages
from enmasse.cli.errors import UsageError
from enmasse.cli.options import (
    DEFAULT_DATA,
    Data,
    MessageSelector,
    Namespace,
    Space,
    StructuredChoice,
    StructuredOutput,
)
from enmasse.cli.output import Writer, write_structured
from enmasse.model.kinds import kind_named
from enmasse.model.names import space_of

if TYPE_CHECKING:
    from pathlib import Path

    from enmasse.cli.api_client import Document

__all__ = ["address"]

address = typer.Typer(no_args_is_help=True, help="Look at, delete, move or send back what an address stores.")

_STORING = ("queue", "subscription", "deadletter")

Name = Annotated[str, typer.Argument(metavar="ADDRESS", help="The address, or the name of its object.")]


@address.command("purge")
def purge(
    name: Name,
    selector: MessageSelector = None,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Delete the messages of a queue, subscription or dead letter address, all or selected ones.

    Messages that a receiver holds unsettled stay.
    """
    _act("purge", name, {"selector": selector}, space, namespace, output, data)


@address.command("move")
def move(
    name: Name,
    to: Annotated[str, typer.Argument(metavar="TO", help="Another address of the same space.")],
    selector: MessageSelector = None,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Move the messages of an address to another one, all or selected ones."""
    _act("move", name, {"to": to, "selector": selector}, space, namespace, output, data)


@address.command("replay")
def replay(
    name: Name,
    selector: MessageSelector = None,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Send dead or expired letters back to the addresses that they came from, all or selected ones."""
    _act("replay", name, {"selector": selector}, space, namespace, output, data)


@address.command("browse")
def browse(
    name: Name,
    selector: MessageSelector = None,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Show at most so many.")] = 100,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Give up when the node takes longer.")
    ] = 60.0,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show what an address stores, in the order in which receivers get it, and take nothing away."""
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        found = _resolve(api, name, space, namespace, also=("stream",))
    metadata, spec = found["metadata"], found["spec"]
    if spec["type"] == "stream" and selector is not None:
        raise UsageError("a stream has no selectors: it gives its messages in order, from a position on")
    browse_messages(
        writer,
        data,
        spec["address"],
        selector=selector,
        is_stream=spec["type"] == "stream",
        count=count,
        timeout_s=timeout,
        space=space_of(metadata["name"]),
        namespace=metadata["namespace"],
        output=output,
    )


def _act(
    action: str,
    name: str,
    arguments: dict[str, Any],
    space: str | None,
    namespace: str | None,
    output: StructuredOutput,
    data: Path,
) -> None:
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        found = _resolve(api, name, space, namespace)
        done = api.act(found, action, {key: value for key, value in arguments.items() if value is not None})
    if output == StructuredOutput.TABLE:
        writer.say(done["message"])
    else:
        told = {"address": found["spec"]["address"], "action": action, "count": done["details"]["count"]}
        write_structured(writer.out, output.value, told)


def _resolve(
    api: ApiClient, name: str, space: str | None, namespace: str | None, *, also: tuple[str, ...] = ()
) -> Document:
    """Return the address that a user means.

    Raises:
        UsageError: when it stores no messages that could be dealt with so.
    """
    kind = kind_named("address")
    assert kind is not None
    found = api.resolve(kind, namespace or kind.default_namespace, name, space)
    spec = found["spec"]
    if spec["type"] not in (*_STORING, *also):
        hint = {
            "topic": "; its subscriptions do",
            "stream": "; its retention deletes what is old",
        }.get(spec["type"], "")
        raise UsageError(
            f"'{spec['address']}' is of type {spec['type']}, which stores no messages for one receiver each{hint}"
        )
    return found
