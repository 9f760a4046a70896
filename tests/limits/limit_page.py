"""Writes ``docs/reference/limits-matrix.md``: run ``python -m tests.limits.limit_page``."""

from __future__ import annotations

from tests.limits.limit_list import LIMITS, PROTOCOLS, REASONS, ROOT, TOLD, load_tests

__all__ = ["PAGE", "page"]

PAGE = ROOT / "docs" / "reference" / "limits-matrix.md"

HEAD = """\
# Limits, protocol by protocol

The [limits](limits.md) that clients meet, and the tests that show of each protocol that they hold, and what a client
is told. This page is made from the tests' marks by `python -m tests.limits.limit_page`; a test sees to it that it is
fresh.

WebSocket carries AMQP, MQTT and STOMP; what is told is theirs.
"""

NAMES = {
    "amqp": "AMQP",
    "mqtt 5": "MQTT 5",
    "mqtt 3.1.1": "MQTT 3.1.1",
    "stomp": "STOMP",
    "http": "HTTP, both versions",
}


def page() -> str:
    """Return the page as it should be."""
    tests = load_tests()
    out = [HEAD, f"| | {' | '.join(PROTOCOLS.values())} |", "|---" * (len(PROTOCOLS) + 1) + "|"]
    for limit in LIMITS:
        cells = [_cell(tests.get((limit, protocol), []), REASONS.get((limit, protocol))) for protocol in PROTOCOLS]
        out.append(f"| [{limit}](#{limit}) | {' | '.join(cells)} |")
    for limit, meaning in LIMITS.items():
        out += ["", f"## {limit.capitalize()}", "", f"Bounded by {meaning}.", ""]
        out += ["| beyond it | is told |", "|---|---|"]
        out += [f"| {NAMES[client]} | {_code(told)} |" for client, told in TOLD[limit].items()]
    return "\n".join(out) + "\n"


def _cell(tests: list[str], reason: str | None) -> str:
    links = []
    for test in tests:
        path, _, name = test.partition("::")
        links.append(f"[{name.removeprefix('test_').replace('_', ' ')}](../../{path})")
    return "<br>".join(links) or f"- {reason or ''}".rstrip()


def _code(told: str) -> str:
    """Return what a client is told, with the protocol's own words as code."""
    return ", ".join(f"`{word}`" if ":" in word or word.startswith("0x") else word for word in told.split(", "))


if __name__ == "__main__":
    PAGE.write_text(page())
