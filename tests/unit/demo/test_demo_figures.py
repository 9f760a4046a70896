from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from enmasse.demo.chart import count_rows, last_minutes
from enmasse.demo.devices import BAND, FLEET, PROTON_FLEET, HostDevice, make_fleet
from enmasse.demo.figures import AddressFigures, CommandFigures, DeviceFigures, Figures, PipelineFigures, Verdict
from enmasse.demo.picture import Picture

WINDOW = {
    "device": "boiler-1",
    "metric": "temperature",
    "window_start": "2026-01-01T00:00:10.000Z",
    "window_end": "2026-01-01T00:00:20.000Z",
    "count": 4,
    "mean": 21.25,
    "min": 20.0,
    "max": 22.5,
}
ALERT = {
    "text": "boiler-1: temperature 41.5 is above 35",
    "state": "raised",
    "device": "boiler-1",
    "metric": "temperature",
    "value": 41.5,
    "time": "2026-01-01T00:00:20.000Z",
}
OVER = ALERT | {"text": "boiler-1: temperature 30 is as it should be", "state": "cleared"}
RUNNING = PipelineFigures("demo.lake", "Running", is_running=True, batches=1, rows=8)


def some_figures() -> Figures:
    figures = Figures(seconds=60)
    for name, accepted in (("boiler-1", 10), ("pump-1", 5)):
        figures.devices[name] = DeviceFigures(name, "enmasse.client", accepted=accepted)
    figures.addresses["telemetry"] = AddressFigures("telemetry", "stream", stored=15, in_rate=2.5)
    return figures


@pytest.mark.parametrize("device", make_fleet([*FLEET, *PROTON_FLEET]), ids=lambda device: device.name)
def test_devices_live_in_their_band_and_leave_it_when_told(device: object) -> None:
    low, high = (float(end) for end in BAND.split(":"))
    simulated = make_fleet([getattr(device, "name")])[0]  # noqa: B009
    usual = [simulated.measure(1_700_000_000 + n / 2)["temperature"] for n in range(200)]
    assert all(low <= value <= high for value in usual)
    simulated.leave_band(1_700_000_100, 12)
    assert not any(low <= simulated.measure(1_700_000_100 + n / 2)["temperature"] <= high for n in range(24))
    assert low <= simulated.measure(1_700_000_113)["temperature"] <= high


def test_a_device_that_is_told_to_cool_comes_back_into_its_band() -> None:
    low, high = (float(end) for end in BAND.split(":"))
    device = make_fleet(FLEET[:1])[0]
    device.leave_band(1_700_000_100, 60)
    assert device.measure(1_700_000_110)["temperature"] > high
    assert device.do_command("dance", 1_700_000_110)[0] == 404
    assert device.do_command("cool", 1_700_000_110) == (200, b"it cools")
    assert low <= device.measure(1_700_000_120)["temperature"] <= high


def test_the_host_measures_itself() -> None:
    host = HostDevice()
    host.measure(100.0)
    message = host.measure(101.0)
    assert message["device"] == host.name
    assert {"cpu_percent", "memory_percent", "disk_percent", "load_1m"} <= message.keys()


def test_the_latest_window_of_each_device_is_kept() -> None:
    figures = some_figures()
    for window in (
        WINDOW,
        {**WINDOW, "window_start": "2026-01-01T00:00:00.000Z", "count": 9},
        {**WINDOW, "metric": "humidity"},
        {**WINDOW, "device": "unknown"},
    ):
        figures.on_window(window)
    kept = figures.devices["boiler-1"].window
    assert kept is not None
    assert kept["count"] == 4


def test_a_runner_that_ended_is_counted_once_whatever_it_ran() -> None:
    figures = some_figures()
    for name in ("demo.anomalies", "demo.lake"):
        figures.on_pipeline(replace(RUNNING, name=name))
    for _ in range(2):
        for name in ("demo.anomalies", "demo.lake"):
            figures.on_pipeline(replace(RUNNING, name=name, is_running=False, is_runner_gone=True))
    assert figures.runner_restarts == 1
    assert figures.rows_of("demo.lake") == 8
    assert figures.rows_of("demo.windows") == 0


