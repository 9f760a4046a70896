"""The stage in which Spark's Python workers decode: columns of messages in, columns of their content out.

Rules:
1. Every message gives at least one row: one that cannot be decoded gives one with the reason and its bytes.
2. Nothing that a message holds ends the query, even an unforeseen error; where the schema that it names cannot be
   looked for, it is read later.
3. A batch out has about ``ROWS`` rows at most, however many a message gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from enmasse.model.sql.ddl import Column
from enmasse.model.sql.message_columns import PRESENT
from enmasse.model.sql.message_schema import MessageFormat, schema_columns
from enmasse.pipeline.decoding.json_documents import VALUES, json_problem, read_json
from enmasse.pipeline.decoding.json_rows import rows_reader
from enmasse.pipeline.decoding.shaping import BETWEEN_PROBLEMS, RecordProblem, shaper
from enmasse.pipeline.errors import RegistryAwayError
from enmasse.pipeline.source.columns import arrow_type
from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from enmasse.pipeline.decoding.registered import Registered

ROWS: Final = 10_000
"""Spark's own size of a batch."""

_NOTHING: Final[Mapping[str, Any]] = {}

Read = Callable[[bytes, float], list[Any]]
"""Content and the moment of acceptance in seconds, to records; raises RecordProblem."""


def records_reader(message_format: MessageFormat, schema: str | None) -> Read:
    """Return the reader of messages of a format. Modules that only one format needs are imported with it."""
    if message_format == "json":
        return lambda content, _: [read_json(content)]
    if message_format == "cbor":
        from enmasse.pipeline.decoding.cbor import read_cbor  # noqa: PLC0415

        return lambda content, _: [read_cbor(content)]
    if message_format == "avro":
        from enmasse.pipeline.decoding.avro import avro_reader  # noqa: PLC0415

        read_avro = avro_reader(schema or "")
        return lambda content, _: [read_avro(content)]
    if message_format == "protobuf":
        from enmasse.pipeline.decoding.protobuf import protobuf_reader  # noqa: PLC0415

        read_protobuf = protobuf_reader(schema or "")
        return lambda content, _: [read_protobuf(content)]
    from enmasse.pipeline.decoding.senml import read_senml  # noqa: PLC0415

    return read_senml


def _with_values_alone(read: Read) -> Read:
    """Return a reader of records without what they do not have; those of SenML have all columns."""

    def read_values(content: bytes, accepted_s: float) -> list[Any]:
        records = read(content, accepted_s)
        return [{name: value for name, value in record.items() if value is not None} for record in records]

    return read_values


