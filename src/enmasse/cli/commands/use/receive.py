"""``enmasse receive``: messages from an address, as they come."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.errors import UnreachableError
from enmasse.cli.messages import Bodies, explain, open_connection, to_json, to_text
from enmasse.cli.options import (
    DEFAULT_DATA,
    Data,
    MessageSelector,
    Namespace,
    Space,
    StructuredChoice,
    StructuredOutput,
    User,
)
from enmasse.cli.output import Writer, leave_pipe
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from enmasse.client import Message


def receive(
    address: Annotated[str, typer.Argument(metavar="ADDRESS")],
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="End after so many.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", help="End when none came for so long."),
    ] = None,
    credit: Annotated[int, typer.Option("--credit", min=1, help="How many may be on their way at a time.")] = 100,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="POSITION", help="Of a stream: first, last, next or an offset."),
    ] = None,
    selector: MessageSelector = None,
    browse: Annotated[bool, typer.Option("--browse", help="Get copies, and take nothing away.")] = False,
    retained: Annotated[
        bool, typer.Option("--retained", help="Of a topic: get the values that it has kept, first.")
    ] = False,
    space: Space = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    namespace: Namespace = None,
    user: User = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Print the messages of an address as they come, and accept each once it is printed.

    Payloads of Sparkplug, sent to names below spBv1.0/, are shown as JSON,
    with the names of metrics as far as births came before. Without --count
    and --timeout it goes on until Ctrl-C. The exit code is 4
    if the time was over before the messages asked for (without --count: any)
    had come, and 0 where the reader of a pipe has had enough.
    """
    writer = Writer()
    filters: dict[str, Any] = {}
    if start is not None:
        filters["enmasse:start"] = int(start) if start.isdigit() else start
    if retained:
        filters["enmasse:retained"] = "always"
    try:
        received = asyncio.run(
            _receive(
                writer,
                data,
                address,
                count=count,
                timeout_s=timeout,
                credit=credit,
                source={"filters": filters, "selector": selector, "browse": browse},
                output=output,
                space=space,
                namespace=namespace,
                user=user,
            )
        )
    except EnmasseError as error:
        raise explain(error) from None
    except BrokenPipeError:
        leave_pipe()
        return
    if received < (count or 1):
        wanted = f"{received} of {count} messages" if count else "no message"
        raise UnreachableError(f"{wanted} came from '{address}' within {timeout or 0:g} s")


async def _receive(
    writer: Writer,
    data: Path,
    address: str,
    *,
    count: int | None,
    timeout_s: float | None,
    credit: int,
    source: dict[str, Any],
    output: StructuredOutput,
    space: str | None,
    namespace: str | None,
    user: str | None,
) -> int:
    received = 0
    bodies = Bodies(address)
    async with open_connection(data, "receive", space, namespace, user) as connection:
        # With a count, credit is granted by hand: no more messages are fetched than asked for.
        window = credit if count is None else 0
        async with connection.receiver(address, credit=window, **source) as receiver:
            if count is not None:
                receiver.grant(min(credit, count))
            while count is None or received < count:
                with _noticing_a_closed_pipe():
                    delivery = await receiver.receive(timeout=timeout_s)
                if delivery is None:
                    break
                bodies.decode(delivery.message)
                try:
                    _print(writer, delivery.message, output)
                except BrokenPipeError:
                    if not delivery.settled:
                        await delivery.release()
                    raise
                if not delivery.settled:
                    await delivery.accept()
                received += 1
                if count is not None and received + credit <= count:
                    receiver.grant(1)
    return received


@contextmanager
def _noticing_a_closed_pipe() -> Iterator[None]:
    """End what is awaited when nobody reads our output any more, as of ``| head``, and not with the next message.

    Raises:
        BrokenPipeError: when it is so.
    """
    try:
        output = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(output).st_mode)
    except io.UnsupportedOperation:  # it is kept in memory
        is_pipe = False
    if not is_pipe:
        yield
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    is_closed = False

    def end() -> None:
        nonlocal is_closed
        is_closed = True
        if task is not None:
            task.cancel()

    loop.add_reader(output, end)  # the end that is written to tells of errors alone
    try:
        yield
    except asyncio.CancelledError:
        if is_closed:
            raise BrokenPipeError from None
        raise
    finally:
        loop.remove_reader(output)


def _print(writer: Writer, message: Message, output: StructuredOutput) -> None:
    if output == StructuredOutput.TABLE:
        writer.say(to_text(message))
    elif output == StructuredOutput.JSON:
        writer.say_json(to_json(message))
    else:
        writer.say_json(to_json(message), indent=2, head="---\n")
    writer.out.file.flush()
