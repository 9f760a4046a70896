"""Pipeline: a computation over messages, with tables, statistics, alerts and commands as results; run by Spark."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from enmasse.model.kinds.durations import Duration
from enmasse.model.kinds.pipelines.backfills import Backfill, backfill_problems
from enmasse.model.kinds.pipelines.builtins import BUILTINS, AddressPattern, MeteringParameters, builtin_problems
from enmasse.model.kinds.pipelines.databases import Database
from enmasse.model.kinds.pipelines.flow import AVAILABLE_NOW, flow_problems, trigger_problem
from enmasse.model.kinds.pipelines.schedules import schedule_problem
from enmasse.model.kinds.pipelines.sources import position_problem
from enmasse.model.kinds.pipelines.status import PipelineStatus
from enmasse.model.schema.conditions import Unapplied
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import is_subdomain
from enmasse.model.schema.quantities import Quantity, amount_of
from enmasse.model.schema.resource import SpaceMember
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


DecodingFormat = Literal["raw", "json", "cbor", "avro", "senml", "text"]
OutputMode = Literal["append", "update", "complete"]
TableFormat = Literal["delta", "parquet"]

DEFAULT_TRIGGER: Final = "1s"
"""The time between two micro-batches of a pipeline that does not say."""

MAX_ADDRESSES: Final = 200
"""Streams of one source: each costs a connection and a thread."""

MAX_RELATIONS: Final = 50
"""Sources, steps and sinks of one pipeline, each: far more than a person can read, and checked in a moment."""

MIN_MEMORY: Final = 512 * 1024 * 1024
"""Bytes; Spark refuses to start with less than 450 MiB."""

DEFAULT_MEMORY: Final = 640 * 1024 * 1024
"""Bytes of Java's heap where a pipeline asks for none."""

_MASTERS = re.compile(r"spark://[^\s,@]+(,[^\s,@]+)*|k8s://[^\s@]+|yarn|local(\[(\*|[1-9][0-9]{0,2})\])?")

_LOCAL = re.compile(r"local(\[(?P<cores>[0-9]+)\])?")


class Watermark(Model):
    """The delay up to which late rows count."""

    column: str
    """The column with the moment of the event, a TIMESTAMP."""
    delay: Duration
    """How much older than the newest row one may be."""
    late: str | None = None
    """The address that rows go to which come too late for a query with state; left out: they are counted and left
    out."""


class Expectation(Model):
    """A condition that rows are expected to meet, and what becomes of those that do not."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """Names it in status and in dead letters."""
    condition: str = Field(min_length=1)
    """In SQL over the columns of the relation; a row meets it where it is true."""
    action: Literal["keep", "drop", "dead-letter", "fail"] | None = None
    """``keep`` (the default): they are counted; ``drop``: they are left out; ``dead-letter``: they go to
    ``badRecords``; ``fail``: the query fails."""


class Files(Model):
    """Files of the space, below ``lake/files``."""

    path: str
    """A folder; files that come into it, or a folder below it, are read once each."""
    format: Literal["csv", "json", "parquet"]
    """``json``: an object on each line."""
    header: bool | None = None
    """Of CSV: whether the first line names the columns; left out: it does not."""
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    """Of CSV: what is between values; left out: a comma."""
    max_files_per_batch: int | None = Field(default=None, ge=1)
    """Files of one micro-batch at most."""


class RegistrySpec(Model):
    """What messages have to do with the space's schema registry."""

    subject: str | None = Field(default=None, min_length=1)
    """The subject with the schema. A source reads messages of any schema of the registry into its columns; left out,
    they are those of the source's ``schema``. A sink writes by it, and needs it."""
    version: int | None = Field(default=None, ge=1)
    """The version of the subject; left out: the latest when the pipeline starts."""
    wire_format: bool = True
    """Whether each message begins with the id of its schema; false: all are of the subject's, and without an id."""


