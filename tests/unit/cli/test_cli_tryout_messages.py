"""Messages of a pipeline's test: written by the schemas of subjects, and read by them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from enmasse.cli.commands.use.tryout_messages import GivenMessage, MessageSchemas, readable, readable_body
from enmasse.cli.errors import UsageError
from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
from enmasse.schemas.wire_format import HEADER_BYTES, header
from tests.support.protobuf_files import field, file_of, schema_of, written

RECORD = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
    ],
}
METER = schema_of(
    "acme.Meter",
    file_of(
        f'dependency: "google/protobuf/timestamp.proto" message_type {{ name: "First" {field("a", 1, "int32")} }} '
        f'message_type {{ name: "Meter" {field("device", 1, "string")} '
        f"{field('at', 2, '.google.protobuf.Timestamp')} }}"
    ),
)
METERS = {"subject": "meters", "message": "acme.Meter"}
VERSIONS = [
    {"subject": "readings", "version": 1, "id": 7, "schema": json.dumps(RECORD)},
    {"subject": "meters", "version": 1, "id": 9, "schema": METER.split()[1], "schemaType": "PROTOBUF"},
    {"subject": "alerts", "version": 1, "id": 8, "schema": '{"required": ["device"]}', "schemaType": "JSON"},
]
SPEC = PipelineSpec.model_validate(
    {
        "sources": [
            {"name": "ids", "address": "ids", "format": "avro", "schemaRegistry": {"subject": "readings"}},
            {"name": "bare", "address": "bare", "schemaRegistry": {"subject": "readings", "wireFormat": False}},
            {"name": "meters", "address": "meters", "format": "protobuf", "schemaRegistry": METERS},
            {"name": "raws", "address": "raws", "schemaRegistry": METERS | {"wireFormat": False}},
            {"name": "plain", "address": "plain", "format": "json"},
        ],
        "sinks": [{"address": "alerts", "schemaRegistry": {"subject": "alerts"}}],
    }
)
SCHEMAS = MessageSchemas(SPEC, VERSIONS)
READING = {"device": "boiler-1", "at": datetime(2026, 1, 31, 12, tzinfo=UTC)}


def given(**fields: Any) -> GivenMessage:
    return GivenMessage.model_validate(fields)


@pytest.mark.parametrize(("address", "begin"), [("ids", header(7)), ("bare", b"\x10boiler-1")])
def test_json_for_a_source_is_written_by_its_subject_and_read_again(address: str, begin: bytes) -> None:
    message = given(json=READING)
    body = SCHEMAS.encode(message, address, None)
    assert body.startswith(begin)
    assert SCHEMAS.decode(body, address) == message.readable
    assert "2026-01-31T12:00:00Z" in message.readable


@pytest.mark.parametrize(("address", "begin"), [("meters", header(9) + b"\x02\x02"), ("raws", b"")])
def test_json_for_a_source_of_protobuf_is_the_message_that_it_reads(address: str, begin: bytes) -> None:
    body = SCHEMAS.encode(given(json=READING), address, None)
    assert body == begin + written(METER, device="boiler-1", at=READING["at"])
    with pytest.raises(UsageError, match=r"as a message acme\.Meter: .*\"odd\""):
        SCHEMAS.encode(given(json={"odd": 1}), address, None)


def test_another_subject_may_be_named_and_addresses_without_one_have_json() -> None:
    plain = given(json={"device": "d"})
    assert SCHEMAS.encode(plain, "plain", None) == b'{"device": "d"}'
    assert SCHEMAS.encode(plain, "plain", "readings") == header(7) + b"\x02d\x00"
    assert SCHEMAS.encode(plain, "plain", "alerts") == header(8) + b'{"device": "d"}'
    assert SCHEMAS.decode(header(8) + b'{"device": "d"}', "anywhere") == plain.readable


def test_what_does_not_fit_is_refused_in_avro_and_can_be_given_as_a_text() -> None:
    with pytest.raises(UsageError, match=r"given message for ids: by the schema of readings: .*device"):
        SCHEMAS.encode(given(json={"at": None}), "ids", None)
    with pytest.raises(UsageError, match=r"as others=others\.avsc"):
        SCHEMAS.encode(given(json={}), "ids", "others")
    assert SCHEMAS.encode(given(text="no Avro"), "ids", None) == b"no Avro"
    # A document that is not valid is what badRecords is for.
    assert SCHEMAS.encode(given(json={}), "ids", "alerts")[HEADER_BYTES:] == b"{}"


@pytest.mark.parametrize("body", [b"no Avro", header(7) + b"\x02", header(10) + b"{}"])
def test_what_is_of_no_schema_is_its_text(body: bytes) -> None:
    assert SCHEMAS.decode(body, "letters") == readable_body(body)


@pytest.mark.parametrize(
    "text",
    ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z", "2026-01-31T12:00:00+00:00", "2026-01-31T13:00:00+01:00"],
)
def test_a_moment_is_the_same_however_it_is_written(text: str) -> None:
    written = yaml.safe_load("{at: 2026-01-31T12:00:00Z, seen: [{at: 2026-01-31T12:00:00Z}]}")
    assert readable_body(json.dumps({"at": text, "seen": [{"at": text}]}).encode()) == readable(written)
    later = yaml.safe_load("{at: 2026-01-31T12:00:00.001Z}")
    assert readable(later) != readable({"at": text})


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31 12:00:00.000", "2026-01-31T12:00:00Z"])
def test_a_moment_of_a_table_without_a_zone_is_in_utc(text: str) -> None:
    assert readable({"at": text}, zone=UTC) == readable({"at": yaml.safe_load("2026-01-31T12:00:00Z")})
    assert (readable(text) == readable("2026-01-31T12:00:00Z")) is text.endswith("Z")


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        (41, 41.0, True),
        (41, 41.5, False),
        (2**53, 2**53 + 1, False),
        (1e300, 10**300, False),
        (1, True, False),
        (1, "1", False),
        (float("nan"), "nan", True),
        (b"text", "text", True),
        (b"\xff\x00", "base64:/wA=", True),
        (b"\xff", b"\xfe", False),
        ({1: "a"}, {"1": "a"}, True),
        (None, "", False),
    ],
)
def test_values_are_the_same_if_they_mean_the_same(one: Any, other: Any, are_same: bool) -> None:
    assert (readable(one) == readable(other)) is are_same


def test_bodies_that_are_no_text_are_told_apart() -> None:
    first, second = given(base64="/wAB"), given(base64=b"\xff\x00\x02")
    assert (first.body, second.body) == (b"\xff\x00\x01", b"\xff\x00\x02")
    assert first.readable == readable_body(first.body) == "base64:/wAB"
    assert first.readable != second.readable
    assert SCHEMAS.encode(first, "ids", None) == first.body


@pytest.mark.parametrize("fields", [{}, {"key": "k"}, {"json": 1, "text": "1"}, {"base64": "/"}, {"base64": 1}])
def test_a_message_has_one_body(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"expected (one of json, text and base64|base64)"):
        given(**fields)


def test_json_has_moments_and_bytes_as_messages_have_them() -> None:
    assert given(json=yaml.safe_load("{at: 2026-01-31, b: !!binary /wAB}")).body == (
        b'{"at": "2026-01-31", "b": "/wAB"}'
    )
    assert given(json=None).body == b"null"
    with pytest.raises(UsageError, match="expected what JSON has"):
        _ = given(json={"tags": {"a", "b"}}).body


@pytest.mark.parametrize("text", ["2026-01-31", "2026-02-31T12:00:00Z", "at 2026-01-31T12:00:00Z", "12:00:00"])
def test_what_is_no_moment_is_compared_as_it_is(text: str) -> None:
    assert readable(text) == json.dumps(text)
