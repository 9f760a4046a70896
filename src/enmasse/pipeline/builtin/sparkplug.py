"""``sparkplug``: metrics of Sparkplug B as rows, with the names that births have said.

Rules:
1. What the messages of an edge node mean is decided in the order of the stream, by its session so far
   (``wire/sparkplug/edge_node``). Sessions are the state, in buckets: so a batch that is repeated after a kill gives
   the same rows.
2. A row for each metric of a message. A death is one row: it says by ``is_stale`` that all metrics of the device, or
   of the edge node with its devices, are no present values.
3. What cannot be read is a bad record: a message that is none of Sparkplug, and one with an alias that no birth has
   said. Other metrics of such a message have their rows.

One query writes everything, so that there is one state.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.builtins import SparkplugParameters
from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.model.sql.ddl import parse_ddl
from enmasse.pipeline.builtin.device_state import by_bucket
from enmasse.pipeline.builtin.plans import checked, compaction_of, micros
from enmasse.pipeline.decoding import BAD_ROWS, COUNT_OF, EXAMPLE_OF, bad
from enmasse.pipeline.running.planning.plans import (
    AddressTarget,
    JobPlan,
    PerBatch,
    QueryPlan,
    SharedTarget,
    TableTarget,
    Target,
)
from enmasse.wire.sparkplug.edge_node import EdgeNode, MessageType, Topic, is_host, parse_topic
from enmasse.wire.sparkplug.payload import Metric, SparkplugError, read_payload, shown, type_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.pipeline.running.planning.plans import PlanContext

_COLUMNS: Final = (
    "group_id STRING, edge_node STRING, device STRING, message STRING, place INT, metric STRING, datatype STRING, "
    "value DOUBLE, string_value STRING, bool_value BOOLEAN, time_us BIGINT, is_historical BOOLEAN, "
    "is_stale BOOLEAN, seq INT, gaps BIGINT, missed BIGINT, properties STRING, accepted_us BIGINT, _partition INT, "
    "_offset BIGINT, _address STRING, _problem STRING, _value BINARY"
)
"""Of what a keeper gives; a row with a problem has nothing else but its message."""
_NAMES: Final = tuple(column.name for column in parse_ddl(_COLUMNS))

_ROWS: Final = (
    "group_id",
    "edge_node",
    "device",
    "message",
    "place",
    "metric",
    "datatype",
    "value",
    "string_value",
    "bool_value",
    "timestamp_micros(time_us) AS time",
    "is_historical",
    "is_stale",
    "seq",
    "gaps",
    "missed",
    "properties",
    "timestamp_micros(accepted_us) AS accepted",
    "_partition AS partition",
    "_offset AS offset",
)

_LAST_US: Final = 253_402_300_800_000_000
"""The end of the year 9999: no TIMESTAMP is later."""
_EXACT: Final = 1 << 53
"""Whole numbers beyond it are given as texts, too: as DOUBLE they are others."""
_DEATHS: Final = (MessageType.NDEATH, MessageType.DDEATH)
_LENGTH: Final = 8


class Sessions:
    """The sessions of the edge nodes of a bucket; one that is not asked for is not decoded.

    Args:
        kept: the bytes that ``to_bytes`` gave; None: nothing yet.
    """

    def __init__(self, kept: bytes | None = None) -> None:
        self._kept: dict[str, tuple[int, bytes]] = {}
        self._open: dict[str, tuple[int, EdgeNode]] = {}
        if kept is None:
            return
        at = _LENGTH + int.from_bytes(kept[:_LENGTH], "little")
        for name, heard_us, size in json.loads(kept[_LENGTH:at]):
            self._kept[name] = heard_us, kept[at : at + size]
            at += size

    def of(self, name: str, heard_us: int, forget_us: int) -> EdgeNode:
        """Return the session of an edge node that is heard now; a new one, if it was not for so long."""
        before = self._open.get(name)
        if before is None and (found := self._kept.pop(name, None)) is not None:
            before = found[0], EdgeNode.from_json(found[1].decode())
        is_known = before is not None and heard_us - before[0] <= forget_us
        node = before[1] if before is not None and is_known else EdgeNode()
        self._open[name] = heard_us, node
        return node

    def to_bytes(self, forget_us: int) -> bytes:
        """Return what a new object is made of, without those that were not heard for so long."""
        every = self._kept | {name: (heard, node.to_json().encode()) for name, (heard, node) in self._open.items()}
        newest = max((heard for heard, _ in every.values()), default=0)
        stay = {name: found for name, found in every.items() if newest - found[0] <= forget_us}
        names = json.dumps([[name, heard, len(text)] for name, (heard, text) in stay.items()]).encode()
        return len(names).to_bytes(_LENGTH, "little") + names + b"".join(text for _, text in stay.values())


@dataclass(frozen=True)
class MetricKeeper:
    """Makes rows of the messages of a bucket's edge nodes."""

    forget_us: int

    @property
    def columns(self) -> str:
        """The columns of rows, and of what became none."""
        return _COLUMNS

    def __call__(self, kept: bytes | None, rows: pd.DataFrame, now_us: int) -> tuple[bytes, pd.DataFrame]:
        """Take messages: ``name, value, accepted_us, partition, offset``."""
        sessions = Sessions(kept)
        found: list[tuple[Any, ...]] = []
        if len(rows):
            for row in zip(*(rows[name] for name in _Message._fields), strict=True):
                found += self._rows_of(sessions, _Message(*row))
        frame = pd.DataFrame(found, columns=list(_NAMES), dtype=object)
        return sessions.to_bytes(self.forget_us), frame

    def _rows_of(self, sessions: Sessions, message: _Message) -> Iterator[tuple[Any, ...]]:
        topic = parse_topic(message.name)
        if topic is None:
            if not is_host(message.name):
                expected = "expected spBv1.0/GROUP/TYPE/EDGE, or with /DEVICE behind it"
                yield message.bad(f"its name is none of Sparkplug: {expected}, got {message.name}")
            return
        try:
            payload = read_payload(message.value)
            node = sessions.of(topic.node, message.accepted_us, self.forget_us)
            node.take(topic, payload)
        except SparkplugError as error:
            yield message.bad(str(error))
            return
        names = (topic.group, topic.edge_node, topic.device, str(topic.type))
        of_all = (node.is_stale, payload.seq, node.gaps, node.missed)
        if topic.type in _DEATHS and not payload.metrics:
            time_us = message.micros(payload.timestamp)
            yield message.good(*names, None, None, None, None, None, None, time_us, False, *of_all, None)
        problem = ""
        for place, metric in enumerate(payload.metrics):
            try:
                values = _values(metric, topic)
            except SparkplugError as error:
                problem = problem or str(error)
                continue
            time_us = message.micros(payload.timestamp if metric.timestamp is None else metric.timestamp)
            properties = None if metric.properties is None else _json(metric.properties)
            yield message.good(*names, place, *values, time_us, metric.is_historical, *of_all, properties)
        if problem:
            yield message.bad(problem)


