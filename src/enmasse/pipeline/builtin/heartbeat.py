"""``heartbeat``: alerts about devices that fell silent, and are back.

A device is seen when the stream accepts a message of it: its own clock does not matter. It is missing
when a message is accepted that comes ``after`` or more after the one before, or when no such message
came until now. With ``registered`` exactly the devices are expected that the device registry has, from the moment on
when the pipeline learns of them, so those that never send are missing, too.

Rules:
1. Every silence of that length is reported once as ``missing`` and, when it ends, once as ``back``; also one
   that began and ended while the pipeline did not run.
2. Whether a silence that goes on is reported depends on the clock of the machine that runs the pipeline; a
   batch holds everything that was there when it was made, so nobody is missed who was seen.
3. An alert's id names the last message before the silence, or the moment when the device was expected first.
4. A registered device is never forgotten. One that is deleted or disabled is, and its alert is told to be over.

One bucket holds all devices: hearing one is a maximum, so that one task does several hundred thousand a
second, and with one bucket every batch with rows is seen by it. With several, one of them could be
without rows in a batch of a backlog and take its devices for silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.builtins import HeartbeatParameters
from enmasse.pipeline.builtin.device_state import Devices, by_bucket, name_codes
from enmasse.pipeline.builtin.plans import as_json_messages, checked, compaction_of, micros, seconds
from enmasse.pipeline.builtin.telemetry import messages_of, telemetry_messages
from enmasse.pipeline.device_list import devices_at, path_of
from enmasse.pipeline.running.planning.plans import AddressTarget, JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
"""The moment when it was seen last, or is expected since, in microseconds; what is told of it, and known, as bits."""
_SEEN: Final = 0
_FLAGS: Final = 1
_REPORTED: Final = 1
"""It was reported as missing."""
_UNHEARD: Final = 2
"""It is expected, and was not heard since."""
_GRACE_US: Final = 500_000
"""A batch's time is read a moment after its end was fixed."""


@dataclass(frozen=True)
class SilenceKeeper:
    """Finds devices that fall silent, and those that come back."""

    after_us: int
    cleared: bool = True
    forget_us: int = 86_400_000_000
    most: int = 1_000_000
    registered: Path | None = None
    """The list of the devices that are expected; None: those that were heard."""

    @property
    def columns(self) -> str:
        """The columns of alerts."""
        return ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)

    def __call__(self, kept: bytes | None, rows: pd.DataFrame, now_us: int) -> tuple[bytes, pd.DataFrame]:
        """Take the moments when devices were seen: ``device, heard_us``."""
        devices = Devices(len(_NEW), kept)
        alerts: list[tuple[Any, ...]] = []
        expected = self._expected(now_us)
        if expected is not None and len(rows):
            rows = rows[rows["device"].isin(expected)]
        if len(rows):
            self._take_rows(devices, rows, alerts)
        if expected is not None:
            self._expect(devices, expected, now_us, alerts)
        self._find_missing(devices, now_us - _GRACE_US, alerts)
        if expected is None:
            devices.keep_recent(_SEEN, now_us - self.forget_us, self.most)
        alerts.sort(key=lambda alert: (alert[4], alert[0]))
        return devices.to_bytes(), pd.DataFrame(alerts, columns=[name for name, _ in _COLUMNS])

    def _expected(self, now_us: int) -> frozenset[str] | None:
        """Return the devices that are expected, if they are too many the first by name; None: all that were heard."""
        if self.registered is None:
            return None
        ids = devices_at(self.registered).ids_at(now_us)
        return ids if len(ids) <= self.most else frozenset(sorted(ids)[: self.most])

    def _expect(self, devices: Devices, expected: frozenset[str], now_us: int, alerts: list[tuple[Any, ...]]) -> None:
        """Forget devices that are not expected any more, and begin to expect those that are new."""
        names = devices.names
        wanted = np.asarray([name[0] in expected for name in names], dtype=np.bool_)
        for row in np.nonzero(~wanted)[0].tolist():
            since, flags = devices.numbers[row].tolist()
            if int(flags) & _REPORTED and self.cleared:
                alerts.append(_alert(names[row][0], "cleared", int(since), now_us))
        devices.keep(wanted)
        if new := sorted(expected.difference(name[0] for name in names)):
            rows = devices.rows_of([(name,) for name in new], _NEW)
            devices.numbers[rows] = (now_us, _UNHEARD)

    def _take_rows(self, devices: Devices, rows: pd.DataFrame, alerts: list[tuple[Any, ...]]) -> None:
        ordered = rows.sort_values(["device", "heard_us"], ignore_index=True)
        codes, names = name_codes(ordered["device"])
        indexes = devices.rows_of(names, _NEW)
        state = devices.numbers[indexes]
        # Partitions are read side by side, so a row may be older than what was seen in another one.
        seen = np.maximum(ordered["heard_us"].to_numpy(dtype=np.float64), state[codes, _SEEN])
        is_first = np.diff(codes, prepend=-1) != 0
        before = np.where(is_first, state[codes, _SEEN], np.roll(seen, 1))
        flags = state[:, _FLAGS].astype(np.int64)
        was_missing = is_first & (flags[codes] & _REPORTED > 0) & (seen > before)
        was_unheard = is_first & (flags[codes] & _UNHEARD > 0)
        for index in np.nonzero((before > 0) & ((seen - before >= self.after_us) | was_missing))[0].tolist():
            device, since = names[codes[index]][0], int(before[index])
            if not was_missing[index]:
                alerts.append(_missing(device, since, since + self.after_us, is_unheard=bool(was_unheard[index])))
            if self.cleared:
                alerts.append(_alert(device, "back", since, int(seen[index])))
        is_last = np.append(is_first[1:], True)
        newest = seen[is_last]
        # One that was reported stays so until a newer message comes.
        state[:, _FLAGS] = np.where(newest > state[:, _SEEN], 0.0, state[:, _FLAGS])
        state[:, _SEEN] = newest
        devices.numbers[indexes] = state

    def _find_missing(self, devices: Devices, until_us: int, alerts: list[tuple[Any, ...]]) -> None:
        numbers = devices.numbers
        flags = numbers[:, _FLAGS].astype(np.int64)
        is_silent = (flags & _REPORTED == 0) & (until_us - numbers[:, _SEEN] >= self.after_us)
        silent = np.nonzero(is_silent)[0].tolist()
        if not silent:
            return
        names = devices.names
        for row in silent:
            since, is_unheard = int(numbers[row, _SEEN]), bool(flags[row] & _UNHEARD)
            alerts.append(_missing(names[row][0], since, since + self.after_us, is_unheard=is_unheard))
        numbers[silent, _FLAGS] = (flags | _REPORTED)[silent]


