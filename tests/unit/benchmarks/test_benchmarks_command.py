from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.foreign_tools import require

ROOT = Path(__file__).parents[3]


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=150)


def test_the_list_names_every_case_and_how_to_get_what_is_missing() -> None:
    done = benchmarks("--list")
    assert done.returncode == 0, done.stderr
    assert "1:1, 100 B, unsettled" in done.stdout
    assert "queue, recovery of 3 million" in done.stdout
    assert "apt-get install rabbitmq-server" in done.stdout


def test_an_unknown_suite_is_answered_with_those_that_exist() -> None:
    done = benchmarks("anicast")
    assert done.returncode == 2
    assert "anicast" in done.stderr
    assert "stored" in done.stderr


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path) -> None:
    code = "from pathlib import Path; from benchmarks import generators; "
    code += "generators.BINARIES = Path('bin'); generators.build('amqp_load')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "apt-get install gcc" in done.stderr


@pytest.fixture
def short(tmp_path: Path) -> tuple[str, ...]:
    """Arguments for a run that measures next to nothing."""
    require("a C compiler")
    few = ("--runs", "1", "--seconds", "0.2", "--scale", "0.0002", "--patience", "0", "--no-peers")
    return (*few, "--directory", str(tmp_path))


@pytest.mark.slow
def test_a_case_is_measured_to_its_end_and_kept(tmp_path: Path, short: tuple[str, ...]) -> None:
    done = benchmarks("anycast", "--case", "multicast", *short)
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.glob("*.jsonl")
    about, case = map(json.loads, kept.read_text().splitlines())
    assert about["command"][0] == "anycast"
    assert case["failure"] == ""
    assert case["losses"] == 0
    assert case["rate"]["median"] > 0
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.slow
def test_mqtt_is_measured_with_what_has_a_plan_of_its_own(tmp_path: Path, short: tuple[str, ...]) -> None:
    # "QoS 1" and the like are in the names of cases, "to MQTT" and "QoS 1 into" in those of plans.
    for text, number in (("QoS 1", 3), ("to MQTT", 1)):
        done = benchmarks("mqtt", "--case", text, *short)
        assert done.returncode == 0, done.stdout + done.stderr
        kept = max(tmp_path.glob("*.jsonl"))
        _, *measured = map(json.loads, kept.read_text().splitlines())
        kept.unlink()
        assert [found["failure"] for found in measured] == [""] * number
        assert sum(found.get("losses", 0) for found in measured) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "figures"),
    [
        ("10 million", {"drained, 100 B, durable": 2_000, "spoilt or out of order": 0}),
        ("recovery", {"start 3: a receiver has the first message": None}),
        ("read by receivers", {"read 1: node": None}),
        ("bulk frames", {"read 1: by the clock, with the client": None}),
    ],
)
def test_what_has_a_plan_of_its_own_is_measured_and_kept(
    tmp_path: Path, short: tuple[str, ...], case: str, figures: dict[str, int | None]
) -> None:
    done = benchmarks("stored", "--case", case, *short)
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.glob("*.jsonl")
    _, measured = map(json.loads, kept.read_text().splitlines())
    assert measured["failure"] == ""
    found = {line["what"]: line["value"] for line in measured["lines"]}
    for what, figure in figures.items():
        assert found[what] > 0 if figure is None else found[what] == figure
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.slow
def test_the_start_and_commands_are_measured(tmp_path: Path, short: tuple[str, ...]) -> None:
    done = benchmarks("starting", *short)
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.glob("*.jsonl")
    _, measured = map(json.loads, kept.read_text().splitlines())
    assert measured["failure"] == ""
    assert len(measured["lines"]) > 5
    assert all(line["value"] > 0 for line in measured["lines"])
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.slow
def test_what_tls_adds_is_measured_for_every_size_or_what_is_missing_is_said(
    tmp_path: Path, short: tuple[str, ...]
) -> None:
    done = benchmarks("tls", *short)
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.glob("*.jsonl")
    _, *measured = map(json.loads, kept.read_text().splitlines())
    if not measured:
        assert "libssl-dev" in done.stdout
        return
    figures = {line["what"]: line["value"] for line in measured[0]["lines"]}
    assert measured[0]["failure"] == ""
    # The processor's time is told in steps, and what is added by one short run may be below nothing.
    assert {*figures} >= {f"1:1, {size}, unsettled, plain" for size in ("100 B", "1 KiB", "64 KiB")}
    assert figures["the same bytes through the TLS library alone"] > 0
    assert figures["multiple"] == figures["what TLS adds"] / figures["the same bytes through the TLS library alone"]
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.slow
def test_what_several_nodes_cost_is_measured_beside_bytes_alone(tmp_path: Path, short: tuple[str, ...]) -> None:
    for case, wanted in (("pipe", "STOMP, 100 B"), ("open", "a bare proxy")):
        done = benchmarks("nodes", "--case", case, *short)
        assert done.returncode == 0, done.stdout + done.stderr
        kept = max(tmp_path.glob("*.jsonl"))
        _, measured = map(json.loads, kept.read_text().splitlines())
        kept.unlink()
        assert measured["failure"] == ""
        assert any(wanted in line["what"] for line in measured["lines"])
        assert all(line["value"] > 0 for line in measured["lines"])
    assert list(tmp_path.iterdir()) == []
