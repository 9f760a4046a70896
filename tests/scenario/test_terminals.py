"""What strangers have sent, at an operator's terminal: it acts on nothing there, whatever shows it."""

from __future__ import annotations

import asyncio
import json
import re
import unicodedata
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest

from enmasse.client import Message, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.installation import Installation

pytestmark = pytest.mark.slow

FORGED = "2026-01-01 00:00:00 INFO all is well"
HOSTILE = f"\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u200b\u2066\u2028\x85\x7f\r{FORGED}\n{FORGED} [red]m[/red] [bold]"
COLOURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[2J\x1b\[H")
"""What the command itself writes to a terminal."""


def harm_of(told: str, *, ends: str = "\n\t") -> list[str]:
    """Return the letters of an output that act on a terminal, and lines that were forged."""
    plain = COLOURS.sub("", told)
    letters = {
        repr(letter)
        for letter in plain
        if letter not in ends and unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp")
    }
    return sorted(letters)


@pytest.fixture(scope="module")
def visited(installation: Installation) -> Iterator[Installation]:
    """An installation that strangers have sent all kinds of texts to, and are connected to."""
    place = installation
    place.be_empty()
    place.ok("create", "space", "plain")
    for name, kind in (("orders", "queue"), ("clicks", "stream"), ("state", "topic")):
        place.ok("create", "address", name, "--type", kind)
    place.ok("status", "--wait", "150")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        runner.run(_come(place, stack))
        yield place
        runner.run(stack.aclose())


async def _come(place: Installation, stack: AsyncExitStack) -> None:
    connection = await stack.enter_async_context(connect(place.url("amqp"), container_id=HOSTILE))
    message = Message(
        HOSTILE,
        subject=HOSTILE,
        group_id=HOSTILE,
        correlation_id=HOSTILE,
        content_type="text/\x1b[2J",
        properties={HOSTILE: HOSTILE},
    )
    for address in ("orders", "clicks"):
        sender = await stack.enter_async_context(connection.sender(address))
        for _ in range(3):
            await sender.send(message)
    parts = urlsplit(place.url("mqtt"))
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    stack.callback(writer.close)
    client, payload = "\u202eclient\u2028".encode(), HOSTILE.encode()
    head = b"\x00\x04MQTT\x04\x04\x00\x3c" + b"".join(map(_sized, (client, b"state/will", payload)))
    writer.write(_packet(0x10, head))
    assert (await reader.readexactly(4))[3] == 0
    value = _sized("state/\u202ex".encode()) + b"\x00\x01" + payload
    writer.write(_packet(0x33, value))
    await reader.readexactly(4)  # it has been taken
    headers = {b"User-Agent": b"agent \x9b31m", **{k.encode(): v.encode() for k, v in place.proof.items()}}
    async with httpx.AsyncClient(base_url=place.url("api"), trust_env=False, headers=headers) as http:
        refused = await http.delete("/apis/enmasse.io/v1beta1/namespaces/default/addresses/%1B%5B2J%C2%9B%E2%80%AE")
        assert refused.status_code == 404


def _packet(kind: int, content: bytes) -> bytes:
    return bytes([kind, len(content) & 0x7F | 0x80, len(content) >> 7]) + content


def _sized(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


SHOWING = [
    "address browse orders",
    "address browse orders -o json",
    "address browse orders -o yaml",
    "receive clicks --count 1 --from first",
    "receive clicks --count 1 --from first -o json",
    "receive clicks --count 1 --from first -o yaml",
    "tail clicks --count 1 --from 0",
    "tail clicks --count 1 --from 0 -o json",
    "tail clicks --count 1 --from 0 -o yaml",
    "trace",
    "get connections",
    "get connections -o wide",
    "get connections -o json",
    "get connections -o yaml",
    "get links -o wide",
    "get sessions -o wide",
    "get wills -o wide",
    "get addresses -o wide",
    "get spaces -o custom-columns=NAME:metadata.name,WHY:status",
    "retained list",
    "retained get state/\u202ex",
    "retained get state/\u202ex -o yaml",
    "audit",
    "audit -o json",
    "events",
    "overview",
    "top --count 1",
    "status",
    "logs",
    f"describe {HOSTILE}",
]
OF_A_BODY = ("receive", "tail", "retained get", "describe")
"""They show a text as it is, with its line ends."""


@pytest.mark.parametrize("words", SHOWING)
def test_whatever_was_sent_acts_on_no_terminal(visited: Installation, words: str) -> None:
    command = words.partition(f" {HOSTILE}")[0]
    done = visited.run_at_terminal(*command.split(" "), *([HOSTILE] if words.endswith(HOSTILE) else []))
    told = done.out
    assert done.code == (2 if words.endswith(HOSTILE) else 0), told
    assert told.strip()
    assert harm_of(told) == [], told
    if not command.startswith(OF_A_BODY):
        assert not [line for line in told.splitlines() if line.startswith(FORGED)], told
    if "json" in words:
        assert json.loads(told.removeprefix("Following clicks; Ctrl-C ends.\n"))


@pytest.mark.parametrize(
    "words", ["get connections", "address browse orders", "receive clicks --count 1 --from first"]
)
def test_what_was_sent_is_shown_as_codes(visited: Installation, words: str) -> None:
    told = visited.run_at_terminal(*words.split(" ")).out
    assert r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u200b\u2066\u2028\x85\x7f" in told
    assert "[red]m[/red] [bold]" in told or "connections" in words  # where names are cut before that


def test_where_there_is_no_terminal_a_text_is_written_as_it_is(visited: Installation) -> None:
    assert visited.ok("receive", "clicks", "--count", "1", "--from", "first") == f"{HOSTILE}\n"
    [message] = json.loads(visited.ok("address", "browse", "orders", "--count", "1", "-o", "json"))
    assert (message["body"], message["properties"]) == (HOSTILE, {HOSTILE: HOSTILE})


def test_no_log_of_a_process_has_a_line_that_a_client_made(visited: Installation) -> None:
    logs = [path.read_text() for path in (visited.data / "logs").glob("*.log")]
    assert logs
    assert not [line for text in logs for line in text.split("\n") if line.startswith(FORGED)]
    assert [harm_of(text) for text in logs] == [[]] * len(logs)
