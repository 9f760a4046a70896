"""Metrics of Sparkplug become rows by the names that births have said, however messages are cut into batches."""

from __future__ import annotations

import json
import math
import random
import struct
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark")

from enmasse.pipeline.builtin.sparkplug import MetricKeeper
from tests.support.sparkplug_payloads import SESSION, TYPES

DAY_US = 86_400_000_000
DATA = "spBv1.0/plant/NDATA/line-1"
BIRTH = "spBv1.0/plant/NBIRTH/line-1"

TEMPLATE = (
    '{"version":"1","isDefinition":true,"parameters":{"p":"q"},"metrics":['
    '{"name":"inner","value":-3,"datatype":"Int32","timestamp":"2026-01-31T12:00:00.000Z"}]}'
)


def rows(messages: list[tuple[str, bytes]], first: int = 0, at_us: int = 0) -> Any:
    found = [(name, body, at_us + n, 0, n) for n, (name, body) in enumerate(messages, first)]
    return pd.DataFrame(found, columns=["name", "value", "accepted_us", "partition", "offset"])


def taken(messages: list[tuple[str, bytes]], keeper: MetricKeeper | None = None) -> Any:
    _, found = (keeper or MetricKeeper(DAY_US))(None, rows(messages), 0)
    return found


def whole(field: int, number: int) -> bytes:
    found = bytes([field << 3])
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def numbered(seq: int, *metrics: tuple[int, int]) -> bytes:
    """A payload of aliases and values."""
    parts = [whole(2, alias) + whole(10, value) for alias, value in metrics]
    return whole(3, seq) + b"".join(b"\x12" + bytes([len(part)]) + part for part in parts)


def test_a_session_of_another_encoder_becomes_rows() -> None:
    found = taken(list(SESSION.items()))
    assert found["_problem"].isna().all()
    told = [
        (row.device, row.message, row.metric, row.datatype, row.value, row.string_value, row.bool_value)
        for row in found.itertuples()
    ]
    assert told == [
        (None, "NBIRTH", "bdSeq", "UInt64", 7.0, None, None),
        (None, "NBIRTH", "Node Control/Rebirth", "Boolean", None, None, False),
        (None, "NBIRTH", "Temperature", "Double", 21.5, None, None),
        (None, "NBIRTH", "Offset", "Int8", -1.0, None, None),
        (None, "NBIRTH", "State", "String", None, "idle", None),
        (None, "NCMD", "Node Control/Rebirth", "Boolean", None, None, True),
        (None, "NDATA", "Temperature", "Double", 22.25, None, None),
        (None, "NDATA", "Offset", "Int8", -128.0, None, None),
        (None, "NDATA", "State", "String", None, "running", None),
        ("pump", "DBIRTH", "Speed", "Int32", -1500.0, None, None),
        ("pump", "DBIRTH", "Valve/Open", "Boolean", None, None, True),
        ("pump", "DBIRTH", "Serviced", "DateTime", 1769860800123.0, "2026-01-31T12:00:00.123Z", None),
        ("pump", "DDATA", "Speed", "Int32", -1450.0, None, None),
        ("pump", "DDATA", "Valve/Open", "Boolean", None, None, False),
        ("pump", "DDATA", "Speed", "Int32", -1400.0, None, None),
        ("pump", "DDEATH", None, None, None, None, None),
        (None, "NDEATH", "bdSeq", "UInt64", 7.0, None, None),
    ]
    assert set(found["group_id"]) == {"plant"}
    assert set(found["edge_node"]) == {"line-1"}
    assert found["is_historical"].tolist() == [False] * 14 + [True] + [False] * 2
    assert found["is_stale"].tolist() == [False] * 15 + [True] * 2
    assert found["seq"].tolist() == [0] * 5 + [None] + [1] * 3 + [2] * 3 + [3] * 3 + [4] + [None]
    assert found["gaps"].tolist() == [0] * 17
    assert found["time_us"].tolist()[6:9] == [1769860800900000, 1769860800950000, 1769860800990000]