def _missing(device: str, since_us: int, time_us: int, *, is_unheard: bool) -> tuple[Any, ...]:
    moment = datetime.fromtimestamp(since_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    how = f"expected since {moment}, and not heard" if is_unheard else f"not heard since {moment}"
    return _alert(device, "missing", since_us, time_us, how)


def _alert(device: str, state: str, since_us: int, time_us: int, how: str = "") -> tuple[Any, ...]:
    if state == "cleared":
        how = "not expected any more: it is deleted or disabled"
    elif state == "back":
        how = f"back after {(time_us - since_us) / 1e6:.1f} s"
    return f"heartbeat/{device}/{since_us}/{state}", device, state, since_us, time_us, f"{device}: {how}"


STATE: Final = ("heartbeat 1: 1 bucket of device -> heard, told",)
LEAST_CHECK_S: Final = 0.5
MAX_CHECK_S: Final = 10.0
"""A check without rows costs about a tenth of a second of one core."""


def build(context: PlanContext, parameters: HeartbeatParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """Return a query for the address and one for the table, as wanted.

    Raises:
        PlanError: a parameter is wrong.
        RegistryAwayError: the registered devices are not known, and are not told of.
    """
    wanted = checked(HeartbeatParameters, parameters)
    keeper = SilenceKeeper(
        after_us=micros(wanted.after),
        cleared=wanted.cleared,
        forget_us=micros(wanted.forget_after),
        most=wanted.max_devices,
        registered=None if wanted.tenant is None else path_of(context.place.folder, wanted.tenant),
    )
    source = wanted.model_copy(update={"starting_offsets": wanted.starting_offsets or "latest"})
    # The node says as a message's key which device it is of; what the device says of itself is another name.
    seen = (
        telemetry_messages(context, source).withColumn("device", F.col("key").cast("string"))
        if wanted.registered
        else messages_of(telemetry_messages(context, source), source.device_field)
    )
    heard = seen.where("device IS NOT NULL").selectExpr(
        "device", "unix_micros(timestamp) AS heard_us", "partition", "offset"
    )
    state: tuple[str, ...] = STATE
    if keeper.registered is not None:
        heard, state = (
            heard.unionByName(_beginning(context, keeper.registered)),
            (*STATE, "begun by a list of devices"),
        )
    alerts = by_bucket(heard, keeper, 1, ticks=True).selectExpr(
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
        plans.append(QueryPlan("alerts", messages, AddressTarget(wanted.alerts), state, trigger_s=check_s))
    if wanted.table is not None:
        plans.append(QueryPlan("table", alerts, TableTarget(wanted.table), state, trigger_s=check_s))
        plans.append(compaction_of(context, wanted.table))
    return plans


def _beginning(context: PlanContext, devices: Path) -> DataFrame:
    """Return a row of no device, which comes with the list of devices.

    Spark visits only buckets with state, and without a row there is none: where no device ever sends, none is missed.
    """
    if devices.parent.is_dir():
        devices_at(devices).ids_at(0)  # says what is wrong, where otherwise nothing would ever come
    else:
        # Nobody brings lists to where a pipeline is only checked or tried.
        devices.parent.mkdir()
        devices.write_text('{"ids": [], "changes": []}')
    lines = context.spark.readStream.format("text").option("pathGlobFilter", devices.name).load(str(devices.parent))
    return lines.selectExpr(
        "CAST(NULL AS STRING) AS device", "0L AS heard_us", "-1 AS partition", "CAST(0 AS BIGINT) AS offset"
    )
