from __future__ import annotations

import argparse
import base64
from dataclasses import replace
from typing import Any

import pytest

from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.pipelines.status import PipelineStatus
from enmasse.model.schema.conditions import Condition, find
from enmasse.pipeline.host.command import add_arguments, read_settings
from enmasse.pipeline.host.separation import Separation
from enmasse.pipeline.host.verdict import (
    AddressFacts,
    Facts,
    Rule,
    SpaceFacts,
    cluster_rule,
    compose,
    database_rule,
    judge,
    python_rule,
)

NOW = "2026-11-22T05:00:00Z"
SPACE = SpaceFacts("s1", needs_user=False)
STREAM = AddressFacts("stream", {"columns": "a INT"})


def pipeline(**spec: Any) -> Pipeline:
    given = {
        "sources": [{"name": "readings", "address": "telemetry", "badRecords": "bad"}],
        "sinks": [{"address": "alerts"}],
    } | spec
    metadata = {"name": "shop.hot", "namespace": "default", "uid": "u1", "generation": 2}
    return Pipeline.model_validate({"metadata": metadata, "spec": given})


def facts(**changes: Any) -> Facts:
    addresses = {"telemetry": STREAM, "alerts": AddressFacts("queue"), "bad": AddressFacts("queue")}
    return replace(Facts(space=SPACE, addresses=addresses), **changes)


def secret(**entries: str) -> dict[str, Any]:
    return {"data": {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()}}


def reason(conditions: tuple[Condition, ...], kind: str) -> str:
    found = find(conditions, kind)
    assert found is not None
    return found.reason


def test_a_pipeline_with_all_it_names_runs_and_its_runner_is_told_of_its_addresses() -> None:
    verdict = judge(pipeline(), facts())
    assert verdict.is_wanted
    assert all(item.status == "True" for item in verdict.conditions)
    assert verdict.put == {
        "credentials": "",
        "addresses": {
            "telemetry": {"type": "stream", "schema": {"columns": "a INT"}},
            "bad": {"type": "queue"},
            "alerts": {"type": "queue"},
        },
    }


def test_the_address_of_late_rows_is_needed_too() -> None:
    source = {
        "name": "readings",
        "address": "telemetry",
        "watermark": {"column": "timestamp", "delay": "1s", "late": "stragglers"},
    }
    verdict = judge(pipeline(sources=[source]), facts())
    condition = find(verdict.conditions, "AddressesFound")
    assert condition is not None
    assert "stragglers" in condition.message


@pytest.mark.parametrize(
    ("changes", "kind", "why"),
    [
        ({"space": None}, "SpaceFound", "SpaceMissing"),
        ({"space": SpaceFacts("s1", needs_user=False, is_going=True)}, "SpaceFound", "SpaceGoing"),
        ({"addresses": {"telemetry": STREAM}}, "AddressesFound", "AddressMissing"),
        (
            {
                "addresses": {
                    name: AddressFacts("queue", None, is_ready=False) for name in ("telemetry", "alerts", "bad")
                }
            },
            "AddressesFound",
            "AddressNotReady",
        ),
        ({"space": SpaceFacts("s1", needs_user=True)}, "CredentialsFound", "CredentialsNeeded"),
        ({"spark": "no Java"}, "SparkAvailable", "SparkMissing"),
    ],
)
def test_what_is_missing_is_named_and_keeps_a_new_pipeline_from_running(
    changes: dict[str, Any], kind: str, why: str
) -> None:
    verdict = judge(pipeline(), facts(**changes))
    assert not verdict.is_wanted
    assert reason(verdict.conditions, kind) == why


def test_a_pipeline_that_runs_goes_on_when_an_address_or_its_secret_is_gone() -> None:
    running = pipeline(credentialsSecret="analyst")
    verdict = judge(running, facts(addresses={}, has_begun=True))
    assert verdict.is_wanted
    assert reason(verdict.conditions, "AddressesFound") == "AddressMissing"
    assert reason(verdict.conditions, "CredentialsFound") == "SecretMissing"
    assert not judge(running, facts(space=None, has_begun=True)).is_wanted


