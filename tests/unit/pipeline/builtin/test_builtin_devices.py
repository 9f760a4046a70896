"""What is remembered of devices survives as bytes, and stays within its bounds."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

from enmasse.pipeline.builtin.device_state import Devices, name_codes


def test_bytes_give_back_names_and_numbers() -> None:
    devices = Devices(2)
    rows = devices.rows_of([("a",), ("b/ü\n", "t")], (0.0, 7.0))
    devices.numbers[rows[1]] = (1.5, -np.inf)
    again = Devices(2, devices.to_bytes())
    assert again.names == [("a",), ("b/ü\n", "t")]
    assert again.numbers.tolist() == [[0.0, 7.0], [1.5, -np.inf]]
    assert again.rows_of([("b/ü\n", "t"), ("c",)], (9.0, 9.0)).tolist() == [1, 2]
    assert again.numbers[2].tolist() == [9.0, 9.0]


def test_thousands_come_one_by_one() -> None:
    devices = Devices(1)
    for number in range(2000):
        row = devices.rows_of([(str(number),)], (0.0,))
        devices.numbers[row] = float(number)
    assert devices.numbers[:, 0].tolist() == list(range(2000))


def test_those_heard_longest_ago_go_first() -> None:
    devices = Devices(1)
    rows = devices.rows_of([(name,) for name in "abcde"], (0.0,))
    devices.numbers[rows, 0] = [5.0, 1.0, 4.0, 2.0, 3.0]
    devices.keep_recent(0, 2.0, 3)
    assert devices.names == [("a",), ("c",), ("e",)]
    assert devices.rows_of([("e",), ("b",)], (0.0,)).tolist() == [2, 3]


def test_rows_are_numbered_by_their_names() -> None:
    codes, names = name_codes(pd.Series(["x", "y", "x", "x"]), pd.Series(["1", "1", "2", "1"]))
    assert codes.tolist() == [0, 1, 2, 0]
    assert names == [("x", "1"), ("y", "1"), ("x", "2")]
