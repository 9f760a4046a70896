"""Where built-in pipelines are tried: a real stream, the session of the run, and targets that are real."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from enmasse.client.blocking import Message
from enmasse.pipeline.lake.relation import relation
from enmasse.pipeline.running.planning.plans import AddressFacts, JobPlan, Place, QueryPlan
from enmasse.pipeline.running.planning.targets import start_query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from enmasse.model.kinds.pipelines.sources import SourceSpec
    from enmasse.pipeline.running.planning.context import RunningContext
    from tests.support.stream_node import StreamNode

__all__ = ["Stage", "body", "send"]


@dataclass
class Stage:
    """The scene of one pipeline, without a runner: who tests a built-in one starts its queries by hand."""

    spark: SparkSession
    place: Place
    pipeline: str = "demo.tried"
    addresses: Mapping[str, AddressFacts] = field(default_factory=dict)
    at_once: int | None = None
    """Rows of a batch at most, so that there are several."""
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    def read(self, source: SourceSpec) -> DataFrame:
        assert source.address is not None
        if source.name not in self._frames:
            reader = (
                self.spark.readStream.format("enmasse")
                .option("url", self.place.url)
                .option("address", source.address)
                .option("startingOffsets", source.starting_offsets or "earliest")
            )
            for option in ("includeProperties", "includeTopicName"):
                is_given = source.include_properties if option == "includeProperties" else source.include_topic_name
                reader = reader.option(option, str(bool(is_given)).lower())
            limits = [limit for limit in (source.max_rows_per_batch, self.at_once) if limit is not None]
            if limits:
                reader = reader.option("maxOffsetsPerTrigger", min(limits))
            self._frames[source.name] = reader.load()
        return self._frames[source.name]

    def read_table(self, table: str) -> DataFrame:
        return relation(self.spark, self.place.lake / table)

    def start(self, plan: QueryPlan, *, now: bool = True) -> StreamingQuery:
        """Start a query as a runner would.

        Args:
            plan: the query.
            now: whether it reads what is there and ends.
        """
        checkpoint = self.place.folder / "checkpoints" / plan.name
        trigger_s = None if now else plan.trigger_s or 0.0
        return start_query(cast("RunningContext", self), plan, checkpoint, trigger_s, adopt=False)

    def log(self, line: str) -> None:
        raise AssertionError(line)  # it is told when something fails, or after an hour

    def connection_options(self) -> dict[str, str]:
        return {"url": self.place.url}

    def finish(self, plans: Sequence[QueryPlan | JobPlan], name: str | None = None) -> None:
        """Run the queries, or the one of that name, over what is there."""
        for plan in plans:
            if isinstance(plan, QueryPlan) and name in (None, plan.name):
                query = self.start(plan)
                query.awaitTermination()

    @contextmanager
    def running(self, plan: QueryPlan | JobPlan) -> Iterator[StreamingQuery]:
        """A query that runs meanwhile."""
        assert isinstance(plan, QueryPlan)
        query = self.start(plan, now=False)
        try:
            yield query
        finally:
            query.stop()

    def table(self, name: str) -> pd.DataFrame:
        """A table's rows."""
        frame = self.read_table(name)
        return pd.DataFrame([row.asDict() for row in frame.collect()], columns=frame.columns)


def body(device: str | None, ts: float | None = None, **metrics: Any) -> bytes:
    """A message of a device; ``ts`` in seconds."""
    named = {} if device is None else {"device": device}
    timed = {} if ts is None else {"ts": round(ts * 1000)}
    return json.dumps({**named, **timed, **metrics}).encode()


def send(node: StreamNode, address: str, bodies: Iterable[bytes], key: str | None = None) -> None:
    with node.connect() as connection:
        messages = [Message(content, subject=key) for content in bodies]
        outcomes = connection.sender(address).send_all(messages, timeout=30)
        assert {str(outcome) for outcome in outcomes} <= {"accepted"}