def test_a_secret_must_have_the_entries_of_one_way_and_is_in_no_condition() -> None:
    named = pipeline(credentialsSecret="analyst")
    verdict = judge(named, facts(secrets={"analyst": secret(username="ann", password="pa55")}))
    assert verdict.credentials == (("analyst", {"username": "ann", "password": "pa55"}),)
    assert verdict.is_wanted
    assert verdict.put["credentials"] == "analyst"
    assert "pa55" not in repr((verdict.conditions, verdict.put))
    for whole in ({"token": "ey.J"}, {"tls.crt": "-----BEGIN C", "tls.key": "-----BEGIN K"}):
        verdict = judge(named, facts(secrets={"analyst": secret(**whole, **{"ca.crt": "beside"})}))
        assert verdict.credentials == (("analyst", whole | {"ca.crt": "beside"}),)
    for broken in (
        secret(username="ann"),
        {"data": {"username": "###", "password": "eA=="}},
        secret(username="ann", password="pa55", token="ey.J"),
        secret(**{"tls.crt": "-----BEGIN C"}),
        secret(**{"tls.crt": "pa55", "tls.key": "-----BEGIN K"}),
        {},
    ):
        verdict = judge(named, facts(secrets={"analyst": broken}))
        assert not verdict.is_wanted
        assert reason(verdict.conditions, "CredentialsFound") == "SecretIncomplete"
        assert "pa55" not in repr(verdict)


def with_database(**more: Any) -> Pipeline:
    fields = {"type": "postgresql", "host": "db.example.com", "database": "plant", "table": "machines"}
    return pipeline(sinks=[{"database": fields | {"credentialsSecret": "warehouse"} | more}])


def test_the_secret_of_a_database_needs_an_authority_where_its_host_proves_its_name() -> None:
    held = {"username": "ann", "password": "pa55"}
    verdict = judge(with_database(), facts(secrets={"warehouse": secret(**held)}))
    assert not verdict.is_wanted
    assert reason(verdict.conditions, "CredentialsFound") == "SecretIncomplete"
    verdict = judge(with_database(), facts(secrets={"warehouse": secret(**held, **{"ca.crt": "PEM"})}))
    assert verdict.is_wanted
    assert verdict.credentials == (("warehouse", held | {"ca.crt": "PEM"}),)
    # It is no user of the space.
    assert verdict.put["credentials"] == ""
    assert judge(with_database(tls="off"), facts(secrets={"warehouse": secret(**held)})).is_wanted
    # One that is for the node.
    verdict = judge(with_database(tls="off"), facts(secrets={"warehouse": secret(token="ey.J")}))
    condition = find(verdict.conditions, "CredentialsFound")
    assert condition is not None
    assert (verdict.is_wanted, condition.reason) == (False, "SecretIncomplete")
    assert condition.message == "Secret warehouse: a database is opened by the entries username and password"
    assert reason(judge(with_database(), facts()).conditions, "CredentialsFound") == "SecretMissing"


@pytest.mark.parametrize(
    ("host", "hosts", "is_allowed"),
    [
        ("db.example.com", "", False),
        ("db.example.com", "db.example.com", False),  # web ports
        ("db.example.com", "db.example.com:5433", False),
        ("db.example.com", "other.example.com:5432", False),
        ("DB.example.com", "db.example.com:5432", True),
        ("10.1.2.3", "10.1.0.0/16:5432", True),
        ("10.2.2.3", "10.1.0.0/16:5432", False),
        ("127.0.0.1", "0.0.0.0/0:5432", False),
        ("127.0.0.1", "127.0.0.1:5432", True),
        ("2001:db8::7", "[2001:db8::7]:5432", True),
        ("169.254.169.254", "169.254.169.254:5432", False),
        ("fe80::1", "[fe80::1]:5432", False),
    ],
)
def test_a_pipeline_reaches_the_databases_that_an_operator_has_listed(
    host: str, hosts: str, is_allowed: bool
) -> None:
    rule = database_rule(with_database(host=host), hosts)
    assert rule is not None
    assert rule.is_allowed is is_allowed
    verdict = judge(with_database(tls="off", host=host), facts(databases=rule, has_begun=True))
    assert verdict.is_wanted is is_allowed
    assert reason(verdict.conditions, "DatabasesAllowed") == ("Granted" if is_allowed else "HostNotGranted")


def test_a_pipeline_without_databases_needs_no_host() -> None:
    assert database_rule(pipeline(), "") is None


