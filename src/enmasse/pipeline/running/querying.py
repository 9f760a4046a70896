"""Single queries of SQL over the lake's tables and the space's addresses, answered with rows.

Rules:
1. A query may read the tables of the lake and the addresses that its command names, through the same guard
   as pipelines; it runs in a session of its own, that is forgotten.
2. It ends after its time, or when it is cancelled, and leaves Spark's cores to others.
3. An answer is bounded in rows and in bytes. The answer says so if something is left out.
4. As a file of Parquet an answer has the types that Spark gives its columns.
5. Moments beyond the years 1 to 9999 are texts in an answer, and a warning counts them.
"""

from __future__ import annotations

import base64
import io
import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DateType, MapType, StructType, TimestampNTZType, TimestampType

from enmasse.errors import EnmasseError
from enmasse.model.kinds.pipelines.sinks import z_order_problem
from enmasse.model.sql.asking import HISTORY, LISTING, read_asked
from enmasse.model.sql.ddl import quote_identifier
from enmasse.model.sql.sql import SqlError, checked_sql
from enmasse.pipeline.builtin.models import Models, roll_back
from enmasse.pipeline.builtin.onnx_model import KEPT, import_model, saved
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.far_moments import as_numbers, date_text, is_far, moment_text, numbers_type
from enmasse.pipeline.lake.compaction import compact, order_rows
from enmasse.pipeline.lake.objects import LakePath
from enmasse.pipeline.lake.relation import facts, history, relation, restore, statistics, tables
from enmasse.pipeline.running.failures import sentence_of
from enmasse.pipeline.running.planning.plans import Place

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import DataType

    from enmasse.pipeline.running.planning.guard import Guard

DEFAULT_LIMIT: Final = 1000
MAX_ROWS: Final = 100_000
MAX_BYTES: Final = 4 << 20
"""Bytes of an answer's rows as JSON; it is one line, which the client holds in memory."""
DEFAULT_SECONDS: Final = 60.0
MAX_AT_ONCE: Final = 4
"""Cores are few, and pipelines come first."""
OF_TABLES, OF_ADDRESSES = "table:", "address:"
"""The words before a name of which there are both a table and an address."""
ABOUT_TABLES: Final = {HISTORY: history, "statistics:": statistics}
"""The words before a table's name that ask for what its log says, and the function that gives it."""
OF_MODELS: Final = "models:"
"""The relation of all versions of all models."""
TABLE_COLUMNS: Final = [
    {"name": "table", "type": "STRING"},
    {"name": "columns", "type": "ARRAY<STRUCT<NAME:STRING,TYPE:STRING>>"},
    {"name": "rows", "type": "BIGINT"},
    {"name": "bytes", "type": "BIGINT"},
    {"name": "format", "type": "STRING"},
    {"name": "files", "type": "BIGINT"},
]
"""The columns of the list of tables."""


