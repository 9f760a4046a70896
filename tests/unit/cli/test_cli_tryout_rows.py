"""The file of a pipeline's test: what it may say, and that it fits its pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from enmasse.cli.commands.use.tryout_rows import Rows, check_rows, ends_of, read_rows
from enmasse.cli.errors import UsageError
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.schema.manifest import load_manifest
from enmasse.model.schema.resource import Resource

GIVEN: dict[str, Any] = {"address": "telemetry", "messages": [{"json": {}}]}
EXPECTED: dict[str, Any] = {"table": "hot", "rows": []}
SOURCE: dict[str, Any] = {"name": "readings", "address": "telemetry", "format": "json", "schema": "device STRING"}


def resources(*documents: dict[str, Any], **spec: Any) -> list[Resource]:
    declared_spec = {"sources": [SOURCE], "sinks": [{"table": "hot"}, {"address": "alerts"}]} | spec
    pipeline = made("Pipeline", "plant.hot", declared_spec)
    return load_manifest(yaml.safe_dump_all([*documents, pipeline]), "test")


def made(kind: str, name: str, spec: dict[str, Any], api: str = "enmasse.io/v1beta1") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def pipeline_of(found: list[Resource]) -> Pipeline:
    return next(one for one in found if isinstance(one, Pipeline))


def rows(*given: dict[str, Any], expect: tuple[dict[str, Any], ...] = (EXPECTED,)) -> Rows:
    return Rows.model_validate({"given": list(given or (GIVEN,)), "expect": list(expect)})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"given": [GIVEN | {"table": "t"}]},
            "given.0: .*expected one of address, table, got address and table",
        ),
        ({"given": [{"messages": []}]}, "got none"),
        ({"given": [{"address": "telemetry"}]}, "address needs messages; of none say messages: \\[\\]"),
        ({"given": [{"address": "a", "rows": []}]}, "rows: not with address"),
        ({"given": [{"table": "t", "schema": "a INT"}]}, "table needs rows"),
        ({"given": [GIVEN | {"schema": "a INT"}]}, "schema: not with address"),
        ({"expect": [{"table": "hot"}]}, "table needs rows; of none say rows: \\[\\]"),
        ({"expect": [{"table": "hot", "rows": [], "type": "stream"}]}, "type: not with table"),
        ({"expect": [{"address": "alerts", "rows": []}]}, "rows: not with address"),
        ({"given": [{"address": "telemetry", "messages": [{"json": 1, "text": "a"}]}]}, "expected one of json, text"),
        ({"given": []}, "given"),
    ],
)
def test_a_file_that_says_nothing_or_two_things_is_refused(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows.yaml"
    file.write_text(yaml.safe_dump({"given": [GIVEN], "expect": [EXPECTED]}))
    read_rows(str(file))
    file.write_text(yaml.safe_dump({"given": [GIVEN], "expect": [EXPECTED]} | changed))
    with pytest.raises(UsageError, match=f"rows.yaml: .*{said}"):
        read_rows(str(file))


DEVICES = {"name": "devices", "table": "devices"}


@pytest.mark.parametrize(
    ("given", "expect", "said"),
    [
        ({"address": "telemetri", "messages": []}, EXPECTED, "given.0: no source reads the address telemetri"),
        ({"table": "device", "schema": "a INT", "rows": []}, EXPECTED, "no source reads the table device: .*devices"),
        (GIVEN, {"table": "telemetry", "rows": []}, "expect.0: no sink writes the table telemetry: expected hot"),
        (
            GIVEN,
            {"address": "alertz", "messages": []},
            "nothing goes to the address alertz: expected alerts, letters",
        ),
    ],
)
def test_names_that_are_none_of_the_pipeline_are_refused(
    given: dict[str, Any], expect: dict[str, Any], said: str
) -> None:
    found = pipeline_of(resources(sources=[SOURCE | {"badRecords": "letters"}, DEVICES]))
    with pytest.raises(UsageError, match=said):
        check_rows("rows.yaml", rows(given, expect=(expect,)), ends_of(found.spec), ())


def test_names_of_the_pipeline_its_file_and_its_builtin_are_taken() -> None:
    spec = pipeline_of(resources(sources=[SOURCE, DEVICES], sinks=[{"table": "hot"}, {"address": "alerts"}])).spec
    given = (
        GIVEN,
        {"address": "telemetry/line1", "messages": []},
        {"address": "declared", "messages": []},
        {"table": "devices", "schema": "a INT", "rows": []},
        {"table": "hot", "schema": "a INT", "rows": []},
    )
    expect = (EXPECTED, {"address": "alerts", "messages": []}, {"address": "declared", "messages": []})
    check_rows("", rows(*given, expect=expect), ends_of(spec), ("declared",))
    pattern = SOURCE | {"address": None, "addressPattern": "plant/#", "schema": "address STRING"}
    anywhere = pipeline_of(resources(sources=[pattern], sinks=[{"address": "*"}])).spec
    to = {"address": "anything", "messages": []}
    check_rows("", rows({"address": "plant/a", "messages": []}, expect=(to,)), ends_of(anywhere), ())
    builtin = pipeline_of(resources(sources=[], sinks=[], builtin=LAST)).spec
    lasts: tuple[dict[str, Any], ...] = ({"table": "last_value", "rows": []}, {"address": "lasts", "messages": []})
    check_rows("", rows(expect=lasts), ends_of(builtin), ())


LAST = {"name": "last-value", "parameters": {"address": "telemetry", "to": "lasts", "startingOffsets": "latest"}}