class _Message(NamedTuple):
    name: str
    value: bytes
    accepted_us: int
    partition: int
    offset: int

    def good(self, *found: Any) -> tuple[Any, ...]:
        """Return the row of a metric."""
        return (*found, self.accepted_us, self.partition, self.offset, None, None, None)

    def bad(self, problem: str) -> tuple[Any, ...]:
        """Return the row of a message that is no rows, or not only."""
        nothing = (None,) * (len(_NAMES) - 6)
        return (*nothing, self.accepted_us, self.partition, self.offset, self.name, problem, bytes(self.value))

    def micros(self, milliseconds: int | None) -> int | None:
        """Return the moment of a value; that of acceptance where none is said, None where no TIMESTAMP can be it."""
        found = self.accepted_us if milliseconds is None else milliseconds * 1000
        return found if found < _LAST_US else None


def _values(metric: Metric, topic: Topic) -> tuple[Any, ...]:
    """Return a metric's name and type, and its value as a number, text or truth.

    Raises:
        SparkplugError: nobody has said its name, or its value is none of its type.
    """
    if metric.name is None:
        whose = topic.node if topic.device is None else f"device {topic.device} of {topic.node}"
        raise SparkplugError(f"metric {metric.called}: no birth of {whose} that says its name was seen")
    value = metric.value()
    number: float | None = None
    text: str | None = None
    truth: bool | None = None
    match value:
        case bool():
            truth = value
        case int():
            number = float(value)
            also = shown(value, metric.datatype)
            text = also if isinstance(also, str) else str(value) if abs(value) > _EXACT else None
        case float():
            number, text = (value, None) if math.isfinite(value) else (None, str(value))
        case str():
            text = value
        case None:
            pass
        case bytes():
            text = base64.b64encode(value).decode()
        case _:
            text = _json(shown(value, metric.datatype))
    datatype = None if metric.datatype is None else type_name(metric.datatype)
    return metric.name, datatype, number, text, truth