class Queries:
    """Answers queries, each in a thread of its own.

    Args:
        spark: the process's session.
        place: the place of the lake and the addresses.
        guard: judges SQL.
        emit: called with each answer.
    """

    def __init__(self, spark: SparkSession, place: Place, guard: Guard, emit: Callable[..., None]) -> None:
        self._spark = spark
        self._place = place
        self._guard = guard
        self._emit = emit
        self._under_way: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def ask(self, command: Mapping[str, Any]) -> None:
        """Begin to answer.

        Args:
            command: ``id`` and ``sql``; ``limit`` (rows), ``timeout`` (seconds), ``addresses`` (what may be read, as
                in ``put``), ``credentials`` (the name of whose they are read with) and ``as`` (``parquet``: the
                answer is a file) may be left out. Without ``sql`` the answer is the tables of the lake.

        Raises:
            KeyError: there is no id.
        """
        number = str(command["id"])
        cancelled = threading.Event()
        with self._lock:
            is_too_many = len(self._under_way) >= MAX_AT_ONCE
            if not is_too_many:
                self._under_way[number] = cancelled
        if is_too_many:
            self._answer(number, error=f"{MAX_AT_ONCE} queries are under way: try again later", busy=True)
            return
        threading.Thread(target=self._run, args=(number, command, cancelled), daemon=True).start()

    def cancel(self, number: str) -> None:
        """Give a query up; its answer says so."""
        with self._lock:
            cancelled = self._under_way.get(number)
        if cancelled is not None:
            cancelled.set()
            self._spark.sparkContext.cancelJobGroup(f"query {number}")

    def _run(self, number: str, command: Mapping[str, Any], cancelled: threading.Event) -> None:
        seconds = float(command.get("timeout") or DEFAULT_SECONDS)
        timer = threading.Timer(seconds, self.cancel, (number,))
        timer.daemon = True
        timer.start()
        try:
            context = self._spark.sparkContext
            context.setLocalProperty("spark.scheduler.pool", "queries")
            context.setJobGroup(f"query {number}", "query", interruptOnCancel=True)
            limit = min(int(command.get("limit") or DEFAULT_LIMIT), MAX_ROWS)
            if "change" in command:
                said = change(self._place, command["change"])
                self._answer(number, columns=[{"name": "done", "type": "STRING"}], rows=[[said]])
                return
            if "sql" not in command:
                self._answer(number, **_tables(self._place.lake, limit))
                return
            frame = self._frame(str(command["sql"]), command)
            if cancelled.is_set():
                raise PlanError("cancelled")  # noqa: TRY301  # reported like any other problem
            found = as_numbers(frame.limit(limit + 1)).toLocalIterator() if limit else iter(())
            answer = as_file if command.get("as") == "parquet" else as_rows
            self._answer(number, **answer(frame.schema, found, limit))
        except Exception as error:  # noqa: BLE001  # whatever it is, who asked waits for an answer
            is_late = cancelled.is_set()
            text = f"the query was ended after {seconds:g} s, or cancelled" if is_late else sentence_of(error)
            self._answer(number, error=text)
        finally:
            timer.cancel()
            with self._lock:
                self._under_way.pop(number, None)

    def _frame(self, text: str, command: Mapping[str, Any]) -> DataFrame:
        there = tables(self._place.lake)
        given: Mapping[str, Any] = command.get("addresses") or {}
        addresses = {name: name for name in given} | {f"{OF_ADDRESSES}{name}": name for name in given}
        asked_text = text
        try:
            asked = read_asked(text)
            text, versions = asked.sql, asked.versions
            known = {name: name for name in there} | {f"{OF_TABLES}{name}": name for name in there}
            known |= {f"{about}{name}": name for about in ABOUT_TABLES for name in there}
            known |= {OF_MODELS: OF_MODELS, LISTING: LISTING}
            known |= {past: known[name] for past, (name, _) in versions.items() if name in known}
            # An error lists tables first.
            names = checked_sql(text, dict.fromkeys([*known, *addresses])).relations
        except SqlError as error:
            # A place is of use in the text that was asked, not in a query that stands for that.
            raise PlanError(str(error) if text == asked_text else error.message) from None
        if both := next((name for name in names if name in known and name in addresses), None):
            raise PlanError(
                f"there is a table and an address {both!r}: write `{OF_TABLES}{both}` or `{OF_ADDRESSES}{both}`, in "
                "backticks"
            )
        session = self._spark.newSession()
        frames = {
            name: versions_of_models(session, self._place.models)
            if name == OF_MODELS
            else listing(session, self._place.lake, given)
            if name == LISTING
            else about(session, self._place.lake / known[name])
            if (about := ABOUT_TABLES.get("".join(name.partition(":")[:2])))
            else relation(session, self._place.lake / known[name], versions[name][1] if name in versions else None)
            if name in known
            else self._address(session, addresses[name], str(command.get("credentials") or ""))
            for name in names
        }
        canonical = self._guard.check("sql", text, {name: frame.schema for name, frame in frames.items()})
        for name, frame in frames.items():
            frame.createOrReplaceTempView(quote_identifier(name))
        found = session.sql(canonical)
        if not asked.describes:
            return found
        columns = [(field.name, field.dataType.simpleString().upper()) for field in found.schema]
        return session.createDataFrame(columns, "column STRING, type STRING")

    def _address(self, session: SparkSession, address: str, credentials: str) -> DataFrame:
        options = self._place.options(credentials)
        return session.read.format("enmasse").options(**options, address=address).load()

    def _answer(self, number: str, **fields: Any) -> None:
        answer: dict[str, Any] = {
            "columns": [],
            "rows": [],
            "error": None,
            "truncated": False,
            "warnings": [],
            "file": None,
        }
        self._emit("answer", id=number, **answer | {"busy": False} | fields)


