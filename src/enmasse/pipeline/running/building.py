"""Turns a declared pipeline into the plans of its queries.

Makers of plans see the pipeline through a ``RunningContext``: its session, its folders, and a frame for each
source.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from enmasse.model.kinds.address_settings import ADDRESS_TYPES
from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines import Builtin, Pipeline, SinkSpec, SourceSpec, StepSpec
from enmasse.model.kinds.sources import EACH_BATCH
from enmasse.model.schema.quantities import amount_of
from enmasse.pipeline.decoding import bad, decode, drift_counts, filled, good, unfailing, with_tombstones
from enmasse.pipeline.errors import PlanError, TableEmptyError, TableSchemaError
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.running.plans import AddressFacts, AddressTarget, JobPlan, Place, QueryPlan, TableTarget
from enmasse.pipeline.running.progress import BAD_ROWS
from enmasse.pipeline.running.relations import CONSUMING, Relations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from enmasse.pipeline.running.guard import Guard

CONSUMED: Final = frozenset(ADDRESS_TYPES) - {"stream"}


@dataclass
class RunningContext:
    """The context of one pipeline; made anew when its declaration changes."""

    spark: SparkSession
    place: Place
    pipeline: str
    addresses: Mapping[str, AddressFacts]
    credentials: str
    """The name under which the pipeline's user and password are kept; empty: there are none."""
    checkpoint_of: Callable[[str], Path]
    """The checkpoint folder of a query by its name."""
    spool: Path
    """The folder in which consumed messages are kept until it is done."""
    log: Callable[[str], None]
    """Takes a line for the pipeline's log."""
    start_from: str | None = None
    """The bound where all streams begin, whatever their sources name; None: where those name."""
    bad_records: list[QueryPlan] = field(default_factory=list)
    """The queries that bring what cannot be decoded to where the sources want it."""
    consumed: list[str] = field(default_factory=list)
    """The addresses that are consumed; one query alone may read them, with the checkpoint ``CONSUMING``."""
    warnings: list[str] = field(default_factory=list)
    """Warnings about what works and may surprise."""
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    def read(self, source: SourceSpec) -> DataFrame:
        """Return the rows of an address, decoded, those without that cannot be; or of a table as it is now.

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
        """Return a table of the lake as it is now."""
        from enmasse.pipeline.lake.relation import relation  # noqa: PLC0415  # Delta is slow to load

        frame: DataFrame = relation(self.spark, self.place.lake / table)
        return frame

    def follow_table(self, source: SourceSpec, query: str) -> DataFrame:
        """Return a table as the batches of a query join it.

        Args:
            source: with a table.
            query: the name of the checkpoint.

        Raises:
            TableEmptyError: it has no rows, and the source says to wait for some.
        """
        from enmasse.pipeline.lake.reference import followed, query_key  # noqa: PLC0415  # Delta is slow to load
        from enmasse.pipeline.lake.relation import facts  # noqa: PLC0415

        assert source.table is not None
        path = self.place.lake / source.table
        words = f"source {source.name}: the table {source.table} is empty"
        try:
            is_empty = not facts(path).rows
        except TableSchemaError as error:
            raise TableEmptyError(f"source {source.name}: {error}") from None
        if is_empty:
            if source.when_empty != "warn":
                raise TableEmptyError(
                    f"{words}, and rows would be joined with nothing: the pipeline starts once it has rows, or at "
                    "once with whenEmpty: warn"
                )
            if (warning := f"{words} when the query starts") not in self.warnings:
                self.warnings.append(warning)
        refresh_s = 0.0 if source.refresh in (None, EACH_BATCH) else milliseconds(source.refresh) / 1000
        return followed(self.spark, path, self.checkpoint_of(query), query_key(self.pipeline, query), refresh_s)

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
        if source.tombstones:
            decoded = with_tombstones(decoded)
        if source.on_drift == "null" and format_ != "json":
            raise PlanError(
                f"source {source.name}: onDrift null is for format json, and {source.address} has {format_}"
            )
        if source.bad_records is not None:
            messages = bad(decoded, source.address)
            self.bad_records.append(QueryPlan(f"{source.name}-bad", messages, AddressTarget(source.bad_records)))
        decoded = decoded.observe(f"{BAD_ROWS}{source.name}", *drift_counts(decoded))
        if source.on_drift == "null":
            return filled(decoded)
        if source.on_drift == "fail":
            return unfailing(decoded, source.name)
        return good(decoded)

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
        """Return the options of every reader and writer of an address."""
        options = {"url": self.place.url}
        if self.place.host:
            options["space"] = self.place.host
        if self.credentials:
            options["credentials"] = self.credentials
        return options


def build_plans(
    context: RunningContext, pipeline: Pipeline, guard: Guard, code: Mapping[str, str]
) -> list[QueryPlan | JobPlan]:
    """Return the queries of a pipeline.

    Args:
        context: what they are made with.
        pipeline: as it was declared.
        guard: judges SQL.
        code: the pipeline's Python, source by module name.

    Raises:
        PlanError: it cannot be run as declared; the message names the place.
    """
    spec = pipeline.spec
    if spec.builtin is not None:
        return [*_builtin(spec.builtin, context), *context.bad_records]
    relations = Relations(context, spec, guard, code)
    plans: list[QueryPlan | JobPlan] = []
    for index, sink in enumerate(spec.sinks):
        name = _sink_name(sink, spec.sinks[:index])
        plans.append(relations.plan_of(name, f"spec.sinks[{index}]", sink, _target(sink)))
    parts: list[SourceSpec | StepSpec] = [*spec.sources, *spec.steps]
    for part in parts:
        if any(one.action == "dead-letter" for one in part.expectations):
            target = AddressTarget(str(part.bad_records))
            plans.append(relations.plan_of_dead(f"{part.name}-unmet", part.name, target))
    return [*plans, *context.bad_records]


def _builtin(builtin: Builtin, context: RunningContext) -> Sequence[QueryPlan | JobPlan]:
    name = builtin.name.replace("-", "_")
    try:
        module = importlib.import_module(f"enmasse.pipeline.builtin.{name}")
    except ModuleNotFoundError as error:
        if error.name in (f"enmasse.pipeline.builtin.{name}", "enmasse.pipeline.builtin"):
            raise PlanError(f"spec.builtin.name: there is no built-in pipeline {builtin.name!r}") from None
        raise PlanError(f"built-in pipeline {builtin.name}: the module {error.name!r} is not installed") from None
    plans: Sequence[QueryPlan | JobPlan] = module.build(context, builtin.parameters)
    return plans


def _target(sink: SinkSpec) -> AddressTarget | TableTarget:
    mode = sink.mode or "append"
    if sink.address is not None:
        return AddressTarget(sink.address, mode, sink.on_no_consumer or "fail", sink.bad_records)
    if sink.table is None:
        raise PlanError("a sink has neither address nor table")
    layout = Layout(
        format=sink.format or "delta",
        mode=mode,
        keys=sink.keys,
        partition_by=sink.partition_by,
        order_by=sink.order_by,
        is_partial=sink.update == "present",
        keeps_history=bool(sink.keep_history),
        evolve=sink.evolve is not None,
        constraints=sink.constraints,
    )
    return TableTarget(sink.table, layout, sink.maintenance)


def _sink_name(sink: SinkSpec, before: Sequence[SinkSpec]) -> str:
    """Return a name that stays while other sinks come and go: what it writes, and a number for the same again."""
    name = _base_name(sink)
    same = sum(_base_name(other) == name for other in before)
    return f"{name}-{same + 1}" if same else name


def _base_name(sink: SinkSpec) -> str:
    if sink.table is not None:
        return f"table-{sink.table}"
    return "to-" + (re.sub(r"[^A-Za-z0-9._-]+", "_", sink.address or "").strip("._") or "any")
