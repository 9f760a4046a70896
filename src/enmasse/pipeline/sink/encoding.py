"""Rows as messages in the wire format of schema registries: the content as the schema of a subject has it.

Rules:
1. The fields of the schema are the content; of the other columns only those stay that every sink knows.
2. A row that does not fit goes to the address for bad records, as JSON and with the reason; without one the batch
   fails.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pyarrow as pa
from fastavro.validation import ValidationError
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from enmasse.model.sql.avro import AvroSchemaError, parse_avro
from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.decoding.registered import json_check
from enmasse.pipeline.errors import PlanError, RowRefusedError
from enmasse.pipeline.naming import by_any_name
from enmasse.pipeline.registry_copy import RegisteredSchema
from enmasse.pipeline.sink.json_rows import json_of, plain_json, values_of
from enmasse.pipeline.workers.settling import settle
from enmasse.schemas.wire_format import header

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Encode = Callable[[dict[str, Any]], bytes]

REASON: Final = "enmasse-reason"
CARRIED: Final = ("key", "subject", "properties", "headers", "content_type", "message_id", "ttl", "durable")
"""Columns of a message beside its content and its address."""


_INTERVAL: Final = re.compile(r'(?<=[tT]ype":)"interval[^"]*"')
"""A type in Spark's JSON of columns."""


class _RowProblem(ValueError):  # noqa: N818  # it becomes a message, or another error
    pass


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of rows as messages.

    Attributes:
        subject: the subject of the schema.
        schema: as it is registered.
        bad_records: the address of rows that do not fit; None: there are none.
        with_id: whether messages begin with the schema's id.
    """

    subject: str
    schema: RegisteredSchema
    bad_records: str | None = None
    with_id: bool = True

    def encoded(self, frame: DataFrame, *, with_address: bool) -> DataFrame:
        """Return rows as messages.

        Args:
            frame: rows.
            with_address: whether a column says where each goes.

        Raises:
            PlanError: its columns are not those of the schema.
        """
        content = self._content(frame.columns, with_address=with_address)
        frame = _with_text_of_intervals(frame, content)
        types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        carried = [name for name in frame.columns if name not in content]
        made = {name: types[name] for name in carried}
        if self.bad_records is not None:
            made.setdefault("address", "string")
            made.setdefault("properties", "map<string,string>")
        out = ", ".join(["value BINARY", *(f"{quote_identifier(name)} {of}" for name, of in made.items())])
        return by_any_name(frame).mapInArrow(_Stage(self, content, carried, list(made)), out)

    def _content(self, columns: Sequence[str], *, with_address: bool) -> list[str]:
        carried = {*CARRIED, *(("address",) if with_address else ())}
        where = f"the schema of subject '{self.subject}'"
        if self.schema.type == "JSON":
            plain = json.loads(self.schema.text)
            named = plain.get("properties", {}) if isinstance(plain, dict) else {}
            return [name for name in columns if name in named or name not in carried]
        if self.schema.type == "PROTOBUF":
            raise PlanError(f"{where} is of Protobuf, and a sink writes Avro or JSON")
        try:
            fields = parse_avro(self.schema.text)["fields"]
        except AvroSchemaError as error:
            raise PlanError(f"{where} is none of rows: {error}") from None
        names = {field["name"] for field in fields}
        for name in columns:
            if name not in names and name not in carried:
                there = ", ".join(field["name"] for field in fields)
                raise PlanError(f"{where} has no field for the column '{name}'; it has {there}")
        for field in fields:
            if field["name"] not in columns and "default" not in field:
                there = ", ".join(columns)
                raise PlanError(f"{where} needs a column '{field['name']}'; the columns are {there}")
        return [name for name in columns if name in names]

    def encoder(self) -> Encode:
        """Return the function that encodes the fields of a row; it raises _RowProblem."""
        before = header(self.schema.id) if self.with_id else b""
        if self.schema.type == "JSON":
            check, plain = json_check(self.schema), json.loads(self.schema.text)
            required = plain.get("required", ()) if isinstance(plain, dict) else ()

            def encode_json(row: dict[str, Any]) -> bytes:
                document = plain_json(row) | {name: None for name in required if row.get(name, "") is None}
                if (problem := check(document)) is not None:
                    raise _RowProblem(problem)
                try:
                    return before + json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
                except (ValueError, TypeError) as error:
                    raise _RowProblem(str(error)) from None

            return encode_json
        schema = parse_avro(self.schema.text)

        def encode_avro(row: dict[str, Any]) -> bytes:
            file = io.BytesIO()
            try:
                fastavro.validate(row, schema)
                fastavro.schemaless_writer(file, schema, row)
            except ValidationError as error:
                raise _RowProblem("; ".join(str(item) for item in error.errors)) from None
            except (ValueError, TypeError, LookupError, OverflowError, ArithmeticError, AttributeError) as error:
                raise _RowProblem(f"{type(error).__name__}: {error}") from None
            return before + file.getvalue()

        return encode_avro


def _with_text_of_intervals(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return rows in which some columns have the text of intervals instead: neither Avro nor JSON has these."""
    was = frame.select(*map(quote_identifier, names)).schema
    texts = StructType.fromJson(json.loads(_INTERVAL.sub('"string"', was.json())))
    changed = [field for field in texts if field.dataType != was[field.name].dataType]
    return frame.withColumns({one.name: F.col(quote_identifier(one.name)).cast(one.dataType) for one in changed})