def test_an_alert_of_an_earlier_run_is_left_out() -> None:
    figures = Figures(began="2026-01-01T00:00:15+00:00")
    figures.on_alert({**ALERT, "time": "2026-01-01T00:00:10.000Z"})
    assert figures.alerts_received == 0
    figures.on_alert(ALERT)
    figures.on_alert(OVER)
    assert (figures.alerts_seen, figures.alerts_received) == (1, 2)


def test_without_a_terminal_there_are_plain_lines() -> None:
    out = StringIO()
    figures = some_figures()
    with Picture(Console(file=out, width=200), figures) as picture:
        picture.update()
        figures.on_alert(ALERT)
        figures.on_alert(OVER)
        figures.commands.append(CommandFigures("boiler-1", "cool", 0.0))
        picture.update()
        figures.commands[0].state = "accepted"
        picture.update()
        picture.update()
    lines = out.getvalue().splitlines()
    assert "accepted 15" in lines[0]
    assert lines[1:] == [
        "ALERT  boiler-1: temperature 41.5 is above 35",
        "OVER   boiler-1: temperature 30 is as it should be",
        "COMMAND  boiler-1: cool is queued",
        "COMMAND  boiler-1: cool is accepted",
    ]


def test_in_a_terminal_there_is_a_table() -> None:
    out = StringIO()
    figures = some_figures()
    figures.on_window(WINDOW)
    figures.on_alert(ALERT)
    figures.on_pipeline(replace(RUNNING, problem="the node is away"))
    with Picture(Console(file=out, width=140, height=60, force_terminal=True), figures) as picture:
        picture.update()
    for word in ("telemetry", "boiler-1", "21.25", "above 35", "demo.lake", "the node is away"):
        assert word in out.getvalue()


def test_a_run_is_good_when_every_device_is_in_the_table_and_an_alert_was_answered() -> None:
    figures = some_figures()
    figures.on_alert(ALERT)
    figures.commands.append(CommandFigures("boiler-1", "cool", 0.0))
    rows = Counter({"boiler-1": 10, "pump-1": 6})
    assert Verdict(figures, rows).faults() == ["no device has obeyed a command"]
    figures.commands[0].state = "accepted"
    assert Verdict(figures, Counter({"boiler-1": 10, "pump-1": 6})).faults() == []


def test_what_is_missing_is_said() -> None:
    figures = some_figures()
    figures.devices["silent"] = DeviceFigures("silent", "enmasse.client")
    faults = " ".join(Verdict(figures, Counter({"boiler-1": 9})).faults())
    for words in ("no row of pump-1", "9 rows of boiler-1", "silent could not", "no alert"):
        assert words in faults
    assert Verdict(figures, None).faults() == ["silent could not send anything"]


def _raw_table(path: Path) -> None:
    moments = [datetime(2026, 1, 1, tzinfo=UTC), datetime.now(UTC)]
    bodies = [b'{"device": "a", "temperature": 20}', b'{"device": "b", "temperature": 41}', b"junk", b'["a"]', b"{}"]
    rows = [(moment, body) for moment in moments for body in bodies]
    table = pa.table(
        {"timestamp": pa.array([row[0] for row in rows], pa.timestamp("us", "UTC")), "value": [r[1] for r in rows]}
    )
    write_deltalake(path, table)


def test_rows_are_counted_by_device_from_a_moment_on(tmp_path: Path) -> None:
    since = datetime(2026, 1, 2, tzinfo=UTC)
    assert count_rows(tmp_path / "raw", since) == Counter()
    _raw_table(tmp_path / "raw")
    assert count_rows(tmp_path / "raw", since) == Counter(a=1, b=1)
    assert count_rows(tmp_path / "raw", datetime(2025, 1, 1, tzinfo=UTC)) == Counter(a=2, b=2)


def test_the_last_minutes_have_a_curve_for_each_device_and_what_was_alarming(tmp_path: Path) -> None:
    _raw_table(tmp_path / "raw")
    history = last_minutes(tmp_path / "raw", [ALERT, OVER, ALERT | {"metric": "humidity"}])
    assert [(curve.device, list(curve.values)) for curve in history.curves] == [("a", [20.0]), ("b", [41.0])]
    assert [(alarm.device, alarm.value) for alarm in history.alarms] == [("boiler-1", 41.5)]
    assert (history.low, history.high) == (10, 35)
