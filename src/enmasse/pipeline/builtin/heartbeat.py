"""``heartbeat``: alerts about devices that fell silent, and are back.

A device is seen when the stream accepts a message of it: its own clock does not matter. It is missing
when a message is accepted that comes ``after`` or more after the one before, or when no such message
came until now.

Rules:
1. Every silence of that length is reported once as ``missing`` and, when it ends, once as ``back``; also one
   that began and ended while the pipeline did not run.
2. Whether a silence that goes on is reported depends on the clock of the machine that runs the pipeline; a
   batch holds everything that was there when it was made, so nobody is missed who was seen.
3. An alert's id names the last message before the silence.

One bucket holds all devices: hearing one is a maximum, so that one task does several hundred thousand a
second, and with one bucket every batch with rows is seen by it. With several, one of them could be
without rows in a batch of a backlog and take its devices for silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.builtins import HeartbeatParameters
from enmasse.pipeline.builtin.device_state import Devices, by_bucket, name_codes
from enmasse.pipeline.builtin.plans import as_json_messages, checked, compaction_of, micros, seconds
from enmasse.pipeline.builtin.telemetry import messages_of, telemetry_messages
from enmasse.pipeline.running.planning.plans import AddressTarget, JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from enmasse.pipeline.running.planning.plans import PlanContext

_COLUMNS: Final = (
    ("id", "STRING"),
    ("device", "STRING"),
    ("state", "STRING"),
    ("since_us", "BIGINT"),
    ("time_us", "BIGINT"),
    ("text", "STRING"),
)
_NEW: Final = (0.0, 0.0)
"""The moment when it was seen last, in microseconds; 1 if it was reported as missing."""
_SEEN: Final = 0
_REPORTED: Final = 1
_GRACE_US: Final = 500_000
"""A batch's time is read a moment after its end was fixed."""


@dataclass(frozen=True)
class SilenceKeeper:
    """Finds devices that fall silent, and those that come back."""

    after_us: int
    cleared: bool = True
    forget_us: int = 86_400_000_000
    most: int = 1_000_000

    @property
    def columns(self) -> str:
        """The columns of alerts."""
        return ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)

    def __call__(self, kept: bytes | None, rows: pd.DataFrame, now_us: int) -> tuple[bytes, pd.DataFrame]:
        """Take the moments when devices were seen: ``device, heard_us``."""
        devices = Devices(len(_NEW), kept)
        alerts: list[tuple[Any, ...]] = []
        if len(rows):
            self._take_rows(devices, rows, alerts)
        self._find_missing(devices, now_us - _GRACE_US, alerts)
        devices.keep_recent(_SEEN, now_us - self.forget_us, self.most)
        alerts.sort(key=lambda alert: (alert[4], alert[0]))
        return devices.to_bytes(), pd.DataFrame(alerts, columns=[name for name, _ in _COLUMNS])

    def _take_rows(self, devices: Devices, rows: pd.DataFrame, alerts: list[tuple[Any, ...]]) -> None:
        ordered = rows.sort_values(["device", "heard_us"], ignore_index=True)
        codes, names = name_codes(ordered["device"])
        indexes = devices.rows_of(names, _NEW)
        state = devices.numbers[indexes]
        # Partitions are read side by side, so a row may be older than what was seen in another one.
        seen = np.maximum(ordered["heard_us"].to_numpy(dtype=np.float64), state[codes, _SEEN])
        is_first = np.diff(codes, prepend=-1) != 0
        before = np.where(is_first, state[codes, _SEEN], np.roll(seen, 1))
        was_missing = is_first & (state[codes, _REPORTED] > 0) & (seen > before)
        for index in np.nonzero((before > 0) & ((seen - before >= self.after_us) | was_missing))[0].tolist():
            device, since = names[codes[index]][0], int(before[index])
            if not was_missing[index]:
                alerts.append(_alert(device, "missing", since, since + self.after_us))
            if self.cleared:
                alerts.append(_alert(device, "back", since, int(seen[index])))
        is_last = np.append(is_first[1:], True)
        newest = seen[is_last]
        # One that was reported stays so until a newer message comes.
        state[:, _REPORTED] = np.where(newest > state[:, _SEEN], 0.0, state[:, _REPORTED])
        state[:, _SEEN] = newest
        devices.numbers[indexes] = state

    def _find_missing(self, devices: Devices, until_us: int, alerts: list[tuple[Any, ...]]) -> None:
        numbers = devices.numbers
        is_silent = (numbers[:, _REPORTED] == 0) & (until_us - numbers[:, _SEEN] >= self.after_us)
        silent = np.nonzero(is_silent)[0].tolist()
        if not silent:
            return
        names = devices.names
        for row in silent:
            since = int(numbers[row, _SEEN])
            alerts.append(_alert(names[row][0], "missing", since, since + self.after_us))
        numbers[silent, _REPORTED] = 1.0


def _alert(device: str, state: str, since_us: int, time_us: int) -> tuple[Any, ...]:
    moment = datetime.fromtimestamp(since_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = (
        f"{device}: not heard since {moment}"
        if state == "missing"
        else f"{device}: back after {(time_us - since_us) / 1e6:.1f} s"
    )
    return f"heartbeat/{device}/{since_us}/{state}", device, state, since_us, time_us, text


STATE: Final = ("heartbeat 1: 1 bucket of device -> heard, told",)
LEAST_CHECK_S: Final = 0.5
MAX_CHECK_S: Final = 10.0
"""A check without rows costs about a tenth of a second of one core."""


def build(context: PlanContext, parameters: HeartbeatParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """Return a query for the address and one for the table, as wanted.

    Raises:
        PlanError: a parameter is wrong.
    """
    wanted = checked(HeartbeatParameters, parameters)
    keeper = SilenceKeeper(
        after_us=micros(wanted.after),
        cleared=wanted.cleared,
        forget_us=micros(wanted.forget_after),
        most=wanted.max_devices,
    )
    source = wanted.model_copy(update={"starting_offsets": wanted.starting_offsets or "latest"})
    seen = (
        messages_of(telemetry_messages(context, source))
        .where("device IS NOT NULL")
        .selectExpr("device", "unix_micros(timestamp) AS heard_us", "partition", "offset")
    )
    alerts = by_bucket(seen, keeper, 1, ticks=True).selectExpr(
        "id",
        "device",
        "state",
        "timestamp_micros(since_us) AS since",
        "timestamp_micros(time_us) AS time",
        "text",
    )
    check_s = (
        max(LEAST_CHECK_S, min(MAX_CHECK_S, seconds(wanted.after) / 4))
        if wanted.check_every is None
        else seconds(wanted.check_every)
    )
    plans: list[QueryPlan | JobPlan] = []
    if wanted.alerts is not None:
        messages = as_json_messages(alerts, F.col("id"))
        plans.append(QueryPlan("alerts", messages, AddressTarget(wanted.alerts), STATE, trigger_s=check_s))
    if wanted.table is not None:
        plans.append(QueryPlan("table", alerts, TableTarget(wanted.table), STATE, trigger_s=check_s))
        plans.append(compaction_of(context, wanted.table))
    return plans
