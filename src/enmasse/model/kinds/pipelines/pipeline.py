"""Pipeline: a computation over messages, with tables, statistics, alerts and commands as results; run by Spark."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from enmasse.model.kinds.durations import Duration
from enmasse.model.kinds.pipelines.backfills import Backfill, backfill_problems
from enmasse.model.kinds.pipelines.builtins import BUILTINS, MeteringParameters, builtin_problems
from enmasse.model.kinds.pipelines.databases import Database
from enmasse.model.kinds.pipelines.flow import AVAILABLE_NOW, flow_problems, trigger_problem
from enmasse.model.kinds.pipelines.relations import OnError
from enmasse.model.kinds.pipelines.row_errors import gets_letters
from enmasse.model.kinds.pipelines.schedules import schedule_problem
from enmasse.model.kinds.pipelines.sinks import SinkSpec
from enmasse.model.kinds.pipelines.sources import SourceSpec, position_problem
from enmasse.model.kinds.pipelines.status import PipelineStatus
from enmasse.model.kinds.pipelines.steps import StepSpec
from enmasse.model.schema.conditions import Unapplied
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import is_subdomain
from enmasse.model.schema.quantities import Quantity, amount_of
from enmasse.model.schema.resource import SpaceMember
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


BEHIND_SINK: Final = "RestoredBehindSink"
"""The reason of a pipeline whose place a backup has, but not what it had written elsewhere since."""

DEFAULT_TRIGGER: Final = "1s"
"""The time between two micro-batches of a pipeline that does not say."""

MAX_RELATIONS: Final = 50
"""Sources, steps and sinks of one pipeline, each: far more than a person can read, and checked in a moment."""

MIN_MEMORY: Final = 512 * 1024 * 1024
"""Bytes; Spark refuses to start with less than 450 MiB."""

DEFAULT_MEMORY: Final = 640 * 1024 * 1024
"""Bytes of Java's heap where a pipeline asks for none."""

_MASTERS = re.compile(r"spark://[^\s,@]+(,[^\s,@]+)*|k8s://[^\s@]+|yarn|local(\[(\*|[1-9][0-9]{0,2})\])?")

_LOCAL = re.compile(r"local(\[(?P<cores>[0-9]+)\])?")


class Builtin(Model):
    """A pipeline that is there by name."""

    name: str
    """`lake`, `last-value`, `windows`, `anomalies`, `heartbeat`, `train`, `score`, `metering`, `commands` or
    `sparkplug`."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """The parameters by name; each built-in pipeline has its own."""


class SqlFunction(Model):
    """A function of the pipeline's Python that its SQL may call."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """The name in SQL."""
    function: str
    """``module:function`` of Python."""
    returns: str = Field(min_length=1)
    """The type of what it gives, as ``DOUBLE`` or ``STRUCT<low: INT, high: INT>``."""
    vectorized: bool | None = None
    """True if it is called with a pandas Series for each argument, and gives one (a pandas UDF); left out: it is
    called for each row, with values of Python, and None for NULL."""
    timeout: Duration | None = None
    """The longest that it may take for the rows of one call from Spark, some ten thousand; left out: ten minutes."""


class Code(Model):
    """The Python of a pipeline's functions."""

    config_map: str
    """A ConfigMap of the namespace; its entries that end with ``.py`` are modules."""
    functions: tuple[SqlFunction, ...] = Field(default=(), strict=False, max_length=MAX_RELATIONS)
    """Functions that ``sql`` of the steps may call. Needs ``resources.session: own``."""


class Restart(Model):
    """Start again from another point: once for each ``at``."""

    at: str
    """Any text that was not there before; the command line writes the moment."""
    start_from: str | None = Field(default=None, alias="from", min_length=1)
    """``earliest``, ``latest``, a moment, or JSON by partition; left out: where it was."""


class Resources(Model):
    """The session, cores and memory that a pipeline runs on."""

    session: Literal["shared", "own"] | None = None
    """True if it shares the Spark session of its space's pipelines; left out: it does."""
    cores: int | None = Field(default=None, ge=1)
    """Of a session of its own."""
    memory: Quantity | None = None
    """The heap of Java, for a session of its own."""
    master: str | None = None
    """The cluster for a session of its own, as `spark://host:7077`; left out: this machine."""


