"""Messages of ``enmasse pipeline test``: as a file says them in JSON, and as they are with registered schemas."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from enmasse.cli.errors import UsageError
from enmasse.model.schema.schema import Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec


class GivenMessage(Model):
    """A message, by its body as JSON or as a text."""

    json_: Any = Field(default=None, alias="json")
    text: str | None = None
    key: str | None = None
    properties: dict[str, Any] = Field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """Its bytes."""
        if self.text is not None:
            return self.text.encode()
        return json.dumps(self.json_, default=methodcaller("isoformat")).encode()  # YAML has moments

    @property
    def readable(self) -> str:
        """What it says, as ``readable_body`` has it."""
        return readable(self.json_) if self.text is None else readable_body(self.body)


class MessageSchemas:
    """The schemas by which a pipeline reads and writes messages.

    Args:
        spec: the declaration of the pipeline.
        versions: of its subjects, as the schema registry lists them.
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
            message: as it is given.
            address: where it goes.
            subject: with the schema; None: that of the source which reads the address, if it has one.

        Raises:
            UsageError: there is no such schema, or the message does not fit it.
        """
        registry = self._used.get(address)
        subject = subject or (registry.subject if registry is not None else None)
        if message.text is not None or subject is None:
            return message.body
        from enmasse.pipeline.sink.encoding import Encoding  # noqa: PLC0415
        from enmasse.schemas.wire_format import header  # noqa: PLC0415

        schema = self._subjects.get(subject)
        if schema is None:
            raise UsageError(f"--schema: name the file with the schema of the subject, as {subject}={subject}.avsc")
        with_id = registry is None or registry.wire_format
        if schema.type == "JSON":
            return (header(schema.id) if with_id else b"") + message.body
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


def readable_body(body: bytes) -> str:
    """Return what a body says: JSON in one form, or its text."""
    try:
        return readable(json.loads(body))
    except ValueError:
        return body.decode(errors="replace")


_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")


def readable(value: Any) -> str:
    """Return a value as JSON with its keys in order; a moment is the same however it is written."""
    return json.dumps(_with_moments(value), sort_keys=True, ensure_ascii=False, default=str)


def _with_moments(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_moments(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_moments(one) for one in value]
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        with suppress(ValueError):  # there is no such day
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    return value
