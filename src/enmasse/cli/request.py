"""``enmasse request``: a request to an address, and the reply."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.messages import explain, open_connection, parse_properties, read_body, to_json, to_text
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Properties, Space, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer
from enmasse.client import Message
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["request"]


def request(
    address: Annotated[str, typer.Argument(metavar="ADDRESS")],
    body: Annotated[
        str | None, typer.Argument(metavar="[BODY]", help="The text; - or nothing: standard input.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the reply.")
    ] = 10.0,
    subject: Annotated[str | None, typer.Option("--subject", help="Subject.")] = None,
    properties: Properties = None,
    space: Space = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Send a request to an address and print the reply, which comes over an address of its own."""
    message = Message(read_body(body), subject=subject, properties=parse_properties(properties or []))
    try:
        reply = asyncio.run(_request(data, address, message, timeout, space, namespace))
    except EnmasseError as error:
        raise explain(error) from None
    writer = Writer()
    if output == StructuredOutput.TABLE:
        writer.say(to_text(reply))
    else:
        writer.out.print(json.dumps(to_json(reply), ensure_ascii=False, indent=2), markup=False, soft_wrap=True)


async def _request(
    data: Path, address: str, message: Message, timeout_s: float, space: str | None, namespace: str | None
) -> Message:
    async with open_connection(data, "request", space, namespace) as connection:
        return await connection.request(address, message, timeout=timeout_s)
