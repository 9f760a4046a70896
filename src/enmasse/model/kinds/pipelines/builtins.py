"""The built-in pipelines by name, and the parameters of each.

Rules:
1. Every parameter that can have a sensible default has one: an address or two are enough to begin.
2. The parameter's name says what an address or a table is for; lengths of time are durations, ranges of normal
   values are bands: ``10:35``, ``:80``, ``-25:``.
3. The same classes check a Pipeline when it is applied and are passed to the code that builds its queries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from enmasse.model.kinds.durations import Duration, milliseconds
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import address_problem, is_label, pattern_problem
from enmasse.model.schema.schema import Model, describe_value, explain
from enmasse.model.sql.ddl import path_of


def band_limits(text: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a band; an end left empty is infinite.

    Raises:
        ValueError: the text is no band.
    """
    low_text, colon, high_text = text.partition(":")
    low, high = float(low_text or "-inf"), float(high_text or "inf")
    # A NaN is in no order with anything, so it is refused here too.
    if not colon or not low <= high:
        raise ValueError(f"{text!r} is no band")
    return low, high


def _check_band(text: str) -> str:
    try:
        band_limits(text)
    except ValueError:
        raise PydanticCustomError("band", "expected a band as LOW:HIGH, such as 10:35 or :80") from None
    return text


Band = Annotated[str, AfterValidator(_check_band)]
"""A field that holds a band: the lowest and the highest normal value."""


def _check_address(text: str) -> str:
    if problem := address_problem(text):
        raise PydanticCustomError("address", "{problem}", {"problem": problem})
    return text


def _check_pattern(text: str) -> str:
    if problem := pattern_problem(text):
        raise PydanticCustomError("pattern", "{problem}", {"problem": problem})
    return text


def _check_table(text: str) -> str:
    if not is_label(text.replace("_", "-")):
        raise PydanticCustomError("table", "expected lower-case letters, digits and '_'")
    return text


def _check_field(text: str) -> str:
    path = path_of(text)
    if ALL_FIELDS in path or len(path) > _MAX_PATH:
        expected = f"expected a field or a path to one, of at most {_MAX_PATH} names, without '{ALL_FIELDS}'"
        raise PydanticCustomError("field", "{expected}", {"expected": expected})
    return text


def _check_metric(text: str) -> str:
    path = path_of(text)
    if ALL_FIELDS in path[:-1] or path == (ALL_FIELDS,) or len(path) > _MAX_PATH:
        expected = f"expected a field, a path to one of at most {_MAX_PATH} names, or object.{ALL_FIELDS}"
        raise PydanticCustomError("metric", "{expected}", {"expected": expected})
    return text


ALL_FIELDS: Final = "*"
"""The end of a path that means all in an object."""
_MAX_PATH: Final = 20
FieldPath = Annotated[str, Field(min_length=1), AfterValidator(_check_field)]
"""A field of a message, or a path to one."""
Metrics = Annotated[
    tuple[Annotated[str, Field(min_length=1), AfterValidator(_check_metric)], ...], Field(strict=False)
]
AddressName = Annotated[str, AfterValidator(_check_address)]
AddressPattern = Annotated[str, AfterValidator(_check_pattern)]
TableName = Annotated[str, AfterValidator(_check_table)]
"""Also the name of a model: both are folders."""
FieldNames = Annotated[tuple[str, ...], Field(strict=False)]


_TENANT_ADDRESS: Final = re.compile(r"telemetry/[a-z0-9-]+\.[a-z0-9-]+")
"""That of an IoTProject, whose tenant is ``NAMESPACE.NAME``."""


