"""``enmasse tail``: what comes to an address, without taking it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.options import (
    DEFAULT_DATA,
    Data,
    MessageSelector,
    Namespace,
    Space,
    StructuredChoice,
    StructuredOutput,
)
from enmasse.cli.output import Writer
from enmasse.cli.targets import find
from enmasse.model.schema.kinds import ADDRESS
from enmasse.model.schema.subresources import MESSAGES

if TYPE_CHECKING:
    from enmasse.cli.api_client import Document


def tail(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The address, or the name of its object.")],
    count: Annotated[int, typer.Option("--count", "-c", min=0, help="End after so many; 0: on Ctrl-C.")] = 0,
    selector: MessageSelector = None,
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Only what has a text in it: in body or properties.")
    ] = "",
    start: Annotated[
        str, typer.Option("--from", metavar="POSITION", help="Of a stream: an offset, or a time (RFC 3339).")
    ] = "",
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show what comes to an address from now on, and take nothing away, until Ctrl-C.

    It goes by your rights at the API, not by those of a messaging user. What a
    receiver takes from a queue at once is not seen.
    """
    writer = Writer()
    asked = {"selector": selector, "search": search, "offset" if start.isdigit() else "time": start}
    wanted = {name: value for name, value in asked.items() if value}
    shown = 0
    with ApiClient.find(data, warn=writer.warn) as api:
        found = find(api, ADDRESS, namespace or ADDRESS.default_namespace, address, space)
        notes = [f"Following {found['spec']['address']}; Ctrl-C ends."]

        def tell() -> None:
            while notes:
                writer.note(notes.pop())

        # A watch ends after an hour; then another goes on.
        while True:
            for message in api.events(found, MESSAGES.name, wanted, tell):
                _print(writer, message, output)
                shown += 1
                if shown == count:
                    return
            wanted.pop("offset", None), wanted.pop("time", None)


def _print(writer: Writer, message: Document, output: StructuredOutput) -> None:
    if output is StructuredOutput.TABLE:
        writer.say(_text(message.get("body") or {}))
    elif output is StructuredOutput.JSON:
        writer.say_json(message)
    else:
        writer.say_json(message, indent=2, head="---\n")
    writer.out.file.flush()


def _text(body: dict[str, Any]) -> str:
    """Return the body of a message as text."""
    cut = "..." if body.get("truncated") else ""
    if "value" in body:
        return json.dumps(body["value"], ensure_ascii=False) + cut
    return str(body.get("text") or (f"hex:{body['hex']}" if "hex" in body else "")) + cut