class _Stage:
    """Encodes rows batch by batch; the function for ``mapInArrow``."""

    def __init__(self, encoding: Encoding, content: list[str], carried: list[str], out: list[str]) -> None:
        self._encoding = encoding
        self._content = content
        self._carried = carried
        self._out = out

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        encode = self._encoding.encoder()
        for batch in batches:
            yield self._batch(batch, encode)

    def _batch(self, batch: pa.RecordBatch, encode: Encode) -> pa.RecordBatch:
        content = [values_of(batch.column(name)) for name in self._content]
        values: list[bytes] = []
        problems: list[str | None] = []
        for fields in zip(*content, strict=True) if content else [()] * batch.num_rows:
            row = dict(zip(self._content, fields, strict=True))
            try:
                values.append(encode(row))
                problems.append(None)
            except _RowProblem as problem:
                values.append(self._refused(row, str(problem)))
                problems.append(str(problem)[:1000])
        columns: dict[str, Any] = {"value": pa.array(values, pa.binary())}
        columns |= {name: batch.column(name) for name in self._carried}
        if self._encoding.bad_records is not None:
            self._direct(columns, problems)
        return pa.RecordBatch.from_pydict({name: columns[name] for name in ("value", *self._out)})

    def _refused(self, row: dict[str, Any], problem: str) -> bytes:
        encoding = self._encoding
        if encoding.bad_records is None:
            raise RowRefusedError(
                f"a row does not fit schema {encoding.schema.id} of subject '{encoding.subject}': {problem[:300]}; "
                "badRecords of the sink names an address for such rows"
            )
        return json_of(row).encode()

    def _direct(self, columns: dict[str, Any], problems: list[str | None]) -> None:
        """Have rows that do not fit go to the address for bad records, with the reason."""
        to = self._encoding.bad_records
        was = columns["address"].to_pylist() if "address" in columns else [None] * len(problems)
        there = [place if problem is None else to for place, problem in zip(was, problems, strict=True)]
        columns["address"] = pa.array(there, pa.string())
        of = pa.map_(pa.string(), pa.string())
        if "properties" not in columns:
            columns["properties"] = pa.array([None if why is None else [(REASON, why)] for why in problems], of)
        elif columns["properties"].type == of:
            kept = columns["properties"].to_pylist()
            columns["properties"] = pa.array(
                [
                    pairs if why is None else [*(pairs or ()), (REASON, why)]
                    for pairs, why in zip(kept, problems, strict=True)
                ],
                of,
            )
