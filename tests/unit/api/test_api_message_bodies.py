"""Bodies of messages as JSON, however they were made."""

from __future__ import annotations

import io
import json
from typing import Any

import cbor2
import fastavro
import pytest

from enmasse.api.messages.bodies import Declared, body_of, sparkplug_body
from enmasse.message.types import Timestamp
from enmasse.wire.sparkplug.edge_node import Reader
from tests.support.protobuf_files import field, file_of, schema_of, written
from tests.support.sparkplug_payloads import SESSION, TYPES

METER = schema_of("acme.Meter", file_of(f'message_type {{ name: "Meter" {field("level", 1, "uint64")} }}'))
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "t", "type": "double"}]})


def avro(record: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, json.loads(SCHEMA), record)
    return file.getvalue()


def laughs() -> bytes:
    value: list[Any] = ["ha"]
    for _ in range(40):
        value = [value, value]
    return cbor2.dumps(value, value_sharing=True)


@pytest.mark.parametrize(
    ("body", "content_type", "declared", "form", "shown"),
    [
        ("text", None, Declared(), "text", "text"),
        (b'{"a": 1}', None, Declared(), "json", '{"a": 1}'),
        (b"\x00\xff", None, Declared(), "binary", "00ff"),
        (cbor2.dumps({"t": 1}), "application/cbor", Declared(), "cbor", {"t": 1}),
        (b"\xff", "application/cbor", Declared(), "binary", "ff"),
        (laughs(), "application/cbor", Declared(), "binary", laughs().hex()),
        (avro({"t": 21.5}), None, Declared("avro", SCHEMA), "avro", {"t": 21.5}),
        (b"\xff", None, Declared("avro", SCHEMA), "binary", "ff"),
        (written(METER, level=2**60), None, Declared("protobuf", METER), "protobuf", {"level": str(2**60)}),
        (b"\xff", None, Declared("protobuf", METER), "binary", "ff"),
        (1 << 60, None, Declared(), "value", {"type": "integer", "value": str(1 << 60)}),
        (Timestamp(0), None, Declared(), "value", {"type": "timestamp", "value": "1970-01-01T00:00:00.000Z"}),
        ([1, b"\1"], None, Declared(), "sequence", [1, {"type": "binary", "value": "01"}]),
        (float("nan"), None, Declared(), "value", {"type": "double", "value": "nan"}),
    ],
)
def test_a_body_is_shown_as_what_it_is(
    body: Any, content_type: str | None, declared: Declared, form: str, shown: Any
) -> None:
    found = body_of(body, content_type, declared, 1 << 16)
    assert found["form"] == form
    assert next(found[key] for key in ("text", "value", "hex") if key in found) == shown
    json.dumps(found, allow_nan=False).encode()


def test_payloads_of_sparkplug_are_told_by_their_names() -> None:
    reader = Reader()
    for name, body in SESSION.items():
        found = sparkplug_body(body, ["orders", name], reader, 1 << 16)
        assert found is not None
        assert (found["form"], found["bytes"]) == ("sparkplug", len(body))
        if found["value"]["type"] == "DDATA":
            assert [one["name"] for one in found["value"]["metrics"]] == ["Speed", "Valve/Open", "Speed"]
    birth = "spBv1.0/plant/NBIRTH/line-1"
    found = sparkplug_body(TYPES, [birth], reader, 1 << 16)
    assert found is not None
    json.dumps(found, allow_nan=False)
    values = {one["name"]: one["value"] for one in found["value"]["metrics"]}
    assert values["bytes"] == {"type": "binary", "value": "0102ff"}
    assert values["u64"] == {"type": "integer", "value": str((1 << 64) - 1)}
    for other in (b"\x0a", TYPES * 100, "text", 7):
        assert sparkplug_body(other, [birth], reader, 1 << 16) is None
    assert sparkplug_body(TYPES, ["orders", "spBv1.0/STATE/host"], reader, 1 << 16) is None


def test_a_cut_does_not_split_a_character() -> None:
    found = body_of("ü".encode() * 100, None, Declared(), 33)
    assert (found["text"], found["bytes"], found["truncated"]) == ("ü" * 16, 200, True)