def test_code_must_have_the_modules_that_its_functions_for_sql_name() -> None:
    function = {"name": "warm", "function": "units:fahrenheit", "returns": "DOUBLE"}
    own = pipeline(code={"configMap": "units", "functions": [function]}, resources={"session": "own"})
    assert reason(judge(own, facts(code={"data": {}})).conditions, "CodeFound") == "ModuleMissing"
    assert reason(judge(own, facts(code={"data": {"units.py": ""}})).conditions, "CodeFound") == "Found"


def test_code_must_have_the_modules_that_steps_name() -> None:
    scored = pipeline(
        steps=[{"name": "scored", "function": "scoring:score", "schema": "a INT"}], code={"configMap": "scoring"}
    )
    assert reason(judge(scored, facts()).conditions, "CodeFound") == "ConfigMapMissing"
    found = judge(scored, facts(code={"data": {"other.py": "", "notes.txt": "", "../x.py": ""}}))
    assert reason(found.conditions, "CodeFound") == "ModuleMissing"
    found = judge(scored, facts(code={"data": {"scoring.py": "a = 1", "notes.txt": ""}}))
    assert found.is_wanted
    assert found.modules == {"scoring.py": "a = 1"}
    assert found.mark != judge(scored, facts(code={"data": {"scoring.py": "a = 2"}})).mark


def test_python_that_may_not_run_is_stopped_even_if_it_has_begun_and_sql_is_not() -> None:
    rule = Rule(False, "NotSeparated", "because")
    scored = pipeline(steps=[{"name": "scored", "function": "scoring:score", "schema": "a INT"}])
    verdict = judge(scored, facts(python=rule, has_begun=True))
    assert not verdict.is_wanted
    assert reason(verdict.conditions, "PythonAllowed") == "NotSeparated"
    status = compose(scored, PipelineStatus(), verdict, None, NOW)
    assert (status.phase, status.is_ready, status.messages[0]) == ("Failed", False, "because")
    assert judge(pipeline(), facts(python=rule)).is_wanted


@pytest.mark.parametrize(
    ("arguments", "is_open"),
    [
        ("", True),  # nobody has said that it asks
        ("--api-auth token", False),
        ("--api-auth required", False),
        ("--api-auth open", True),
        ("--api-auth open --allow-python", False),
    ],
)
def test_an_open_api_keeps_python_out_unless_it_is_allowed(arguments: str, is_open: bool) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    where = ["--data", "data", "--api", "http://127.0.0.1:1", "--amqp", "amqp://127.0.0.1:2"]
    assert read_settings(parser.parse_args([*where, *arguments.split()])).is_api_open == is_open


def test_python_runs_in_an_only_space_or_where_spaces_are_kept_apart() -> None:
    apart, together = Separation(True), Separation(False, "it is no root")
    assert python_rule(together, 1, is_api_open=False).reason == "OneSpace"
    assert python_rule(apart, 2, is_api_open=False).reason == "Separated"
    refused = python_rule(together, 2, is_api_open=False)
    assert (refused.is_allowed, refused.reason) == (False, "NotSeparated")
    assert "it is no root" in refused.message
    for spaces in (1, 2):
        refused = python_rule(apart, spaces, is_api_open=True)
        assert (refused.is_allowed, refused.reason) == (False, "ApiOpen")


@pytest.mark.parametrize(
    ("master", "spaces", "why"),
    [
        ("spark://127.0.0.1:7077", 1, "OneSpace"),
        ("spark://127.0.0.1:7077", 2, "NotSeparated"),
        ("k8s://https://10.0.0.1", 1, "NotSupported"),
        ("yarn", 1, "NotSupported"),
        ("local[2]", 2, ""),
        (None, 2, ""),
    ],
)
def test_a_cluster_must_be_a_standalone_one_and_nobody_kept_from_another(
    master: str | None, spaces: int, why: str
) -> None:
    far = pipeline(resources={"session": "own", "master": master})
    rule = cluster_rule(far, spaces)
    assert (rule.reason if rule is not None else "") == why
    verdict = judge(far, facts(cluster=rule, has_begun=True))
    assert verdict.is_wanted == (why in ("", "OneSpace"))
    status = compose(far, PipelineStatus(), verdict, None, NOW)
    assert status.phase == ("Starting" if verdict.is_wanted else "Failed")
    assert verdict.is_wanted or status.messages[0] == rule.message  # type: ignore[union-attr]  # there is one


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        (None, "OneSpace"),
        ("one:7077, 10.0.0.0/8:7077", "OneSpace"),
        ("one:7077", "HostNotGranted"),
        ("one, 10.0.0.2:7077", "HostNotGranted"),
        ("", "HostNotGranted"),
    ],
)
def test_an_operator_lists_all_masters_of_a_cluster_where_runners_are_kept_from_other_hosts(
    hosts: str | None, why: str
) -> None:
    far = pipeline(resources={"session": "own", "master": "spark://one:7077,10.0.0.2:7077"})
    rule = cluster_rule(far, 1, hosts)
    assert rule is not None
    assert (rule.is_allowed, rule.reason) == (why == "OneSpace", why)


