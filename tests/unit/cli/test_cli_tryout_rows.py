"""The file of a pipeline's test: what it may say, and that it fits its pipeline; what is declared for it."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

from enmasse.cli.commands.use.tryout_declared import USER, declared, playing
from enmasse.cli.commands.use.tryout_rows import Given, Rows, check_rows, ends_of, read_rows
from enmasse.cli.commands.use.tryout_trial import batches
from enmasse.cli.errors import UsageError
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.schema.manifest import load_manifest
from enmasse.model.schema.resource import Resource

GIVEN: dict[str, Any] = {"address": "telemetry", "messages": [{"json": {}}]}
EXPECTED: dict[str, Any] = {"table": "hot", "rows": []}
SOURCE: dict[str, Any] = {"name": "readings", "address": "telemetry", "format": "json", "schema": "device STRING"}
WITH_WATERMARK = {"schema": "ts TIMESTAMP", "watermark": {"column": "ts", "delay": "1s"}}


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


def documents_of(found: list[Resource], tried: Rows | None = None) -> dict[str, dict[str, Any]]:
    told = declared(pipeline_of(found), found, tried or rows())
    return {one["spec"].get("address", one["kind"]) if "spec" in one else one["kind"]: one for one in told.documents}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"given": [GIVEN | {"table": "t"}]},
            "given.0: .*expected one of address, table, files, got address and table",
        ),
        ({"given": [{"messages": []}]}, "got none"),
        ({"given": [{"address": "telemetry"}]}, "address needs messages; of none say messages: \\[\\]"),
        ({"given": [{"address": "a", "rows": []}]}, "rows: not with address"),
        ({"given": [{"table": "t", "schema": "a INT"}]}, "table needs rows"),
        ({"given": [{"files": "f", "messages": [], "schema": "a INT"}]}, "schema: not with files"),
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


FILES = {"name": "orders", "files": {"path": "orders/new", "format": "csv"}, "schema": "id INT"}
DEVICES = {"name": "devices", "table": "devices"}


@pytest.mark.parametrize(
    ("given", "expect", "said"),
    [
        ({"address": "telemetri", "messages": []}, EXPECTED, "given.0: no source reads the address telemetri"),
        ({"table": "device", "schema": "a INT", "rows": []}, EXPECTED, "no source reads the table device: .*devices"),
        ({"files": "orders/newer", "messages": []}, EXPECTED, "no source reads files of orders/newer"),
        ({"files": "orders/new/../..", "messages": []}, EXPECTED, "no source reads files of orders/new/"),
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
    found = pipeline_of(resources(sources=[SOURCE | {"badRecords": "letters"}, FILES, DEVICES]))
    with pytest.raises(UsageError, match=said):
        check_rows("rows.yaml", rows(given, expect=(expect,)), ends_of(found.spec), ())


def test_names_of_the_pipeline_its_file_and_its_builtin_are_taken() -> None:
    spec = pipeline_of(
        resources(sources=[SOURCE, FILES, DEVICES], sinks=[{"table": "hot"}, {"address": "alerts"}])
    ).spec
    given = (
        GIVEN,
        {"address": "telemetry/line1", "messages": []},
        {"address": "declared", "messages": []},
        {"table": "devices", "schema": "a INT", "rows": []},
        {"table": "hot", "schema": "a INT", "rows": []},
        {"files": "orders/new/today", "messages": []},
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


def test_what_nobody_declares_is_declared_also_for_builtin_pipelines() -> None:
    found = documents_of(resources(sources=[], sinks=[], builtin=LAST))
    assert {name: one["spec"].get("type") for name, one in found.items()} == {
        "AddressSpace": "standard",
        "telemetry": "stream",
        "lasts": "queue",
    }
    found = documents_of(
        resources(sources=[SOURCE | {"badRecords": "letters"}], sinks=[{"address": "out"}]),
        rows(
            {"address": "telemetry/a", "messages": []}, expect=({"address": "out", "messages": [], "type": "stream"},)
        ),
    )
    kinds = {name: one["spec"]["type"] for name, one in found.items()}
    assert kinds == {"AddressSpace": "standard", "telemetry": "topic", "letters": "queue", "out": "stream"}


def test_what_leads_elsewhere_is_left_out_and_what_is_read_at_once_waits() -> None:
    space = made(
        "AddressSpace", "plant", {"type": "standard", "plan": "big", "authenticationService": {"name": "sso"}}
    )
    address = made("Address", "plant.telemetry", {"address": "telemetry", "type": "anycast"})
    found = documents_of(resources(space, address))
    assert found["AddressSpace"]["spec"] == {"type": "standard", "authenticationService": {"name": "standard"}}
    assert found["telemetry"]["spec"] == {"address": "telemetry", "type": "queue"}


SPARK = made(
    "MessagingUser",
    "plant.spark",
    {
        "username": "spark",
        "authentication": {"type": "password", "password": b64encode(b"theirs").decode()},
        "authorization": [{"operations": ["recv"], "addresses": ["telemetry"]}],
    },
    "user.enmasse.io/v1beta1",
)


@pytest.mark.parametrize(
    ("documents", "comes_as"),
    [
        ([], USER),
        ([SPARK], USER),
        ([{"stringData": {"username": "spark", "password": "theirs"}}, SPARK], "spark"),
        ([{"stringData": {"username": "spark", "password": "other"}}, SPARK], USER),
        ([{"stringData": {"username": "spark", "password": "theirs"}}], USER),
        ([{"stringData": {"token": "t"}}, SPARK], USER),
    ],
)
def test_a_pipeline_of_a_space_with_users_is_who_its_file_says_or_one_who_may_all(
    documents: list[dict[str, Any]], comes_as: str
) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "who", "namespace": "default"}}
    documents = [secret | one if "stringData" in one else one for one in documents]
    found = resources(*documents, credentialsSecret="who")
    told = declared(pipeline_of(found), found, rows())
    assert told.password
    assert told.documents[0]["spec"]["authenticationService"] == {"name": "standard"}
    secrets = [one for one in told.documents if one["kind"] == "Secret"]
    assert [one["data"]["username"] for one in secrets] == [b64encode(comes_as.encode()).decode()]
    users = [one["spec"]["username"] for one in told.documents if one["kind"] == "MessagingUser"]
    assert users == [USER, *(["spark"] if SPARK in documents else [])]


def test_a_pipeline_plays_from_the_beginning_to_the_end_on_this_machine() -> None:
    late = {"address": "telemetry", "startingOffsets": "latest"}
    table = {"name": "orders", "table": "orders", "stream": True, "startingOffsets": "latest"}
    sinks = [{"table": "hot", "trigger": "1m"}]
    own = {"session": "own", "master": "spark://away:7077", "cores": 100}
    played = playing(
        pipeline_of(
            resources(sources=[SOURCE | late, table], sinks=sinks, paused=True, resources=own, restart={"at": "now"})
        )
    )
    assert played["spec"]["trigger"] == "availableNow"
    assert played["spec"]["resources"] == {"session": "own"}
    assert {"paused", "restart", "schedule", "after"}.isdisjoint(played["spec"])
    assert "startingOffsets" not in played["spec"]["sources"][0]
    assert played["spec"]["sources"][1]["startingOffsets"] == "latest"
    assert played["spec"]["sinks"] == [{"table": "hot"}]
    scheduled = {"trigger": "availableNow", "schedule": "0 3 * * *"}
    assert "schedule" not in playing(pipeline_of(resources(**scheduled)))["spec"]
    silent = {"name": "heartbeat", "parameters": {"address": "telemetry", "alerts": "alerts"}}
    played = playing(pipeline_of(resources(sources=[], sinks=[], builtin=silent)))
    assert played["spec"]["builtin"]["parameters"]["startingOffsets"] == "earliest"


def test_entries_are_batches_and_come_together_where_all_watermarks_have_to_move() -> None:
    given = [Given.model_validate({"address": name, "messages": []}) for name in ("a", "b", "a", "a", "b")]
    table = Given.model_validate({"table": "t", "schema": "a INT", "rows": []})
    both = [SOURCE | WITH_WATERMARK | {"name": name, "address": name} for name in ("a", "b")]

    def taken(sources: list[dict[str, Any]]) -> list[list[str | None]]:
        spec = pipeline_of(resources(sources=sources)).spec
        return [[one.address for one in batch] for batch in batches(spec, [table, *given])]

    assert taken(both[:1]) == [["a"], ["b"], ["a"], ["a"], ["b"]]
    assert taken(both) == [["a", "b"], ["a"], ["a", "b"]]
    assert batches(pipeline_of(resources()).spec, [table]) == [[]]