class SourceSpec(Model):
    """An address, a table or files that the pipeline reads: a relation by its name."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """What steps and sinks call it."""
    address: str | None = None
    """An address of the space; a stream is read by offset, everything else is consumed."""
    addresses: tuple[str, ...] = Field(default=(), strict=False, max_length=MAX_ADDRESSES)
    """Streams of the space that are read together; the column ``_address`` says of which one a row is."""
    address_pattern: AddressPattern | None = None
    """The same of all streams whose names match, such as ``plant/#``; new ones join while the pipeline runs."""
    table: str | None = None
    """A table of the space's lake. Each batch joins it as it is then."""
    files: Files | None = None
    """Files that are read as they come."""
    database: Database | None = None
    """A table of a database. Batches join it as it was at the last look."""
    stream: bool | None = None
    """Of a Delta table: whether its rows are read as a stream, those that are there and then those that each version
    adds; left out: batches join it."""
    skip_change_commits: bool | None = None
    """Of a table as a stream: whether versions that delete or replace rows are skipped; left out: the query fails."""
    refresh: str | None = None
    """Of a table: `batch` (the default): each batch looks for its present version; a duration (the default of a
    database: `1m`): it may be so old; `onStart`, not of a database: as it is when the query starts."""
    when_empty: Literal["wait", "warn"] | None = None
    """Of a table without rows, when the query is to start: `wait` (the default) until it has some, or go on and
    `warn`."""
    format: DecodingFormat | None = None
    """How bodies are decoded; left out: as the address's ``schema`` says, or raw."""
    schema_: str | None = Field(default=None, alias="schema", min_length=1)
    """The columns, as in ``device STRING, temperature DOUBLE``; of Avro its JSON. Left out: the address's own."""
    schema_registry: RegistrySpec | None = None
    """Of ``avro`` and ``json``: messages are in the wire format of schema registries."""
    starting_offsets: str | None = None
    """Of a stream: ``earliest`` (the default), ``latest``, a moment, or JSON by partition."""
    include_properties: bool | None = None
    """Whether there are columns for properties, annotations and content type."""
    include_headers: bool | None = None
    """Whether there is a column ``headers``: the application properties in order, each with its type."""
    watermark: Watermark | None = None
    """How late a row may be and still count; needed where windows are to end."""
    bad_records: str | None = None
    """The address that messages go to that cannot be decoded; left out: they are counted and left out."""
    on_drift: Literal["drop", "dead-letter", "null", "fail"] | None = None
    """What happens to a message that does not fit: ``drop`` (the default): it is left out and counted;
    ``dead-letter``: it goes to ``badRecords``; ``null``: of JSON, values that do not fit are NULL; ``fail``: the
    query fails."""
    tombstones: bool | None = None
    """Whether an empty message is a row in which ``_tombstone`` is true, ``_key`` is its key and all columns of the
    schema are NULL; left out: it is a bad record."""
    expectations: tuple[Expectation, ...] = Field(default=(), strict=False)
    """What rows are expected to meet; the first one that is not met decides what becomes of a row."""
    degraded_above: float | None = Field(default=None, ge=0, le=1)
    """The share of messages that may not fit before the pipeline is said to be degraded; left out: 0.05."""
    max_rows_per_batch: int | None = Field(default=None, ge=1)
    """Rows of one micro-batch at most; left out: all that are there."""
    max_bytes_per_batch: Quantity | None = None
    """Bytes of one micro-batch at most."""
    fail_on_data_loss: bool | None = None
    """Whether the query fails when rows are gone before they were read; true if left out."""


class KeyedState(Model):
    """What a function keeps of each key."""

    schema_: str = Field(alias="schema", min_length=1)
    """The columns of a key's state, as in ``count INT, last TIMESTAMP``."""
    timers: Literal["processingTime", "eventTime"] | None = None
    """What a function's timers go by: the clock, or the watermark of the source; left out: it has none."""
    ttl: Duration | None = None
    """How long a state is kept that is not updated; left out: until it is removed."""
    order_by: tuple[str, ...] = Field(default=(), strict=False)
    """The columns in whose order the rows of a key come; left out: in that of the stream, whose partition and offset
    the rows must have."""


