"""The generated part of docs/reference/performance.md: tables of what was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

__all__ = ["BEGIN", "END", "render", "renew"]

BEGIN = "<!-- begin: written by `python -m benchmarks.macro --write` from benchmarks/results/direct.json -->"
END = "<!-- end -->"
OURS = "EnMasse"
FLOOR = "bytes alone"


def renew(page: str, kept: dict[str, Any]) -> str:
    """The page with its generated part made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{render(kept)}\n{END}{after}"


def render(kept: dict[str, Any]) -> str:
    """All tables."""
    servers = list(dict.fromkeys(case["server"] for case in kept["cases"]))
    parts = [
        _circumstances(kept),
        "### CPU microseconds of the server per message received\n",
        _costs(kept["cases"], servers),
        _notes(kept["cases"]),
        "### Messages a second, and latencies\n",
        _rates(kept["cases"], servers),
        "### Idle connections\n",
        _connections(kept["connections"]),
    ]
    for measurement in kept["measurements"]:
        parts += [f"### {measurement['case']}\n", _lines(measurement["lines"])]
    return "\n".join(part for part in parts if part)


def _circumstances(kept: dict[str, Any]) -> str:
    about = kept["about"]
    when = datetime.fromisoformat(about["at"])
    runs = sum(case["runs"] for case in kept["cases"])
    thrown_away = sum(case["thrown_away"] for case in kept["cases"])
    changed = " and what was not committed yet" if about["changed"] else ""
    disturbed = sum(case["disturbed"] for case in kept["cases"])
    quiet = f"{runs} runs count, {thrown_away} were thrown away because other processes used the machine meanwhile"
    if disturbed:
        quiet += (
            f"; of {disturbed} of {len(kept['cases'])} lines there was no undisturbed run at all, and the disturbed "
            "ones are shown, marked with *"
        )
    return (
        f"Recorded on {when:%-d %B %Y} at commit `{about['commit']}`{changed}: CPython {about['python']}, Linux "
        f"{about['kernel']}, {about['cores']} cores of {about['cpu'] or about['machine']}, "
        f"{about['memory_mb'] / 1024:.0f} GB, load {about['load']:g} before it began. Load generators and servers "
        f"ran on this machine, in turns; {quiet}. Medians; in parentheses how many times as much as ours. To measure "
        f"it again:\n\n```sh\n{' '.join(kept['command'])}\n```\n"
    )


def _costs(cases: Sequence[dict[str, Any]], servers: Sequence[str]) -> str:
    rows = []
    for name, by_server in _by_case(cases):
        ours = next((case for server, case in by_server.items() if server.startswith(OURS)), None)
        target = f"{ours['target_us']:g}" if ours and ours["target_us"] else ""
        rows.append([name, target, *(_cost(by_server.get(server), ours) for server in servers)])
    return _table(["case", "wanted", *servers], rows)


def _cost(case: dict[str, Any] | None, ours: dict[str, Any] | None) -> str:
    if case is None or "us" not in case:
        return ""
    median = case["us"]["median"]
    shown = _number(median) + ("*" if case["disturbed"] else "")
    if ours is None or "us" not in ours or case["server"].startswith((OURS, FLOOR)):
        return shown
    return f"{shown} ({_number(median / ours['us']['median'])})"


def _notes(cases: Sequence[dict[str, Any]]) -> str:
    notes = [
        f"{case['server']}, {case['case']}: "
        + ("no result" if "us" not in case else f"{case['losses']:,} messages never came, came twice or came spoilt")
        for case in cases
        if "us" not in case or case.get("losses")
    ]
    return "".join(f"- {note}\n" for note in notes)


def _rates(cases: Sequence[dict[str, Any]], servers: Sequence[str]) -> str:
    rows = []
    for name, by_server in _by_case(cases):
        is_paced = any(case["target_p99_ms"] for case in by_server.values())
        cells = []
        for server in servers:
            case = by_server.get(server)
            if case is None or "us" not in case:
                cells.append("")
            elif is_paced:
                cells.append(f"p50 {case['p50']['median'] / 1e3:.2f} ms, p99 {case['p99']['median'] / 1e3:.2f} ms")
            else:
                cells.append(f"{case['rate']['median']:,.0f}")
        rows.append([name, *cells])
    return _table(["case", *servers], rows)


def _connections(found: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            one["server"],
            one["each"],
            f"{one['kb_per_conn']:.1f}",
            f"{one['target_kib']:g}" if one["target_kib"] else "",
            f"{one['server_connect_cpu_us_per_conn']:,.0f}",
        ]
        for one in found
    ]
    heads = ["server", "each connection with", "KiB of memory each", "wanted", "CPU microseconds to open one"]
    return _table(heads, rows) if rows else ""


def _lines(lines: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            line["what"],
            f"{_number(line['value'])} {line['unit']}".strip(),
            f"{line['target']:g}" if line["target"] else "",
        ]
        for line in lines
    ]
    return _table(["what", "measured", "wanted"], rows)


def _by_case(cases: Iterable[dict[str, Any]]) -> list[tuple[str, dict[str, dict[str, Any]]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for case in cases:
        found.setdefault(case["case"], {})[case["server"]] = case
    return list(found.items())


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 20 else f"{value:,.0f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
