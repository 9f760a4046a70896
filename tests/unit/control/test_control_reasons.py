"""Every reason that a controller gives is explained."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from enmasse.control.addresses import controller as address_controller
from enmasse.control.addresses import planning as address_planning
from enmasse.control.addresses import preview as address_preview
from enmasse.control.endpoints import admission as endpoint_admission
from enmasse.control.projects import planning as project_planning
from enmasse.control.runtime import verdicts as runtime_verdicts
from enmasse.control.spaces import controller as space_controller
from enmasse.control.spaces import planning as space_planning
from enmasse.control.users import controller as user_controller
from enmasse.control.users import planning as user_planning
from enmasse.model.schema.kinds import KINDS

ROOT = Path(__file__).parents[3]
SOURCES = (
    address_controller,
    address_planning,
    address_preview,
    endpoint_admission,
    project_planning,
    runtime_verdicts,
    space_controller,
    space_planning,
    user_controller,
    user_planning,
)


def test_every_reason_is_in_the_reference() -> None:
    text = "".join((ROOT / "docs/reference" / page).read_text() for page in ("conditions.md", "users.md"))
    told = set(re.findall(r"`([A-Z][A-Za-z]+)`", text))
    given = set()
    for file in (ROOT / "src/enmasse/control").rglob("*.py"):
        given |= set(re.findall(r"Verdict\(\s*\"([A-Z]\w+)\"", file.read_text()))
    for module in SOURCES:
        source = inspect.getsource(module)
        source = re.sub(r"__all__ = \[.*?\]", "", source, flags=re.DOTALL)
        given |= set(re.findall(r"\"([A-Z][a-z]+[A-Z]\w+)\"", source))  # reasons are words run together
    assert len(given) > 15
    assert given - told - {kind.name for kind in KINDS} == set()
