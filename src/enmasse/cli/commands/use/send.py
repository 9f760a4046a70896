"""``enmasse send``: messages to an address, with their outcomes.

``enmasse request``: a request to an address, and the reply.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.errors import CliError, UsageError
from enmasse.cli.messages import explain, open_connection, parse_properties, read_body, read_lines, to_json, to_text
from enmasse.cli.options import (
    DEFAULT_DATA,
    Data,
    Namespace,
    Properties,
    Space,
    StructuredChoice,
    StructuredOutput,
    User,
)
from enmasse.cli.output import Writer
from enmasse.client import Message, Outcome
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from enmasse.client import Sender

DEFAULT_PRIORITY = 4
"""AMQP's own."""

MAX_TTL_S = 4_294_967.295
"""AMQP has 32 bits for its milliseconds: some 49 days."""

MAX_DELAY_S = 3_153_600_000.0
"""A hundred years, as for all durations."""

_UNDER_WAY = 1000  # messages without outcome at a time; more only costs memory


def send(
    address: Annotated[str, typer.Argument(metavar="ADDRESS")],
    body: Annotated[
        str | None, typer.Argument(metavar="[BODY]", help="The text; - or nothing: standard input.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="The body is what the file has, byte by byte.", dir_okay=False
        ),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of the body is a message of its own; empty lines are left out.")
    ] = False,
    content_type: Annotated[
        str | None, typer.Option("--content-type", metavar="TYPE", help="Such as application/json.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Send it so often.")] = 1,
    subject: Annotated[str | None, typer.Option("--subject", help="Subject; the key of a stream.")] = None,
    durable: Annotated[bool, typer.Option("--durable", help="Have it stored before it is accepted.")] = False,
    ttl: Annotated[
        float | None,
        typer.Option("--ttl", metavar="SECONDS", min=0.001, max=MAX_TTL_S, help="Worthless after so long."),
    ] = None,
    priority: Annotated[
        int, typer.Option("--priority", metavar="0-9", min=0, max=9, help="Higher goes first.")
    ] = DEFAULT_PRIORITY,
    group: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="Messages of a group go to the same receiver.")
    ] = None,
    delay: Annotated[
        float,
        typer.Option(
            "--delay", metavar="SECONDS", min=0, max=MAX_DELAY_S, help="Not to be delivered before so long."
        ),
    ] = 0.0,
    retain: Annotated[
        bool,
        typer.Option(
            "--retain", help="Have a topic keep it as the value of the name, for who comes later; '' clears it."
        ),
    ] = False,
    properties: Properties = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for each outcome.")
    ] = 10.0,
    space: Space = None,
    namespace: Namespace = None,
    user: User = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Send a message to an address and print its outcome.

    With --lines each line is sent as it comes, and is a message of its own.

    An address without a receiver that has room gives no credit: then the
    command waits, and ends with exit code 4 when the time is over. The exit
    code is 1 if a message was not accepted.
    """
    if file is not None and body is not None:
        raise UsageError("give either a BODY or --file")
    if lines and count > 1:
        raise UsageError("--count and --lines exclude each other")
    message = Message(
        subject=subject,
        content_type=content_type,
        durable=durable,
        ttl=ttl,
        priority=priority,
        group_id=group,
        properties=parse_properties(properties or []),
        annotations={
            **({"x-opt-delivery-delay": round(delay * 1000)} if delay else {}),
            **({"x-opt-retain": True} if retain else {}),
        },
    )
    bodies = read_lines(body, file) if lines else _repeated(read_body(body, file), count)
    try:
        outcomes = asyncio.run(_send(data, address, message, bodies, timeout, space, namespace, user))
    except EnmasseError as error:
        raise explain(error) from None
    writer = Writer()
    is_one = count == 1 and not lines
    line = ", ".join(outcome if is_one else f"{number} {outcome}" for outcome, number in outcomes.items())
    if line:
        writer.say(line)
    else:
        writer.note("there was no line to send")
    if set(outcomes) - {str(Outcome.ACCEPTED)}:
        raise CliError(f"not every message to '{address}' was accepted")


async def _send(
    data: Path,
    address: str,
    message: Message,
    bodies: AsyncIterator[str | bytes],
    timeout_s: float,
    space: str | None,
    namespace: str | None,
    user: str | None,
) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    room = asyncio.Semaphore(_UNDER_WAY)

    async def send_one(sender: Sender, payload: bytes) -> None:
        try:
            outcomes[str(await sender.send_payload(payload, timeout=timeout_s))] += 1
        finally:
            room.release()

    async with (
        open_connection(data, "send", space, namespace, user) as connection,
        connection.sender(address) as sender,
    ):
        try:
            async with asyncio.TaskGroup() as tasks:
                async for body in bodies:
                    message.body, message.creation_time = body, time.time()
                    await room.acquire()
                    tasks.create_task(send_one(sender, message.encode()))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return outcomes


async def _repeated(body: str | bytes, count: int) -> AsyncIterator[str | bytes]:
    for _ in range(count):
        yield body


def request(
    address: Annotated[str, typer.Argument(metavar="ADDRESS")],
    body: Annotated[
        str | None, typer.Argument(metavar="[BODY]", help="The text; - or nothing: standard input.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the reply.")
    ] = 10.0,
    connector: Annotated[
        str | None,
        typer.Option("--connector", metavar="NAME", help="Who answers is behind this connector of the space."),
    ] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Subject.")] = None,
    properties: Properties = None,
    space: Space = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    namespace: Namespace = None,
    user: User = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Send a request to an address and print the reply, which comes over an address of its own."""
    message = Message(read_body(body), subject=subject, properties=parse_properties(properties or []))
    try:
        reply = asyncio.run(_request(data, address, message, timeout, connector, space, namespace, user))
    except EnmasseError as error:
        raise explain(error) from None
    writer = Writer()
    if output == StructuredOutput.TABLE:
        writer.say(to_text(reply))
    else:
        writer.say_json(to_json(reply), indent=2)


async def _request(
    data: Path,
    address: str,
    message: Message,
    timeout_s: float,
    connector: str | None,
    space: str | None,
    namespace: str | None,
    user: str | None,
) -> Message:
    async with open_connection(data, "request", space, namespace, user) as connection:
        return await connection.request(address, message, timeout=timeout_s, connector=connector)