def test_values_of_every_type_have_a_column() -> None:
    found = taken([(BIRTH, TYPES)]).set_index("metric")
    values = found[["value", "string_value", "bool_value"]].itertuples(name=None)
    assert {name: tuple(one for one in rest if one is not None) for name, *rest in values} == {
        "bdSeq": (0.0,),
        "i8": (-5.0,),
        "i16": (-30000.0,),
        "i32": (-2147483648.0,),
        "i64": (-9.223372036854775808e18, "-9223372036854775808"),
        "u8": (255.0,),
        "u16": (65535.0,),
        "u32": (4294967295.0,),
        "u64": (1.8446744073709551615e19, "18446744073709551615"),
        "f": (0.5,),
        "d": (-1.25,),
        "b": (True,),
        "s": ("ü",),
        "dt": (1769860800000.0, "2026-01-31T12:00:00.000Z"),
        "t": ("long text",),
        "uuid": ("6f1d0000-0000-4000-8000-000000000002",),
        "bytes": ("AQL/",),
        "file": ("YQ==",),
        "ds": (
            '{"columns":["n","s","b"],"types":["Int32","String","Boolean"],"rows":[[-1,"x",true],[2,"y",false]]}',
        ),
        "tpl": (TEMPLATE,),
        "unit": (20.0,),
        "none": (),
        "late": (1.0,),
    }
    assert json.loads(found["properties"]["unit"]) == {"engUnit": "C", "low": -5, "nested": {"x": True}}


def test_numbers_that_json_lacks_are_texts() -> None:
    def metric(name: bytes, rest: bytes) -> bytes:
        part = b"\x0a\x01" + name + rest
        return b"\x12" + bytes([len(part)]) + part

    nan = metric(b"n", whole(4, 10) + b"\x69" + struct.pack("<d", math.nan))
    array = struct.pack("<2f", math.inf, 1.5)
    found = taken([(BIRTH, nan + metric(b"a", whole(4, 30) + b"\x82\x01\x08" + array))])
    assert found["_problem"].isna().all()
    assert found["value"].tolist() == [None, None]
    assert found["string_value"].tolist() == ["nan", '["inf",1.5]']


def test_what_cannot_be_read_is_a_bad_record_that_says_why() -> None:
    odd = [
        ("spBv1.0/plant/NDATA/line-1/too/long", SESSION[DATA]),
        ("elsewhere", b"x"),
        (BIRTH, b"odd"),
        ("spBv1.0/STATE/host", b'{"online": true}'),  # of hosts, and no payload
        (DATA, SESSION[DATA]),
        ("spBv1.0/plant/DDATA/line-1/pump", SESSION["spBv1.0/plant/DDATA/line-1/pump"]),
    ]
    found = taken(odd)
    bad = found[found["_problem"].notna()]
    name = "its name is none of Sparkplug: expected spBv1.0/GROUP/TYPE/EDGE, or with /DEVICE behind it, got"
    assert bad["_problem"].str.replace("Sparkplug B: .*", "Sparkplug B: ...", regex=True).tolist() == [
        f"{name} spBv1.0/plant/NDATA/line-1/too/long",
        f"{name} elsewhere",
        "it is no payload of Sparkplug B: ...",
        "metric alias 1: no birth of plant/line-1 that says its name was seen",
        "metric alias 10: no birth of device pump of plant/line-1 that says its name was seen",
    ]
    assert bad["_value"].tolist() == [body for name, body in odd if "STATE" not in name]
    assert bad["_address"].tolist() == [name for name, _ in odd if "STATE" not in name]
    # The metric of the same message that has its name is a row.
    good = found[found["_problem"].isna()]
    assert good[["device", "metric", "bool_value"]].values.tolist() == [["pump", "Valve/Open", False]]


def test_rows_are_the_same_however_messages_are_cut() -> None:
    chance = random.Random(11)
    messages = []
    for number in range(300):
        kind = chance.choice(["NBIRTH", "DBIRTH", "NDATA", "NDATA", "DDATA", "DDEATH", "NDEATH"])
        name = f"spBv1.0/plant/{kind}/line-1" + ("/pump" if kind.startswith("D") else "")
        body = SESSION[name] if chance.random() < 0.5 else numbered(number % 256, (1, number), (10, number))
        messages.append((name.replace("line-1", chance.choice(["line-1", "line-2"])), body))
    expected = taken(messages)
    assert expected["_problem"].notna().any()
    assert expected["gaps"].max() > 5
    kept, begin, found = None, 0, []
    while begin < len(messages):
        end = begin + chance.randrange(1, 40)
        kept, some = MetricKeeper(DAY_US)(kept, rows(messages[begin:end], begin), 0)
        found += some.values.tolist()
        begin = end
    assert found == expected.values.tolist()


def test_an_edge_node_that_is_not_heard_is_forgotten() -> None:
    keeper = MetricKeeper(DAY_US)
    kept, _ = keeper(None, rows([(BIRTH, SESSION[BIRTH])]), 0)
    for at_us, is_known in ((DAY_US, True), (2 * DAY_US + 2, False)):
        _, found = keeper(kept, rows([(DATA, SESSION[DATA])], at_us=at_us), 0)
        assert found["_problem"].isna().all() == is_known
        other, _ = keeper(kept, rows([(DATA.replace("line-1", "line-2"), SESSION[DATA])], at_us=at_us), 0)
        assert (b"plant/line-1" in other) == is_known
