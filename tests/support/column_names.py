"""Names of columns as machines have them: of each kind of sign that means something somewhere."""

from __future__ import annotations

from typing import Final

NAMES: Final = (
    "a.b",
    "Motor[1].Speed",
    "outdoor temp. (°C)",
    "it's",
    'ns=3;s="DB1"."temp"',
    "a`b",
    "``",
    "x,y",
    "100%",
    "a/b",
    "a\\b",
    " lead",
    "{t}",
    "*",
    "?",
    "$x",
    "<a>",
    "1-0:1.8.0*255",
    "select",
    "Größe",
    "day(ts)",
)
