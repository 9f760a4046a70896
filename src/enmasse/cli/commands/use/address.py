"""``enmasse address``: browse, delete, move and send back the messages that an address stores."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import UsageError
from enmasse.cli.messages import Bodies, explain, open_connection, to_json, to_text
from enmasse.cli.options import (
    DEFAULT_DATA,
    Data,
    MessageSelector,
    Namespace,
    Space,
    StructuredChoice,
    StructuredOutput,
)
from enmasse.cli.output import Writer, is_at_terminal, make_table, write_structured
from enmasse.cli.targets import find, find_certain
from enmasse.errors import EnmasseError
from enmasse.model.kinds.address_settings import STORING
from enmasse.model.schema.kinds import ADDRESS
from enmasse.model.schema.names import space_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from enmasse.cli.api_client import Document
    from enmasse.client import Message

address = typer.Typer(no_args_is_help=True, help="Look at, delete, move or send back what an address stores.")

_QUESTIONS = {"purge": "Delete {what} of '{address}'", "move": "Move {what} of '{address}' to '{to}'"}
_STORING = tuple(name for name in STORING if name != "topic")

Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="Only the message of this id, as browse shows it; may be repeated."),
]
Search = Annotated[
    str | None,
    typer.Option("--search", metavar="TEXT", help="Only what has a text in it: in body, properties or annotations."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many messages are meant.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; without a terminal nothing is asked.")]

Name = Annotated[str, typer.Argument(metavar="ADDRESS", help="The address, or the name of its object.")]


@address.command("purge")
def purge(
    name: Name,
    selector: MessageSelector = None,
    search: Search = None,
    ids: Ids = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Delete the messages of a queue, subscription or dead letter address, all or selected ones.

    Messages that a receiver holds unsettled stay. At a terminal it asks before it does so.
    """
    _act(
        "purge",
        name,
        {"selector": selector, "search": search, "ids": ids},
        space,
        namespace,
        output,
        data,
        is_dry=dry_run,
        question=None if yes else _QUESTIONS["purge"],
    )


@address.command("move")
def move(
    name: Name,
    to: Annotated[str, typer.Argument(metavar="TO", help="Another address of the same space.")],
    selector: MessageSelector = None,
    search: Search = None,
    ids: Ids = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Move the messages of an address to another one, all or selected ones.

    At a terminal it asks before it does so.
    """
    _act(
        "move",
        name,
        {"to": to, "selector": selector, "search": search, "ids": ids},
        space,
        namespace,
        output,
        data,
        is_dry=dry_run,
        question=None if yes else _QUESTIONS["move"],
    )


@address.command("replay")
def replay(
    name: Name,
    selector: MessageSelector = None,
    search: Search = None,
    ids: Ids = None,
    dry_run: DryRun = False,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Send dead or expired letters back to the addresses that they came from, all or selected ones."""
    _act(
        "replay",
        name,
        {"selector": selector, "search": search, "ids": ids},
        space,
        namespace,
        output,
        data,
        is_dry=dry_run,
    )


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
        found = find(api, ADDRESS, namespace or ADDRESS.default_namespace, name, space)
        _require_stored(found, also=("stream",))
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
    *,
    is_dry: bool,
    question: str | None = None,
) -> None:
    writer, kind = Writer(), ADDRESS
    with ApiClient.find(data, warn=writer.warn) as api:
        found = find_certain(api, kind, namespace or kind.default_namespace, name, space)
        _require_stored(found)
        given = {key: value for key, value in arguments.items() if value is not None}
        place = f"space {space_of(found['metadata']['name'])}"
        if question is not None and not is_dry and is_at_terminal():
            count = api.act(found, action, given, is_dry=True)["details"]["count"]
            what = f"{count:,} message" + ("s" if count != 1 else "")
            asked = question.format(what=what, address=found["spec"]["address"], to=given.get("to"))
            typer.confirm(f"{asked} in {place}, namespace {found['metadata']['namespace']}?", abort=True, err=True)
        done = api.act(found, action, given, is_dry=is_dry)
    if output == StructuredOutput.TABLE:
        writer.say(f"{done['message']} in {place}")
    else:
        result = {"address": found["spec"]["address"], "action": action, "count": done["details"]["count"]}
        write_structured(writer, output.value, result | {"space": space_of(found["metadata"]["name"])})


