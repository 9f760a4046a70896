"""Writes the options in ``docs/reference/addresses.md``: run ``python -m tests.unit.model.settings_table``."""

from __future__ import annotations

from pathlib import Path

from enmasse.model.kinds.address_settings import DIRECT, SETTINGS, STORING, Setting

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "addresses.md"
_BEGIN, _END = "<!-- settings -->\n", "<!-- end of settings -->\n"
_SETS = {(): "all", STORING: "what stores for receivers", (*STORING, "stream"): "what stores", DIRECT: "both direct"}


def page() -> str:
    """Return the page with a fresh table."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    lines = ["| attribute | field of `spec` | meaning | of | default |", "|---|---|---|---|---|"]
    lines += [_row(setting) for setting in SETTINGS.values()]
    return head + _BEGIN + "\n".join(lines) + "\n" + _END + rest.partition(_END)[2]


def _row(setting: Setting) -> str:
    paths = ", ".join(f"`{path}`" for path in (setting.path, *setting.path_of.values()) if path)
    default = setting.unless or (f"`{setting.default}`" if setting.choices else str(setting.default or "none"))
    default = str(setting.default).lower() if isinstance(setting.default, bool) else default
    types = _SETS.get(setting.of, ", ".join(setting.of))
    return f"| `{setting.name}` | {paths or 'none'} | {setting.meaning} | {types} | {default} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