def test_built_in_pipelines_wait_for_their_addresses_and_patterns_for_none() -> None:
    metering = pipeline(sources=[], sinks=[], builtin={"name": "metering", "parameters": {"addresses": ["plant/#"]}})
    verdict = judge(metering, facts(addresses={"plant/a": STREAM, "other": STREAM}))
    assert verdict.is_wanted
    assert list(verdict.put["addresses"]) == ["plant/a"]
    lake = pipeline(sources=[], sinks=[], builtin={"name": "lake", "parameters": {"address": "telemetry"}})
    assert judge(lake, facts()).is_wanted
    assert not judge(lake, facts(addresses={})).is_wanted


def test_a_paused_or_finished_pipeline_rests() -> None:
    paused = judge(pipeline(paused=True), facts())
    assert (paused.is_wanted, paused.rest) == (False, "Paused")
    done = pipeline(trigger="availableNow")
    finished = done.model_copy(update={"status": PipelineStatus(phase="Finished", observed_generation=2)})
    assert judge(finished, facts()).rest == "Finished"
    changed = done.model_copy(update={"status": PipelineStatus(phase="Finished", observed_generation=1)})
    assert judge(changed, facts()).is_wanted


def said(truth: str, why: str, message: str = "", **fields: Any) -> PipelineStatus:
    ready = {"type": "Ready", "status": truth, "reason": why, "message": message}
    return PipelineStatus.model_validate({"conditions": [ready], **fields})


@pytest.mark.parametrize(
    ("status", "phase", "is_ready"),
    [
        (None, "Starting", False),
        (said("False", "Starting"), "Starting", False),
        (said("True", "Running"), "Running", True),
        (said("True", "Finished"), "Finished", True),
        (said("False", "ModelMissing", "there is no model 'pumps' yet"), "Pending", False),
        (said("False", "Waiting", "it runs after shop.first"), "Pending", False),
        (said("False", "QueryFailed", "query a: no"), "Failed", False),
        (said("False", "CheckpointMisfit", "no"), "Failed", False),
    ],
)
def test_the_phase_follows_what_the_runner_says(status: PipelineStatus | None, phase: str, is_ready: bool) -> None:
    found = compose(pipeline(), PipelineStatus(), judge(pipeline(), facts()), status, NOW)
    assert (found.phase, found.is_ready, found.observed_generation) == (phase, is_ready, 2)


@pytest.mark.parametrize("why", ["Degraded", "LongBatch"])
def test_one_that_runs_and_is_not_well_says_so_among_its_messages(why: str) -> None:
    ready = said("True", why, "query a: so it is")
    found = compose(pipeline(), PipelineStatus(), judge(pipeline(), facts()), ready, NOW)
    assert (found.phase, found.is_ready, found.messages) == ("Running", True, ("query a: so it is",))
    well = compose(pipeline(), PipelineStatus(), judge(pipeline(), facts()), said("True", "Running"), NOW)
    assert well.messages == ()


