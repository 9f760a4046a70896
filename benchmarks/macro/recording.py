"""What is kept of a session: figures and circumstances, without what each single run told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["record", "write"]

CASE = ("case", "target_us", "target_p99_ms", "server", "disturbed", "failure", "losses")
FIGURES = ("us", "rate", "p50", "p99", "rss_mb")
ABOUT = ("at", "version", "commit", "changed", "python", "kernel", "machine", "cpu", "cores", "memory_mb", "load")
CONNECTIONS = ("server", "each", "connections", "kb_per_conn", "server_connect_cpu_us_per_conn", "target_kib")


def record(lines: Iterable[str], command: Sequence[str]) -> dict[str, Any]:
    """Read the lines of a results file.

    Args:
        lines: as ``benchmarks.reporting`` writes them.
        command: what reproduces them.
    """
    kept: dict[str, Any] = {"command": list(command), "about": {}, "cases": [], "connections": [], "measurements": []}
    for line in lines:
        found = json.loads(line)
        if found["kind"] == "about":
            kept["about"] = {name: found[name] for name in ABOUT}
        elif found["kind"] == "case":
            kept["cases"].append(_case(found))
        elif found["kind"] == "lines":
            kept["measurements"].append({name: found[name] for name in ("case", "failure", "lines")})
        elif found["suite"] == "connections":
            kept["connections"].append({name: found[name] for name in CONNECTIONS})
    return kept


def _case(found: dict[str, Any]) -> dict[str, Any]:
    case = {name: found[name] for name in CASE if name in found}
    # A failure's text may hold paths of the machine that it was measured on.
    case["failure"] = bool(found["failure"])
    case |= {
        name: {part: round(value, 3) for part, value in found[name].items()} for name in FIGURES if name in found
    }
    case["runs"], case["thrown_away"] = len(found["runs"]), len(found["thrown_away"])
    return case


def write(path: Path, kept: dict[str, Any]) -> None:
    """Keep it where it is committed."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n")