def _json(value: Any) -> str:
    def plain(found: Any) -> Any:
        return base64.b64encode(found).decode()

    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), default=plain)


def _finite(value: Any) -> Any:
    """Return a value whose numbers that JSON lacks are texts."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: _finite(item) for name, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case _:
            return value


STATE: Final = ("sparkplug 1: 8 buckets of edge node -> session",)
BUCKETS: Final = 8


def build(context: PlanContext, parameters: SparkplugParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """Return one query for the table, the address and bad records, as wanted.

    Raises:
        PlanError: a parameter is wrong.
    """
    wanted = checked(SparkplugParameters, parameters)
    found = _decoded(context, wanted)
    parts: list[QueryPlan] = []

    def add(name: str, target: Target, rows_of: Callable[[DataFrame], DataFrame]) -> None:
        of_batch = PerBatch(rows_of(found).schema, rows_of, keeps_order=True)
        parts.append(QueryPlan(name, found, target, per_batch=of_batch))

    if wanted.table is not None:
        add("table", TableTarget(wanted.table), _rows)
    if wanted.to is not None:
        add("messages", AddressTarget(wanted.to), _messages)
    if wanted.bad_records is not None:
        add("bad", AddressTarget(wanted.bad_records), lambda every: bad(every, wanted.address))
    plans: list[QueryPlan | JobPlan] = [
        QueryPlan("rows", found, SharedTarget(tuple(parts), "append", is_whole=True), STATE)
    ]
    return plans if wanted.table is None else [*plans, compaction_of(context, wanted.table)]


def _rows(found: DataFrame) -> DataFrame:
    return found.where("_problem IS NULL").selectExpr(*_ROWS)


def _messages(found: DataFrame) -> DataFrame:
    """Return a message for each row, keyed by its edge node, in whose order the rows of a device make sense."""
    rows = _rows(found)
    node = F.concat_ws("/", "group_id", "edge_node")
    number = F.concat_ws("-", "partition", "offset", "place")
    return rows.select(
        F.to_json(F.struct(*rows.columns)).alias("value"),
        node.alias("key"),
        F.concat_ws("/", node, "device").alias("subject"),
        F.concat_ws("/", F.lit("sparkplug"), number).alias("message_id"),
        F.lit("application/json").alias("content_type"),
    )


def _decoded(context: PlanContext, wanted: SparkplugParameters) -> DataFrame:
    source = SourceSpec(
        name="messages",
        address=wanted.address,
        format="raw",
        starting_offsets=wanted.starting_offsets,
        max_rows_per_batch=wanted.max_rows_per_batch,
        include_properties=True,
        include_topic_name=True,
    )
    named = context.read(source).selectExpr(
        "coalesce(topic_name, address) AS name",
        "value",
        "unix_micros(timestamp) AS accepted_us",
        "partition",
        "offset",
    )
    node = "concat_ws('/', get(split(name, '/'), 1), get(split(name, '/'), 3))"
    found = by_bucket(named.withColumn("device", F.expr(node)), MetricKeeper(micros(wanted.forget_after)), BUCKETS)
    problem = F.col("_problem")
    return found.observe(
        f"{BAD_ROWS}messages",
        F.count(F.lit(1)).alias("all"),
        F.count_if(problem.isNotNull()).alias("bad"),
        F.count_if(problem.isNotNull()).alias(COUNT_OF),
        F.max(F.substring(problem, 1, 120)).alias(EXAMPLE_OF),
    )
