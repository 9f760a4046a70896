"""``enmasse events``: what has happened to objects of late.

``enmasse logs``: what the processes of an installation have logged.
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient, parse_kind
from enmasse.cli.columns import age, present
from enmasse.cli.errors import NotFoundError
from enmasse.cli.options import DEFAULT_DATA, AllNamespaces, Data, Namespace, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.drivers.data_directory import Layout

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE")


def events(
    about: Annotated[
        str | None, typer.Argument(metavar="[KIND/NAME]", help="Only of this object, such as address/shop.orders.")
    ] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    warnings: Annotated[bool, typer.Option("--warnings", help="Only events that need attention.")] = False,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show what has happened to objects, what came last at the end."""
    writer = Writer()
    place = None if all_namespaces else namespace or "default"
    wanted = None if about is None else _parse(about)
    with ApiClient.find(data, warn=writer.warn) as api:
        found = api.select(parse_kind("events"), place)
    found = [
        item
        for item in found
        if (wanted is None or _object(item) == wanted) and (not warnings or item["type"] == "Warning")
    ]
    found.sort(key=lambda item: str(item.get("lastTimestamp", "")))
    if output is not StructuredOutput.TABLE:
        write_structured(writer, output.value, {"apiVersion": "v1", "kind": "List", "items": found})
        return
    if not found:
        writer.note("There are no events" + (f" in namespace {place}." if place else "."))
        return
    now = present()
    rows = [
        [
            age(item.get("lastTimestamp", ""), now),
            item["type"],
            item["reason"],
            "/".join(_object(item)),
            str(item.get("count", 1)),
            item.get("message", ""),
        ]
        for item in found
    ]
    writer.out.print(make_table(_COLUMNS, rows))


def _parse(about: str) -> tuple[str, str]:
    kind, slash, name = about.partition("/")
    if not slash:
        raise typer.BadParameter(f"expected KIND/NAME such as address/shop.orders, got '{about}'")
    return parse_kind(kind).singular, name


def _object(item: dict[str, Any]) -> tuple[str, str]:
    involved = item["involvedObject"]
    return str(involved["kind"]).lower(), str(involved["name"])


_POLL_S = 0.2


def logs(
    process: Annotated[
        str | None, typer.Argument(metavar="[PROCESS]", help="Such as control or node-0; all of them by default.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--tail", metavar="N", min=0, help="How many lines of the past.")] = 50,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show what the processes of an installation have logged, the last lines first in each log."""
    files = _files(Layout(data).logs, process)
    writer = Writer()
    # Names only where there are several.
    heads = {file: f"{file.stem}: " if len(files) > 1 else "" for file in files}
    with ExitStack() as stack:
        tails = {file: stack.enter_context(closing(_Tail(file))) for file in files}
        for file, tail in tails.items():
            for line in tail.past(lines):
                writer.say_line(heads[file] + line)
        while follow:
            time.sleep(_POLL_S)
            for file, tail in tails.items():
                for line in tail.more():
                    writer.say_line(heads[file] + line)


def _files(directory: Path, process: str | None) -> list[Path]:
    files = sorted(directory.glob("*.log"))
    if not files:
        raise NotFoundError(f"there are no logs in {directory}; has `enmasse up` been started there?")
    if process is None:
        return files
    named = [file for file in files if file.stem == process]
    if not named:
        raise NotFoundError(f"there is no process '{process}'; there are {', '.join(file.stem for file in files)}")
    return named


class _Tail:
    """A log that grows, and that another file may be put in the place of."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        self._rest = b""

    def close(self) -> None:
        """Read no more."""
        self._file.close()

    def past(self, count: int) -> list[str]:
        """Return the last lines of what is there."""
        return list(deque(self._read(), maxlen=count))

    def more(self) -> list[str]:
        """Return what has come since."""
        found = self._read()
        try:
            is_another = self._path.stat().st_ino != _inode(self._file.fileno())
        except FileNotFoundError:  # it is just being replaced
            return found
        if is_another:
            self._file.close()
            self._file, self._rest = self._path.open("rb"), b""
            found += self._read()
        return found

    def _read(self) -> list[str]:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino
