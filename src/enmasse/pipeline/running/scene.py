"""What the makers of a pipeline's plans see: its session, its place, and relations by their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # Spark's own custom

from enmasse.model.durations import milliseconds
from enmasse.model.pipelines import SourceSpec
from enmasse.model.quantities import amount_of
from enmasse.pipeline.decoding import bad, decode, good
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.running.plans import AddressFacts, AddressTarget, Place, QueryPlan
from enmasse.pipeline.running.progress import BAD_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CONSUMING", "RunningScene"]

CONSUMED: Final = frozenset({"queue", "subscription", "topic", "anycast", "multicast", "deadletter"})

CONSUMING: Final = "consuming"
"""The checkpoint of the query that reads what is consumed, whatever its name: the source must know it."""


@dataclass
class RunningScene:
    """The scene of one pipeline; made anew when its declaration changes."""

    spark: SparkSession
    place: Place
    pipeline: str
    addresses: Mapping[str, AddressFacts]
    credentials: str
    """The name under which the pipeline's user and password are kept; empty: nobody's."""
    checkpoint_of: Callable[[str], Path]
    """The checkpoint folder of a query by its name."""
    spool: Path
    """Where what is consumed is kept until it is done."""
    start_from: str | None = None
    """Where all streams begin, whatever their sources say; None: as they say."""
    bad_records: list[QueryPlan] = field(default_factory=list)
    """The queries that bring what cannot be decoded to where the sources say."""
    consumed: list[str] = field(default_factory=list)
    """The addresses that are consumed; one query alone may read them, with the checkpoint ``CONSUMING``."""
    warnings: list[str] = field(default_factory=list)
    """What works and may surprise."""
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    def read(self, source: SourceSpec) -> DataFrame:
        """The rows of an address, decoded, those without that cannot be; or of a table.

        Raises:
            PlanError: the source cannot be read so.
        """
        if source.name not in self._frames:
            frame = self.read_table(source.table) if source.table is not None else self._read_address(source)
            if source.watermark is not None:
                if source.watermark.column not in frame.columns:
                    raise PlanError(
                        f"source {source.name}: watermark.column {source.watermark.column!r} is none of its columns "
                        f"({', '.join(frame.columns)})"
                    )
                delay_ms = milliseconds(source.watermark.delay)
                frame = frame.withWatermark(source.watermark.column, f"{delay_ms} milliseconds")
            self._frames[source.name] = frame
        return self._frames[source.name]

    def read_table(self, table: str) -> DataFrame:
        """A table of the lake as it is now."""
        from enmasse.pipeline.lake.relation import relation  # noqa: PLC0415  # Delta is slow to load

        frame: DataFrame = relation(self.spark, self.place.lake / table)
        return frame

    def _read_address(self, source: SourceSpec) -> DataFrame:
        if source.address is None:
            raise PlanError(f"source {source.name}: expected an address or a table, got neither")
        facts = self.addresses.get(source.address)
        kind = facts.type if facts is not None else "stream"
        raw = self.spark.readStream.format("enmasse").options(**self._options(source, kind)).load()
        declared = (facts.schema if facts is not None else None) or {}
        format_ = source.format or declared.get("format") or "raw"
        if format_ == "raw":
            return raw
        is_as_declared = source.schema_ is None and format_ == declared.get("format")
        decoded = decode(raw, format=format_, schema=declared.get("definition") if is_as_declared else source.schema_)
        if source.bad_records is not None:
            messages = bad(decoded, source.address)
            self.bad_records.append(QueryPlan(f"{source.name}-bad", messages, AddressTarget(source.bad_records)))
        count = F.count_if(F.col("_problem").isNotNull()).alias("bad")
        return good(decoded.observe(f"{BAD_ROWS}{source.name}", count))

    def _options(self, source: SourceSpec, kind: str) -> dict[str, str]:
        assert source.address is not None
        options = self.connection_options() | {"address": source.address}
        if kind in CONSUMED:
            self._consume(source, kind)
            options["spoolDir"] = str(self.spool / source.name)
            options["checkpointLocation"] = str(self.checkpoint_of(CONSUMING))
            if kind == "topic":
                options["subscription"] = f"{self.pipeline}.{source.name}"
        else:
            options["startingOffsets"] = self.start_from or source.starting_offsets or "earliest"
            # How far it is shows at the stream; queries that share a source share the name.
            options["consumer"] = f"{self.pipeline}.{source.name}"
            if source.fail_on_data_loss is not None:
                options["failOnDataLoss"] = str(source.fail_on_data_loss).lower()
        if source.include_properties:
            options["includeProperties"] = "true"
        if source.max_rows_per_batch is not None:
            options["maxOffsetsPerTrigger"] = str(source.max_rows_per_batch)
        if source.max_bytes_per_batch is not None:
            options["maxBytesPerTrigger"] = str(int(amount_of(source.max_bytes_per_batch)))
        return options

    def _consume(self, source: SourceSpec, kind: str) -> None:
        self.consumed.append(source.address or "")
        self.warnings.append(
            f"source {source.name} consumes {source.address}, a {kind}: what it reads is gone for other "
            "receivers, and may be read twice after a failure"
        )

    def connection_options(self) -> dict[str, str]:
        """What every reader and writer of an address is told."""
        options = {"url": self.place.url}
        if self.place.host:
            options["space"] = self.place.host
        if self.credentials:
            options["credentials"] = self.credentials
        return options
