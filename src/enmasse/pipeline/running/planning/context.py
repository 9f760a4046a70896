"""The context in which a pipeline's plans are made: its session and folders, and a frame for each source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from enmasse.messaging.patterns import matches, parse_permission
from enmasse.model.kinds.address_settings import ADDRESS_TYPES
from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines.relations import RegistrySpec
from enmasse.model.kinds.pipelines.sinks import SinkSpec
from enmasse.model.kinds.pipelines.sources import (
    EACH_BATCH,
    FILES,
    MAX_ADDRESSES,
    Files,
    SourceSpec,
    Watermark,
    event_path,
    is_several,
    reader_name,
)
from enmasse.model.schema.quantities import amount_of
from enmasse.model.sql.ddl import parse_ddl, quote_identifier
from enmasse.model.sql.message_columns import PRESENT
from enmasse.pipeline.decoding import (
    BAD_ROWS,
    bad,
    decode,
    decode_registered,
    drift_counts,
    filled,
    good,
    no_records,
    unfailing,
    with_tombstones,
)
from enmasse.pipeline.decoding.csv_columns import csv_columns
from enmasse.pipeline.errors import ModelMissingError, OptionError, PlanError, TableEmptyError, TableSchemaError
from enmasse.pipeline.registry_copy import RegistryCopy
from enmasse.pipeline.running.failures import sentence_of
from enmasse.pipeline.running.planning.plans import AddressFacts, AddressTarget, Place, QueryPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from enmasse.pipeline.decoding.registered import Registered
    from enmasse.pipeline.sink.encoding import Encoding


CONSUMED: Final = frozenset(ADDRESS_TYPES) - {"stream"}

CONSUMING: Final = "consuming"
"""The checkpoint of the query that reads what is consumed, whatever its name: the source must know it."""


FOLLOWS: Final = "something is wrong with what it reads"
"""Said of a part where the problem is told elsewhere."""


def event_column(frame: DataFrame, watermark: Watermark) -> str:
    """Return the column of a frame that has the moments of events."""
    return event_path(watermark, frame.columns)[-1]


def with_watermark(frame: DataFrame, watermark: Watermark) -> DataFrame:
    """Return a frame in which Spark follows the moments of events."""
    column = quote_identifier(event_column(frame, watermark))
    return frame.withWatermark(column, f"{milliseconds(watermark.delay)} milliseconds")


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
    between: Mapping[str, str] | None = None
    """The options that say from where to where the only stream is read, once; None: it is read as a stream."""
    bad_records: list[QueryPlan] = field(default_factory=list)
    """The queries that bring what cannot be decoded to where the sources want it."""
    consumed: list[str] = field(default_factory=list)
    """The addresses that are consumed; one query alone may read them, with the checkpoint ``CONSUMING``."""
    problems: list[str] | None = None
    """Collects what is wrong with sources, steps and sinks while the rest goes on; None: the first one is raised."""
    warnings: list[str] = field(default_factory=list)
    """Warnings about what works and may surprise."""
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    @contextmanager
    def going_on(self, failed: set[str], name: str) -> Iterator[None]:
        """Have what is wrong with a part be collected, if it is to be, and its name noted.

        Args:
            failed: the parts that nothing can be said of.
            name: the name of the part.
        """
        try:
            yield
        except (PlanError, ModelMissingError, OptionError, AnalysisException) as error:
            if self.problems is None:
                raise
            failed.add(name)
            said = sentence_of(error)
            if said != FOLLOWS and said not in self.problems:
                self.problems.append(said)

    def read(self, source: SourceSpec) -> DataFrame:
        """Return the rows of an address, decoded, those without that cannot be; or of a table as it is now.

        Where late rows are to be taken out, which each query does for itself, the watermark comes after that.

        Raises:
            PlanError: the source cannot be read so.
        """
        if source.name not in self._frames:
            frame = self._read(source)
            if source.watermark is not None:
                frame = self._with_event(source.name, frame, source.watermark)
                if source.watermark.late is None:
                    frame = with_watermark(frame, source.watermark)
            self._frames[source.name] = frame
        return self._frames[source.name]

    @staticmethod
    def _with_event(source: str, frame: DataFrame, watermark: Watermark) -> DataFrame:
        """Return a frame with the moments of events in a column of their own.

        Raises:
            PlanError: it cannot have one.
        """
        first, *rest = event_path(watermark, frame.columns)
        place = f"source {source}: watermark.column {watermark.column!r}"
        if first not in frame.columns:
            raise PlanError(f"{place} is none of its columns ({', '.join(frame.columns)})")
        if not rest:
            return frame
        if rest[-1].lower() in map(str.lower, frame.columns):
            raise PlanError(f"{place} makes the column {rest[-1]}, and the source has one: call that otherwise")
        try:
            return frame.withColumn(rest[-1], F.col(".".join(map(quote_identifier, (first, *rest)))))
        except AnalysisException as error:
            raise PlanError(f"{place} leads nowhere: {sentence_of(error)}") from None

    def _read(self, source: SourceSpec) -> DataFrame:
        if source.files is not None:
            return self._read_files(source, source.files)
        if source.table is None:
            return self._read_address(source)
        return self._stream_table(source, source.table) if source.stream else self.read_table(source.table)

    def _stream_table(self, source: SourceSpec, table: str) -> DataFrame:
        from enmasse.pipeline.lake.changes import stream_of  # noqa: PLC0415  # Delta is slow to load

        starting = self.start_from or source.starting_offsets or "earliest"
        if starting not in ("earliest", "latest"):
            raise PlanError(
                f"source {source.name}: a table as a stream begins at earliest or latest, not at {starting}"
            )
        try:
            return stream_of(
                self.spark, self.place.lake / table, starting, skips_changes=bool(source.skip_change_commits)
            )
        except TableSchemaError as error:
            raise TableEmptyError(f"source {source.name}: {error}") from None

    def _read_files(self, source: SourceSpec, files: Files) -> DataFrame:
        folder = self.place.files / FILES / files.path
        folder.mkdir(parents=True, exist_ok=True)
        options = {"recursiveFileLookup": "true"}
        if files.max_files_per_batch is not None:
            options["maxFilesPerTrigger"] = str(files.max_files_per_batch)
        reader = self.spark.readStream.format(files.format).options(**options)
        file = F.col("_metadata.file_path")
        if files.format == "parquet":
            return reader.schema(source.schema_ or "").load(str(folder)).select("*", file.alias("_file"))
        if files.format == "json":
            lines = self.spark.readStream.format("text").options(**options)
            rows = lines.load(str(folder)).where("trim(value) != ''").select("value", file.alias("address"))
            decoded = decode(rows, format="json", schema=source.schema_, with_present=bool(source.include_present))
            return self._fitting(source, decoded.withColumnRenamed("_address", "_file"), f"files/{files.path}")
        columns = parse_ddl(source.schema_ or "")
        decoded = csv_columns(reader, str(folder), columns, files)
        if source.include_present:
            # A line has all values; an empty one is NULL.
            decoded = decoded.withColumn(PRESENT, F.array(*[F.lit(column.name) for column in columns]))
        return self._fitting(source, decoded, f"files/{files.path}")

    def read_table(self, table: str) -> DataFrame:
        """Return a table of the lake as it is now."""
        from enmasse.pipeline.lake.relation import relation  # noqa: PLC0415  # Delta is slow to load

        frame: DataFrame = relation(self.spark, self.place.lake / table)
        return frame

    def follow_table(self, source: SourceSpec, query: str) -> DataFrame:
        """Return a table as the batches of a query join it.

        Args:
            source: with a table, of the lake or of a database.
            query: the name of the checkpoint.

        Raises:
            TableEmptyError: it has no rows, and the source says to wait for some.
        """
        if self.between is not None and source.table is not None:
            return self.read_table(source.table)
        from enmasse.pipeline.lake.reference import followed, query_key  # noqa: PLC0415  # Delta is slow to load
        from enmasse.pipeline.lake.relation import facts  # noqa: PLC0415

        database = source.database
        if database is None:
            assert source.table is not None
            path, name = self.place.lake / source.table, source.table
        else:
            from enmasse.pipeline.database.reading import DEFAULT_REFRESH, refresh_copy  # noqa: PLC0415

            # A table of the lake has no dot.
            path, name = self.spool / "_databases" / query / f"{source.name}.database", database.table
            refresh_copy(database, path, self.pipeline, is_linked=False)
        words = f"source {source.name}: the table {name} is empty"
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
        refresh = source.refresh or (EACH_BATCH if database is None else DEFAULT_REFRESH)
        refresh_s = 0.0 if refresh == EACH_BATCH else milliseconds(refresh) / 1000
        key, checkpoint = query_key(self.pipeline, query), self.checkpoint_of(query)
        return followed(self.spark, path, checkpoint, key, refresh_s, database)

    def _read_address(self, source: SourceSpec) -> DataFrame:
        names = self._names_of(source)
        if source.watermark is not None and source.watermark.late in names:
            raise PlanError(
                f"source {source.name}: watermark.late: expected an address that is not read, and "
                f"{source.address_pattern} matches {source.watermark.late}"
            )
        found = [self.addresses[name] for name in names if name in self.addresses]
        kind = found[0].type if found else "stream"
        if is_several(source) and (odd := next((one for one in found if one.type != "stream"), None)):
            raise PlanError(f"source {source.name}: several addresses are read where all are streams, not {odd.type}")
        reader = self.spark.readStream if self.between is None else self.spark.read
        raw = reader.format("enmasse").options(**self._options(source, names, kind)).load()
        schemas = [one.schema or {} for one in found]
        declared = schemas[0] if schemas and all(one == schemas[0] for one in schemas) else {}
        format_ = source.format or declared.get("format") or "raw"
        with_present = bool(source.include_present)
        if with_present and format_ in ("raw", "text"):
            raise PlanError(f"source {source.name}: includePresent: a message of format {format_} has no fields")
        if format_ == "raw":
            return raw
        if source.tombstones and format_ == "protobuf" and source.schema_registry is None:
            said = "an empty message is one like others with format protobuf"
            raise PlanError(f"source {source.name}: tombstones: {said}")
        if source.schema_registry is not None:
            registered = self._registered(source, source.schema_registry)
            decoded = decode_registered(raw, registered, with_present=with_present)
        else:
            is_as_declared = source.schema_ is None and format_ == declared.get("format")
            schema = declared.get("definition") if is_as_declared else source.schema_
            decoded = decode(raw, format=format_, schema=schema, with_present=with_present)
        if source.tombstones:
            decoded = with_tombstones(decoded)
        if source.on_drift == "null" and format_ != "json":
            raise PlanError(f"source {source.name}: onDrift null is for format json, and {names[0]} has {format_}")
        return self._fitting(source, decoded, names[0])

    def _registered(self, source: SourceSpec, registry: RegistrySpec) -> Registered:
        from enmasse.pipeline.decoding.registered import Registered  # noqa: PLC0415  # jsonschema is slow to load
        from enmasse.schemas.protobuf_schemas import first_message, protobuf_file  # noqa: PLC0415  # as is this

        assert source.format in ("avro", "json", "protobuf")
        if registry.subject is None:
            return Registered(self.place.registry, source.format, source.schema_ or "", is_subject=False)
        schema = RegistryCopy(self.place.registry).subject(registry.subject, registry.version)
        if schema.type != source.format.upper():
            raise PlanError(
                f"source {source.name}: the schema of subject '{registry.subject}' is of type {schema.type}, and the "
                f"format is {source.format}"
            )
        of_all, text = None if registry.wire_format else schema, schema.text
        if source.format == "protobuf":
            name = registry.message
            if name is None and (first := first_message(protobuf_file(text))) is not None:
                name = first.full_name
            text = f"{name} {text}"
        return Registered(self.place.registry, source.format, text, is_subject=True, of_all=of_all)

    def encoding_of(self, sink: SinkSpec) -> Encoding | None:
        """Return how the rows of a sink become messages of a registered schema; None: they do not.

        Raises:
            PlanError: there is no such schema.
        """
        registry = sink.schema_registry
        if registry is None or registry.subject is None:
            return None
        from enmasse.pipeline.sink.encoding import Encoding  # noqa: PLC0415  # jsonschema is slow to load

        schema = RegistryCopy(self.place.registry).subject(registry.subject, registry.version)
        return Encoding(registry.subject, schema, sink.bad_records, with_id=registry.wire_format)

    def _names_of(self, source: SourceSpec) -> list[str]:
        """Return the addresses of a source.

        Raises:
            PlanError: there are none, or too many.
        """
        if source.address is not None:
            return [source.address]
        if source.address_pattern is None:
            return list(source.addresses)
        pattern = parse_permission(source.address_pattern, "")
        streams = [name for name, facts in self.addresses.items() if facts.type == "stream"]
        names = sorted(name for name in streams if matches(pattern, name))
        if not names:
            raise TableEmptyError(f"source {source.name}: no stream matches {source.address_pattern} yet")
        if len(names) > MAX_ADDRESSES:
            raise PlanError(
                f"source {source.name}: {len(names)} streams match {source.address_pattern}, and {MAX_ADDRESSES} are "
                "the most of one source"
            )
        return names

    def _fitting(self, source: SourceSpec, decoded: DataFrame, origin: str) -> DataFrame:
        """Return the rows that fit, and do with the others what the source says."""
        if source.bad_records is not None and source.on_drift != "fail":
            # Those that are filled go on, and are no letters.
            left_out = no_records(decoded) if source.on_drift == "null" else decoded
            messages = bad(left_out, origin)
            self.bad_records.append(QueryPlan(f"{source.name}-bad", messages, AddressTarget(source.bad_records)))
        decoded = decoded.observe(f"{BAD_ROWS}{source.name}", *drift_counts(decoded))
        if source.on_drift == "null":
            return filled(decoded)
        if source.on_drift == "fail":
            return unfailing(decoded, source.name)
        return good(decoded)

    def options_of(self, source: SourceSpec) -> dict[str, str]:
        """Return the options with which a stream is read once, from what it keeps on."""
        return self.connection_options() | {"address": source.address or "", "startingOffsets": "earliest"}

    def _options(self, source: SourceSpec, names: Sequence[str], kind: str) -> dict[str, str]:
        options = self.connection_options()
        if is_several(source):
            options |= {"subscribe": json.dumps(names), "subscribePattern": source.address_pattern or ""}
        else:
            options |= {"address": names[0]}
        if kind in CONSUMED:
            self._consume(source, kind)
            options["spoolDir"] = str(self.spool / source.name)
            options["checkpointLocation"] = str(self.checkpoint_of(CONSUMING))
            if kind == "topic":
                options["subscription"] = reader_name(self.pipeline, source)
        elif self.between is not None:
            options |= self.between
        else:
            options["startingOffsets"] = self.start_from or source.starting_offsets or "earliest"
            # How far it is shows at the stream; queries that share a source share the name.
            options["consumer"] = reader_name(self.pipeline, source)
            if source.fail_on_data_loss is not None:
                options["failOnDataLoss"] = str(source.fail_on_data_loss).lower()
        if source.include_properties:
            options["includeProperties"] = "true"
        if source.include_headers:
            options["includeHeaders"] = "true"
        if source.include_topic_name:
            options["includeTopicName"] = "true"
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
        return self.place.options(self.credentials)
