"""The relations of a declared pipeline: rows of its sources, what its steps make of them, and what sinks get.

Rules:
1. A relation is made once for all queries, but where it joins a table that changes, or lacks the rows that come too
   late: then each query has its own, by its own batches.
2. A step with ``perBatch``, and what reads it, is done with each micro-batch as a whole. The query reads the relation
   before that step; the rest is done to its batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines.row_errors import row_errors
from enmasse.model.kinds.pipelines.sinks import DELETED, deleting
from enmasse.model.kinds.pipelines.sources import is_joined
from enmasse.model.sql.sql import Columns, SqlError, checked_sql
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.lake.partitions import nameable, text_partitions
from enmasse.pipeline.naming import by_any_name
from enmasse.pipeline.running.logical_plans import has_watermark, is_stateful, observations_of, reads_any
from enmasse.pipeline.running.planning.context import CONSUMING, FOLLOWS, RunningContext, event_column, with_watermark
from enmasse.pipeline.running.planning.plans import AddressTarget, PerBatch, QueryPlan, Target
from enmasse.pipeline.running.planning.targets import is_local, sink_options
from enmasse.pipeline.running.steps.dead_rows import DeadRows
from enmasse.pipeline.running.steps.expectations import hold
from enmasse.pipeline.running.steps.functions import FunctionCall, call_with_frames, check_function
from enmasse.pipeline.running.steps.judged_functions import for_pandas, judged_functions, judged_rows
from enmasse.pipeline.running.steps.keyed_state import BUCKETS, StatefulCall, by_key
from enmasse.pipeline.running.steps.late_rows import LateRows
from enmasse.pipeline.running.steps.model_functions import model_functions
from enmasse.pipeline.running.steps.sql_functions import DEFAULT_TIMEOUT, sql_functions
from enmasse.pipeline.running.steps.verdicts import Judging, Verdicts, name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql._typing import UserDefinedFunctionLike
    from pyspark.sql.types import StructType

    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
    from enmasse.model.kinds.pipelines.sinks import OutputMode, SinkSpec
    from enmasse.model.kinds.pipelines.sources import SourceSpec
    from enmasse.model.kinds.pipelines.steps import StepSpec
    from enmasse.pipeline.running.planning.guard import Guard

_POSITIONS: Final = (("_partition", "_offset"), ("partition", "offset"))
"""The columns with the place of rows in the stream, decoded and raw."""


@dataclass
class _Made:
    """The relations for one query, by name."""

    rows: dict[str, DataFrame] = field(default_factory=dict)
    """Of those that are made of batches an empty one, for its columns."""
    dead: dict[str, DataFrame] = field(default_factory=dict)
    """Messages of the rows that their expectations send to dead letters."""
    state: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The facts about the state that functions keep for them, a line for each."""
    base: dict[str, str] = field(default_factory=dict)
    """For relations that are made of batches, of which relation."""
    failed: set[str] = field(default_factory=set)
    """The sources and steps that are none, as something is wrong with them or with what they read."""
    late: list[LateRows] = field(default_factory=list)
    """The stages that take late rows out."""


