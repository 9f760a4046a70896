"""The limits, the protocols in which a client meets them, and the tests that carry a mark for both.

A test of any folder shows that a limit holds in a protocol, and what the client is told, by
``@pytest.mark.limit("rate", "mqtt", ...)``. The tests are read, not run, to find that out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LIMITS", "PROTOCOLS", "REASONS", "ROOT", "TOLD", "load_tests"]

ROOT = Path(__file__).parents[2]

LIMITS = {
    "connections": "`connections` of a space",
    "links": "`links` of a space: senders and receivers, whatever the protocol calls them",
    "sessions": "`sessions` of a space in MQTT; those of one connection in AMQP",
    "rate": "`messageRate` and `byteRate` of a space or an address",
    "size": "`messageSize` of a space or an address",
    "retained": "`retained` of a space",
    "subscriptions": "`subscriptions` of a space",
    "connectors": "`connectorConnections` and `connectorSessions` of a space",
}
"""Limits, with what bounds them."""

PROTOCOLS = {
    "amqp": "AMQP",
    "mqtt": "MQTT",
    "stomp": "STOMP",
    "http/1.1": "HTTP/1.1",
    "http/2": "HTTP/2",
    "websocket": "WebSocket",
}
"""Protocols by the words of marks, with their names."""

REASONS = {
    ("sessions", "stomp"): "has none: what a client has ends with its connection, but for durable subscriptions",
    ("sessions", "http/1.1"): "has none: each request is for itself",
    ("sessions", "http/2"): "has none: each request is for itself",
}
"""Why a limit is none in a protocol."""

_EXCEEDED = "amqp:resource-limit-exceeded"
_TOO_LARGE = "amqp:link:message-size-exceeded"
_ENDED = "the connection ends"

TOLD = {
    "connections": {
        "amqp": f"close, {_EXCEEDED}",
        "mqtt 5": "CONNACK 0x97",
        "mqtt 3.1.1": "CONNACK 0x3",
        "stomp": f"ERROR, {_EXCEEDED}",
        "http": f"503, {_EXCEEDED}",
    },
    "links": {
        "amqp": f"detach, {_EXCEEDED}",
        "mqtt 5": "SUBACK 0x97",
        "mqtt 3.1.1": "SUBACK 0x80",
        "stomp": f"ERROR, {_EXCEEDED}",
        "http": f"429, {_EXCEEDED}",
    },
    "sessions": {
        "amqp": "close, amqp:connection:framing-error",
        "mqtt 5": "CONNACK 0x97",
        "mqtt 3.1.1": "CONNACK 0x3",
    },
    "rate": {
        "amqp": "it waits for credit",
        "mqtt 5": "it waits for PUBACK",
        "mqtt 3.1.1": "it waits for PUBACK",
        "stomp": "it waits for its receipt",
        "http": f"429, {_EXCEEDED}, rate",
    },
    "size": {
        "amqp": f"detach, {_TOO_LARGE}",
        "mqtt 5": "DISCONNECT 0x95",
        "mqtt 3.1.1": _ENDED,
        "stomp": f"ERROR, {_TOO_LARGE}",
        "http": f"413, {_TOO_LARGE}",
    },
    "retained": {
        "amqp": f"rejected, {_EXCEEDED}",
        "mqtt 5": "PUBACK 0x97",
        "mqtt 3.1.1": _ENDED,
        "stomp": f"ERROR, {_EXCEEDED}",
        "http": f"429, {_EXCEEDED}",
    },
    "subscriptions": {
        "amqp": f"detach, {_EXCEEDED}",
        "mqtt 5": "SUBACK 0x97",
        "mqtt 3.1.1": "SUBACK 0x80",
        "stomp": f"ERROR, {_EXCEEDED}",
        "http": f"429, {_EXCEEDED}",
    },
    "connectors": {
        "amqp": f"detach, {_EXCEEDED}",
        "mqtt 5": "SUBACK 0x97",
        "mqtt 3.1.1": "SUBACK 0x80",
        "stomp": f"ERROR, {_EXCEEDED}",
        "http": f"429, {_EXCEEDED}",
    },
}
"""What a client that goes beyond a limit is told, by the name of its protocol; WebSocket carries them as they are."""


def load_tests() -> dict[tuple[str, str], list[str]]:
    """Return the tests of each limit and protocol that any test names, as PATH::NAME, from the repository's root."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if "mark.limit(" not in text:
            continue
        for name, (limit, *protocols) in _marked(ast.parse(text)):
            for protocol in protocols:
                found.setdefault((limit, protocol), []).append(f"{path.relative_to(ROOT)}::{name}")
    return found


def _marked(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield test and arguments, for every mark on a function of the module that pytest takes for a test."""
    for function in tree.body:
        is_test = isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name.startswith("test_")
        for mark in function.decorator_list if is_test else ():  # type: ignore[attr-defined]
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.limit":
                yield function.name, [ast.literal_eval(argument) for argument in mark.args]  # type: ignore[attr-defined]