class ArrowDecoding:
    """The function for ``mapInArrow``.

    Args:
        message_format: ``json``, ``cbor``, ``avro``, ``protobuf`` or ``senml``.
        schema: as for ``schema_columns``.
        carried: columns that go along as they are, after those of the schema. The batches have them and ``value``,
            and ``_timestamp`` among them if it is to be known.
        registered: instead of the schema: how messages are read that name theirs.
        with_present: whether rows have the column ``PRESENT``.
    """

    def __init__(
        self,
        message_format: MessageFormat,
        schema: str | None,
        carried: Sequence[str],
        registered: Registered | None = None,
        *,
        with_present: bool = False,
    ) -> None:
        self._registered = registered
        self._format = message_format
        self._schema = schema
        self.carried = tuple(carried)
        self.with_present = with_present

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode; made once for a task, for schemas are parsed here."""
        settle()
        if self._registered is not None:
            columns, read = self._registered.columns(), self._registered.reader()
        else:
            columns = schema_columns(self._format, self._schema)
            read = records_reader(self._format, self._schema)
            if self.with_present and self._format == "senml":
                read = _with_values_alone(read)
        shape, read_row = shaper(columns), None
        if self._format == "json":
            shape = shaper(columns, VALUES, json_problem)
            if self._registered is None and not self.with_present:
                read_row = rows_reader(columns)
        for batch in batches:
            out = _Rows(batch, columns, self.carried, with_present=self.with_present)
            yield from _decode(batch, out, read, shape, read_row)


def _decode(
    batch: pa.RecordBatch,
    out: _Rows,
    read: Read,
    shape: Callable[[Any], list[Any]],
    read_row: Callable[[bytes], list[Any] | None] | None,
) -> Iterator[pa.RecordBatch]:
    values = batch.column("value").to_pylist()
    for index, (content, accepted_s) in enumerate(zip(values, _moments(batch), strict=True)):
        if read_row is not None and (row := read_row(content or b"")) is not None:
            out.good(index, row)
            if len(out) >= ROWS:
                yield out.batch()
            continue
        records: list[Any] = []
        try:
            records = read(content or b"", accepted_s)
            rows = [shape(record) for record in records]
        except RecordProblem as problem:
            out.bad(
                index, problem.problems, problem.row, records[0] if len(records) == 1 and problem.row else _NOTHING
            )
        except RegistryAwayError:
            raise
        except Exception as error:  # noqa: BLE001  # one message never ends a query
            out.bad(index, (f"{type(error).__name__}: {error}",))
        else:
            for record, row in zip(records, rows, strict=True):
                out.good(index, row, record)
                if len(out) >= ROWS:
                    yield out.batch()
    if len(out):
        yield out.batch()


def _moments(batch: pa.RecordBatch) -> list[float]:
    if "_timestamp" not in batch.schema.names:
        return [0.0] * batch.num_rows
    micros = batch.column("_timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return [(value or 0) / 1_000_000 for value in micros.to_pylist()]


class _Rows:
    """Rows on their way out."""

    def __init__(
        self, batch: pa.RecordBatch, columns: Sequence[Column], carried: Sequence[str], *, with_present: bool
    ) -> None:
        self._batch = batch
        self._with_present = with_present
        self._columns = columns
        self._carried = carried
        self._begin()

    def _begin(self) -> None:
        self._rows: list[list[Any]] = []
        self._indices: list[int] = []
        self._problems: list[str | None] = []
        self._present: list[list[str]] = []

    def __len__(self) -> int:
        return len(self._indices)

    def good(self, index: int, row: list[Any], record: Mapping[str, Any] = _NOTHING) -> None:
        self._rows.append(row)
        self._indices.append(index)
        self._problems.append(None)
        if self._with_present:
            self._present.append([column.name for column in self._columns if column.name in record])

    def bad(
        self, index: int, problems: Sequence[str], row: Sequence[Any] = (), record: Mapping[str, Any] = _NOTHING
    ) -> None:
        self.good(index, list(row) or [None] * len(self._columns), record)
        self._problems[-1] = BETWEEN_PROBLEMS.join(map(_one_problem, problems))

    def batch(self) -> pa.RecordBatch:
        """Return the rows so far, which are forgotten."""
        arrays = [
            self._array(column, list(values))
            for column, values in zip(self._columns, zip(*self._rows, strict=True), strict=True)
        ]
        indices = pa.array(self._indices, pa.int32())
        problems = pa.array(self._problems, pa.string())
        # Not the bytes of good messages: a pack of many records would be there as often.
        of_bad = pa.array(
            [
                None if problem is None else index
                for index, problem in zip(self._indices, self._problems, strict=True)
            ],
            pa.int32(),
        )
        bad = self._batch.column("value").take(of_bad)
        carried = [self._batch.column(name).take(indices) for name in self._carried]
        present = {PRESENT: pa.array(self._present, pa.list_(pa.string()))} if self._with_present else {}
        names = [*(column.name for column in self._columns), *self._carried, *present, "_problem", "_value"]
        self._begin()
        return pa.RecordBatch.from_arrays([*arrays, *carried, *present.values(), problems, bad], names=names)

    def _array(self, column: Column, values: list[Any]) -> pa.Array:
        of = arrow_type(column.type)
        try:
            return pa.array(values, of)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            for row, value in enumerate(values):
                try:
                    pa.array([value], of)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                    values[row] = None
                    self._problems[row] = _one_problem(f"{column.name}: {error}")
            return pa.array(values, of)


def _one_problem(text: str) -> str:
    return text.replace(BETWEEN_PROBLEMS, ", ").encode(errors="replace").decode()