class StepSpec(Model):
    """A relation made of others."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """What later steps and sinks call it."""
    sql: str | None = Field(default=None, min_length=1)
    """One query over the relations above, in Spark's SQL."""
    function: str | None = None
    """``module:function`` of Python, called with batches of rows as pandas frames."""
    drop_duplicates: tuple[str, ...] = Field(default=(), strict=False)
    """The columns of which a row with the same values as an earlier one is left out, if it comes within the delay of
    the source's watermark."""
    per_batch: bool | None = None
    """Whether it is done with each micro-batch as a whole, as if that were a table: windows (``OVER``), ``ORDER BY``
    and ``LIMIT`` see the batch. What reads it is done so, too."""
    inputs: tuple[str, ...] = Field(default=(), strict=False)
    """Relations that a function gets as DataFrames of Spark; it returns one. Needs ``resources.session: own``."""
    state_by: str | None = None
    """The column that holds the key: the function is called with each key, its rows of a batch, and its state."""
    state: KeyedState | None = None
    """With ``stateBy``: what is kept of each key."""
    input: str | None = None
    """What a function gets, or where duplicates are; left out: the relation above."""
    schema_: str | None = Field(default=None, alias="schema", min_length=1)
    """The columns that a function gives."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the function, by name."""
    expectations: tuple[Expectation, ...] = Field(default=(), strict=False)
    """What its rows are expected to meet; the first one that is not met decides what becomes of a row."""
    bad_records: str | None = None
    """The address that rows go to, as JSON, that an expectation sends to dead letters."""
    timeout: Duration | None = None
    """How long one micro-batch may take before it is given up; left out: ten minutes."""


class KeepRows(Model):
    """How old rows of a table may become."""

    column: str
    """A TIMESTAMP or a DATE of the row."""
    duration: Duration = Field(alias="for")
    """How long rows are kept."""


class TableMaintenance(Model):
    """How a table is kept quick to read, and no larger than it is to be."""

    compact: Literal["auto", "off"] | None = None
    """``auto`` (the default) joins small files as they come."""
    keep_versions: Duration | None = None
    """How long files stay that are in the table no more, for readers of older versions; left out: 24h."""
    keep_rows: KeepRows | None = None
    """Rows that are older are deleted; left out: none is."""
    z_order_by: tuple[str, ...] = Field(default=(), strict=False)
    """Columns by which rows are laid beside each other, so that readers who ask for some of their values open few
    files: each hour in partitions that have new files."""


class SinkSpec(Model):
    """Where a relation goes."""

    input: str | None = None
    """The relation; left out: the last one."""
    address: str | None = None
    """An address of the space; ``*``: each row's column ``address`` names it."""
    table: str | None = None
    """A table of the space's lake."""
    database: Database | None = None
    """A table of a database, which is there already."""
    format: TableFormat | None = None
    """Of a table; left out: delta."""
    trigger: Duration | None = None
    """How often this sink's query asks for new rows; left out: as the pipeline says."""
    schema_registry: RegistrySpec | None = None
    """Of an address: rows become messages by a schema of the space's registry, in its wire format."""
    mode: OutputMode | None = None
    """``append`` (the default): rows that are final; ``update``: what changed; ``complete``: all, each time."""
    keys: tuple[str, ...] = Field(default=(), strict=False)
    """With mode ``update``: the columns that name a row."""
    order_by: str | None = None
    """Of a table with mode ``update``: the column whose greater value wins, so that an older row never replaces a
    newer one; left out: what comes later wins."""
    delete_when: str | None = Field(default=None, min_length=1)
    """Of a table with mode ``update``: a condition in SQL over the relation; rows for which it holds delete those
    with their keys."""
    update: Literal["whole", "present"] | None = None
    """Of a table with mode ``update``: whether a row replaces the ``whole`` one that is there (the default), or only
    the columns that are ``present`` in it, which are not NULL."""
    keep_history: bool | None = None
    """Of a table with mode ``update``, ``keys`` and ``orderBy``: rows do not replace those with their keys, but end
    them. The columns ``valid_from``, ``valid_to`` and ``is_current`` say when each held (type 2 of slowly changing
    dimensions)."""
    constraints: dict[str, str] = Field(default_factory=dict)
    """Of a Delta table: conditions in SQL by name, for which every row must be true; one that is not fails its
    batch."""
    evolve: Literal["add"] | None = None
    """Of a table: ``add`` adds columns that are new; left out: they are refused."""
    partition_by: tuple[str, ...] = Field(default=(), strict=False)
    """Of a table: the columns that lay out its folders, or ``year(c)``, ``month(c)``, ``day(c)``, ``hour(c)`` of a
    TIMESTAMP or ``bucket(16, c)``, which make a column ``c_year`` and so on."""
    maintenance: TableMaintenance | None = None
    """Of a Delta table: how it is kept."""
    on_no_consumer: Literal["fail", "skip"] | None = None
    """Of a direct address: what happens to rows while nobody listens; left out: the batch is tried again."""
    bad_records: str | None = None
    """The address that rows go to which the target refuses; left out: the batch fails."""


