"""The page of conventions is complete: what the code says on the wire, and what management shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "conventions.md").read_text()
WORDS = re.compile(r"[\"'](enmasse:[a-z][a-z-]*|x-opt-[a-z-]*[a-z]|io\.enmasse\.[a-z]+)[\"']")


def test_every_name_of_our_own_is_on_the_page() -> None:
    rooms = ("messaging", "node", "client", "wire")
    found = {
        name for room in rooms for path in (ROOT / "src/enmasse" / room).rglob("*.py")
        for name in WORDS.findall(path.read_text())
    }  # fmt: skip
    assert len(found) > 15, "the search finds nothing any more"
    assert [name for name in sorted(found) if f"`{name}`" not in PAGE and f"### {name}" not in PAGE] == []


@pytest.mark.slow
def test_every_attribute_that_management_shows_is_on_the_page(addresses: Any) -> None:
    for kind in ("anycast", "multicast", "queue", "topic", "stream"):
        addresses.declare(kind)
    missing = []
    told = addresses.told("GET-ATTRIBUTES")
    assert list(told) == list(addresses.told("GET-TYPES")) == list(addresses.told("GET-OPERATIONS"))
    for name in told:
        entities = addresses.query(name)
        # This node has no users and no MQTT clients, and belongs to no control.
        kinds = ("io.enmasse.user", "io.enmasse.installation", "io.enmasse.session", "io.enmasse.will")
        assert entities or name in kinds
        entity_type = name.removeprefix("io.enmasse.")
        undescribed = {attribute for entity in entities for attribute in entity} - set(told[name])
        assert undescribed == set(), name
        entities.append(dict.fromkeys(told[name]))
        section = PAGE.partition(f"### io.enmasse.{entity_type}\n")[2].partition("\n### ")[0]
        shown = {name for entity in entities for name in entity} - {"type", "name", "identity"}
        missing += [f"{entity_type}.{name}" for name in sorted(shown) if f"`{name}`" not in section]
    assert missing == []
