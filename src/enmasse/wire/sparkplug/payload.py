"""Payloads of Sparkplug B: protocol buffers with metrics, and the values of their types.

Rules:
1. The messages are those of ``org.eclipse.tahu.protobuf``; their field numbers are the wire format.
2. A value means what its metric's datatype says, which may be in the birth alone: so a metric is read first, and its
   value when its type is known.
3. Whole numbers with a sign are two's complement in fields without one. Encoders differ in how wide they make them:
   8, 16, 32 and 64 bits are read alike, and a number that none of these gives is an error.
4. Depth, metrics and memory are bounded by the size of a payload, and by ``MAX_METRICS`` and ``MAX_LEVELS``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from google.protobuf.message import Message

MAX_METRICS: Final = 100_000
"""Metrics of a payload at most: more than a message of customary size has room for."""

MAX_LEVELS: Final = 32
"""Templates within templates, and property sets within such, at most."""


class SparkplugError(ValueError):
    """Raised for what is no payload of Sparkplug B; the message names the place."""


class DataType(IntEnum):
    """The types of values."""

    Unknown = 0
    Int8 = 1
    Int16 = 2
    Int32 = 3
    Int64 = 4
    UInt8 = 5
    UInt16 = 6
    UInt32 = 7
    UInt64 = 8
    Float = 9
    Double = 10
    Boolean = 11
    String = 12
    DateTime = 13
    Text = 14
    UUID = 15
    DataSet = 16
    Bytes = 17
    File = 18
    Template = 19
    PropertySet = 20
    PropertySetList = 21
    Int8Array = 22
    Int16Array = 23
    Int32Array = 24
    Int64Array = 25
    UInt8Array = 26
    UInt16Array = 27
    UInt32Array = 28
    UInt64Array = 29
    FloatArray = 30
    DoubleArray = 31
    BooleanArray = 32
    StringArray = 33
    DateTimeArray = 34


_MESSAGES: Final = {
    "Payload": "timestamp=1:uint64 metrics=2:Metric* seq=3:uint64 uuid=4:string body=5:bytes",
    "Metric": "name=1:string alias=2:uint64 timestamp=3:uint64 datatype=4:uint32 is_historical=5:bool"
    " is_transient=6:bool is_null=7:bool properties=9:PropertySet int_value=10:uint32| long_value=11:uint64|"
    " float_value=12:float| double_value=13:double| boolean_value=14:bool| string_value=15:string|"
    " bytes_value=16:bytes| dataset_value=17:DataSet| template_value=18:Template|",
    "PropertySet": "keys=1:string* values=2:PropertyValue*",
    "PropertySetList": "propertyset=1:PropertySet*",
    "PropertyValue": "type=1:uint32 is_null=2:bool int_value=3:uint32| long_value=4:uint64| float_value=5:float|"
    " double_value=6:double| boolean_value=7:bool| string_value=8:string| propertyset_value=9:PropertySet|"
    " propertysets_value=10:PropertySetList|",
    "DataSet": "num_of_columns=1:uint64 columns=2:string* types=3:uint32* rows=4:Row*",
    "Row": "elements=1:DataSetValue*",
    "DataSetValue": "int_value=1:uint32| long_value=2:uint64| float_value=3:float| double_value=4:double|"
    " boolean_value=5:bool| string_value=6:string|",
    "Template": "version=1:string metrics=2:Metric* parameters=3:Parameter* template_ref=4:string"
    " is_definition=5:bool",
    "Parameter": "name=1:string type=2:uint32 int_value=3:uint32| long_value=4:uint64| float_value=5:float|"
    " double_value=6:double| boolean_value=7:bool| string_value=8:string|",
}
"""The fields of each message; a star is for repeated ones, a bar for those of the one value."""

_SCALARS: Final = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "float": descriptor_pb2.FieldDescriptorProto.TYPE_FLOAT,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
}
_PACKAGE: Final = "sparkplug"


@cache
def _payload_class() -> type[Message]:
    # In this edition a field that is not set is told from one that is zero, and texts have to be UTF-8.
    file = descriptor_pb2.FileDescriptorProto(name="sparkplug_b.proto", package=_PACKAGE, syntax="editions")
    file.edition = descriptor_pb2.EDITION_2023
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if "|" in fields:
            message.oneof_decl.add(name="value")
        for described in fields.split():
            field, _, rest = described.partition("=")
            number, _, kind = rest.partition(":")
            item = message.field.add(name=field, number=int(number), label=1 + 2 * kind.endswith("*"))
            if kind.endswith("|"):
                item.oneof_index = 0
            kind = kind.rstrip("*|")
            if kind in _SCALARS:
                item.type = _SCALARS[kind]
            else:
                item.type, item.type_name = item.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Payload"))
    return found


@dataclass(slots=True)
class Metric:
    """A metric of a payload.

    Attributes:
        name: its name; None: it is told by its alias alone.
        alias: the number that stands for its name.
        datatype: its type; None: only the birth says so.
        timestamp: the moment of its value, in milliseconds since 1970.
        is_historical: True if it is told late, and is no present value.
        is_transient: True if it is not meant to be stored.
        is_null: True if it has no value.
        properties: what is said of it, such as its unit.
    """

    name: str | None
    alias: int | None
    datatype: int | None
    timestamp: int | None
    is_historical: bool
    is_transient: bool
    is_null: bool
    properties: dict[str, Any] | None
    _message: Any

    @property
    def called(self) -> str:
        """The name, or the alias in the place of one that is not known."""
        return self.name if self.name is not None else f"alias {self.alias}"

    def value(self) -> Any:
        """Return the value by the datatype; without one, as it stands in the payload.

        Whole numbers, times as milliseconds since 1970 included, numbers, texts, bytes, true and false; arrays are
        lists; a DataSet is a map of ``columns``, ``types`` and ``rows``, a Template one of its parts.

        Raises:
            SparkplugError: the value is none of the type.
        """
        if self.is_null:
            return None
        return _value_of(self._message, self.datatype, f"metric {self.called}", 0)


@dataclass(slots=True)
class Payload:
    """A payload.

    Attributes:
        timestamp: the moment when it was sent, in milliseconds since 1970.
        metrics: in order.
        seq: its number in the edge node's sequence, 0 to 255.
        uuid: names its schema where ``body`` has one.
        body: bytes beside the metrics.
    """

    timestamp: int | None
    metrics: list[Metric]
    seq: int | None
    uuid: str | None
    body: bytes | None


def read_payload(data: bytes) -> Payload:
    """Return what the bytes of a message say.

    Raises:
        SparkplugError: they are no payload.
    """
    try:
        message: Any = _payload_class().FromString(data)
        if len(message.metrics) > MAX_METRICS:
            raise SparkplugError(f"{len(message.metrics)} metrics: expected at most {MAX_METRICS}")
        seq = _given(message, "seq")
        if seq is not None and seq > 255:
            raise SparkplugError(f"seq: expected 0 to 255, got {seq}")
        return Payload(
            timestamp=_given(message, "timestamp"),
            metrics=[_metric(metric, 0) for metric in message.metrics],
            seq=seq,
            uuid=_given(message, "uuid"),
            body=_given(message, "body"),
        )
    except DecodeError as error:
        reason = str(error).partition(": ")[2] or "its bytes are no such protocol buffer"
        raise SparkplugError(f"it is no payload of Sparkplug B: {reason}") from None


def _given(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _metric(message: Any, level: int) -> Metric:
    metric = Metric(
        name=message.name if message.HasField("name") else None,
        alias=message.alias if message.HasField("alias") else None,
        datatype=message.datatype if message.HasField("datatype") else None,
        timestamp=message.timestamp if message.HasField("timestamp") else None,
        is_historical=message.is_historical,
        is_transient=message.is_transient,
        is_null=message.is_null or message.WhichOneof("value") is None,
        properties=None,
        _message=message,
    )
    if metric.name is None and metric.alias is None:
        raise SparkplugError("a metric has neither name nor alias")
    if message.HasField("properties"):
        metric.properties = _properties(message.properties, f"metric {metric.called}", level)
    return metric


# Values

_BITS: Final = {
    DataType.Int8: 8,
    DataType.Int16: 16,
    DataType.Int32: 32,
    DataType.Int64: 64,
    DataType.UInt8: 8,
    DataType.UInt16: 16,
    DataType.UInt32: 32,
    DataType.UInt64: 64,
    DataType.DateTime: 64,
}
_SIGNED: Final = frozenset((DataType.Int8, DataType.Int16, DataType.Int32, DataType.Int64))
_WHOLE: Final = frozenset(("int_value", "long_value"))
_REAL: Final = frozenset(("float_value", "double_value"))
_FIELDS: Final = (
    dict.fromkeys(_BITS, _WHOLE)
    | dict.fromkeys((DataType.Float, DataType.Double), _REAL)
    | dict.fromkeys((DataType.String, DataType.Text, DataType.UUID), frozenset(("string_value",)))
    | dict.fromkeys((DataType.Bytes, DataType.File), frozenset(("bytes_value",)))
    | dict.fromkeys([kind for kind in DataType if kind.name.endswith("Array")], frozenset(("bytes_value",)))
    | {
        DataType.Boolean: frozenset(("boolean_value",)),
        DataType.DataSet: frozenset(("dataset_value",)),
        DataType.Template: frozenset(("template_value",)),
        DataType.PropertySet: frozenset(("propertyset_value",)),
        DataType.PropertySetList: frozenset(("propertysets_value",)),
    }
)
"""The fields that may hold a value of each type. Encoders differ in whether 32 bits are an int or a long."""

_WIDTHS: Final = (8, 16, 32, 64)
_ARRAYS: Final = {
    DataType.Int8Array: "b",
    DataType.Int16Array: "h",
    DataType.Int32Array: "i",
    DataType.Int64Array: "q",
    DataType.UInt8Array: "B",
    DataType.UInt16Array: "H",
    DataType.UInt32Array: "I",
    DataType.UInt64Array: "Q",
    DataType.FloatArray: "f",
    DataType.DoubleArray: "d",
    DataType.DateTimeArray: "Q",
}


_KNOWN: Final = {int(kind): kind for kind in DataType if kind is not DataType.Unknown}
_TYPE_NAMES: Final = {int(kind): kind.name for kind in DataType}


def type_name(datatype: int) -> str:
    """Return what a datatype is called."""
    return _TYPE_NAMES.get(datatype) or f"datatype {datatype}"


def _value_of(message: Any, datatype: int | None, where: str, level: int) -> Any:
    """Return the value of a metric, property, parameter or cell; None: it has none."""
    field = message.WhichOneof("value")
    if field is None:
        return None
    value = getattr(message, field)
    kind = None if datatype is None else _KNOWN.get(datatype)  # what a later version may have is read as it stands
    if kind is not None and field not in _FIELDS[kind]:
        raise SparkplugError(f"{where}: a value of {kind.name} is in {field}")
    if field in _WHOLE:
        return value if kind is None else _whole(value, kind, where)
    if field == "bytes_value" and kind is not None and kind not in (DataType.Bytes, DataType.File):
        return _array(value, kind, where)
    if field == "dataset_value":
        return _data_set(value, where)
    if field == "template_value":
        return _template(value, where, level + 1)
    if field == "propertyset_value":
        return _properties(value, where, level + 1)
    if field == "propertysets_value":
        return [_properties(one, where, level + 1) for one in value.propertyset]
    return value


def _whole(value: int, kind: DataType, where: str) -> int:
    bits = _BITS[kind]
    if kind not in _SIGNED:
        if value >> bits:
            raise SparkplugError(f"{where}: {value} is no {kind.name}")
        return value
    for width in _WIDTHS:
        # The narrowest that has room: -1 is 0xff, 0xffff, 0xffffffff or all of 64 bits.
        if width >= bits and not value >> width:
            found = value - (1 << width) if value >> (width - 1) else value
            if -(1 << (bits - 1)) <= found < 1 << (bits - 1):
                return found
    raise SparkplugError(f"{where}: {value} is no {kind.name}")


def _array(raw: bytes, kind: DataType, where: str) -> list[Any]:
    if kind is DataType.StringArray:
        if not raw:
            return []
        if not raw.endswith(b"\0"):
            raise SparkplugError(f"{where}: the last text of a StringArray does not end with a zero byte")
        try:
            return raw[:-1].decode().split("\0")
        except UnicodeDecodeError:
            raise SparkplugError(f"{where}: a text of a StringArray is no UTF-8") from None
    if kind is DataType.BooleanArray:
        count = int.from_bytes(raw[:4], "little")
        if len(raw) < 4 or len(raw) - 4 != -(-count // 8):
            raise SparkplugError(f"{where}: {len(raw)} bytes are no BooleanArray with its count before it")
        return [bool(raw[4 + number // 8] >> (7 - number % 8) & 1) for number in range(count)]
    letter = _ARRAYS[kind]
    size = struct.calcsize(f"<{letter}")
    if len(raw) % size:
        raise SparkplugError(f"{where}: {len(raw)} bytes are no {kind.name}, whose values have {size} each")
    return list(struct.unpack(f"<{len(raw) // size}{letter}", raw))


def _data_set(message: Any, where: str) -> dict[str, Any]:
    columns, types = list(message.columns), list(message.types)
    if len(columns) != len(types):
        raise SparkplugError(f"{where}: a DataSet has {len(columns)} columns and {len(types)} types")
    rows = []
    for number, row in enumerate(message.rows):
        if len(row.elements) != len(columns):
            raise SparkplugError(
                f"{where}: row {number} of a DataSet has {len(row.elements)} values, and there are {len(columns)} "
                "columns"
            )
        cells = zip(row.elements, types, columns, strict=True)
        rows.append([shown(_value_of(cell, kind, f"{where}, column {name}", 0), kind) for cell, kind, name in cells])
    return {"columns": columns, "types": [type_name(kind) for kind in types], "rows": rows}


def _template(message: Any, where: str, level: int) -> dict[str, Any]:
    if level > MAX_LEVELS:
        raise SparkplugError(f"{where}: more than {MAX_LEVELS} levels of templates")
    found: dict[str, Any] = {}
    if message.HasField("template_ref"):
        found["templateRef"] = message.template_ref
    if message.HasField("version"):
        found["version"] = message.version
    if message.is_definition:
        found["isDefinition"] = True
    if message.parameters:
        found["parameters"] = {
            one.name: shown(_value_of(one, one.type, f"{where}, parameter {one.name}", level), one.type)
            for one in message.parameters
        }
    metrics = []
    for one in message.metrics:
        metric = _metric(one, level)
        place = f"{where}, metric {metric.called}"
        value = None if metric.is_null else _value_of(one, metric.datatype, place, level)
        metrics.append(described(metric, value))
    return found | {"metrics": metrics}


def _properties(message: Any, where: str, level: int) -> dict[str, Any]:
    if level > MAX_LEVELS:
        raise SparkplugError(f"{where}: more than {MAX_LEVELS} levels of properties")
    if len(message.keys) != len(message.values):
        raise SparkplugError(f"{where}: properties have {len(message.keys)} names and {len(message.values)} values")
    found = {}
    for name, one in zip(message.keys, message.values, strict=True):
        kind = one.type if one.HasField("type") else None
        value = None if one.is_null else _value_of(one, kind, f"{where}, property {name}", level)
        found[name] = shown(value, kind)
    return found


# As JSON has it


def moment(milliseconds: int) -> str | int:
    """Return a time as RFC 3339 has it; one beyond the year 9999 as it is."""
    try:
        found = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(value: Any, datatype: int | None) -> Any:
    """Return a value as it is shown: times as RFC 3339 has them, all else as it is."""
    if value is not None and datatype == DataType.DateTime:
        return moment(value)
    if value is not None and datatype == DataType.DateTimeArray:
        return [moment(one) for one in value]
    return value


def described(metric: Metric, value: Any) -> dict[str, Any]:
    """Return a metric as a map of what there is of it, beginning with its name."""
    found: dict[str, Any] = {"name": metric.called, "value": shown(value, metric.datatype)}
    if metric.datatype is not None:
        found["datatype"] = type_name(metric.datatype)
    if metric.timestamp is not None:
        found["timestamp"] = moment(metric.timestamp)
    if metric.name is not None and metric.alias is not None:
        found["alias"] = metric.alias
    for name, is_so in (("isHistorical", metric.is_historical), ("isTransient", metric.is_transient)):
        if is_so:
            found[name] = True
    return found if metric.properties is None else found | {"properties": metric.properties}
