"""The reference names every built-in pipeline and every parameter with its default."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from enmasse.model.kinds.pipelines.builtins import BUILTINS

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "builtin-pipelines.md").read_text()


def shown(default: Any) -> str:
    if default in (None, (), {}):
        return ""
    return f"`{json.dumps(default)}`" if isinstance(default, dict | bool) else f"`{default}`"


@pytest.mark.parametrize("name", list(BUILTINS))
def test_every_parameter_is_told_with_its_default(name: str) -> None:
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| (.*?) \| .+ \|$", section, re.MULTILINE))
    fields = BUILTINS[name].model_fields.values()
    assert told == {
        str(field.alias): "required" if field.is_required() else shown(field.get_default(call_default_factory=True))
        for field in fields
    }
    assert BUILTINS[name].does in PAGE