def _require_stored(found: Document, *, also: tuple[str, ...] = ()) -> None:
    """Check that an address stores messages.

    Raises:
        UsageError: when it stores none that could be dealt with so.
    """
    spec = found["spec"]
    if spec["type"] not in (*_STORING, *also):
        hint = {
            "topic": "; its subscriptions do",
            "stream": "; its retention deletes what is old",
        }.get(spec["type"], "")
        raise UsageError(
            f"'{spec['address']}' is of type {spec['type']}, which stores no messages for one receiver each{hint}"
        )


_BODY_CHARACTERS = 60  # of a body in a table; the other forms have all of it


def browse_messages(
    writer: Writer,
    data: Path,
    address: str,
    *,
    selector: str | None,
    is_stream: bool,
    count: int,
    timeout_s: float,
    space: str,
    namespace: str,
    output: StructuredOutput,
) -> None:
    """Write the first messages of an address, as a table or in full."""
    filters = {"enmasse:start": "first"} if is_stream else {}

    async def read() -> list[Message]:
        messages: list[Message] = []
        async with (
            open_connection(data, "browse", space, namespace) as connection,
            connection.receiver(
                address,
                credit=0,
                browse=not is_stream,
                selector=selector,
                filters=filters,
                capabilities=() if is_stream else ("enmasse:ids",),
            ) as receiver,
        ):
            receiver.grant(count)
            await receiver.drain(timeout=timeout_s)
            while (delivery := receiver.receive_nowait()) is not None:
                messages.append(delivery.message)
                if not delivery.settled:
                    await delivery.accept()
        return messages

    try:
        messages = asyncio.run(read())
    except EnmasseError as error:
        raise explain(error) from None
    bodies = Bodies(address)
    for message in messages:
        bodies.decode(message)
    _write(writer, address, messages, count, output)


def _write(writer: Writer, address: str, messages: Sequence[Message], count: int, output: StructuredOutput) -> None:
    if output != StructuredOutput.TABLE:
        write_structured(writer, output.value, [to_json(message) for message in messages])
        return
    if not messages:
        writer.note(f"'{address}' has no message to show")
        return
    cells: dict[str, Callable[[Message], str]] = {
        "ID": lambda message: _annotation(message, "x-opt-id"),
        "SUBJECT": lambda message: message.subject or "",
        "DURABLE": lambda message: "yes" if message.durable else "",
        "PRIORITY": lambda message: str(message.priority),
        "FAILED": lambda message: str(message.delivery_count or _annotation(message, "x-opt-delivery-count") or ""),
        "GROUP": lambda message: message.group_id or "",
        "ORIGIN": lambda message: _annotation(message, "x-opt-original-address"),
        "REASON": _reason,
        "PROPERTIES": lambda message: json.dumps(to_json(message).get("properties", {}), ensure_ascii=False)[1:-1],
    }
    rows = {column: [cell(message) for message in messages] for column, cell in cells.items()}
    # A column that says nothing for any message is left out.
    columns = [column for column, values in rows.items() if any(value not in ("", "4") for value in values)]
    table = [
        [str(number), *(rows[column][number - 1] for column in columns), _short(to_text(message))]
        for number, message in enumerate(messages, start=1)
    ]
    writer.out.print(make_table(["#", *columns, "BODY"], table))
    if len(messages) == count:
        writer.note(f"these are the first {count}; --count shows more")


def _reason(message: Message) -> str:
    causes = (_annotation(message, f"x-opt-dead-letter-{name}") for name in ("reason", "description"))
    return ": ".join(text for text in causes if text)


def _annotation(message: Message, name: str) -> str:
    value: Any = message.annotations.get(name)
    return "" if value is None else str(value)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _BODY_CHARACTERS else line[:_BODY_CHARACTERS] + "..."
