"""Payloads of Sparkplug B are read as encoders of others make them, and mean what births before them said."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.wire.sparkplug.edge_node import EdgeNode, MessageType, Reader, Topic, parse_topic
from enmasse.wire.sparkplug.payload import DataType, SparkplugError, read_payload
from tests.support.sparkplug_payloads import SESSION, TYPES

BIRTH = "spBv1.0/plant/NBIRTH/line-1"


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def whole(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def part(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def metric(name: str, kind: int | None, value: bytes) -> bytes:
    return part(2, part(1, name.encode()) + (b"" if kind is None else whole(4, kind)) + value)


def shown(body: bytes) -> Any:
    found = Reader().read(BIRTH, body)
    assert found is not None
    return found["metrics"][0]["value"]


# Names


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("spBv1.0/g/NDATA/e", Topic(MessageType.NDATA, "g", "e")),
        ("spBv1.0/g/DDATA/e/d", Topic(MessageType.DDATA, "g", "e", "d")),
        ("spBv1.0/g/NDATA/e/d", None),
        ("spBv1.0/g/DDATA/e", None),
        ("spBv1.0/g/ODD/e", None),
        ("spBv1.0/STATE/host", None),
        ("spBv1.0//NDATA/e", None),
        ("spAv1.0/g/NDATA/e", None),
        ("spBv1.0", None),
    ],
)
def test_a_name_has_four_or_five_words(name: str, topic: Topic | None) -> None:
    assert parse_topic(name) == topic


# Payloads


def test_a_session_of_another_encoder_is_read_by_names_and_types_of_its_births() -> None:
    reader = Reader()
    found = [reader.read(name, body) for name, body in SESSION.items()]
    told = {one["type"]: {m["name"]: m["value"] for m in one["metrics"]} for one in found if one is not None}
    assert told == {
        "NBIRTH": {"bdSeq": 7, "Node Control/Rebirth": False, "Temperature": 21.5, "Offset": -1, "State": "idle"},
        "NCMD": {"Node Control/Rebirth": True},
        "NDATA": {"Temperature": 22.25, "Offset": -128, "State": "running"},
        "DBIRTH": {"Speed": -1500, "Valve/Open": True, "Serviced": "2026-01-31T12:00:00.123Z"},
        "DDATA": {"Speed": -1400, "Valve/Open": False},
        "DDEATH": {},
        "NDEATH": {"bdSeq": 7},
    }
    assert found[4] == {
        "type": "DDATA",
        "group": "plant",
        "edgeNode": "line-1",
        "device": "pump",
        "timestamp": "2026-01-31T12:00:03.000Z",
        "seq": 3,
        "metrics": [
            {
                "name": "Speed",
                "value": -1450,
                "datatype": "Int32",
                "timestamp": "2026-01-31T12:00:03.000Z",
                "alias": 10,
            },
            {"name": "Valve/Open", "value": False, "datatype": "Boolean", "timestamp": "2026-01-31T12:00:03.000Z"},
            {
                "name": "Speed",
                "value": -1400,
                "datatype": "Int32",
                "timestamp": "2026-01-31T12:00:02.500Z",
                "alias": 10,
                "isHistorical": True,
            },
        ],
    }


def test_an_alias_without_a_birth_stands_for_itself() -> None:
    found = Reader().read("spBv1.0/plant/NDATA/line-1", SESSION["spBv1.0/plant/NDATA/line-1"])
    assert found is not None
    assert [(one["name"], one["value"]) for one in found["metrics"]] == [
        ("alias 1", 22.25),
        ("alias 2", 128),  # without its type nobody knows that it is -128
        ("alias 3", "running"),
    ]


def test_every_type_of_another_encoder_is_read() -> None:
    found = Reader().read(BIRTH, TYPES)
    assert found is not None
    assert (found["uuid"], found["body"]) == ("6f1d0000-0000-4000-8000-000000000001", b"\0\xff")
    by_name = {one["name"]: one for one in found["metrics"]}
    assert {name: one["value"] for name, one in by_name.items()} == {
        "bdSeq": 0,
        "i8": -5,
        "i16": -30000,
        "i32": -(1 << 31),
        "i64": -(1 << 63),
        "u8": 255,
        "u16": 65535,
        "u32": (1 << 32) - 1,
        "u64": (1 << 64) - 1,
        "f": 0.5,
        "d": -1.25,
        "b": True,
        "s": "ü",
        "dt": "2026-01-31T12:00:00.000Z",
        "t": "long text",
        "uuid": "6f1d0000-0000-4000-8000-000000000002",
        "bytes": b"\1\2\xff",
        "file": b"a",
        "ds": {
            "columns": ["n", "s", "b"],
            "types": ["Int32", "String", "Boolean"],
            "rows": [[-1, "x", True], [2, "y", False]],
        },
        "tpl": {
            "version": "1",
            "isDefinition": True,
            "parameters": {"p": "q"},
            "metrics": [{"name": "inner", "value": -3, "datatype": "Int32", "timestamp": "2026-01-31T12:00:00.000Z"}],
        },
        "unit": 20.0,
        "none": None,
        "late": 1,
    }
    assert by_name["unit"]["properties"] == {"engUnit": "C", "low": -5, "nested": {"x": True}}
    assert by_name["late"]["isHistorical"]
    assert by_name["late"]["isTransient"]


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (DataType.Int8Array, b"\xe9\x7b", [-23, 123]),
        (DataType.Int16Array, struct.pack("<2h", -30000, 30000), [-30000, 30000]),
        (DataType.Int32Array, struct.pack("<2i", -1, 315338746), [-1, 315338746]),
        (DataType.Int64Array, struct.pack("<q", -(1 << 63)), [-(1 << 63)]),
        (DataType.UInt8Array, b"\x17\xfa", [23, 250]),
        (DataType.UInt16Array, b"\x1e\x00\x60\xea", [30, 60000]),
        (DataType.UInt32Array, struct.pack("<I", (1 << 32) - 1), [(1 << 32) - 1]),
        (DataType.UInt64Array, struct.pack("<Q", (1 << 64) - 1), [(1 << 64) - 1]),
        (DataType.FloatArray, struct.pack("<2f", 1.5, -0.25), [1.5, -0.25]),
        (DataType.DoubleArray, struct.pack("<d", 1.1), [1.1]),
        (
            DataType.BooleanArray,
            b"\x0c\0\0\0\x34\xd0",
            [bool(int(digit)) for digit in "001101001101"],
        ),
        (DataType.BooleanArray, b"\0\0\0\0", []),
        (DataType.StringArray, b"ABC\0hello\0", ["ABC", "hello"]),
        (DataType.StringArray, b"\0", [""]),
        (DataType.StringArray, b"", []),
        (DataType.DateTimeArray, struct.pack("<Q", 0), ["1970-01-01T00:00:00.000Z"]),
    ],
)
def test_arrays_are_packed_with_the_lowest_byte_first(kind: DataType, raw: bytes, value: list[Any]) -> None:
    assert shown(metric("a", kind, part(16, raw))) == value


@pytest.mark.parametrize(
    ("kind", "number", "value"),
    [
        (DataType.Int8, 0xFF, -1),
        (DataType.Int8, 0xFFFFFF80, -128),
        (DataType.Int16, 0xFF, 255),
        (DataType.Int16, 0x8000, -32768),
        (DataType.Int32, 0xFFFFFFFF, -1),
        (None, 0xFFFFFFFF, 0xFFFFFFFF),
        (99, 7, 7),
    ],
)
def test_a_number_with_a_sign_is_two_s_complement_of_any_width(kind: int | None, number: int, value: int) -> None:
    assert shown(metric("a", kind, whole(10, number))) == value
    assert shown(metric("a", kind, whole(11, number))) == value


def nested(levels: int) -> bytes:
    found = metric("leaf", DataType.Int32, whole(10, 1))
    for _ in range(levels):
        found = metric("t", DataType.Template, part(18, found))
    return found


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\x0a", "no payload of Sparkplug B"),
        (b'{"temperature": 21.5}', "no payload of Sparkplug B"),
        (part(2, part(1, b"\xff")), "UTF-8"),
        (whole(3, 256), "seq: expected 0 to 255, got 256"),
        (part(2, whole(10, 1)), "neither name nor alias"),
        (metric("a", DataType.Int8, whole(10, 300)), "metric a: 300 is no Int8"),
        (metric("a", DataType.UInt16, whole(10, 65536)), "metric a: 65536 is no UInt16"),
        (metric("a", DataType.Int32, part(15, b"1")), "metric a: a value of Int32 is in string_value"),
        (metric("a", DataType.Int16Array, part(16, b"123")), "3 bytes are no Int16Array"),
        (metric("a", DataType.BooleanArray, part(16, b"\xff\xff\xff\xff\0")), "5 bytes are no BooleanArray"),
        (metric("a", DataType.BooleanArray, part(16, b"\1")), "1 bytes are no BooleanArray"),
        (metric("a", DataType.StringArray, part(16, b"ABC")), "does not end with a zero byte"),
        (metric("a", DataType.StringArray, part(16, b"\xff\0")), "no UTF-8"),
        (metric("a", DataType.DataSet, part(17, part(2, b"n"))), "1 columns and 0 types"),
        (
            metric("a", DataType.DataSet, part(17, part(2, b"n") + part(3, b"\3") + part(4, b""))),
            "row 0 of a DataSet has 0 values, and there are 1 columns",
        ),
        (
            part(2, part(1, b"a") + part(9, part(1, b"unit")) + whole(10, 1)),
            "metric a: properties have 1 names and 0 values",
        ),
        (nested(33), "more than 32 levels of templates"),
        (nested(200), "no payload of Sparkplug B"),
        (part(2, b"\x10\1") * 100_001, "100001 metrics: expected at most 100000"),
    ],
)
def test_wrong_bytes_give_an_error_that_names_the_place(body: bytes, said: str) -> None:
    with pytest.raises(SparkplugError, match=said):
        Reader().read(BIRTH, body)


def test_templates_may_be_nested() -> None:
    assert shown(nested(32))["metrics"][0]["name"] == "t"


@given(st.binary(max_size=60), st.integers(0, len(TYPES)), st.integers(0, 20))
def test_whatever_bytes_come_the_only_error_is_its_own(noise: bytes, at: int, gone: int) -> None:
    for body in (noise, TYPES[:at] + noise + TYPES[at + gone :]):
        try:
            found = Reader().read(BIRTH, body)
        except SparkplugError:
            continue
        assert found is not None


# Sessions


def payload(seq: int | None = None, *metrics: bytes) -> Any:
    return read_payload((b"" if seq is None else whole(3, seq)) + b"".join(metrics))


def topic(kind: str, device: str | None = None) -> Topic:
    return Topic(MessageType(kind), "g", "e", device)


def test_numbers_that_are_missing_are_counted_and_a_birth_begins_anew() -> None:
    node = EdgeNode()
    for kind, seq, gaps, missed in (
        ("NDATA", 250, 0, 0),  # the first that is seen
        ("NBIRTH", 0, 0, 0),
        ("NDATA", 1, 0, 0),
        ("NCMD", None, 0, 0),
        ("NDATA", 4, 1, 2),
        ("NDATA", 255, 2, 252),
        ("NDATA", 0, 2, 252),  # the number begins anew
        ("NDATA", 2, 3, 253),
        ("NBIRTH", 0, 3, 253),
        ("NDATA", 1, 3, 253),
    ):
        node.take(topic(kind), payload(seq))
        assert (node.gaps, node.missed) == (gaps, missed), (kind, seq)
        node = EdgeNode.from_json(node.to_json())


def bd_seq(number: int) -> bytes:
    return metric("bdSeq", DataType.UInt64, whole(11, number))


def alias_of(node: EdgeNode, device: str | None = None) -> str:
    data = payload(None, part(2, whole(2, 1) + whole(10, 5)))
    node.take(topic("NDATA" if device is None else "DDATA", device), data)
    return str(data.metrics[0].called)


def named(name: str) -> bytes:
    return part(2, part(1, name.encode()) + whole(2, 1) + whole(4, DataType.Int32) + whole(10, 5))


def test_an_alias_means_what_the_last_birth_said_until_a_death() -> None:
    node = EdgeNode()
    node.take(topic("NBIRTH"), payload(0, bd_seq(1), named("a")))
    node.take(topic("DBIRTH", "d"), payload(1, named("b")))
    node = EdgeNode.from_json(node.to_json())
    assert (alias_of(node), alias_of(node, "d"), alias_of(node, "other")) == ("a", "b", "alias 1")
    node.take(topic("DDEATH", "d"), payload(2))
    assert node.is_stale
    assert (alias_of(node), alias_of(node, "d")) == ("a", "alias 1")
    node.take(topic("DBIRTH", "d"), payload(3, named("c")))
    assert (alias_of(node, "d"), node.is_stale) == ("c", False)
    # The death of an earlier session changes nothing.
    node.take(topic("NDEATH"), payload(None, bd_seq(0)))
    assert (node.is_stale, alias_of(node), alias_of(node, "d")) == (False, "a", "c")
    node.take(topic("NDEATH"), payload(None, bd_seq(1)))
    assert node.is_stale
    assert (alias_of(node), alias_of(node, "d")) == ("alias 1", "alias 1")
    # A birth of the edge node is none of its devices.
    node.take(topic("DBIRTH", "d"), payload(4, named("c")))
    node.take(topic("NBIRTH"), payload(0, bd_seq(2), named("e")))
    assert (alias_of(node), alias_of(node, "d")) == ("e", "alias 1")


def test_a_reader_remembers_so_many_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.wire.sparkplug.edge_node.MAX_KNOWN", 4)
    reader = Reader()
    for node in ("old", "new"):
        reader.read(f"spBv1.0/g/NBIRTH/{node}", named("a") + named("b"))
    data = part(2, whole(2, 1) + whole(10, 5))
    told = {node: reader.read(f"spBv1.0/g/NDATA/{node}", data) for node in ("new", "old")}
    names = {node: one["metrics"][0]["name"] for node, one in told.items() if one is not None}
    assert names == {"new": "b", "old": "alias 1"}
