from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from enmasse.demo.devices import BAND, FLEET, PROTON_FLEET, make_fleet
from enmasse.demo.figures import AddressFigures, DeviceFigures, Figures
from enmasse.demo.host import HostDevice
from enmasse.demo.picture import Picture
from enmasse.demo.verdict import Verdict, count_raw_rows
from enmasse.pipeline.bands import Band

WINDOW = {
    "event": "window",
    "device": "boiler-1",
    "metric": "temperature",
    "start": "2026-01-01T00:00:10Z",
    "end": "2026-01-01T00:00:20Z",
    "count": 4,
    "mean": 21.25,
    "min": 20.0,
    "max": 22.5,
    "stddev": None,
}
ALERT = {"text": "boiler-1: temperature 41.5 is above 35"}


def some_figures() -> Figures:
    figures = Figures(seconds=60)
    for name, accepted in (("boiler-1", 10), ("pump-1", 5)):
        figures.devices[name] = DeviceFigures(name, "enmasse.client", accepted=accepted)
    figures.addresses["telemetry"] = AddressFigures("telemetry", "stream", stored=15, in_rate=2.5)
    return figures


@pytest.mark.parametrize("device", make_fleet([*FLEET, *PROTON_FLEET]), ids=lambda device: device.name)
def test_devices_live_in_their_band_and_leave_it_when_told(device: object) -> None:
    band = Band.parse(BAND)
    simulated = make_fleet([getattr(device, "name")])[0]  # noqa: B009
    usual = [simulated.measure(1_700_000_000 + n / 2)["temperature"] for n in range(200)]
    assert all(band.holds(value) for value in usual)
    simulated.leave_band(1_700_000_100, 12)
    assert not any(band.holds(simulated.measure(1_700_000_100 + n / 2)["temperature"]) for n in range(24))
    assert band.holds(simulated.measure(1_700_000_113)["temperature"])


def test_the_host_measures_itself() -> None:
    host = HostDevice()
    host.measure(100.0)
    message = host.measure(101.0)
    assert message["device"] == host.name
    assert {"cpu_percent", "memory_percent", "disk_percent", "load_1m"} <= message.keys()


def test_the_jobs_lines_become_figures() -> None:
    figures = some_figures()
    for event in (
        {"event": "started", "pid": 7},
        {"event": "ready"},
        {"event": "progress", "query": "raw", "batch": 0, "rows": 8, "rate": 12.5, "duration_ms": 90},
        {"event": "table", "table": "raw", "batch": 0, "rows": 8},
        {"event": "table", "table": "windows", "batch": 0, "rows": 2},
        WINDOW,
        {**WINDOW, "start": "2026-01-01T00:00:00Z", "count": 9},
        {**WINDOW, "metric": "humidity"},
        {**WINDOW, "device": "unknown"},
        {"event": "stopped"},
    ):
        figures.on_job_event(event)
    assert (figures.job, figures.batches, figures.raw_rows, figures.window_rows) == ("running", 1, 8, 2)
    window = figures.devices["boiler-1"].window
    assert window is not None
    assert window["count"] == 4


def test_a_failed_query_is_told_until_it_runs_again() -> None:
    figures = some_figures()
    figures.on_job_event({"event": "failed", "query": "raw", "error": "a\nDataLossError: gone", "retry_s": 2.0})
    assert "DataLossError: gone" in figures.job
    figures.on_job_event({"event": "progress", "query": "raw", "batch": 1, "rows": 1, "rate": 1.0, "duration_ms": 9})
    assert figures.job == "running"


def test_an_alert_of_an_earlier_run_is_left_out() -> None:
    figures = Figures(began="2026-01-01T00:00:15+00:00")
    figures.on_alert({**ALERT, "window": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:10Z"}})
    assert figures.alerts_seen == 0
    figures.on_alert({**ALERT, "window": {"start": "2026-01-01T00:00:10Z", "end": "2026-01-01T00:00:20Z"}})
    assert figures.alerts_seen == 1


def test_without_a_terminal_there_are_plain_lines() -> None:
    out = StringIO()
    figures = some_figures()
    with Picture(Console(file=out, width=200), figures) as picture:
        picture.update()
        figures.on_alert(ALERT)
        picture.update()
        picture.update()
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert "accepted 15" in lines[0]
    assert lines[1] == "ALERT  boiler-1: temperature 41.5 is above 35"


def test_in_a_terminal_there_is_a_table() -> None:
    out = StringIO()
    figures = some_figures()
    figures.on_job_event(WINDOW)
    figures.on_alert(ALERT)
    with Picture(Console(file=out, width=140, height=60, force_terminal=True), figures) as picture:
        picture.update()
    for word in ("telemetry", "boiler-1", "21.25", "above 35", "Spark job"):
        assert word in out.getvalue()


def test_a_run_is_good_when_every_device_is_in_the_table_and_an_alert_came() -> None:
    figures = some_figures()
    figures.on_alert(ALERT)
    assert Verdict(figures, Counter({"boiler-1": 10, "pump-1": 6})).faults() == []


def test_what_is_missing_is_said() -> None:
    figures = some_figures()
    figures.devices["silent"] = DeviceFigures("silent", "enmasse.client")
    faults = " ".join(Verdict(figures, Counter({"boiler-1": 9})).faults())
    for words in ("no row of pump-1", "9 rows of boiler-1", "silent could not", "no alert"):
        assert words in faults
    assert Verdict(figures, None).faults() == ["silent could not send anything"]


def test_rows_are_counted_by_device_from_a_moment_on(tmp_path: Path) -> None:
    assert count_raw_rows(tmp_path / "raw", datetime(2026, 1, 1, tzinfo=UTC)) == Counter()
    table = pa.table(
        {
            "timestamp": pa.array([1, 5, 6, 7], pa.timestamp("s", "UTC")),
            "value": [b'{"device": "a"}', b'{"device": "a"}', b'{"device": "b"}', b"no json"],
        }
    )
    (tmp_path / "raw" / "batch=0").mkdir(parents=True)
    pq.write_table(table, tmp_path / "raw" / "batch=0" / "part.parquet")
    since = datetime.fromtimestamp(5, UTC)
    assert count_raw_rows(tmp_path / "raw", since) == Counter({"a": 1, "b": 1})