class Builtin(Model):
    """A pipeline that is there by name."""

    name: str
    """`lake`, `last-value`, `windows`, `anomalies`, `heartbeat`, `train`, `score`, `metering` or `commands`."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """What it is asked, by name; each has its own."""


class SqlFunction(Model):
    """A function of the pipeline's Python that its SQL may call."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """What SQL calls it."""
    function: str
    """``module:function`` of Python."""
    returns: str = Field(min_length=1)
    """The type of what it gives, as ``DOUBLE`` or ``STRUCT<low: INT, high: INT>``."""
    vectorized: bool | None = None
    """Whether it is called with a pandas Series for each argument, and gives one (a pandas UDF); left out: it is
    called for each row, with values of Python, and None for NULL."""
    timeout: Duration | None = None
    """How long it may take for the rows of one call from Spark, some ten thousand; left out: ten minutes."""


class Code(Model):
    """Where the Python of a pipeline's functions is."""

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
    """Whether it shares the Spark session of its space's pipelines; left out: it does."""
    cores: int | None = Field(default=None, ge=1)
    """Of a session of its own."""
    memory: Quantity | None = None
    """Of a session of its own: Java's heap."""
    master: str | None = None
    """Of a session of its own: the cluster, as `spark://host:7077`; left out: this machine."""


class PipelineSpec(Model):
    """The sources, steps and sinks of a pipeline, and how it runs."""

    credentials_secret: str | None = None
    """A Secret with ``username`` and ``password``, ``token``, or ``tls.crt`` and ``tls.key``: the user it runs as."""
    sources: tuple[SourceSpec, ...] = Field(default=(), strict=False, max_length=MAX_RELATIONS)
    """What is read: each a relation by its name."""
    steps: tuple[StepSpec, ...] = Field(default=(), strict=False, max_length=MAX_RELATIONS)
    """What is computed, one after the other; each sees what is above it."""
    sinks: tuple[SinkSpec, ...] = Field(default=(), strict=False, max_length=MAX_RELATIONS)
    """Where it goes: each a streaming query of its own."""
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
    """Whether it rests, keeping its place."""
    restart: Restart | None = None
    """Start again from another point."""
    backfill: Backfill | None = None
    """Compute partitions of a table again, while the pipeline goes on."""
    resources: Resources | None = None
    """What it runs on."""

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
            for name in ("sources", "steps", "sinks", "code"):
                if getattr(spec, name):
                    yield Problem(f"spec.{name}", "cannot stand beside builtin, which has its own")
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
        if sink.trigger is not None and spec.trigger == AVAILABLE_NOW:
            yield Problem(f"spec.sinks[{index}].trigger", f"not with trigger: {AVAILABLE_NOW} of the pipeline")
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
        spec: of the pipeline.
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
        if source.format == "raw" and source.bad_records is not None:
            yield Unapplied(f"spec.sources[{index}].badRecords", "of format raw, there is nothing to decode")
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