class BuiltinParameters(Model):
    """The base of the parameters of built-in pipelines."""

    does: ClassVar[str]
    """A few words that say what it does."""

    def reads(self) -> tuple[str, ...]:
        """Return the addresses that it reads; patterns where it takes patterns."""
        return ()

    def writes(self) -> tuple[str, ...]:
        """Return the addresses that it sends to."""
        return ()

    def tables(self) -> tuple[str, ...]:
        """Return the tables of the lake that it writes."""
        return ()

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single parameters."""
        yield from ()


class TelemetryParameters(BuiltinParameters):
    """Parameters of pipelines that read telemetry from an address."""

    address: AddressName
    """The stream with the messages of the devices."""
    starting_offsets: str | None = None
    """The start of a new pipeline: ``earliest`` (the default), ``latest``, a moment, or JSON by partition."""
    max_rows_per_batch: int | None = Field(default=None, ge=1)
    """Messages of one micro-batch at most; left out: all that are there."""

    def reads(self) -> tuple[str, ...]:
        """Return the one address."""
        return (self.address,)


class DeviceParameters(TelemetryParameters):
    """Parameters of pipelines for which the devices count that messages name."""

    device_field: FieldPath = "device"
    """The field with the device's name, or a path to it such as ``deviceInfo.devEui``; where a message has none, its
    key names the device."""


class TimedParameters(DeviceParameters):
    """Parameters of pipelines for which the moments count that messages name."""

    time_field: FieldPath = "ts"
    """The field with the moment of the reading, or a path to it."""


class _TableOrAddress(TelemetryParameters):
    """Parameters of pipelines that write into a table, to an address, or both."""

    table: TableName | None = None
    """The table of the lake that is written."""
    to: AddressName | None = None
    """The address that the same goes to, as messages of JSON."""

    def writes(self) -> tuple[str, ...]:
        """Return the address, if there is one."""
        return () if self.to is None else (self.to,)

    def tables(self) -> tuple[str, ...]:
        """Return the table, if there is one."""
        return () if self.table is None else (self.table,)

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if the results go nowhere."""
        if self.table is None and self.to is None:
            yield Problem("table", "required: a table, an address in 'to', or both")


class LakeParameters(TimedParameters):
    """Every message into a table that stays."""

    does = "keeps every message in a table, by the day of its event"

    table: TableName = "raw"
    """The table of the messages as they came."""
    readings_table: TableName | None = None
    """A table with one row for each number in a message: device, metric, value, time."""
    oldest: Duration = "30d"
    """The most that an event may be older than its arrival to go to its own day; a clock that is further off would
    make a folder for each of its errors, so such a message goes to the day of its arrival."""
    compact_every: Duration = "1h"
    """The time between two joins of small files to large ones."""
    keep_versions: Duration = "7d"
    """The time that files stay which compaction replaced, for readers of older versions."""

    def tables(self) -> tuple[str, ...]:
        """Return the table of messages, and that of readings if there is one."""
        return (self.table,) if self.readings_table is None else (self.table, self.readings_table)

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if both tables are the same."""
        if self.readings_table == self.table:
            yield Problem("readingsTable", f"expected another table than {describe_value(self.table)}")
        if self.readings_table is None and "device_field" in self.model_fields_set:
            yield Problem("deviceField", "only a readingsTable has devices; leave it out")


class LastValueParameters(_TableOrAddress, TimedParameters):
    """The last value of each device and metric."""

    does = "keeps the last value of each device and metric, by the moment of the reading"

    metrics: Metrics = ()
    """The fields of the messages that count, or paths to them such as ``object.temperature``, ``object.*``: all that
    hold a number there; left out: every one of the message itself that does."""
    table: TableName | None = "last_value"


class WindowsParameters(_TableOrAddress, TimedParameters):
    """Statistics of each device and metric by window of time."""

    does = "counts, mean, least, greatest and deviation of each device, metric and window"

    metrics: Metrics = ()
    """The fields of the messages that count, or paths to them such as ``object.temperature``, ``object.*``: all that
    hold a number there; left out: every one of the message itself that does."""
    table: TableName | None = "windows"
    size: Duration = "10s"
    """The length of a window."""
    slide: Duration | None = None
    """The time from one window's begin to the next; left out: one begins where the one before ends."""
    lateness: Duration = "10s"
    """The most that a reading may be older than the newest one and still count."""
    emit: Literal["final", "changes"] = "final"
    """The time at which a window is written: once it is complete, or again with every change."""

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if windows leave gaps between them."""
        yield from super().problems()
        if self.slide is not None and milliseconds(self.slide) > milliseconds(self.size):
            yield Problem("slide", f"expected at most size, {self.size}, got {describe_value(self.slide)}")


class _Alerting(DeviceParameters):
    """Parameters of pipelines that raise alerts."""

    alerts: AddressName | None = None
    """The address that alerts go to."""
    table: TableName | None = None
    """A table that alerts go to."""
    forget_after: Duration = "24h"
    """A device without a message for so long is forgotten, and new when it comes again."""
    max_devices: int = Field(default=1_000_000, ge=1)
    """The most devices, times metrics, that are remembered; those with the oldest last message go first."""

    def writes(self) -> tuple[str, ...]:
        """Return the address, if there is one."""
        return () if self.alerts is None else (self.alerts,)

    def tables(self) -> tuple[str, ...]:
        """Return the table, if there is one."""
        return () if self.table is None else (self.table,)

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if alerts go nowhere."""
        if self.alerts is None and self.table is None:
            yield Problem("alerts", "required: an address in 'alerts', a table, or both")


