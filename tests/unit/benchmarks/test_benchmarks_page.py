"""The page of figures: written from what was recorded, and from nothing else."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

from benchmarks.macro.page import BEGIN, END, render, renew
from benchmarks.macro.recording import record
from benchmarks.spending import OTHER, sort_samples

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "performance.md").read_text()
RECORDED = json.loads((ROOT / "benchmarks" / "results" / "direct.json").read_text())

ABOUT = {
    "kind": "about", "at": "2026-11-21T23:00:00+00:00", "version": "1", "commit": "abc", "changed": False,
    "python": "3.11.7", "kernel": "6.1", "machine": "x86_64", "cpu": "A CPU", "cores": 2, "memory_mb": 4096,
    "load": 0.5, "command": [],
}  # fmt: skip


def case(server: str, us: float, **more: Any) -> dict[str, Any]:
    figure = {"min": us, "median": us, "max": us}
    names = ("us", "rate", "p50", "p99", "rss_mb")
    return {
        "kind": "case", "suite": "anycast", "case": "1:1", "server": server, "target_us": 3.0, "target_p99_ms": 0.0,
        "disturbed": False, "failure": "", "losses": 0, "runs": [{}], "thrown_away": [],
        **dict.fromkeys(names, figure), **more,
    }  # fmt: skip


def recorded(*cases: dict[str, Any]) -> dict[str, Any]:
    return record([json.dumps(line) for line in (ABOUT, *cases)], ["make", "it"])


def test_the_page_is_what_was_recorded() -> None:
    assert renew(PAGE, RECORDED) == PAGE, "run: python -m benchmarks.macro --write"


def test_every_case_and_server_that_was_recorded_is_on_the_page() -> None:
    for one in RECORDED["cases"]:
        assert f"| {one['case']} |" in PAGE
        assert one["server"] in PAGE


def test_what_is_recorded_names_no_machine_and_no_path() -> None:
    text = json.dumps(RECORDED)
    assert socket.gethostname() not in text
    assert not re.search(r"/(home|root|tmp|work|usr)/", text)


def test_a_peer_stands_beside_us_with_the_ratio() -> None:
    text = render(recorded(case("EnMasse 1", 2.0), case("Other 2", 9.0)))
    assert "| 1:1 | 3 | 2.0 | 9.0 (4.5) |" in text
    assert "make it" in text


def test_disturbed_runs_are_marked_and_counted() -> None:
    text = render(recorded(case("EnMasse 1", 2.0, disturbed=True, runs=[], thrown_away=[{}, {}])))
    assert "2.0*" in text
    assert "0 runs count, 2 were thrown away" in text
    assert "of 1 of 1 lines there was no undisturbed run" in text


def test_losses_and_failures_are_said() -> None:
    failed = {name: value for name, value in case("Other 2", 1.0).items() if not isinstance(value, dict)}
    text = render(recorded(case("EnMasse 1", 2.0, losses=7), failed | {"failure": "/root/x broke"}))
    assert "EnMasse 1, 1:1: 7 messages never came" in text
    assert "Other 2, 1:1: no result" in text
    assert "/root" not in text


def test_only_the_generated_part_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    renewed = renew(page, recorded(case("EnMasse 1", 2.0)))
    assert renewed.startswith(f"before\n{BEGIN}\n")
    assert renewed.endswith(f"{END}\nafter\n")
    assert "old" not in renewed
    assert renew(renewed, recorded(case("EnMasse 1", 2.0))) == renewed


def test_samples_are_sorted_by_what_their_innermost_function_does() -> None:
    stacks = [
        "main (a.py);Connection._frames (connection.py);Session.on_transfer (enmasse/wire/amqp/session.py) 3",
        "main (a.py);Connection._frames (enmasse/wire/amqp/connection.py) 2",
        "main (a.py);AnycastProducer.on_message (enmasse/messaging/direct/anycast.py) 4",
        "main (a.py);something new (b.py) 1",
    ]
    counts = sort_samples(stacks)
    assert counts["reading a transfer"] == 3
    assert counts["finding frames in what was read"] == 2
    assert counts["the address: choosing a receiver, remembering the delivery"] == 4
    assert counts[OTHER] == 1