def change(place: Place, wanted: Mapping[str, Any]) -> str:
    """Change a table, or have another version of a model count; return what was done, in words.

    Args:
        place: the place of the space.
        wanted: of a table as ``change_table`` takes it; of a ``model`` its name, and ``version`` or None for the one
            before, or a new one: ``file`` (of ONNX, in Base64), ``features`` and ``output``, and to measure it
            ``heldBack`` (a table) and ``target``.

    Raises:
        EnmasseError: there is no such table or model, or no such version of it.
    """
    if "model" not in wanted:
        return change_table(place.lake, wanted)
    folder = place.models / str(wanted["model"])
    if "file" in wanted:
        content = base64.b64decode(str(wanted["file"]))
        model = import_model(folder, content, [str(one) for one in wanted["features"]], wanted.get("output"))
        told = ""
        if wanted.get("heldBack"):
            from enmasse.pipeline.builtin.held_back import measured  # noqa: PLC0415  # for who asks alone

            found = measured(model, content, place.lake / str(wanted["heldBack"]), str(wanted["target"]))
            model = replace(model, quality=found)
            told = "; measured: " + ", ".join(f"{name} {value:g}" for name, value in found.items())
        made = Models(folder).add(model, lambda version: saved(content, version), KEPT)
        return f"version {made.version} counts, and takes {', '.join(made.features)} and gives {made.returns}{told}"
    version = wanted.get("version")
    counts = roll_back(folder, None if version is None else str(version))
    return f"version {counts} counts"


def change_table(lake: LakePath, wanted: Mapping[str, Any]) -> str:
    """Compact a table, or have it be as it was; return what was done, in words.

    Args:
        lake: the folder of tables.
        wanted: ``name``, and ``action``: ``optimize``, with ``zOrderBy`` (columns) or without, or ``restore`` with
            ``version`` or ``at``.

    Raises:
        EnmasseError: there is no such table, or no such version of it.
    """
    name = str(wanted.get("name"))
    if name not in tables(lake):
        raise PlanError(f"there is no table {name!r} in the lake; there are {', '.join(tables(lake)) or 'none'}")
    if wanted.get("action") == "optimize":
        columns = [str(column) for column in wanted.get("zOrderBy") or ()]
        there = [column for column, _ in facts(lake / name).columns if column not in facts(lake / name).partition_by]
        if missing := next((column for column in columns if column not in there), None):
            raise PlanError(f"zOrderBy: expected columns of {', '.join(there)}, got {missing!r}")
        if problem := next(filter(None, map(z_order_problem, columns)), None):
            raise PlanError(f"zOrderBy: {problem}")
        done = str(compact(lake / name))
        if columns:
            done += f"; {order_rows(lake / name, columns, bytes_at_once=None)} were put in order"
        return done
    at, version = wanted.get("at"), wanted.get("version")
    try:
        moment = None if at is None else datetime.fromisoformat(str(at))
    except ValueError:
        raise PlanError(f"at: expected a moment such as 2026-01-31T12:00:00Z, got {at!r}") from None
    if moment is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return restore(lake / name, int(version or 0) if moment is None else moment)


def listing(spark: SparkSession, lake: LakePath, addresses: Mapping[str, Any]) -> DataFrame:
    """Return the tables of a lake, and then the addresses that may be asked, each with what it is."""
    every = _tables(lake, MAX_ROWS)["rows"]
    rows = [(name, "table", form, rows, size, files) for name, _, rows, size, form, files in every]
    rows += [(name, facts["type"], None, None, None, None) for name, facts in sorted(addresses.items())]
    schema = "name STRING, kind STRING, format STRING, rows BIGINT, bytes BIGINT, files BIGINT"
    return spark.createDataFrame(rows, schema)


def versions_of_models(spark: SparkSession, folder: Path) -> DataFrame:
    """Return all versions of all models of a space, with their quality, and which ones count."""
    rows = []
    for model in sorted(folder.iterdir() if folder.is_dir() else ()):
        models = Models(model)
        for version in reversed(models.versions()):
            found = models.read(version)
            counts = version == models.current()
            at = datetime.fromisoformat(found.trained_at)
            rows.append((found.name, version, counts, found.kind, found.rows, at, dict(found.quality)))
    schema = (
        "model STRING, version STRING, counts BOOLEAN, kind STRING, rows BIGINT, trained_at TIMESTAMP, "
        "quality MAP<STRING, DOUBLE>"
    )
    return spark.createDataFrame(rows, schema)