class AnomaliesParameters(_Alerting, TimedParameters):
    """Alerts about readings that are not as they should be, or not as they were."""

    does = "alerts when a reading leaves its band, or is far from what the device sent before"

    metrics: Metrics = ()
    """The fields of the messages that are checked, or paths to them such as ``object.temperature``, ``object.*``: all
    that hold a number there; left out: every one of the message itself that does."""
    bands: dict[str, Band] = Field(default_factory=dict)
    """The values by metric that are as they should be."""
    device_bands: dict[str, dict[str, Band]] = Field(default_factory=dict)
    """Bands by device and metric, instead of those."""
    clear_bands: dict[str, Band] = Field(default_factory=dict)
    """The values by metric that end an alert, within its band; what is left out is as in ``bands``."""
    device_clear_bands: dict[str, dict[str, Band]] = Field(default_factory=dict)
    """The same by device and metric; a device with a band of its own has only these."""
    deviations: float | None = Field(default=None, gt=0)
    """The standard deviations that a reading may be away from its device's mean; left out: any number."""
    clear_deviations: float | None = Field(default=None, gt=0)
    """The standard deviations within which an alert ends; left out: ``deviations``."""
    alpha: float = Field(default=0.05, ge=0, le=1)
    """The weight of the newest reading in mean and deviation (EWMA); 0: all weigh the same (z-score)."""
    warm_up: int = Field(default=20, ge=2)
    """The readings of a device and metric that are needed before deviations count."""
    min_deviation: float = Field(default=0.0, ge=0)
    """The least standard deviation to reckon with: the sensor's own noise."""
    min_duration: Duration | None = None
    """The time, by the readings' own moments, for which they are outside before an alert begins; left out: none."""
    repeat_after: Duration | None = None
    """The time after which an alert is repeated while readings stay outside; left out: never."""
    cleared: bool = True
    """Report the end of an alert, too."""

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if there is no rule."""
        yield from super().problems()
        if not self.bands and not self.device_bands and self.deviations is None:
            yield Problem("bands", "required: bands, deviceBands or deviations, else nothing is an anomaly")
        for metric, ends in self.clear_bands.items():
            yield from _clear_band_problems(f"clearBands.{metric}", ends, self.bands.get(metric))
        for device, by_metric in self.device_clear_bands.items():
            for metric, ends in by_metric.items():
                band = self.device_bands.get(device, {}).get(metric, self.bands.get(metric))
                yield from _clear_band_problems(f"deviceClearBands.{device}.{metric}", ends, band)
        if self.clear_deviations is not None and self.clear_deviations > (self.deviations or 0.0):
            expected = "only with deviations" if self.deviations is None else f"expected at most {self.deviations:g}"
            yield Problem("clearDeviations", f"{expected}, got {self.clear_deviations:g}")


def _clear_band_problems(path: str, ends: str, band: str | None) -> Iterator[Problem]:
    """Yield a problem if no value, or one that raises an alert, would end it."""
    if band is None:
        yield Problem(path, "there is no band that an alert could begin with: add it to bands or deviceBands")
        return
    (low, high), (least, most) = band_limits(band), band_limits(ends)
    is_within = all(low <= end <= high for end in (least, most) if math.isfinite(end))
    if not is_within:
        yield Problem(path, f"expected values within the band {describe_value(band)}, got {describe_value(ends)}")


class HeartbeatParameters(_Alerting):
    """Alerts about devices that fell silent."""

    does = "alerts when a device is not heard any more, and when it is back"

    starting_offsets: str | None = None
    """The start of a new pipeline; left out: ``latest``, for yesterday's silence is no news."""
    after: Duration = "1m"
    """The time that a device may be silent."""
    check_every: Duration | None = None
    """The time between two checks for silence; left out: a quarter of ``after``, between 0.5 and 10 seconds."""
    cleared: bool = True
    """Report the return of a device, too."""
    registered: bool = False
    """Expect the devices that the registry has, heard or not, and no others; of ``telemetry/TENANT`` alone."""

    @property
    def tenant(self) -> str | None:
        """The tenant whose devices are expected; None: those that were heard are."""
        return self.address.removeprefix("telemetry/") if self.registered else None

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if a device would be forgotten before it is missed, or missed while its messages wait."""
        yield from super().problems()
        if self.max_rows_per_batch is not None:
            expected = "leave it out: a batch has to hold all that is there, or a device waits in it unheard"
            yield Problem("maxRowsPerBatch", expected)
        if milliseconds(self.forget_after) <= milliseconds(self.after):
            yield Problem(
                "forgetAfter", f"expected more than after, {self.after}, got {describe_value(self.forget_after)}"
            )
        if self.registered and not _TENANT_ADDRESS.fullmatch(self.address):
            expected = (
                "only with the address telemetry/TENANT of an IoTProject: others have no devices in the registry"
            )
            yield Problem("registered", f"{expected}; the address is {describe_value(self.address)}")
        if self.registered and "device_field" in self.model_fields_set:
            yield Problem("deviceField", "registered devices are known by the keys of messages; leave it out")


class TrainParameters(BuiltinParameters):
    """A model, trained over a table of the lake."""

    does = "trains a model over a table, again and again"

    model: TableName
    """The name of the model."""
    table: TableName = "raw"
    """A table of messages as ``lake`` writes it, or one that has the features as columns."""
    kind: Literal["kmeans", "regression"] = "kmeans"
    """The distance from the nearest of a few centres, or the residual of a linear regression."""
    features: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """The fields of a message, or columns, that the model uses."""
    one_hot: FieldNames = ()
    """The features that are text, each of whose values becomes a number, 0 or 1."""
    index: FieldNames = ()
    """The features that are text, whose values are numbered, the most frequent first."""
    impute: Literal["mean", "median"] | None = None
    """The value of the training rows that stands for a missing feature; left out: rows that lack one do not count."""
    scale: Literal["standard", "minMax", "none"] = "standard"
    """The scale of features: by mean and deviation, to 0 to 1, or none."""
    target: str | None = None
    """The field that a regression predicts."""
    clusters: int = Field(default=4, ge=1, le=1000)
    """The number of centres of kmeans."""
    quantile: float = Field(default=0.999, gt=0, lt=1)
    """The share of the training rows that are as they should be; what scores higher is an anomaly."""
    within: Duration | None = None
    """The greatest age of rows that are taken; left out: any."""
    max_rows: int = Field(default=1_000_000, ge=1)
    """Rows to train with at most; of more, so many are chosen by chance."""
    min_rows: int = Field(default=100, ge=2)
    """Rows without which there is no training."""
    held_back: float = Field(default=0.2, ge=0, lt=1)
    """The share of the rows that it is not trained with, but its quality is measured with."""
    every: Duration | None = None
    """The age at which a model is trained again; left out: once is enough."""
    keep: int = Field(default=5, ge=1)
    """Versions that are kept."""

    def problems(self) -> Iterator[Problem]:
        """Yield problems of the target and the features of a model."""
        if (self.kind == "regression") != (self.target is not None):
            expected = "required: the field to predict" if self.target is None else "only a regression has one"
            yield Problem("target", expected)
        if self.target in self.features:
            yield Problem("target", f"expected a field that is not one of the features, got '{self.target}'")
        if len(set(self.features)) != len(self.features):
            yield Problem("features", "expected each one once")
        for name, fields in (("oneHot", self.one_hot), ("index", self.index)):
            if odd := next((field for field in fields if field not in self.features), None):
                yield Problem(name, f"expected some of the features, got {describe_value(odd)}")
        if both := next((field for field in self.one_hot if field in self.index), None):
            yield Problem("index", f"{describe_value(both)} is in oneHot: expected it in one of them")


class ScoreParameters(_TableOrAddress, TimedParameters):
    """A trained model, applied to a stream."""

    does = "applies a trained model to every message"

    model: TableName
    """The name of the model."""
    only: Literal["all", "anomalies"] = "all"
    """The messages that are written."""


class MeteringParameters(BuiltinParameters):
    """The usage of each address."""

    does = "counts messages and bytes of each address by window of time"

    addresses: Annotated[tuple[AddressPattern, ...], Field(strict=False, min_length=1)]
    """The streams that are counted; patterns such as ``plant/#`` mean the space's streams when a query starts."""
    table: TableName = "usage"
    """The table of windows, addresses, messages and bytes."""
    window: Duration = "1h"
    """The length of a window."""
    lateness: Duration = "1h"
    """The time that a window is kept in mind after it ended."""
    starting_offsets: str | None = None
    """The start of a new pipeline."""

    def reads(self) -> tuple[str, ...]:
        """Return addresses and patterns."""
        return self.addresses

    def tables(self) -> tuple[str, ...]:
        """Return the table of usage."""
        return (self.table,)


