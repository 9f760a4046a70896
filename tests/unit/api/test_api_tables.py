"""Objects as tables and as bare metadata."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.api.kube import collections
from enmasse.api.kube.negotiation import Form
from enmasse.api.kube.tables import Shape, describe_age

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    Api = Callable[..., httpx.Response]

SPACES = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"
TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def space(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": name, "labels": {"team": "red"}},
        "spec": {"type": "standard", "plan": "standard-small"},
    }


@pytest.fixture
def spaces(api: Api) -> Api:
    for name in ("one", "two"):
        assert api("POST", SPACES, json=space(name)).status_code == 201
    return api


def test_a_list_is_a_table_with_the_columns_of_the_kind(spaces: Api) -> None:
    table = spaces("GET", SPACES, headers={"accept": TABLE}).json()
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"]["resourceVersion"] == "2"
    shown = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    assert shown == ["Name", "Type", "Plan", "Ready", "Phase", "Age"]
    assert {column["name"] for column in table["columnDefinitions"] if column["priority"] == 1} >= {"Status"}
    assert [row["cells"][:3] for row in table["rows"]] == [
        ["one", "standard", "standard-small"],
        ["two", "standard", "standard-small"],
    ]
    assert all(len(row["cells"]) == len(table["columnDefinitions"]) for row in table["rows"])


@pytest.mark.parametrize("accept", [TABLE, METADATA])
def test_others_have_turns_while_a_long_list_is_shaped(
    spaces: Api, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    whole = spaces("GET", SPACES, headers={"accept": accept}).json()
    turns: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        turns.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(collections, "_SHAPED_AT_ONCE", 1)
    monkeypatch.setattr(asyncio, "sleep", note)
    assert spaces("GET", SPACES, headers={"accept": accept}).json() == whole
    assert turns.count(0) >= 2
    nothing = f"{SPACES}?labelSelector=team%3Dblue"
    empty = spaces("GET", nothing, headers={"accept": accept}).json()
    assert empty["rows" if accept == TABLE else "items"] == []
    assert empty["kind"] == whole["kind"]


def test_a_row_carries_what_was_asked_for_of_its_object(spaces: Api) -> None:
    def rows(include: str) -> Any:
        return spaces("GET", SPACES, headers={"accept": TABLE}, params={"includeObject": include}).json()["rows"]

    assert rows("Metadata")[0]["object"]["kind"] == "PartialObjectMetadata"
    assert set(rows("")[0]["object"]) == {"kind", "apiVersion", "metadata"}
    assert rows("Object")[0]["object"]["spec"]["plan"] == "standard-small"
    assert "object" not in rows("None")[0]
    wrong = spaces("GET", SPACES, headers={"accept": TABLE}, params={"includeObject": "Some"})
    assert (wrong.status_code, "includeObject" in wrong.json()["message"]) == (400, True)


def test_one_object_is_a_table_of_one_row_in_the_version_that_was_asked_for(spaces: Api) -> None:
    accept = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
    table = spaces("GET", f"{SPACES}/two", headers={"accept": accept}).json()
    assert (table["apiVersion"], [row["cells"][0] for row in table["rows"]]) == ("meta.k8s.io/v1beta1", ["two"])


def test_only_the_metadata_is_answered_where_that_is_asked_for(spaces: Api) -> None:
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    found = spaces("GET", SPACES, headers={"accept": accept}).json()
    assert found["kind"] == "PartialObjectMetadataList"
    assert [item["metadata"]["labels"] for item in found["items"]] == [{"team": "red"}] * 2
    assert all("spec" not in item for item in found["items"])
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert spaces("GET", f"{SPACES}/one", headers={"accept": accept}).json()["kind"] == "PartialObjectMetadata"


def test_the_best_form_that_is_known_is_chosen(spaces: Api) -> None:
    def kind(accept: str) -> Any:
        response = spaces("GET", SPACES, headers={"accept": accept})
        return response.json().get("kind"), response.status_code

    assert kind("application/json;as=Table;v=v7;g=meta.k8s.io, application/json") == ("AddressSpaceList", 200)
    assert kind("application/json;q=0.5, application/json;as=Table;v=v1;g=meta.k8s.io") == ("Table", 200)
    assert kind("*/*") == ("AddressSpaceList", 200)
    assert kind("application/*;q=high, text/html, application/json") == ("AddressSpaceList", 200)
    assert kind("application/vnd.kubernetes.protobuf") == ("Status", 406)


def test_a_watch_tells_the_columns_once() -> None:
    shape = Shape("AddressSpace", Form("Table", "v1"), now=lambda: NOW)
    document = space("one") | {"metadata": {"name": "one", "creationTimestamp": "2025-12-31T23:59:00Z"}}
    first, second = shape.event(document), shape.event(document)
    assert [column["name"] for column in first["columnDefinitions"]][-1] == "Age"
    assert first["rows"][0]["cells"][-1] == "60s"
    assert second["columnDefinitions"] == []
    bookmark = {"kind": "AddressSpace", "apiVersion": "enmasse.io/v1beta1", "metadata": {"resourceVersion": "9"}}
    assert shape.event(bookmark)["rows"][0]["object"]["metadata"] == {"resourceVersion": "9"}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 120, "3h2m"),
        (47 * 3600, "47h"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (2 * 365 * 86400, "2y"),
        (2 * 365 * 86400 + 3 * 86400, "2y3d"),
        (9 * 365 * 86400, "9y"),
        (-60, "<invalid>"),
    ],
)
def test_ages_read_as_kubectl_has_them(seconds: int, shown: str) -> None:
    assert describe_age((NOW - timedelta(seconds=seconds)).isoformat(), NOW) == shown


def test_what_is_no_time_has_no_age() -> None:
    assert [describe_age(value, NOW) for value in (None, "", "soon", 7)] == ["<unknown>"] * 4


def test_kinds_of_kubernetes_have_the_columns_that_its_users_know() -> None:
    form = Form("Table", "v1")
    event = {
        "metadata": {"name": "e", "creationTimestamp": "2025-12-31T00:00:00Z"},
        "involvedObject": {"kind": "Address", "name": "shop.orders"},
        "lastTimestamp": "2025-12-31T23:59:30Z",
        "type": "Warning",
        "reason": "QuotaExceeded",
        "message": "no room",
        "count": 3,
    }
    row = Shape("Event", form, now=lambda: NOW).one(event)["rows"][0]["cells"]
    assert row[:5] == ["e", "30s", "Warning", "QuotaExceeded", "address/shop.orders"]
    secret = {"metadata": {"name": "s"}, "type": "Opaque", "data": {"a": "eA==", "b": "eQ=="}}
    assert Shape("Secret", form).one(secret)["rows"][0]["cells"][:3] == ["s", "Opaque", 2]
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "tenant-edit"},
        "subjects": [
            {"kind": "User", "name": "ann"},
            {"kind": "Group", "name": "red"},
            {"kind": "User", "name": "bob"},
        ],
    }
    cells = Shape("RoleBinding", form).one(binding)["rows"][0]["cells"]
    assert (cells[1], cells[3:]) == ("ClusterRole/tenant-edit", ["ann,bob", "red"])
    service = {"metadata": {"name": "m"}, "spec": {"type": "ClusterIP", "ports": [{"port": 5672}]}}
    assert Shape("Service", form).one(service)["rows"][0]["cells"][:5] == [
        "m",
        "ClusterIP",
        None,
        "<none>",
        "5672/TCP",
    ]
