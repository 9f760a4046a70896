"""Messages of a pipeline's test: written by the schemas of subjects, and read by them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from enmasse.cli.commands.use.tryout_messages import GivenMessage, MessageSchemas, readable, readable_body
from enmasse.cli.errors import UsageError
from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
from enmasse.schemas.wire_format import HEADER_BYTES, header

RECORD = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
    ],
}
VERSIONS = [
    {"subject": "readings", "version": 1, "id": 7, "schema": json.dumps(RECORD)},
    {"subject": "alerts", "version": 1, "id": 8, "schema": '{"required": ["device"]}', "schemaType": "JSON"},
]
SPEC = PipelineSpec.model_validate(
    {
        "sources": [
            {"name": "ids", "address": "ids", "format": "avro", "schemaRegistry": {"subject": "readings"}},
            {"name": "bare", "address": "bare", "schemaRegistry": {"subject": "readings", "wireFormat": False}},
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


@pytest.mark.parametrize("body", [b"no Avro", header(7) + b"\x02", header(9) + b"{}"])
def test_what_is_of_no_schema_is_its_text(body: bytes) -> None:
    assert SCHEMAS.decode(body, "letters") == body.decode(errors="replace")


@pytest.mark.parametrize(
    "text",
    ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z", "2026-01-31T12:00:00+00:00", "2026-01-31T13:00:00+01:00"],
)
def test_a_moment_is_the_same_however_it_is_written(text: str) -> None:
    written = yaml.safe_load("{at: 2026-01-31T12:00:00Z, seen: [{at: 2026-01-31T12:00:00Z}]}")
    assert readable_body(json.dumps({"at": text, "seen": [{"at": text}]}).encode()) == readable(written)
    later = yaml.safe_load("{at: 2026-01-31T12:00:00.001Z}")
    assert readable(later) != readable({"at": text})


@pytest.mark.parametrize("text", ["2026-01-31", "2026-02-31T12:00:00Z", "at 2026-01-31T12:00:00Z", "12:00:00"])
def test_what_is_no_moment_is_compared_as_it_is(text: str) -> None:
    assert readable(text) == json.dumps(text)
