"""Messages of ``enmasse pipeline test``: as a file says them in JSON, and as they are with registered schemas."""

from __future__ import annotations

import base64
import json
import math
import re
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from enmasse.cli.errors import UsageError
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import tzinfo
    from typing import Self

    from google.protobuf.descriptor import Descriptor

    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
    from enmasse.model.kinds.pipelines.relations import RegistrySpec
    from enmasse.pipeline.registry_copy import RegisteredSchema


def _decoded(value: Any) -> bytes:
    """Return the bytes of base64; YAML's ``!!binary`` has them already."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise PydanticCustomError("base64", "expected base64") from None


_BODIES: Final = frozenset({"json_", "text", "base64_"})


class GivenMessage(Model):
    """A message, by its body as JSON, as a text, or in base64."""

    json_: Any = Field(default=None, alias="json")
    text: str | None = None
    base64_: Annotated[bytes | None, BeforeValidator(_decoded)] = Field(default=None, alias="base64")
    key: str | None = None
    properties: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_one_body(self) -> Self:
        if len(self.model_fields_set & _BODIES) != 1:
            raise PydanticCustomError("body", "expected one of json, text and base64")
        return self

    @property
    def is_json(self) -> bool:
        """True if it is given as JSON."""
        return "json_" in self.model_fields_set

    @property
    def body(self) -> bytes:
        """Its bytes."""
        if not self.is_json:
            return (self.text or "").encode() if self.base64_ is None else self.base64_
        return json.dumps(self.json_, default=_as_json).encode()

    @property
    def readable(self) -> str:
        """The body, as ``readable_body`` has it."""
        return readable(self.json_) if self.is_json else readable_body(self.body)


def _as_json(value: Any) -> str:
    """Return what YAML has and JSON lacks, as messages have it: moments, and bytes in base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    raise UsageError(f"json: expected what JSON has, moments and bytes, got {describe_value(value)}")


class MessageSchemas:
    """The schemas by which a pipeline reads and writes messages.

    Args:
        spec: the declaration of the pipeline.
        versions: the versions of its subjects, as the schema registry lists them.
    """

    def __init__(self, spec: PipelineSpec, versions: Iterable[Mapping[str, Any]]) -> None:
        # Only who has such messages loads Arrow.
        from enmasse.pipeline.registry_copy import RegisteredSchema  # noqa: PLC0415

        self._subjects = {
            version["subject"]: RegisteredSchema(version["id"], version.get("schemaType", "AVRO"), version["schema"])
            for version in versions
        }
        self._by_id = {schema.id: schema for schema in self._subjects.values()}
        self._used = {sink.address: sink.schema_registry for sink in spec.sinks}
        for source in spec.sources:
            self._used |= dict.fromkeys((source.address, *source.addresses), source.schema_registry)

    def encode(self, message: GivenMessage, address: str, subject: str | None) -> bytes:
        """Return the body of a message for an address, whose JSON is written by a schema.

        Args:
            message: the message as it is given.
            address: the address to which it goes.
            subject: with the schema; None: that of the source which reads the address, if it has one.

        Raises:
            UsageError: there is no such schema, or the message does not fit it.
        """
        registry = self._used.get(address)
        subject = subject or (registry.subject if registry is not None else None)
        if not message.is_json or subject is None:
            return message.body
        from google.protobuf import json_format  # noqa: PLC0415
        from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

        from enmasse.pipeline.sink.encoding import Encoding  # noqa: PLC0415
        from enmasse.schemas.protobuf_schemas import message_path  # noqa: PLC0415
        from enmasse.schemas.wire_format import header  # noqa: PLC0415

        schema = self._subjects.get(subject)
        if schema is None:
            raise UsageError(f"--schema: name the file with the schema of the subject, as {subject}={subject}.avsc")
        with_id = registry is None or registry.wire_format
        if schema.type == "JSON":
            return (header(schema.id) if with_id else b"") + message.body
        if schema.type == "PROTOBUF":
            kind = _message_kind(schema, registry)
            try:
                content = json_format.Parse(message.body, GetMessageClass(kind)()).SerializeToString()
            except (ValueError, json_format.Error) as error:
                raise UsageError(f"given message for {address}: as a message {kind.full_name}: {error}") from None
            return (header(schema.id) + message_path(kind) if with_id else b"") + bytes(content)
        try:
            return Encoding(subject, schema, with_id=with_id).encoder()(message.json_)
        except ValueError as error:
            raise UsageError(f"given message for {address}: by the schema of {subject}: {error}") from None

    def decode(self, body: bytes, address: str) -> str:
        """Return what a message from an address says, read by its schema if it has one."""
        from enmasse.pipeline.decoding.registered import Registered  # noqa: PLC0415
        from enmasse.pipeline.decoding.shaping import RecordProblem  # noqa: PLC0415
        from enmasse.schemas.wire_format import HEADER_BYTES, schema_id_of  # noqa: PLC0415

        schema, content = self._by_id.get(schema_id_of(body) or 0), body[HEADER_BYTES:]
        registry = self._used.get(address)
        if schema is None:
            content = body
            if registry is not None and not registry.wire_format:
                schema = self._subjects.get(registry.subject or "")
        if schema is not None and schema.type == "AVRO":
            read = Registered(Path(), "avro", schema.text, is_subject=True, of_all=schema).reader()
            try:
                return readable(read(content, 0.0)[0])
            except RecordProblem:
                return readable_body(body)
        return readable_body(content)


def _message_kind(schema: RegisteredSchema, registry: RegistrySpec | None) -> Descriptor:
    """Return the message of a schema of Protobuf that a source reads.

    Raises:
        UsageError: there is none.
    """
    from enmasse.schemas.protobuf_schemas import first_message, protobuf_file  # noqa: PLC0415

    file = protobuf_file(schema.text)
    name = registry.message if registry is not None else None
    try:
        found = first_message(file) if name is None else file.pool.FindMessageTypeByName(name)
    except KeyError:
        found = None
    if found is None:
        raise UsageError(f"the schema {file.name} has no message {name or 'at all'}")
    return found


def readable_body(body: bytes) -> str:
    """Return what a body says: JSON in one form, its text, or base64."""
    try:
        return readable(json.loads(body))
    except ValueError:
        return _text_of(body)


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?")


def readable(value: Any, *, zone: tzinfo | None = None) -> str:
    """Return a value as JSON with its keys in order; moments and numbers are the same however they are written.

    Args:
        value: the value, as YAML or JSON has it.
        zone: the zone of moments that have none; None: they are left so.
    """
    return json.dumps(_plain(value, zone), sort_keys=True, ensure_ascii=False, default=str)


def _plain(value: Any, zone: tzinfo | None) -> Any:
    if isinstance(value, dict):
        return {str(_plain(key, zone)): _plain(one, zone) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, zone) for one in value]
    if isinstance(value, bytes):
        return _text_of(value)
    if isinstance(value, float):  # tables have texts of what JSON lacks, and JSON has one kind of numbers
        if not math.isfinite(value):
            return str(value)
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        with suppress(ValueError):  # there is no such day
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        value = value.replace(tzinfo=value.tzinfo or zone)
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    return value


_EXACT: Final = 2.0**53
"""Up to here each whole number is one of its own as a float."""


def _text_of(content: bytes) -> str:
    """Return bytes as answers of queries have them."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(content).decode()
