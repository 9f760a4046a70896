from __future__ import annotations

from typing import Any

import pytest

from enmasse.model.kinds.changes import change_problems, keep_immutable
from enmasse.model.kinds.lakes import endpoint_of
from enmasse.model.kinds.spaces import AddressSpace


def space(**lake: Any) -> AddressSpace:
    given = {"endpoint": "https://s3.example.com", "bucket": "lake", "credentialsSecret": "keys"} | lake
    return AddressSpace.model_validate({"metadata": {"name": "plant"}, "spec": {"lake": {"s3": given}}})


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://s3.example.com", ("https", "s3.example.com", 443)),
        ("http://127.0.0.1:9000", ("http", "127.0.0.1", 9000)),
        ("http://[::1]:9000", ("http", "::1", 9000)),
        ("s3://bucket", None),
        ("https://", None),
        ("https://s3.example.com/", None),
        ("https://s3.example.com/path", None),
        ("https://user:secret@s3.example.com", None),
        ("https://s3.example.com?x=1", None),
        ("https://s3.example.com:port", None),
        ("https://s3.example.com:99999", None),
        ("https://s3.example.com\\@169.254.169.254", None),
        ("https://s3 .example.com", None),
    ],
)
def test_an_endpoint_is_a_scheme_a_host_and_a_port(url: str, found: Any) -> None:
    assert endpoint_of(url) == found


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"endpoint": "ftp://x"}, "spec.lake.s3.endpoint"),
        ({"bucket": "No"}, "spec.lake.s3.bucket"),
        ({"bucket": "a..b"}, "spec.lake.s3.bucket"),
        ({"prefix": "/a"}, "spec.lake.s3.prefix"),
        ({"prefix": "a/../b"}, "spec.lake.s3.prefix"),
        ({"region": "no such"}, "spec.lake.s3.region"),
        ({"credentialsSecret": "No/Name"}, "spec.lake.s3.credentialsSecret"),
    ],
)
def test_what_is_no_place_of_a_lake_is_refused(change: dict[str, Any], path: str) -> None:
    assert [problem.path for problem in space(**change).spec_problems()] == [path]


def test_a_lake_stays_where_it_is() -> None:
    assert not list(space(prefix="plant/lake", region="eu-central-1").spec_problems())
    without = AddressSpace.model_validate({"metadata": {"name": "plant"}, "spec": {}})
    assert keep_immutable(space(), without).spec.lake == space().spec.lake
    for old in (space(bucket="other"), without):
        (problem,) = change_problems(old, space())
        assert problem.path == "spec.lake"
    empty = AddressSpace.model_validate({"metadata": {"name": "plant"}, "spec": {"lake": {}}})
    assert [problem.path for problem in empty.spec_problems()] == ["spec.lake.s3"]
