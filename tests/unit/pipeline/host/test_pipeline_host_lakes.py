from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enmasse.model.kinds.lakes import S3Lake
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.schema.conditions import find
from enmasse.pipeline.errors import LakeAwayError
from enmasse.pipeline.host.lakes import LakeFacts, lake_facts
from enmasse.pipeline.host.space_folders import SpaceFolder
from enmasse.pipeline.host.verdict import AddressFacts, Facts, SpaceFacts, judge, runs_python
from enmasse.pipeline.lake.objects import ObjectPath, storage_failure, storage_of

LAKE = S3Lake(endpoint="https://s3.example.com", bucket="lake", prefix="a/b", credentials_secret="keys")
HOSTS = "s3.example.com"


def secret(**entries: str) -> dict[str, Any]:
    return {"data": {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()}}


KEYS = secret(accessKeyId="id", secretAccessKey="hidden")


@pytest.mark.parametrize(
    ("hosts", "given", "reason"),
    [
        ("", KEYS, "HostNotGranted"),
        ("s3.example.com:9000, other.example.com", KEYS, "HostNotGranted"),
        (HOSTS, None, "SecretMissing"),
        (HOSTS, secret(accessKeyId="id"), "SecretIncomplete"),
        (HOSTS, {"data": {"accessKeyId": "%", "secretAccessKey": "%"}}, "SecretIncomplete"),
    ],
)
def test_a_lake_needs_a_host_that_is_listed_and_keys(hosts: str, given: Any, reason: str) -> None:
    found = lake_facts(LAKE, hosts, "default", given)
    assert (found.reason, dict(found.settings)) == (reason, {})
    assert "hidden" not in found.problem
    pipeline = Pipeline.model_validate(
        {
            "metadata": {"name": "shop.hot", "namespace": "default", "uid": "u", "generation": 1},
            "spec": {"sources": [{"name": "rows", "address": "telemetry"}], "sinks": [{"table": "rows"}]},
        }
    )
    facts = Facts(SpaceFacts("s", needs_user=False, lake=LAKE), {"telemetry": AddressFacts("stream")}, lake=found)
    verdict = judge(pipeline, facts)
    condition = find(verdict.conditions, "LakeFound")
    assert condition is not None
    assert (verdict.is_wanted, condition.reason) == (False, reason)
    assert judge(pipeline, replace(facts, lake=LakeFacts({"endpoint": "x"}))).is_wanted


def test_addresses_where_clouds_tell_secrets_are_no_lake() -> None:
    lake = LAKE.model_copy(update={"endpoint": "http://169.254.169.254"})
    found = lake_facts(lake, "169.254.169.254", "default", KEYS)
    assert found.reason == "HostNotGranted"
    assert "is refused" in found.problem


@pytest.mark.parametrize("host", ["10.0.0.256", "2852039166"])
def test_a_host_that_is_none_is_said(host: str) -> None:
    found = lake_facts(LAKE.model_copy(update={"endpoint": f"http://{host}:9000"}), HOSTS, "default", KEYS)
    assert (found.reason, found.problem) == (
        "HostNotGranted",
        f"the host {host} of spec.lake is neither a name nor an address",
    )


def test_a_process_finds_the_storage_and_changed_keys(tmp_path: Path) -> None:
    folder = SpaceFolder(tmp_path / "space", None)
    folder.make()
    credentials = folder.path / "credentials"
    assert storage_of(credentials) is None
    settings = lake_facts(LAKE, HOSTS, "default", KEYS).settings
    assert "hidden" not in repr(lake_facts(LAKE, HOSTS, "default", KEYS))
    folder.write_lake(settings)
    found = storage_of(credentials)
    assert found is not None
    assert found.root == ObjectPath("s3://lake/a/b")
    assert found.options["aws_secret_access_key"] == "hidden"
    written = (credentials / "_lake.json").stat()
    folder.write_lake(settings)
    assert (credentials / "_lake.json").stat().st_ino == written.st_ino
    assert storage_of(credentials) is found
    changed = secret(accessKeyId="id", secretAccessKey="other", sessionToken="token")
    folder.write_lake(lake_facts(LAKE, HOSTS, "default", changed).settings)
    found = storage_of(credentials)
    assert found is not None
    assert (found.options["aws_secret_access_key"], found.options["aws_session_token"]) == ("other", "token")
    (credentials / "_lake.json").write_text("{")
    with pytest.raises(LakeAwayError, match="cannot be read"):
        storage_of(credentials)
    assert json.dumps(dict(settings)).count("hidden") == 1


def test_paths_of_objects_are_like_those_of_folders() -> None:
    path = ObjectPath("s3://lake/a") / "t" / "_delta_log/0.json"
    assert (str(path), path.name, path.key) == (
        "s3://lake/a/t/_delta_log/0.json",
        "0.json",
        "lake/a/t/_delta_log/0.json",
    )
    assert path.parent.parent.name == "t"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("When reading s3://x: AWS Error ACCESS_DENIED during HeadObject", "the storage refuses the credentials"),
        (
            "AWS Error SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation: The",
            "the storage refuses the credentials",
        ),
        (
            "AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: The",
            "the storage refuses the credentials",
        ),
        (
            "Kernel error -> The operation lacked the necessary privileges to complete for path t\n  403 Forbidden",
            "the storage refuses the credentials",
        ),
        ("AWS Error REQUEST_TIME_TOO_SKEWED during PutObject operation", "the credentials have expired"),
        ("Generic S3 error: ... ExpiredToken ...", "the credentials have expired"),
        ("Generic S3 error: 503 Slow Down: SlowDown", "the storage asks for fewer requests"),
        ("AWS Error UNKNOWN (HTTP status 503) during HeadObject: No response body", "the storage asks for fewer"),
        ("Kernel error\n -> Generic S3 error\n  Server\n   500 Internal Server Error", "the storage does not answer"),
        ("Generic S3 error: HTTP error: error sending request", "the storage does not answer"),
        ("AWS Error NO_SUCH_BUCKET during PutObject in S3", "there is no such bucket"),
    ],
)
def test_what_storage_says_is_told_in_words_of_its_users(text: str, said: str) -> None:
    found = storage_failure(text)
    assert found is not None
    assert found.startswith(said)


def test_other_errors_are_none_of_the_storages() -> None:
    for text in (
        "the table has 429 rows and timed out",
        "KeyError: 'S3'\n  line 503",
        "sensor S3 sent 4290",
        "cannot cast S3\n\tat Foo.scala:503",
        "damaged: s3://lake/part-5034aa.parquet",
        "AWS Error UNKNOWN\n\tat Foo.scala: status 503",
    ):
        assert storage_failure(text) is None, text


def test_functions_for_sql_are_python_of_the_users() -> None:
    spec = {
        "sources": [{"name": "rows", "address": "telemetry"}],
        "steps": [{"name": "more", "sql": "SELECT plus(value) AS v FROM rows"}],
        "sinks": [{"table": "more"}],
        "code": {"configMap": "code", "functions": [{"name": "plus", "function": "m:plus", "returns": "INT"}]},
        "resources": {"session": "own"},
    }
    assert runs_python(Pipeline.model_validate({"metadata": {"name": "shop.hot"}, "spec": spec}))
