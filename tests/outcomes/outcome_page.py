"""Writes ``docs/reference/outcomes.md``: run ``python -m tests.outcomes.outcome_page``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.outcomes.outcome_cells import PROTOCOLS, SITUATIONS, Cell, cells_of

__all__ = ["PAGE", "load_cells", "page"]

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "outcomes.md"

NAMES = {"amqp": "AMQP 1.0", "stomp": "STOMP", "mqtt": "MQTT", "http": "HTTP"}

ACCEPTED = {"amqp": "`accepted`", "stomp": "a receipt", "mqtt": "PUBACK or PUBREC", "http": "2xx"}
"""What an accepted message is told of, by protocol."""

HEAD = """\
# Outcomes

What becomes of a message, by protocol and by the type of the address that it is sent to. Each line is proven by
the test that it links to, over sockets against a real node. This page is made from these tests by
`python -m tests.outcomes.outcome_page`; a test sees to it that it is fresh and complete.

Only what is sent unsettled, with a `receipt`, with QoS 1 or 2, or by HTTP has an outcome. A settled message that
would be rejected or released is dropped, and counted in the address's `dropped`, or in the space's `unroutable` where
no address is found. Options such as `fullPolicy`, `slowPolicy` and `fallback` are in [addresses](addresses.md).

A receiver's outcome is written with the next commit, without anyone waiting. So what was settled in the last instants
before a crash of the node comes again, with `first-acquirer` false and a `delivery-count` that counts the attempt. A
receiver that is to be certain settles second (`rcv-settle-mode` `second`): the node settles after the commit.

A receiver of a topic that names more than its user may receive has [the part that grants
cover](users.md#a-pattern-wider-than-the-grants), and is unauthorised where that is nothing, in
[every protocol](../../tests/contract/test_contract_grants.py).
"""


def load_cells() -> list[tuple[Cell, str]]:
    """Every cell, with the file of its test."""
    found = []
    for path in sorted(HERE.glob("test_outcomes_*.py")):
        module = import_module(f"tests.outcomes.{path.stem}")
        found += [(item, path.name) for item in cells_of(module)]
    return found


def page() -> str:
    """The page as it should be."""
    cells = {(item.protocol, item.address_type, item.situation): (item, path) for item, path in load_cells()}
    out = [HEAD]
    for protocol, address_types in PROTOCOLS.items():
        out.append(f"## {NAMES[protocol]}\n")
        for address_type in address_types:
            out.append(f"### {address_type.capitalize()}\n")
            out += ["| | | shown by |", "|---|---|---|"]
            for situation, title in SITUATIONS.items():
                item, path = cells[protocol, address_type, situation]
                shown = item.test.removeprefix("test_").replace("_", " ")
                title = title.replace("`accepted`", ACCEPTED[protocol])  # noqa: PLW2901
                out.append(f"| {title} | {item.text} | [{shown}](../../tests/outcomes/{path}) |")
            out.append("")
    return "\n".join(out)


if __name__ == "__main__":
    PAGE.write_text(page())
