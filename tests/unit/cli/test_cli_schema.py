"""``enmasse schema``: what it registers, prints and says."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.support.protobuf_files import field, file_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Cli

DEVICE = {"name": "device", "type": "string"}
UNIT = {"name": "unit", "type": "string"}


@pytest.fixture(autouse=True)
def _space(api: str, cli: Cli) -> None:
    assert cli("create", "namespace", "default").code == 0
    assert cli("create", "space", "plant", "--wait", "0").code == 0


def file(place: Path, *fields: dict[str, Any]) -> str:
    path = place / "reading.avsc"
    path.write_text(json.dumps({"type": "record", "name": "Reading", "fields": fields}))
    return str(path)


def test_a_schema_is_registered_checked_and_printed(cli: Cli, tmp_path: Path) -> None:
    assert cli("schema", "list").err == "there are no subjects\n"
    first = cli("schema", "register", "readings", "-f", file(tmp_path, DEVICE))
    assert (first.code, first.out) == (0, "version 1 of subject readings has id 1\n")
    again = cli("schema", "register", "readings", "-f", file(tmp_path, DEVICE))
    assert again.out == first.out
    wrong = cli("schema", "check", "readings", "-f", file(tmp_path, DEVICE, UNIT))
    assert wrong.code == 1
    assert "the field is new and has no default" in wrong.err
    assert cli("schema", "register", "readings", "-f", file(tmp_path, DEVICE, UNIT)).code == 1
    better = file(tmp_path, DEVICE, {**UNIT, "default": "C"})
    assert cli("schema", "check", "readings", "-f", better).out == "the schema goes with those of subject readings\n"
    assert cli("schema", "register", "readings", "-f", better).out == "version 2 of subject readings has id 2\n"
    assert cli("schema", "check", "readings", "-f", better, "--version", "1").code == 0
    listed = [line.split() for line in cli("schema", "list", "readings").out.splitlines()]
    assert listed[1:] == [["readings", "1", "1", "avro"], ["readings", "2", "2", "avro"]]
    assert [line.split()[1] for line in cli("schema", "list").out.splitlines()[1:]] == ["2"]
    shown = [cli("schema", "get", *words).out for words in (["readings", "--version", "1"], ["--id", "1"])]
    assert json.loads(shown[0])["fields"] == [DEVICE]
    assert shown[0] == shown[1]
    assert len(json.loads(cli("schema", "get", "readings").out)["fields"]) == 2


def test_a_descriptor_is_registered_as_protoc_writes_it(cli: Cli, tmp_path: Path) -> None:
    made = file_of(f'message_type {{ name: "Reading" {field("device", 1, "string")} }}')
    (tmp_path / "reading.pb").write_bytes(FileDescriptorSet(file=[made]).SerializeToString())
    register = ("schema", "register", "readings", "-t", "protobuf", "-f")
    first = cli(*register, str(tmp_path / "reading.pb"))
    assert (first.code, first.out) == (0, "version 1 of subject readings has id 1\n")
    shown = cli("schema", "get", "readings").out
    assert base64.b64decode(shown) == made.SerializeToString()
    assert cli(*register, "-", stdin=shown.encode()).out == first.out
    assert "FileDescriptorSet" in cli(*register, "-", stdin=b'syntax = "proto3";').err


def test_levels_are_shown_and_set(cli: Cli) -> None:
    assert cli("schema", "level").out == "BACKWARD\n"
    assert cli("schema", "level", "--set", "full").out == "FULL\n"
    assert cli("schema", "level", "readings").out == "FULL\n"
    assert cli("schema", "level", "readings", "--set", "NONE").out == "NONE\n"
    refused = cli("schema", "level", "--set", "SOMETIMES")
    assert refused.code == 1
    assert "expected one of NONE, BACKWARD" in refused.err


def test_a_subject_is_deleted_twice(cli: Cli) -> None:
    schema = b'{"type": "object"}'
    assert cli("schema", "register", "alerts", "-t", "json", "-f", "-", stdin=schema).code == 0
    assert cli("schema", "delete", "alerts").out == "subject alerts deleted: 1 versions\n"
    assert cli("schema", "get", "alerts").code == 3
    assert cli("schema", "get", "--id", "1").code == 0
    assert cli("schema", "delete", "alerts", "--permanent").out == "subject alerts deleted for good: 1 versions\n"
    assert cli("schema", "get", "--id", "1").code == 3


def test_what_is_wrong_is_said_in_a_line(cli: Cli, tmp_path: Path) -> None:
    assert cli("schema", "get").code == 2
    assert cli("schema", "get", "a/b").code == 2
    assert cli("schema", "list", "none").code == 3
    missing = cli("schema", "register", "a", "-f", str(tmp_path / "none"))
    assert (missing.code, "cannot be read" in missing.err) == (3, True)
    bad = cli("schema", "register", "a", "-f", "-", stdin=b"{")
    assert (bad.code, "Invalid schema" in bad.err) == (1, True)