class CommandsParameters(BuiltinParameters):
    """A command, as a device can take it, for each alert."""

    does = "sends a command to a queue for each alert"

    alerts: AddressName
    """The stream, queue or subscription with alerts as ``anomalies`` and ``heartbeat`` send them."""
    commands: AddressName
    """The queue that commands go to."""
    ttl: Duration = "1m"
    """The time that a command is of use."""
    match: dict[str, Any] = Field(default_factory=dict)
    """Fields of an alert and what they must be, or a list of what they may be; left out: every alert counts."""
    body: dict[str, Any] = Field(default_factory=lambda: {"alert": "{id}", "device": "{device}", "text": "{text}"})
    """The command, as JSON; ``{field}`` in a text stands for a field of the alert."""
    once_within: Duration = "10m"
    """The time that an alert which comes again is known."""
    starting_offsets: str | None = None
    """The start of a new pipeline."""

    def reads(self) -> tuple[str, ...]:
        """Return the address of the alerts."""
        return (self.alerts,)

    def writes(self) -> tuple[str, ...]:
        """Return the queue."""
        return (self.commands,)

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if commands would be alerts again, without end."""
        if self.alerts == self.commands:
            yield Problem("commands", f"expected another address than that of the alerts, '{self.alerts}'")


class SparkplugParameters(_TableOrAddress):
    """The metrics of Sparkplug B."""

    does = "makes rows of the metrics of Sparkplug B, by the names that births have said"

    table: TableName | None = "sparkplug"
    bad_records: AddressName | None = None
    """The address that messages go to that cannot be read, or have an alias that no birth has said; left out: they
    are counted and left out."""
    forget_after: Duration = "30d"
    """An edge node without a message for so long is forgotten, with the names that its births have said."""

    def writes(self) -> tuple[str, ...]:
        """Return the addresses, if there are such."""
        return tuple(address for address in (self.to, self.bad_records) if address is not None)

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if bad records would be read again, without end."""
        yield from super().problems()
        if self.address in self.writes():
            name = "to" if self.to == self.address else "badRecords"
            yield Problem(name, f"expected another address than the one that is read, '{self.address}'")


BUILTINS: Final[Mapping[str, type[BuiltinParameters]]] = {
    "lake": LakeParameters,
    "last-value": LastValueParameters,
    "windows": WindowsParameters,
    "anomalies": AnomaliesParameters,
    "heartbeat": HeartbeatParameters,
    "train": TrainParameters,
    "score": ScoreParameters,
    "metering": MeteringParameters,
    "commands": CommandsParameters,
    "sparkplug": SparkplugParameters,
}


def builtin_problems(name: str, parameters: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with a built-in pipeline; paths begin at the parameters, ``name`` stands for its name."""
    kind = BUILTINS.get(name)
    if kind is None:
        return [Problem("name", f"expected one of {', '.join(BUILTINS)}, got {describe_value(name)}")]
    try:
        return list(kind.model_validate(dict(parameters)).problems())
    except ValidationError as error:
        return explain(error, kind)
