"""Protobuf: one message in its binary encoding, read by Google's library.

Rules:
1. A field that tells whether it is there is NULL where it is not: those that are ``optional``, of a ``oneof``, of
   proto2, or messages. Another one has its default, for nothing is sent of it then.
2. Fields that the descriptor does not have are left out. One that it has, and that is sent as another type, makes a
   bad message: the library would take it for one that it does not know.
3. A name stands for an enum's number, and the digits for one that an open enum does not have.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from enmasse.model.sql.protobuf import JSON_TYPES, is_map, parse_protobuf, well_known_type
from enmasse.pipeline.decoding.shaping import RecordProblem

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Convert = Callable[[Any], Any]

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS: Final = 1_000_000_000
_MAX_DURATION_S: Final = 315_576_000_000
_EXACT: Final = 2.0**53
_LEFT_OUT: Final = 500
"""Characters of a list of names."""
_ENUM, _GROUP, _MESSAGE = 14, 10, 11
_WIRE: Final = ("a varint", "64 bits", "bytes with their length", "a group", "the end of a group", "32 bits")


def protobuf_reader(schema_text: str) -> Callable[[bytes], dict[str, Any]]:
    """Return the reader of messages of one schema; it raises RecordProblem.

    Raises:
        ProtobufSchemaError: the text is no schema.
    """
    descriptor = parse_protobuf(schema_text)
    kind = GetMessageClass(descriptor)
    record = _record(descriptor, "")
    names = ", ".join(field.name for field in descriptor.fields)[:_LEFT_OUT]

    def read(content: bytes) -> dict[str, Any]:
        message = kind()
        try:
            message.ParseFromString(content)
        except DecodeError as error:
            raise RecordProblem(f"it is no {descriptor.full_name}: {_reason(error)}") from error
        missing = [] if message.IsInitialized() else message.FindInitializationErrors()
        if missing:
            raise RecordProblem(*(f"{path}: required" for path in missing))
        made: dict[str, Any] = record(message)
        # A default that was sent is not in the message any more, which is then shorter; what is not known is.
        if content and not message.ListFields() and message.ByteSize() == len(content):
            raise RecordProblem(f"it does not have any field of {names}")
        return made

    return read


def _reason(error: Exception) -> str:
    """Return why a message is none: the library's words, without the name of the type before them."""
    return str(error).partition("': ")[2] or "its bytes are no fields"


def _record(descriptor: Descriptor, path: str) -> Convert:
    """Return the function that makes a map of a message."""
    fields: dict[int, tuple[str, Convert]] = {}
    defaults: dict[str, Any] = {}
    for field in descriptor.fields:
        place = f"{path}.{field.name}".strip(".")
        convert = _field(field, place)
        fields[field.number] = field.name, convert
        if field.is_repeated:
            defaults[field.name] = {} if is_map(field) else ()
        elif not field.has_presence:
            defaults[field.name] = convert(field.default_value)

    def record(message: Any) -> dict[str, Any]:
        _check(message, path)
        made = dict(defaults)
        for field, value in message.ListFields():
            if not field.is_extension:
                name, convert = fields[field.number]
                made[name] = convert(value)
        return made

    return record


def _check(message: Any, path: str) -> None:
    """Raise RecordProblem for a field that was sent as another type than its own."""
    for odd in UnknownFieldSet(message):
        field = message.DESCRIPTOR.fields_by_number.get(odd.field_number)
        if field is not None:
            raise RecordProblem(f"{path}.{field.name}".strip(".") + f": {_misfit(field, odd)}")


def _misfit(field: FieldDescriptor, odd: Any) -> str:
    """Return why what was sent of a field is none of it."""
    if field.type == _ENUM and odd.wire_type == 0 and not is_map(field):
        return f"{odd.data} is none of {field.enum_type.full_name}"
    if is_map(field):
        return "expected a key and a value of its types, got others"
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"expected {kind}, got {_WIRE[odd.wire_type]}, which is another type"


def _field(field: FieldDescriptor, path: str) -> Convert:
    if is_map(field):
        entry = field.message_type.fields_by_name
        key, item = _one(entry["key"], f"{path} key"), _one(entry["value"], f"{path}[]")
        if entry["value"].type in (_GROUP, _MESSAGE, _ENUM):
            return lambda entries: {key(name): item(entries[name]) for name in entries}
        return dict
    item = _one(field, f"{path}[]" if field.is_repeated else path)
    return (lambda items: [item(one) for one in items]) if field.is_repeated else item


def _one(field: FieldDescriptor, path: str) -> Convert:
    if field.type == _ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    if field.type not in (_GROUP, _MESSAGE):
        return lambda value: value
    kind = field.message_type
    if well_known_type(kind) is not None:
        return _well_known(kind.full_name, path)
    return _record(kind, path) if kind.fields else lambda _: True


def _well_known(name: str, path: str) -> Convert:
    if name in JSON_TYPES:
        return lambda message: _json(message, path)
    made = {"google.protobuf.Timestamp": _moment, "google.protobuf.Duration": _seconds}.get(name)

    def convert(message: Any) -> Any:
        _check(message, path)
        return message.value if made is None else made(message, path)

    return convert


def _moment(message: Any, path: str) -> datetime:
    seconds, nanos = message.seconds, message.nanos
    try:
        if 0 <= nanos < _NANOS:
            return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        pass
    raise RecordProblem(f"{path}: expected TIMESTAMP, got {seconds} seconds and {nanos} nanoseconds")


def _seconds(message: Any, path: str) -> Decimal:
    seconds, nanos = message.seconds, message.nanos
    if abs(seconds) > _MAX_DURATION_S or abs(nanos) >= _NANOS or seconds * nanos < 0:
        raise RecordProblem(f"{path}: expected a duration, got {seconds} seconds and {nanos} nanoseconds")
    return Decimal(seconds) + Decimal(nanos).scaleb(-9)


def _json(message: Any, path: str) -> str:
    plain = _plain(message, path)
    try:
        return _ENCODER.encode(plain)
    except ValueError as error:
        raise RecordProblem(f"{path}: it is no JSON: {error}") from error


def _plain(message: Any, path: str) -> Any:
    """Return what a Struct, a ListValue or a Value stands for; whole numbers without a point."""
    _check(message, path)
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Struct":
        return {key: _plain(value, path) for key, value in message.fields.items()}
    if name == "google.protobuf.ListValue":
        return [_plain(value, path) for value in message.values]
    kind = message.WhichOneof("kind")
    if kind in ("struct_value", "list_value"):
        return _plain(getattr(message, kind), path)
    if kind in (None, "null_value"):
        return None
    value = getattr(message, kind)
    return int(value) if kind == "number_value" and value.is_integer() and abs(value) < _EXACT else value