class PipelineSpec(Model):
    """The sources, steps and sinks of a pipeline, and how it runs."""

    credentials_secret: str | None = None
    """A Secret with ``username`` and ``password``, ``token``, or ``tls.crt`` and ``tls.key``: the user it runs as."""
    sources: tuple[SourceSpec, ...] = Field(default=(), strict=False, max_length=MAX_RELATIONS)
    """The inputs: each a relation by its name."""
    steps: tuple[StepSpec, ...] = Field(default=(), strict=False, max_length=MAX_RELATIONS)
    """The computations, one after the other; each sees what is above it."""
    sinks: tuple[SinkSpec, ...] = Field(default=(), strict=False, max_length=MAX_RELATIONS)
    """The outputs: each a streaming query of its own."""
    on_error: OnError | None = None
    """The verdict on a row for which an expression of a step fails, where neither step nor source says."""
    builtin: Builtin | None = None
    """Instead of sources, steps and sinks."""
    code: Code | None = None
    """The Python of the steps that are functions."""
    schedule: str | None = None
    """With ``trigger: availableNow``: when it runs again, in cron's words and UTC, as ``0 3 * * *``."""
    after: tuple[str, ...] = Field(default=(), strict=False, max_length=MAX_RELATIONS)
    """With ``trigger: availableNow``: pipelines of the space that share its session; it runs whenever all of them
    have ended well since it began last."""
    trigger: str | None = None
    """A duration between two micro-batches, or ``availableNow``: read what is there and end. Left out: 1s."""
    paused: bool = False
    """True if it rests, keeping its place."""
    restart: Restart | None = None
    """Start again from another point."""
    backfill: Backfill | None = None
    """Compute partitions of a table again, while the pipeline goes on."""
    resources: Resources | None = None
    """The memory and processors that it runs on."""

    @property
    def databases(self) -> list[Database]:
        """The tables of databases that it reads or writes."""
        found = [*(source.database for source in self.sources), *(sink.database for sink in self.sinks)]
        return [database for database in found if database is not None]


class Pipeline(SpaceMember):
    """A computation over the addresses of a space."""

    api_version: Literal["enmasse.io/v1beta1"] = "enmasse.io/v1beta1"
    kind: Literal["Pipeline"] = "Pipeline"
    spec: PipelineSpec
    status: PipelineStatus = PipelineStatus()

    @property
    def asks(self) -> dict[Literal["memory", "cpu"], Decimal]:
        """Bytes and cores that it asks for a session of its own; what it leaves open is left out."""
        resources = self.spec.resources
        if resources is None:
            return {}
        memory, cores = resources.memory, resources.cores
        if (resources.master or "").startswith("local"):
            # Spark goes by it and not by the field.
            local = _LOCAL.fullmatch(resources.master or "")
            cores = None if local is None else int(local["cores"] or 1)
        found: dict[Literal["memory", "cpu"], Decimal] = {} if memory is None else {"memory": amount_of(memory)}
        return found if cores is None else {**found, "cpu": Decimal(cores)}

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        spec = self.spec
        if spec.builtin is None:
            yield from flow_problems(spec)
        else:
            yield from _builtin_problems(spec.builtin)
            for name in ("sources", "steps", "sinks", "code", "on_error"):
                if getattr(spec, name):
                    alias = PipelineSpec.model_fields[name].alias
                    yield Problem(f"spec.{alias}", "cannot stand beside builtin, which has its own")
            if spec.backfill is not None:
                reason = "cannot stand beside builtin: only what a query makes of spec.sources is computed again"
                yield Problem("spec.backfill", reason)
        yield from _repeating_problems(self)
        if spec.trigger is not None and (problem := trigger_problem(spec.trigger)):
            yield Problem("spec.trigger", problem)
        if spec.restart is not None:
            yield from _restart_problems(spec.restart)
        if spec.backfill is not None:
            yield from backfill_problems(spec.backfill)
        if spec.resources is not None:
            yield from _resources_problems(spec.resources)
        module_map = spec.code.config_map if spec.code is not None else None
        for path, referred in (("credentialsSecret", spec.credentials_secret), ("code.configMap", module_map)):
            if referred is not None and not is_subdomain(referred):
                yield Problem(f"spec.{path}", f"expected the name of an object, got {describe_value(referred)}")