@pytest.mark.parametrize(
    ("kind", "spec", "paths"),
    [
        ("stream", {"startingOffsets": "latest", "failOnDataLoss": False}, []),
        ("queue", {"startingOffsets": "latest"}, ["spec.sources[0].startingOffsets"]),
        ("queue", {"failOnDataLoss": False}, ["spec.sources[0].failOnDataLoss"]),
        ("stream", {"format": "raw", "badRecords": "bad"}, ["spec.sources[0].badRecords"]),
    ],
)
def test_a_source_says_what_addresses_of_its_type_have_not(kind: str, spec: dict[str, Any], paths: list[str]) -> None:
    asking = pipeline(sources=[{"name": "readings", "address": "telemetry", **spec}])
    there = {**facts().addresses, "telemetry": AddressFacts(kind)}
    verdict = judge(asking, facts(addresses=there))
    assert [item.path for item in verdict.unapplied] == paths
    found = find(compose(asking, PipelineStatus(), verdict, said("True", "Running"), NOW).conditions, "InEffect")
    assert found is not None
    assert (found.status, found.observed_generation) == ("False" if paths else "True", 2)
    assert all(path in found.message for path in paths)


def test_what_else_of_a_pipeline_needs_another_type_of_address_is_said() -> None:
    sinks = [{"address": "alerts", "onNoConsumer": "skip"}]
    asking = pipeline(sinks=sinks, restart={"at": "now", "from": "earliest"})
    there = {"telemetry": AddressFacts("queue"), "bad": STREAM, "alerts": STREAM}
    paths = [item.path for item in judge(asking, facts(addresses=there)).unapplied]
    assert paths == ["spec.sinks[0].onNoConsumer", "spec.restart.from"]
    built = Pipeline.model_validate(
        {
            "metadata": {"name": "shop.raw", "namespace": "default"},
            "spec": {
                "builtin": {"name": "lake", "parameters": {"address": "telemetry", "startingOffsets": "latest"}}
            },
        }
    )
    paths = [item.path for item in judge(built, facts(addresses=there)).unapplied]
    assert paths == ["spec.builtin.parameters.startingOffsets"]


def test_figures_of_the_runner_are_passed_on_and_kept_while_it_rests() -> None:
    query = {"name": "q", "state": "Running", "rows": 7, "inputRowsPerSecond": 3.0}
    running = said("True", "Running", rows=7, rate=3.0, lag=0, queries=[query])
    first = compose(pipeline(), PipelineStatus(), judge(pipeline(), facts()), running, NOW)
    assert (first.rows, first.rate, first.lag, first.queries[0].state) == (7, 3.0, 0, "Running")
    paused = pipeline(paused=True)
    second = compose(paused, first, judge(paused, facts()), None, NOW)
    assert (second.phase, second.rows, second.rate, second.queries[0].state) == ("Paused", 7, None, "Paused")


def test_runs_of_a_schedule_are_told_and_the_last_is_remembered() -> None:
    now, verdict = PipelineStatus(), judge(pipeline(), facts())
    ended = said("True", "Finished").model_copy(update={"last_run": "2026-11-22T04:00:00Z", "next_run": NOW})
    first = compose(pipeline(), now, verdict, ended, NOW)
    assert (first.last_run, first.next_run) == ("2026-11-22T04:00:00Z", NOW)
    again = compose(pipeline(), first, verdict, said("True", "Running"), NOW)
    assert (again.last_run, again.next_run) == ("2026-11-22T04:00:00Z", None)
    paused = compose(pipeline(paused=True), first, judge(pipeline(paused=True), facts()), None, NOW)
    assert (paused.last_run, paused.next_run) == ("2026-11-22T04:00:00Z", None)


@pytest.mark.parametrize("again", [{"schedule": "0 3 * * *"}, {"after": ["first"]}, {}])
def test_what_has_finished_stays_with_its_runner_if_it_runs_again(again: dict[str, Any]) -> None:
    finished = {"phase": "Finished", "observed_generation": pipeline().metadata.generation}
    declared = pipeline(trigger="availableNow", **again)
    ended = declared.model_copy(update={"status": declared.status.model_copy(update=finished)})
    assert judge(ended, facts()).is_wanted == bool(again)


def test_a_runner_that_ended_is_told_of_and_times_of_conditions_stay() -> None:
    verdict = judge(pipeline(), facts())
    first = compose(pipeline(), PipelineStatus(), verdict, said("True", "Running"), NOW)
    later = compose(pipeline(), first, verdict, None, "2026-11-22T06:00:00Z", ending="was ended by signal 9")
    assert later.phase == "Starting"
    assert "signal 9" in later.messages[0]
    found = find(later.conditions, "SpaceFound")
    assert found is not None
    assert found.last_transition_time == NOW
