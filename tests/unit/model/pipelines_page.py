"""Writes the made parts of ``docs/reference/pipelines.md``: run ``python -m tests.unit.model.pipelines_page``."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.model.kinds.pipelines.builtins import BUILTINS
from enmasse.model.schema.openapi import structural
from enmasse.model.sql.functions import ALLOWED_FUNCTIONS, TABLE_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.model.kinds.pipelines.builtins import BuiltinParameters

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "pipelines.md"

_BEGIN, _END = "<!-- made from the classes: begin -->\n", "<!-- made from the classes: end -->\n"


def made() -> str:
    """Return the parts that are made."""
    return "\n".join([*_builtins(), *_functions()])


def page() -> str:
    """Return the page as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    return f"{before}{_BEGIN}\n{made()}\n{_END}{rest.partition(_END)[2]}"


def _builtins() -> Iterator[str]:
    for name, model in BUILTINS.items():
        yield f"### `{name}`\n"
        yield f"{model.does[:1].upper()}{model.does[1:]}.\n"
        yield "| parameter | default | |"
        yield "|---|---|---|"
        schema = structural(model)
        for key, field in schema["properties"].items():
            text = " ".join(field.get("description", "").split()).replace("|", "\\|")
            yield f"| `{key}` | {_default(model, key, key in schema.get('required', ()))} | {text} |"
        yield ""


def _default(model: type[BuiltinParameters], key: str, is_required: bool) -> str:
    if is_required:
        return "required"
    (field,) = (field for field in model.model_fields.values() if field.alias == key)
    value: Any = field.get_default(call_default_factory=True)
    if value is None or value in ((), {}):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _functions() -> Iterator[str]:
    yield "## Functions\n"
    yield "What SQL may call, beside operators, `CASE`, `CAST`, `EXTRACT` and the like:\n"
    yield textwrap.fill(", ".join(f"`{name}`" for name in sorted(ALLOWED_FUNCTIONS)), 120, break_on_hyphens=False)
    tables = ", ".join(f"`{name}`" for name in sorted(TABLE_FUNCTIONS))
    yield f"\nWhere a relation stands, or behind `LATERAL VIEW`: {tables}.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
