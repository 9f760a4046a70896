"""When a device is missing, and what is told of it.

A device is heard when the stream accepts a message of it: its own clock does not matter. It is missing
when a message is accepted that comes ``after`` or more after the one before, or when no such message
came until now.

Rules:
1. Every silence of that length is told once as ``missing`` and, when it ends, once as ``back``; also one
   that began and ended while nobody looked.
2. Whether a silence that goes on is told depends on the clock of the machine that runs the pipeline; a
   batch holds everything that was there when it was made, so nobody is missed who was heard.
3. An alert's id names the last message before the silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pandas as pd

from enmasse.pipeline.builtin.devices import Devices, name_codes

__all__ = ["SilenceKeeper"]

_COLUMNS: Final = (
    ("id", "STRING"),
    ("device", "STRING"),
    ("state", "STRING"),
    ("since_us", "BIGINT"),
    ("time_us", "BIGINT"),
    ("text", "STRING"),
)
_NEW: Final = (0.0, 0.0)
"""When last heard, in microseconds; whether that it is missing was told."""
_HEARD: Final = 0
_TOLD: Final = 1
_GRACE_US: Final = 500_000
"""A batch's time is read a moment after what is in it was looked up."""


@dataclass(frozen=True)
class SilenceKeeper:
    """Looks when devices are heard."""

    after_us: int
    cleared: bool = True
    forget_us: int = 86_400_000_000
    most: int = 1_000_000

    @property
    def columns(self) -> str:
        """The columns of alerts."""
        return ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)

    def __call__(self, kept: bytes | None, rows: pd.DataFrame, now_us: int) -> tuple[bytes, pd.DataFrame]:
        """Take who was heard when: ``device, heard_us``."""
        devices = Devices(len(_NEW), kept)
        told: list[tuple[Any, ...]] = []
        if len(rows):
            self._hear(devices, rows, told)
        self._miss(devices, now_us - _GRACE_US, told)
        devices.keep_recent(_HEARD, now_us - self.forget_us, self.most)
        told.sort(key=lambda alert: (alert[4], alert[0]))
        return devices.to_bytes(), pd.DataFrame(told, columns=[name for name, _ in _COLUMNS])

    def _hear(self, devices: Devices, rows: pd.DataFrame, told: list[tuple[Any, ...]]) -> None:
        ordered = rows.sort_values(["device", "heard_us"], ignore_index=True)
        codes, names = name_codes(ordered["device"])
        indexes = devices.rows_of(names, _NEW)
        state = devices.numbers[indexes]
        # Partitions are read side by side, so a row may be older than what was heard in another one.
        heard = np.maximum(ordered["heard_us"].to_numpy(dtype=np.float64), state[codes, _HEARD])
        is_first = np.diff(codes, prepend=-1) != 0
        before = np.where(is_first, state[codes, _HEARD], np.roll(heard, 1))
        was_told = is_first & (state[codes, _TOLD] > 0) & (heard > before)
        for index in np.nonzero((before > 0) & ((heard - before >= self.after_us) | was_told))[0].tolist():
            device, since = names[codes[index]][0], int(before[index])
            if not was_told[index]:
                told.append(_alert(device, "missing", since, since + self.after_us))
            if self.cleared:
                told.append(_alert(device, "back", since, int(heard[index])))
        is_last = np.append(is_first[1:], True)
        newest = heard[is_last]
        # What is told stays told until a newer message is heard.
        state[:, _TOLD] = np.where(newest > state[:, _HEARD], 0.0, state[:, _TOLD])
        state[:, _HEARD] = newest
        devices.numbers[indexes] = state

    def _miss(self, devices: Devices, until_us: int, told: list[tuple[Any, ...]]) -> None:
        numbers = devices.numbers
        is_silent = (numbers[:, _TOLD] == 0) & (until_us - numbers[:, _HEARD] >= self.after_us)
        silent = np.nonzero(is_silent)[0].tolist()
        if not silent:
            return
        names = devices.names
        for row in silent:
            since = int(numbers[row, _HEARD])
            told.append(_alert(names[row][0], "missing", since, since + self.after_us))
        numbers[silent, _TOLD] = 1.0


def _alert(device: str, state: str, since_us: int, time_us: int) -> tuple[Any, ...]:
    moment = datetime.fromtimestamp(since_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = (
        f"{device}: not heard since {moment}"
        if state == "missing"
        else f"{device}: back after {(time_us - since_us) / 1e6:.1f} s"
    )
    return f"heartbeat/{device}/{since_us}/{state}", device, state, since_us, time_us, text
