"""A history as characters and as a PNG."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from enmasse.demo.chart import Alarm, Curve, History, Order, draw, lines

BEGAN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def _curve(device: str, values: list[float]) -> Curve:
    moments = [BEGAN + timedelta(seconds=number) for number in range(len(values))]
    return Curve(device, "temperature", moments, values)


def _history() -> History:
    hot = [20.0] * 100 + [41.0] + [20.0] * 99
    curves = [_curve("boiler-1", hot), _curve("pump-1", [15.0, 20.0]), _curve("press-1", [30.0])]
    alarms = [Alarm("boiler-1", BEGAN + timedelta(seconds=100), 41.0)]
    orders = [Order("boiler-1", BEGAN + timedelta(seconds=101), "cool")]
    return History(curves, alarms, "temperature", 10, 35, orders)


def _printed(history: History) -> str:
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(lines(history, 20))
    return capture.get()


def test_a_single_peak_is_seen_however_narrow_the_curve() -> None:
    (line,) = [line for line in _printed(_history()).splitlines() if "boiler-1" in line]
    assert line.count("█") == 1
    assert line.split()[-4:] == ["20.0", "20.0", "41.0", "1"]


def test_a_short_curve_has_a_character_for_each_value() -> None:
    (line,) = [line for line in _printed(_history()).splitlines() if "pump-1" in line]
    assert len(line.split()[1]) == 2


@pytest.mark.slow
def test_the_picture_holds_a_chart_for_each_device(tmp_path: Path) -> None:
    draw(_history(), tmp_path / "one.png")
    wide = History([*_history().curves] * 3, [], "temperature", 10, 35)
    draw(wide, tmp_path / "many.png")
    one, many = _size(tmp_path / "one.png"), _size(tmp_path / "many.png")
    assert one[0] == many[0]
    assert many[1] > one[1]


@pytest.mark.slow
def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        draw(_history(), tmp_path / "nowhere" / "x.png")


def _size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n")
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
