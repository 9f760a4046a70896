"""Spark's event logs are kept within bounds, in the form that Spark's history server reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from enmasse.pipeline.running import event_log
from enmasse.pipeline.running.event_log import EventLogs, event_log_settings, shorten

STARTED = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent"
BEGINNING = ("SparkListenerLogStart", "SparkListenerEnvironmentUpdate", "SparkListenerApplicationStart")


def write(path: Path, *events: str) -> None:
    lines = [json.dumps({"Event": event, "of": path.name}, separators=(",", ":")) + "\n" for event in events]
    with pa.output_stream(path, compression="zstd") as file:
        file.write("".join(lines).encode())


def read(path: Path) -> list[dict[str, Any]]:
    with pa.input_stream(path, compression="zstd") as file:
        return [json.loads(line) for line in file.read().splitlines()]


def log_of(root: Path, application: str, files: int, *, running: bool = False) -> Path:
    log = root / "events" / f"eventlog_v2_{application}"
    log.mkdir(parents=True)
    (log / f"appstatus_{application}{'.inprogress' if running else ''}").touch()
    write(log / f"events_1_{application}.zstd", *BEGINNING, STARTED, "SparkListenerJobStart")
    for number in range(2, files + 1):
        write(log / f"events_{number}_{application}.zstd", "SparkListenerTaskEnd", STARTED)
    return log


def names(log: Path) -> list[str]:
    return sorted(path.name for path in log.iterdir() if path.name.startswith("events"))


def test_the_oldest_files_become_one_that_says_what_the_application_is(tmp_path: Path) -> None:
    log = log_of(tmp_path, "local-1", 7)
    assert shorten(log, 3)
    assert names(log) == ["events_5_local-1.zstd.compact", "events_6_local-1.zstd", "events_7_local-1.zstd"]
    first = read(log / "events_5_local-1.zstd.compact")
    assert [event["Event"] for event in first] == [
        "SparkListenerLogStart",
        "SparkListenerApplicationStart",
        "SparkListenerEnvironmentUpdate",
        *[STARTED] * 5,
    ]
    assert not shorten(log, 3)
    write(log / "events_8_local-1.zstd", "SparkListenerTaskEnd")
    assert shorten(log, 3)
    assert names(log) == ["events_6_local-1.zstd.compact", "events_7_local-1.zstd", "events_8_local-1.zstd"]
    assert [event["of"] for event in read(log / "events_6_local-1.zstd.compact")][:2] == ["events_1_local-1.zstd"] * 2


def test_a_file_that_was_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    log = log_of(tmp_path, "local-1", 4)
    torn = log / "events_2_local-1.zstd"
    torn.write_bytes(torn.read_bytes()[:-9])
    assert shorten(log, 2)
    assert read(log / "events_3_local-1.zstd.compact")[0]["Event"] == "SparkListenerLogStart"


def test_queries_that_began_often_are_not_all_kept_and_take_nothing_else_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "_MAX_KEPT", 3)
    log = log_of(tmp_path, "local-1", 9)
    shorten(log, 2)
    kept = read(log / "events_8_local-1.zstd.compact")
    assert {event["Event"] for event in kept} == {*BEGINNING, STARTED}
    assert [event["of"] for event in kept[3:]] == [f"events_{number}_local-1.zstd" for number in (6, 7, 8)]


def test_a_session_that_does_nothing_for_days_is_told_from_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MAX_ENDED", 0)
    for name in ("idle", "killed"):
        for path in log_of(tmp_path, name, 1, running=True).iterdir():
            os.utime(path, (1, 1))
    EventLogs(tmp_path, "idle").look()
    EventLogs(tmp_path, "next").remove_ended()
    assert [path.name for path in (tmp_path / "events").iterdir()] == ["eventlog_v2_idle"]


def test_a_log_that_cannot_be_looked_into_keeps_no_other_from_being_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MAX_ENDED", 0)
    log_of(tmp_path, "ended", 1)
    (tmp_path / "events" / "eventlog_v2_odd").touch()  # no folder, which cannot be listed either
    EventLogs(tmp_path, "own").remove_ended()
    assert [path.name for path in (tmp_path / "events").iterdir()] == ["eventlog_v2_odd"]


def test_logs_of_ended_sessions_go_from_the_oldest_on_and_those_that_run_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MAX_ENDED", 2)
    killed = log_of(tmp_path, "killed", 1, running=True)
    for path in killed.iterdir():
        os.utime(path, (1, 1))
    for number in range(1, 5):
        for path in log_of(tmp_path, f"ended-{number}", 1).iterdir():
            os.utime(path, (1000 + number, 1000 + number))
    log_of(tmp_path, "running", 1, running=True)
    log_of(tmp_path, "own", 1)
    EventLogs(tmp_path, "own").remove_ended()
    left = {path.name.removeprefix("eventlog_v2_") for path in (tmp_path / "events").iterdir()}
    assert left == {"ended-3", "ended-4", "running", "own"}
    monkeypatch.setattr(event_log, "MAX_BYTES", 1)
    EventLogs(tmp_path, "own").remove_ended()
    assert {path.name for path in (tmp_path / "events").iterdir()} == {"eventlog_v2_running", "eventlog_v2_own"}


def test_a_session_is_told_to_write_below_the_spaces_folder_in_files_of_the_bounded_size(tmp_path: Path) -> None:
    settings = event_log_settings(tmp_path)
    assert settings["spark.eventLog.dir"] == f"file://{tmp_path}/events"
    assert settings["spark.eventLog.rolling.enabled"] == settings["spark.eventLog.compress"] == "true"
    assert settings["spark.eventLog.rolling.maxFileSize"] == str(event_log.FILE_BYTES)
