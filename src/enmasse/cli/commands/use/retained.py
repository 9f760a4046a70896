"""``enmasse retained``: list, read and clear the retained values of a space."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.columns import age, present
from enmasse.cli.errors import NotFoundError, UsageError
from enmasse.cli.messages import explain, open_connection, to_json, to_text
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space, StructuredChoice, StructuredOutput, User
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.cli.targets import find_space
from enmasse.errors import EnmasseError
from enmasse.model.schema.kinds import ADDRESS_SPACE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from enmasse.client import Message

retained = typer.Typer(no_args_is_help=True, help="List, read and clear the values that topics keep of each name.")

_WILDCARDS = ("+", "*", "#")
_CREDIT = 10  # the value comes first; what is sent to the name meanwhile may come beside it

Filter = Annotated[
    str, typer.Argument(metavar="FILTER", help="A name, or a pattern: + is a word, # any number of words.")
]


@retained.command("list")
def list_values(
    pattern: Filter = "#",
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Show at most so many.")] = 100,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """List the names that have a value, in the order in which they first had one."""
    writer = Writer()
    found: list[dict[str, Any]] = []
    with ApiClient.find(data, warn=writer.warn) as api:
        for items in _pages(api, _path(api, namespace, space), pattern):
            found += items
            if len(found) > count:
                break
    shown = found[:count]
    if output != StructuredOutput.TABLE:
        write_structured(writer, output.value, shown)
        return
    if not shown:
        writer.note("there are no retained values" if pattern == "#" else f"no name that matches '{pattern}' has one")
        return
    now = present()
    rows = [
        [item["name"], item["address"], str(item["bytes"]), age(item["time"], now), item.get("expires", "-")]
        for item in shown
    ]
    writer.out.print(make_table(["NAME", "ADDRESS", "BYTES", "AGE", "EXPIRES"], rows))
    if len(found) > count:
        writer.note(f"these are the first {count}; --count shows more")


@retained.command("get")
def get_value(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A topic or multicast address, or a name below a topic.")
    ],
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Give up when the node takes longer.")
    ] = 60.0,
    space: Space = None,
    namespace: Namespace = None,
    user: User = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Print the value of a name, for whom may receive from it."""
    if any(word in _WILDCARDS for word in name.split("/")):
        raise UsageError(
            f"'{name}' is a pattern: name one value; `enmasse retained list '{name}'` shows which there are"
        )
    writer = Writer()
    try:
        message = asyncio.run(_read(data, name, timeout, space, namespace, user))
    except EnmasseError as error:
        raise explain(error) from None
    if message is None:
        raise NotFoundError(f"'{name}' has no retained value; `enmasse retained list` shows which names have one")
    if output == StructuredOutput.TABLE:
        writer.say(to_text(message))
    else:
        write_structured(writer, output.value, to_json(message))


@retained.command("clear")
def clear_values(
    pattern: Filter,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Clear the values of a name, or of all that match a pattern; '#' is every one."""
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        done = api.call("DELETE", _path(api, namespace, space), params={"filter": pattern})
    if output == StructuredOutput.TABLE:
        writer.say(done["message"])
    else:
        write_structured(writer, output.value, {"filter": pattern, "count": done["details"]["count"]})


def _path(api: ApiClient, namespace: str | None, space: str | None) -> str:
    kind = ADDRESS_SPACE
    where = namespace or kind.default_namespace
    name = find_space(api, where, space)
    return f"{kind.base_path()}/namespaces/{where}/{kind.plural}/{name}/retained"


def _pages(api: ApiClient, path: str, pattern: str) -> Iterator[list[dict[str, Any]]]:
    parameters = {"filter": pattern}
    while True:
        page = api.call("GET", path, params=parameters)
        yield page["items"]
        place = page["metadata"].get("continue")
        if not place:
            return
        parameters["continue"] = place


async def _read(
    data: Path, name: str, timeout_s: float, space: str | None, namespace: str | None, user: str | None
) -> Message | None:
    filters = {"enmasse:retained": "always"}
    async with (
        open_connection(data, "retained", space, namespace, user) as connection,
        connection.receiver(name, credit=0, filters=filters) as receiver,
    ):
        receiver.grant(_CREDIT)
        await receiver.drain(timeout=timeout_s)
        found: Message | None = None
        while (delivery := receiver.receive_nowait()) is not None:
            if not delivery.settled:
                await delivery.accept()
            if delivery.message.annotations.get("x-opt-retained") and found is None:
                found = delivery.message
        return found