def as_rows(schema: StructType, found: Iterable[Row], limit: int) -> dict[str, Any]:
    """Return the answer with its rows in the form of JSON.

    Args:
        schema: the columns.
        found: the rows, by ``as_numbers``.
        limit: the number of rows that are wanted.
    """
    columns = [{"name": field.name, "type": field.dataType.simpleString().upper()} for field in schema.fields]
    kept, more = _bounded(schema, found, limit)
    return {"columns": columns, "rows": [values for _, values in kept], **more}


def as_file(schema: StructType, found: Iterable[Row], limit: int) -> dict[str, Any]:
    """Return the answer with its rows as a file of Parquet, in Base64; arguments as of ``as_rows``."""
    kept, more = _bounded(schema, found, limit)
    wanted = to_arrow_schema(schema, timezone="UTC")
    if kept:
        rows, numbers = [row for row, _ in kept], cast("StructType", numbers_type(schema))
        table = LocalDataToArrowConversion.convert(rows, numbers, use_large_var_types=False).cast(wanted)
    else:
        table = wanted.empty_table()
    target = io.BytesIO()
    pq.write_table(table, target, compression="zstd")
    return {"file": base64.b64encode(target.getvalue()).decode(), **more}


def _bounded(
    schema: StructType, found: Iterable[Row], limit: int
) -> tuple[list[tuple[Row, list[Any]]], dict[str, Any]]:
    """Return as many rows as an answer may have, each also in its form in JSON, and what else is to be said of them.

    That is, whether there are more, and which columns have moments beyond the years 1 to 9999.
    """
    kept: list[tuple[Row, list[Any]]] = []
    size, is_truncated = 0, False
    far: list[list[str]] = [[] for _ in schema.fields]
    for row in found:
        values = [
            json_value(value, field.dataType, texts)
            for value, field, texts in zip(row, schema.fields, far, strict=True)
        ]
        size += len(json.dumps(values))
        if len(kept) >= limit or size > MAX_BYTES:
            is_truncated = True
            break
        kept.append((row, values))
    warnings = [
        f"{field.name}: {len(texts)} of its moments {'is' if len(texts) == 1 else 'are'} beyond the years 1 to 9999, "
        f"such as {texts[0]}"
        for field, texts in zip(schema.fields, far, strict=True)
        if texts
    ]
    return kept, {"truncated": is_truncated, "warnings": warnings}


def _tables(lake: LakePath, limit: int) -> dict[str, Any]:
    """Return a row for each table: its name, columns, rows, bytes, format and number of files."""
    names = tables(lake)
    rows: list[list[Any]] = []
    for name in names[:limit]:
        try:
            found = facts(lake / name)
        except (EnmasseError, DeltaError, pa.ArrowException, OSError, ValueError):
            # A damaged table is there, and a query of it says what is wrong.
            rows.append([name, *[None] * (len(TABLE_COLUMNS) - 1)])
            continue
        columns = [{"name": column, "type": kind} for column, kind in found.columns]
        rows.append([name, columns, found.rows, found.bytes, found.format, found.files])
    return {"columns": TABLE_COLUMNS, "rows": rows, "truncated": len(names) > limit}


def json_value(value: Any, kind: DataType, far: list[str]) -> Any:  # one line for each type of Spark
    """Return a value of a row in a form that JSON has.

    Moments are RFC 3339 in UTC, those without a zone have none, bytes are text where they are UTF-8 and else
    ``base64:...``, decimals and numbers that JSON lacks are text, structures are objects.

    Args:
        value: the value, by ``as_numbers``.
        kind: its type.
        far: is extended by the moments beyond the years 1 to 9999 that it holds.
    """
    if isinstance(kind, TimestampType | TimestampNTZType | DateType) and value is not None:
        is_date, has_zone = isinstance(kind, DateType), isinstance(kind, TimestampType)
        text = date_text(value) if is_date else moment_text(value, has_zone=has_zone)
        if is_far(text):
            far.append(text)
        return text
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text_of(bytes(value))
    if isinstance(kind, StructType):
        pairs = zip(kind.fields, value, strict=True)
        return {field.name: json_value(item, field.dataType, far) for field, item in pairs}
    if isinstance(kind, MapType):
        return {
            str(json_value(name, kind.keyType, far)): json_value(item, kind.valueType, far)
            for name, item in value.items()
        }
    if isinstance(kind, ArrayType):
        return [json_value(item, kind.elementType, far) for item in value]
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def _text_of(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(content).decode()
