from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from enmasse.pipeline.bands import Band, Bands, Reading, find_alerts
from enmasse.pipeline.errors import OptionError

START = datetime(2026, 1, 1, tzinfo=UTC)
BANDS = Bands(Band(10, 35), {"freezer": Band(-25, -15)})


def reading(device: str, low: float, high: float, *, metric: str = "temperature", window: int = 0) -> Reading:
    start = START + timedelta(seconds=10 * window)
    return Reading(device, metric, start, start + timedelta(seconds=10), 5, (low + high) / 2, low, high, 0.1)


def alerts(*readings: Reading) -> list[tuple[str, float]]:
    return [(alert.device, alert.value) for alert in find_alerts(readings, BANDS, "temperature")]


def test_a_device_inside_its_band_raises_nothing() -> None:
    assert alerts(reading("a", 10, 35), reading("freezer", -20, -16)) == []


def test_a_device_outside_raises_one_alert_with_its_furthest_reading() -> None:
    assert alerts(reading("a", 20, 36)) == [("a", 36)]
    assert alerts(reading("a", 1, 36)) == [("a", 1)]
    assert alerts(reading("freezer", -20, 3)) == [("freezer", 3)]


def test_other_metrics_have_no_band() -> None:
    assert alerts(reading("a", 20, 99, metric="humidity")) == []


def test_an_alert_keeps_its_id_while_the_window_grows_and_another_window_has_another() -> None:
    ids = [find_alerts([r], BANDS, "temperature")[0].id for r in (reading("a", 1, 40), reading("a", 1, 50))]
    later = find_alerts([reading("a", 1, 50, window=1)], BANDS, "temperature")[0].id
    assert ids[0] == ids[1] != later


def test_an_alert_says_what_happened() -> None:
    body = find_alerts([reading("boiler", 20, 41.5)], BANDS, "temperature")[0].to_json()
    assert body["text"] == "boiler: temperature 41.5 is above 35"
    assert body["window"] == {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:10Z"}
    assert json.loads(json.dumps(body)) == body


@pytest.mark.parametrize(
    ("text", "inside", "outside"), [("10:35", 35, 36), (":80", -1e9, 81), ("-5:", 1e9, -6), ("-5:-1", -1, 0)]
)
def test_bands_may_be_open(text: str, inside: float, outside: float) -> None:
    band = Band.parse(text)
    assert band.holds(inside)
    assert not band.holds(outside)


@pytest.mark.parametrize("text", ["", "10", "a:b", "9:3", "nan:3"])
def test_what_is_no_band_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="LOW:HIGH"):
        Band.parse(text)


def test_bands_of_single_devices_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "bands.json"
    path.write_text('{"freezer": "-25:-15"}')
    bands = Bands.load(Band(0, 1), path)
    assert (bands.of("freezer"), bands.of("x")) == (Band(-25, -15), Band(0, 1))
    path.write_text("[1]")
    with pytest.raises(OptionError, match=r"bands\.json"):
        Bands.load(Band(0, 1), path)