def _repeating_problems(pipeline: Pipeline) -> Iterator[Problem]:
    spec = pipeline.spec
    for name, given in (("schedule", spec.schedule), ("after", spec.after)):
        if given and spec.trigger != AVAILABLE_NOW:
            yield Problem(f"spec.{name}", f"only with trigger: {AVAILABLE_NOW}, which ends and can run again")
    for index, sink in enumerate(spec.sinks):
        if sink.trigger is None:
            continue
        path = f"spec.sinks[{index}].trigger"
        if spec.trigger == AVAILABLE_NOW:
            yield Problem(path, f"not with trigger: {AVAILABLE_NOW} of the pipeline")
        elif sink.trigger == AVAILABLE_NOW or trigger_problem(sink.trigger):
            yield Problem(path, f"expected a duration such as 1s, 0s for at once, got {describe_value(sink.trigger)}")
    if spec.schedule and spec.after:
        yield Problem("spec.after", "expected either a schedule or pipelines after which it runs")
    if spec.schedule is not None and (problem := schedule_problem(spec.schedule)):
        yield Problem("spec.schedule", problem)
    for index, name in enumerate(spec.after):
        if full_name(name, pipeline.space) == pipeline.metadata.name:
            yield Problem(f"spec.after[{index}]", "expected another pipeline")
        elif not full_name(name, pipeline.space).startswith(f"{pipeline.space}."):
            yield Problem(f"spec.after[{index}]", f"expected a pipeline of space {pipeline.space}, got '{name}'")


def full_name(name: str, space: str) -> str:
    """Return the name of a pipeline's object, of one that may be given without its space."""
    return name if "." in name else f"{space}.{name}"


def unapplied_by_type(spec: PipelineSpec, type_of: Callable[[str], str | None]) -> Iterator[Unapplied]:
    """Yield the fields of a pipeline that have no effect on addresses of the types it names.

    Args:
        spec: the spec of the pipeline.
        type_of: returns the type of an address of the space; None: there is none.
    """
    read = []
    for index, source in enumerate(spec.sources):
        if source.address is None:
            continue
        read.append(kind := type_of(source.address))
        for field in ("starting_offsets", "fail_on_data_loss"):
            if getattr(source, field) is not None and kind not in (None, "stream"):
                why = f"only a stream has offsets, and '{source.address}' is of type {kind}"
                yield Unapplied(f"spec.sources[{index}].{SourceSpec.model_fields[field].alias}", why)
        if source.format == "raw" and not gets_letters(spec, source):
            yield Unapplied(
                f"spec.sources[{index}].badRecords",
                "of format raw, there is nothing to decode, and no step sends there",
            )
    for index, sink in enumerate(spec.sinks):
        kind = type_of(sink.address) if sink.address is not None else None
        if sink.on_no_consumer is not None and kind not in (None, "anycast", "multicast"):
            why = f"messages wait in '{sink.address}', which is of type {kind}, whether somebody listens or not"
            yield Unapplied(f"spec.sinks[{index}].onNoConsumer", why)
    if spec.builtin is not None and (builtin := BUILTINS.get(spec.builtin.name)) is not None:
        parameters = builtin.model_validate(dict(spec.builtin.parameters))
        own = [] if isinstance(parameters, MeteringParameters) else [type_of(name) for name in parameters.reads()]
        read += own
        if own and _is_without_offsets(own) and spec.builtin.parameters.get("startingOffsets") is not None:
            yield Unapplied("spec.builtin.parameters.startingOffsets", "only a stream has offsets")
    if spec.restart is not None and spec.restart.start_from is not None and read and _is_without_offsets(read):
        yield Unapplied("spec.restart.from", "only a stream has offsets, and the pipeline reads none")


def _is_without_offsets(types: list[str | None]) -> bool:
    return all(kind not in (None, "stream") for kind in types)


def _builtin_problems(builtin: Builtin) -> Iterator[Problem]:
    for problem in builtin_problems(builtin.name, builtin.parameters):
        if problem.path == "name" and builtin.name not in BUILTINS:
            yield Problem("spec.builtin.name", problem.message)
        else:
            # Parameters are a map of anything: an unknown one is refused, and never dropped as an unknown field is.
            path = f"spec.builtin.parameters.{problem.path}" if problem.path else "spec.builtin.parameters"
            yield Problem(path, problem.message)


def _restart_problems(restart: Restart) -> Iterator[Problem]:
    if not restart.at:
        yield Problem("spec.restart.at", "required: any text that was not there before, such as the present time")
    if restart.start_from is not None and (problem := position_problem(restart.start_from)):
        yield Problem("spec.restart.from", problem)


def _resources_problems(resources: Resources) -> Iterator[Problem]:
    if resources.session != "own":
        for field in ("cores", "memory", "master"):
            if getattr(resources, field):
                yield Problem(f"spec.resources.{field}", "needs session: own; a shared one has those of its space")
    if resources.memory is not None and amount_of(resources.memory) < MIN_MEMORY:
        yield Problem("spec.resources.memory", f"expected at least 512Mi, got {describe_value(resources.memory)}")
    if resources.master and not _MASTERS.fullmatch(resources.master):
        expected = "expected spark://HOST:PORT, k8s://URL, yarn, local or local[N]"
        yield Problem("spec.resources.master", f"{expected}, got {describe_value(resources.master)}")
