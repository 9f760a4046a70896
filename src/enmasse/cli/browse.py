"""Showing stored messages without taking them away."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from enmasse.cli.messages import explain, open_connection, to_json, to_text
from enmasse.cli.options import StructuredOutput
from enmasse.cli.output import make_table, write_structured
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from enmasse.cli.output import Writer
    from enmasse.client import Message

__all__ = ["browse_messages"]

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
                address, credit=0, browse=not is_stream, selector=selector, filters=filters
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
    _write(writer, address, messages, count, output)


def _write(writer: Writer, address: str, messages: Sequence[Message], count: int, output: StructuredOutput) -> None:
    if output != StructuredOutput.TABLE:
        write_structured(writer.out, output.value, [to_json(message) for message in messages])
        return
    if not messages:
        writer.note(f"'{address}' has no message to show")
        return
    cells: dict[str, Callable[[Message], str]] = {
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
    said = (_annotation(message, f"x-opt-dead-letter-{name}") for name in ("reason", "description"))
    return ": ".join(text for text in said if text)


def _annotation(message: Message, name: str) -> str:
    value: Any = message.annotations.get(name)
    return "" if value is None else str(value)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _BODY_CHARACTERS else line[:_BODY_CHARACTERS] + "..."
