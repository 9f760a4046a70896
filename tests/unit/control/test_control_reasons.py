"""Every reason that a controller gives is explained."""

from __future__ import annotations

import re
from pathlib import Path

from enmasse.model.kinds import KINDS

ROOT = Path(__file__).parents[3]
SOURCES = (
    "address_planning",
    "space_planning",
    "verdicts",
    "address_controller",
    "space_controller",
    "preview",
    "user_planning",
    "user_controller",
)


def test_every_reason_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/conditions.md").read_text()
    told = set(re.findall(r"`([A-Z][A-Za-z]+)`", text))
    given = set()
    for name in SOURCES:
        source = (ROOT / f"src/enmasse/control/{name}.py").read_text()
        source = re.sub(r"__all__ = \[.*?\]", "", source, flags=re.DOTALL)
        given |= set(re.findall(r"(?:User)?Verdict\(\s*\"([A-Z]\w+)\"", source))
        given |= set(re.findall(r"\"([A-Z][a-z]+[A-Z]\w+)\"", source))  # reasons are words run together
    assert len(given) > 15
    assert given - told - {kind.name for kind in KINDS} == set()
