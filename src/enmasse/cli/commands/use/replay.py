"""``enmasse pipeline replay``: dead letters go back to where they came from."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from enmasse.cli.errors import UsageError
from enmasse.cli.messages import explain, open_connection
from enmasse.cli.options import DEFAULT_DATA, Data, MessageSelector, Namespace, Space, User
from enmasse.cli.output import Writer
from enmasse.client import Message, Outcome
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from pathlib import Path

    from enmasse.client import Connection

_KEY: Final = "x-opt-partition-key"
_ORIGINS: Final = ("address", "enmasse-address")
_OURS: Final = frozenset({"reason", "relation", "partition", "offset", *_ORIGINS})
"""Properties that say why a message is a dead letter."""
_SILENCE_S: Final = 2.0


def replay(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The queue with the dead letters.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="ADDRESS", help="Where they go; by default where they came from.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, help="So many at most; by default all that are there now.")
    ] = None,
    selector: MessageSelector = None,
    space: Space = None,
    namespace: Namespace = None,
    user: User = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Send dead letters of pipelines back to where they came from, once each.

    A letter leaves the queue in the transaction that sends it. One that is bad again comes back as a new letter,
    which is left for the next time. `--selector "reason LIKE 'temperature%'"` chooses some.
    """
    writer = Writer()
    try:
        sent, homeless = asyncio.run(_replay(data, address, to, count, selector, space, namespace, user))
    except EnmasseError as error:
        raise explain(error) from None
    for target, number in sorted(sent.items()):
        writer.say(f"{number:,} sent to {target}")
    if not sent and not homeless:
        writer.note(f"There are no dead letters in '{address}'.")
    if homeless:
        raise UsageError(f"{homeless:,} letters in '{address}' do not say where they came from: name it with --to")


async def _replay(
    data: Path,
    address: str,
    to: str | None,
    count: int | None,
    selector: str | None,
    space: str | None,
    namespace: str | None,
    user: str | None,
) -> tuple[Counter[str], int]:
    """Return how many went where, and how many stay as nothing says where to."""
    sent: Counter[str] = Counter()
    homeless = 0
    async with open_connection(data, "replay", space, namespace, user) as connection:
        there = await _count(connection, address, selector, count)
        senders: dict[str, Any] = {}
        async with connection.receiver(address, credit=0, selector=selector) as receiver:
            for _ in range(there):
                receiver.grant(1)
                delivery = await receiver.receive(timeout=_SILENCE_S)
                if delivery is None:
                    break
                letter = delivery.message
                target = to or next(filter(None, map(letter.properties.get, _ORIGINS)), "")
                if not target:
                    homeless += 1  # and is the queue's again once the receiver is closed
                    continue
                if target not in senders:
                    senders[target] = await connection.sender(target)
                async with connection.transaction() as transaction:
                    outcome = await senders[target].send(_without_reason(letter), transaction=transaction)
                    if outcome != Outcome.ACCEPTED:
                        raise UsageError(f"address '{target}' answered {outcome}: the letter stays in '{address}'")
                    await delivery.accept(transaction=transaction)
                sent[target] += 1
    return sent, homeless


async def _count(connection: Connection, address: str, selector: str | None, most: int | None) -> int:
    """Return how many letters there are now, so that those that come back meanwhile are left."""
    found = 0
    async with connection.receiver(address, credit=1000, selector=selector, browse=True) as receiver:
        while most is None or found < most:
            if await receiver.receive(timeout=_SILENCE_S) is None:
                break
            found += 1
    return found


def _without_reason(letter: Message) -> Message:
    """Return the message as it was before something was wrong with it."""
    properties = {
        name: value
        for name, value in letter.properties.items()
        if name not in _OURS and not name.startswith("enmasse-")
    }
    return Message(
        letter.body,
        subject=letter.subject,
        content_type=letter.content_type,
        content_encoding=letter.content_encoding,
        group_id=letter.group_id,
        group_sequence=letter.group_sequence,
        properties=properties,
        annotations={_KEY: letter.annotations[_KEY]} if _KEY in letter.annotations else {},
        durable=letter.durable,
    )