class Relations:
    """Makes the plans of a pipeline's queries.

    Args:
        context: the context of the pipeline.
        spec: the spec as the pipeline was declared.
        guard: judges SQL.
        code: the pipeline's Python, source by module name.
    """

    def __init__(self, context: RunningContext, spec: PipelineSpec, guard: Guard, code: Mapping[str, str]) -> None:
        self._context = context
        self._sources, self._steps = spec.sources, spec.steps
        self._guard = guard
        self._code = code
        texts = [step.sql for step in spec.steps if step.sql is not None]
        self._functions = sql_functions(spec.code, code) | model_functions(context.place.models, texts)
        for name, function in self._functions.items():
            context.spark.udf.register(name, function)
        self._judged_functions = judged_functions(spec.code, code)
        self._errors = row_errors(spec)
        letters = {name for name, one in self._errors.items() if one.action == "dead-letter"}
        self._unsent = letters if context.between is None else set[str]()
        """Relations whose dead letters no query sends so far."""
        self._has_letters = bool(self._unsent)
        self._times = 0
        """The number of times that relations were made."""
        self._read = _Made()
        """The sources that are the same for all queries."""
        self._made: _Made | None = None
        self._mode: OutputMode = "append"
        self._follows = any(map(is_joined, self._sources))
        self._late_unsent = {one.name for one in self._sources if one.watermark is not None and one.watermark.late}
        """Sources whose late rows no query sends so far."""
        self._takes_late = bool(self._late_unsent)

    def plan_of(self, name: str, place: str, sink: SinkSpec, target: Target) -> QueryPlan:
        """Return the plan of the query that feeds a sink.

        Raises:
            PlanError: it cannot be run as declared; the message names the place.
        """
        return self._plan(name, target.mode, partial(self._feed, name, place, sink, target))

    def plan_of_dead(self, name: str, part: str, target: AddressTarget) -> QueryPlan:
        """Return the plan of the query that brings to dead letters what its expectations send there."""

        def plan_over(made: _Made) -> QueryPlan:
            if part in made.failed:
                raise PlanError(FOLLOWS)
            return QueryPlan(name, made.dead[part], target, made.state.get(part, ()))

        return self._plan(name, target.mode, plan_over)

    def _plan(self, name: str, mode: OutputMode, plan_over: Callable[[_Made], QueryPlan]) -> QueryPlan:
        # What keeps state gives its rows in the mode of its query.
        is_of_mode = self._mode == mode or not any(step.state_by for step in self._steps)
        if self._made is None or self._follows or self._has_letters or not is_of_mode:
            self._mode = mode
            self._made = self._make(name)
        plan = plan_over(self._made)
        # What is consumed is read by one query, whose batches those are.
        query = CONSUMING if reads_any(plan.frame, self._context.consumed) else name
        # Without state, and where all rows are kept, none comes too late.
        takes_late = self._takes_late and mode != "complete" and is_stateful(plan.frame)
        if not takes_late and (query == name or not self._follows):
            self._note_sent(plan)
            return plan
        if takes_late and query == CONSUMING and any(step.expectations for step in self._steps):
            raise PlanError(
                "expectations of a step cannot stand beside watermark.late where an address is consumed: hold the "
                "source against them, or bring the messages into a stream, and read that one"
            )
        made = self._make(query, name if takes_late else None)
        plan = plan_over(made)
        for stage in made.late:
            if stage.is_in(plan.frame):
                self._late_unsent.discard(stage.source)
        self._note_sent(plan)
        return plan

    def _note_sent(self, plan: QueryPlan) -> None:
        """Note which relations' dead letters a query sends.

        Raises:
            PlanError: it would send some twice.
        """
        observed = observations_of(plan.frame)
        for name in sorted(self._unsent):
            found = [one for one in observed if name_of(one) == name]
            if twice := next((one for one in found if found.count(one) > 1), None):
                raise PlanError(
                    f"step {name}: onError dead-letter needs rows that a query computes once, and {plan.name} does "
                    f"so {found.count(twice)} times: its dead letters would come as often; say drop or null"
                )
            if found:
                self._unsent.discard(name)

    def check_late(self) -> None:
        """Check, once all plans are made, that there can be late rows where they are asked for.

        Raises:
            PlanError: there is a source of which no row is late for any query.
        """
        for name in sorted(self._late_unsent):
            raise PlanError(
                f"source {name}: watermark.late: no row comes too late, as nothing that reads it keeps state and "
                "ends by the watermark: group by window(...), join streams, or leave late out"
            )

    def _feed(self, name: str, place: str, sink: SinkSpec, target: Target, made: _Made) -> QueryPlan:
        source = sink.input if sink.input is not None else self._names_above(None)[-1]
        if source in made.failed:
            raise PlanError(FOLLOWS)
        base = made.base.get(source)
        state = made.state.get(source, ())
        rows = self._rows_of(place, sink, made.rows)
        every_s = None if sink.trigger is None else milliseconds(sink.trigger) / 1000
        if base is None:
            return QueryPlan(name, rows, target, state, trigger_s=every_s)
        steps = [(index, step) for index, step in enumerate(self._steps) if made.base.get(step.name) == base]

        def of_batch(batch: DataFrame) -> DataFrame:
            relations = {base: batch}
            for index, step in steps:
                relations[step.name] = self._step(index, step, relations)
            return self._rows_of(place, sink, relations)

        done = PerBatch(rows.schema, of_batch)
        return QueryPlan(name, made.rows[base], target, state, trigger_s=every_s, per_batch=done)

    def _make(self, query: str, late_of: str | None = None) -> _Made:
        """Return the relations for a query.

        Args:
            query: the name of its checkpoint: it joins tables by its batches.
            late_of: the name of the plan for which late rows are taken out; None: they are not.
        """
        made, context = _Made(), self._context
        self._times += 1
        for source in self._sources:
            with context.going_on(made.failed, source.name):
                self._add_source(source, made, query)
            watermark = None if source.name in made.failed else source.watermark
            if watermark is None or watermark.late is None:
                continue
            rows = made.rows[source.name]
            if late_of is not None:
                options = sink_options(context, rows, AddressTarget(watermark.late))
                stage = LateRows(
                    query=f"{context.pipeline}/{late_of}",
                    source=source.name,
                    column=event_column(rows, watermark),
                    checkpoint=context.checkpoint_of(query),
                    options=options,
                    origin=source.address,
                )
                made.late.append(stage)
                rows = stage.on_time(rows)
            made.rows[source.name] = with_watermark(rows, watermark)
        for index, step in enumerate(self._steps):
            try:
                with context.going_on(made.failed, step.name):
                    self._add_step(index, step, made)
            except PlanError:
                if context.between is None:
                    raise
                # It keeps state of a stream, or reads what does: who is asked for once reads neither.
        return made

    def _add_source(self, source: SourceSpec, made: _Made, query: str) -> None:
        if is_joined(source):
            self._hold(made, f"source {source.name}", source, self._context.follow_table(source, query))
            return
        # Once: queries that are made one have one count of what is not met.
        if source.name not in self._read.rows:
            self._hold(self._read, f"source {source.name}", source, self._context.read(source))
        made.rows[source.name] = self._read.rows[source.name]
        if source.name in self._read.dead:
            made.dead[source.name] = self._read.dead[source.name]

    def _add_step(self, index: int, step: StepSpec, made: _Made) -> None:
        read = self._read_by(step, made)
        if made.failed & set(read):
            raise PlanError(FOLLOWS)
        made.state[step.name] = _state_of(step, read, made)
        base = self._base_of(index, step, read, made)
        if base is None:
            self._hold(made, _place(index, step), step, self._step(index, step, made.rows))
            return
        empty = made.rows[base].sparkSession.createDataFrame([], made.rows[base].schema)
        made.rows[step.name] = self._step(index, step, {name: made.rows[name] for name in read} | {base: empty})
        made.base[step.name] = base

    def _read_by(self, step: StepSpec, made: _Made) -> Sequence[str]:
        """Return the relations that a step reads."""
        if step.inputs:
            return step.inputs
        if step.sql is None:
            return [step.input if step.input is not None else self._names_above(step)[-1]]
        try:
            known: dict[str, Columns] = {name: tuple(frame.columns) for name, frame in made.rows.items()}
            known |= dict.fromkeys(made.failed)
            return sorted(checked_sql(step.sql, known, self._functions).relations)
        except SqlError:
            return ()  # said with its place when it is run

    def _names_above(self, step: StepSpec | None) -> list[str]:
        """Return the names of what is declared above a step, or above the sinks."""
        steps = self._steps if step is None else self._steps[: self._steps.index(step)]
        return [*(source.name for source in self._sources), *(one.name for one in steps)]

    @staticmethod
    def _base_of(index: int, step: StepSpec, read: Sequence[str], made: _Made) -> str | None:
        """Return the relation whose batches a step is done with; None: it is done with streams."""
        bases = {made.base.get(name, name if step.per_batch else "") for name in read}
        if bases <= {""}:
            return None
        place = _place(index, step)
        if len(bases) > 1:
            raise PlanError(
                f"{place}: it reads {', '.join(read)}, and is done with each batch of one relation: join what else "
                "it needs in a step before it"
            )
        if step.expectations:
            raise PlanError(f"{place}: it is done with each batch, and expectations are held by the step before that")
        if step.drop_duplicates or step.state_by:
            field = "dropDuplicates" if step.drop_duplicates else "stateBy"
            raise PlanError(f"{place}: {field} is for streams: put it before the step with perBatch")
        return bases.pop()

    def _step(self, index: int, step: StepSpec, relations: Mapping[str, DataFrame]) -> DataFrame:
        place = _place(index, step)
        if step.sql is not None:
            return self._judged(step.name, self._sql(f"{place}.sql", step.sql, relations, self._functions))
        if step.drop_duplicates:
            return _without_duplicates(step, place, relations)
        return _function(step, place, relations, self._code, self._mode, self._judging(step.name))

    def _judging(self, name: str, place: str = "") -> Judging | None:
        """Return how the rows of a relation are judged; None: they are not, and an error fails the query.

        Args:
            name: the name of the relation.
            place: the part of one query alone that is judged, if it is not the relation itself.
        """
        found, context = self._errors[name], self._context
        if found.action == "fail":
            return None
        dead = None
        if name in self._unsent or (place and found.action == "dead-letter" and context.between is None):
            assert found.bad_records is not None
            options = context.connection_options() | {"address": found.bad_records}
            if not is_local(context.spark):
                options["order"] = "content"
            dead = DeadRows(name, options)
        address = next((one.address for one in self._sources if one.name == name), None)
        sent = None if dead is None else dead.sent
        return Judging(name, self._times, found.action == "null", sent, address, place=place)

    def _judged(self, name: str, frame: DataFrame, place: str = "") -> DataFrame:
        judging = self._judging(name, place)
        return frame if judging is None else Verdicts(judging, self._judged_functions).over(frame)

    def _hold(self, made: _Made, place: str, part: SourceSpec | StepSpec, frame: DataFrame) -> None:
        if not part.expectations:
            made.rows[part.name] = frame
            return

        def sql(text: str, rows: DataFrame) -> DataFrame:
            # A condition that cannot be computed is not met, and is counted as such.
            judging = Judging(part.name, self._times, is_null=True, is_counted=False)
            return Verdicts(judging, {}).over(self._sql(f"{place}.expectations", text, {"rows": rows}))

        held = hold(frame, part.name, part.expectations, sql, getattr(part, "address", None), times=self._times)
        made.rows[part.name] = held.rows
        if held.dead is not None:
            made.dead[part.name] = held.dead

    def _rows_of(self, place: str, sink: SinkSpec, relations: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows that go to a sink, with whether each deletes another one if the sink says when.

        Those are judged whose text for a partition is the name that folders have for NULL.
        """
        frame = _relation(f"{place}.input", sink.input, relations)
        name = sink.input if sink.input is not None else list(relations)[-1]
        if texts := text_partitions(frame, sink.partition_by):
            # What is behind a name was judged before.
            frame.createOrReplaceTempView("rows")
            checked = frame.sparkSession.table("rows").withColumns({text: nameable(text) for text in texts})
            frame = self._judged(name, checked, f"partitionBy of {sink.table}, ")
        if sink.delete_when is None:
            return frame
        marked = self._sql(f"{place}.deleteWhen", deleting("rows", sink.delete_when), {"rows": frame})
        marked = self._judged(name, marked, f"deleteWhen of {sink.table or sink.address or 'database'}, ")
        if marked.columns != [*frame.columns, DELETED]:
            raise PlanError(f"{place}.deleteWhen: expected one condition, got {sink.delete_when!r}")
        return marked

    def _sql(
        self,
        place: str,
        text: str,
        relations: Mapping[str, DataFrame],
        functions: Mapping[str, UserDefinedFunctionLike] = MappingProxyType({}),
    ) -> DataFrame:
        schemas = {name: frame.schema for name, frame in relations.items()}
        canonical = self._guard.check(place, text, schemas, functions)
        for name, frame in relations.items():
            frame.createOrReplaceTempView(name)
        # Batches are in a session of their query's own.
        return next(iter(relations.values())).sparkSession.sql(canonical)


def _place(index: int, step: StepSpec) -> str:
    return f"spec.steps[{index}] ({step.name})"


def _relation(place: str, name: str | None, relations: Mapping[str, DataFrame]) -> DataFrame:
    if name is None:
        return relations[list(relations)[-1]]
    if name not in relations:
        raise PlanError(f"{place}: there is no relation {name!r} above; there are {', '.join(relations)}")
    return relations[name]


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


def _state_of(step: StepSpec, read: Sequence[str], made: _Made) -> tuple[str, ...]:
    """Return what a step and those before it keep, that a checkpoint has to fit."""
    lines = dict.fromkeys(line for name in read for line in made.state.get(name, ()))
    if step.state_by is not None and step.state is not None:
        timers = f", timers by {step.state.timers}" if step.state.timers else ""
        line = f"{step.function} by {step.state_by} in {BUCKETS} buckets -> {step.state.schema_}{timers}"
        lines[line] = None
    return tuple(lines)


def _function(
    step: StepSpec,
    place: str,
    relations: Mapping[str, DataFrame],
    code: Mapping[str, str],
    mode: OutputMode,
    judging: Judging | None,
) -> DataFrame:
    if step.function is None or (step.schema_ is None and not step.inputs):
        raise PlanError(f"{place}: expected sql, or function with schema or inputs")
    module, function = check_function(f"{place}.function", step.function, code)
    if step.inputs:
        frames = [_relation(f"{place}.inputs", name, relations) for name in step.inputs]
        return call_with_frames(module, function, code, frames, step.parameters)
    assert step.schema_ is not None
    frame = _relation(f"{place}.input", step.input, relations)
    call = FunctionCall(
        module=module,
        function=function,
        modules=code,
        columns=_columns_of(step.schema_, f"{place}.schema"),
        timeout_s=milliseconds(step.timeout or DEFAULT_TIMEOUT) / 1000,
        parameters=step.parameters,
    )
    if step.state_by is None:
        if judging is not None:
            return judged_rows(frame, call, _schema_of(step.schema_, f"{place}.schema"), judging)
        return by_any_name(for_pandas(frame, None)).mapInPandas(call.over, step.schema_)
    stateful = _stateful(step, place, frame, call)
    # Left out in any case: a column with NULL instead would have no watermark any more.
    left_out = None if judging is None else replace(judging, is_null=False)
    return by_key(for_pandas(frame, left_out), stateful, step.state_by, step.schema_, mode)


def _stateful(step: StepSpec, place: str, frame: DataFrame, call: FunctionCall) -> StatefulCall:
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415  # loaded when the frame was made

    state, by = step.state, step.state_by
    assert state is not None
    assert by is not None
    for field_name, names in (("stateBy", (by,)), ("state.orderBy", state.order_by)):
        if unknown := [name for name in names if name not in frame.columns]:
            there = ", ".join(frame.columns)
            raise PlanError(f"{place}.{field_name}: there is no column {unknown[0]!r}; there are {there}")
    order = state.order_by or next((pair for pair in _POSITIONS if set(pair) <= set(frame.columns)), ())
    if not order:
        raise PlanError(
            f"{place}.state.orderBy: required: the rows have no _partition and _offset, which would say in which "
            "order they come"
        )
    if not frame.isStreaming:
        raise PlanError(f"{place}.input: expected the rows of a stream, as a state is kept from batch to batch")
    if state.timers == "eventTime" and not has_watermark(frame):
        raise PlanError(f"{place}.state.timers: eventTime needs a source with a watermark")
    return StatefulCall(
        call=call,
        kind=to_arrow_type(_schema_of(state.schema_, f"{place}.state.schema"), timezone="UTC"),
        given=tuple(frame.columns),
        order=order,
        timers=state.timers,
        ttl_us=None if state.ttl is None else milliseconds(state.ttl) * 1000,
    )


def _columns_of(schema: str, place: str) -> tuple[str, ...]:
    return tuple(_schema_of(schema, place).names)


def _schema_of(schema: str, place: str) -> StructType:
    from pyspark.errors import PySparkException  # noqa: PLC0415  # loaded when the frame was made
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        columns = StructType.fromDDL(schema)
    except PySparkException:
        expected = "expected columns such as device STRING, score DOUBLE"
        raise PlanError(f"{place}: {expected}, got {schema!r}") from None
    if not isinstance(columns, StructType):
        raise PlanError(f"{place}: expected columns with names and types, got {schema!r}")
    return columns
