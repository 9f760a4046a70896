"""Turns a declared pipeline into the plans of its queries.

Makers of plans see the pipeline through a ``RunningContext``: its session, its folders, and a frame for each
source.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from enmasse.model.kinds.address_settings import ADDRESS_TYPES
from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines import Builtin, Pipeline, SinkSpec, SourceSpec, StepSpec
from enmasse.model.kinds.sinks import DELETED, deleting
from enmasse.model.kinds.sources import EACH_BATCH, ON_START
from enmasse.model.schema.quantities import amount_of
from enmasse.pipeline.decoding import bad, decode, drift_counts, filled, good, unfailing, with_tombstones
from enmasse.pipeline.errors import PlanError, TableEmptyError, TableSchemaError
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.running.expectations import hold
from enmasse.pipeline.running.functions import FunctionCall, check_function
from enmasse.pipeline.running.logical_plans import has_watermark, reads_any
from enmasse.pipeline.running.plans import AddressFacts, AddressTarget, JobPlan, Place, QueryPlan, TableTarget
from enmasse.pipeline.running.progress import BAD_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from enmasse.pipeline.running.guard import Guard

CONSUMED: Final = frozenset(ADDRESS_TYPES) - {"stream"}

CONSUMING: Final = "consuming"
"""The checkpoint of the query that reads what is consumed, whatever its name: the source must know it."""


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


DEFAULT_TIMEOUT: Final = "10m"


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
    made = _Made(context, pipeline, guard, code)
    plans: list[QueryPlan | JobPlan] = []
    for index, sink in enumerate(spec.sinks):
        name = _sink_name(sink, spec.sinks[:index])
        rows = partial(_rows_of, context, guard, f"spec.sinks[{index}]", sink)
        plans.append(made.plan(name, rows, _target(sink)))
    parts: list[SourceSpec | StepSpec] = [*spec.sources, *spec.steps]
    for part in parts:
        if any(one.action == "dead-letter" for one in part.expectations):
            target = AddressTarget(str(part.bad_records))
            plans.append(made.plan(f"{part.name}-unmet", partial(_dead_of, part.name), target))
    return [*plans, *context.bad_records]


@dataclass
class _Relations:
    """The relations of a pipeline by name, for one query."""

    rows: dict[str, DataFrame] = field(default_factory=dict)
    dead: dict[str, DataFrame] = field(default_factory=dict)
    """Messages of the rows that their expectations send to dead letters."""


class _Made:
    """Makes plans over the relations of a pipeline, which are the same for all but for the tables that they join."""

    def __init__(self, context: RunningContext, pipeline: Pipeline, guard: Guard, code: Mapping[str, str]) -> None:
        self._context = context
        self._sources, self._steps = pipeline.spec.sources, pipeline.spec.steps
        self._guard = guard
        self._code = code
        self._relations: _Relations | None = None
        self._follows = any(map(_is_followed, self._sources))

    def plan(
        self, name: str, rows: Callable[[_Relations], DataFrame], target: AddressTarget | TableTarget
    ) -> QueryPlan:
        """Return the plan of a query over the relations."""
        if self._relations is None or self._follows:
            self._relations = self._relations_for(name)
        plan = QueryPlan(name, rows(self._relations), target)
        if self._follows and reads_any(plan, self._context.consumed):
            # What is consumed is read by one query, whose batches those are.
            self._relations = self._relations_for(CONSUMING)
            plan = QueryPlan(name, rows(self._relations), target)
        return plan

    def _relations_for(self, query: str) -> _Relations:
        """Return the relations for the query with a checkpoint: it joins tables by its batches."""
        made, context = _Relations(), self._context
        for source in self._sources:
            frame = context.follow_table(source, query) if _is_followed(source) else context.read(source)
            self._hold(made, f"source {source.name}", source, frame)
        for index, step in enumerate(self._steps):
            place = f"spec.steps[{index}] ({step.name})"
            if step.sql is not None:
                frame = _sql(context, self._guard, f"{place}.sql", step.sql, made.rows)
            elif step.drop_duplicates:
                frame = _without_duplicates(step, place, made.rows)
            else:
                frame = _function(step, place, made.rows, self._code)
            self._hold(made, place, step, frame)
        return made

    def _hold(self, made: _Relations, place: str, part: SourceSpec | StepSpec, frame: DataFrame) -> None:
        if not part.expectations:
            made.rows[part.name] = frame
            return

        def sql(text: str, rows: DataFrame) -> DataFrame:
            return _sql(self._context, self._guard, f"{place}.expectations", text, {"rows": rows})

        held = hold(frame, part.name, part.expectations, sql)
        made.rows[part.name] = held.rows
        if held.dead is not None:
            made.dead[part.name] = held.dead


def _rows_of(context: RunningContext, guard: Guard, place: str, sink: SinkSpec, relations: _Relations) -> DataFrame:
    """Return the rows that go to a sink, with whether each deletes another one if the sink says when."""
    frame = _relation(f"{place}.input", sink.input, relations.rows)
    if sink.delete_when is None:
        return frame
    marked = _sql(context, guard, f"{place}.deleteWhen", deleting("rows", sink.delete_when), {"rows": frame})
    if marked.columns != [*frame.columns, DELETED]:
        raise PlanError(f"{place}.deleteWhen: expected one condition, got {sink.delete_when!r}")
    return marked


def _dead_of(name: str, relations: _Relations) -> DataFrame:
    return relations.dead[name]


def _is_followed(source: SourceSpec) -> bool:
    return source.table is not None and source.refresh != ON_START


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


def _relation(place: str, name: str | None, relations: Mapping[str, DataFrame]) -> DataFrame:
    if name is None:
        return relations[list(relations)[-1]]
    if name not in relations:
        raise PlanError(f"{place}: there is no relation {name!r} above; there are {', '.join(relations)}")
    return relations[name]


def _sql(
    context: RunningContext, guard: Guard, place: str, text: str, relations: Mapping[str, DataFrame]
) -> DataFrame:
    canonical = guard.check(place, text, {name: frame.schema for name, frame in relations.items()})
    for name, frame in relations.items():
        frame.createOrReplaceTempView(name)
    return context.spark.sql(canonical)


def _without_duplicates(step: StepSpec, place: str, relations: Mapping[str, DataFrame]) -> DataFrame:
    frame = _relation(f"{place}.input", step.input, relations)
    unknown = [name for name in step.drop_duplicates if name not in frame.columns]
    if unknown:
        raise PlanError(
            f"{place}.dropDuplicates: there is no column {unknown[0]!r}; there are {', '.join(frame.columns)}"
        )
    if not has_watermark(frame):
        raise PlanError(
            f"{place}: dropDuplicates needs a source with a watermark, or it would remember rows for ever"
        )
    return frame.dropDuplicatesWithinWatermark(list(step.drop_duplicates))


def _function(step: StepSpec, place: str, relations: Mapping[str, DataFrame], code: Mapping[str, str]) -> DataFrame:
    if step.function is None or step.schema_ is None:
        raise PlanError(f"{place}: expected sql, or function with schema")
    module, function = check_function(f"{place}.function", step.function, code)
    frame = _relation(f"{place}.input", step.input, relations)
    call = FunctionCall(
        module=module,
        function=function,
        modules=code,
        columns=_columns_of(step.schema_, f"{place}.schema"),
        timeout_s=milliseconds(step.timeout or DEFAULT_TIMEOUT) / 1000,
        parameters=step.parameters,
    )
    return frame.mapInPandas(call.over, step.schema_)


def _columns_of(schema: str, place: str) -> tuple[str, ...]:
    from pyspark.errors import PySparkException  # noqa: PLC0415  # loaded when the frame was made
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        columns = StructType.fromDDL(schema)
    except PySparkException:
        expected = "expected columns such as device STRING, score DOUBLE"
        raise PlanError(f"{place}: {expected}, got {schema!r}") from None
    if not isinstance(columns, StructType):
        raise PlanError(f"{place}: expected columns with names and types, got {schema!r}")
    return tuple(columns.names)


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
