"""What Kubernetes' clients count on beside reading and writing: names, statuses, finalizers, namespaces, locking."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from typing import Protocol

    import httpx

    class Api(Protocol):
        registry: Registry

        def __call__(self, method: str, path: str, **options: Any) -> httpx.Response: ...

        def talk(self, conversation: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any: ...


Document = dict[str, Any]

ADDRESSES = "/apis/enmasse.io/v1beta1/namespaces/default/addresses"
ORDERS = f"{ADDRESSES}/shop.orders"
MAPS = "/api/v1/namespaces/default/configmaps"


def address(name: str = "shop.orders", **fields: Any) -> Document:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": name},
        "spec": {"address": "orders", "type": "queue", "plan": "small"},
    } | fields


def config_map(**metadata: Any) -> Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"n": "0"}}


def test_a_name_is_made_up_where_only_its_beginning_is_given(api: Api) -> None:
    names = {api("POST", MAPS, json=config_map(generateName="note-")).json()["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(re.fullmatch(r"note-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)
    both = api("POST", MAPS, json=config_map(generateName="note-", name="mine")).json()["metadata"]
    assert both["name"] == "mine"


def test_a_name_that_is_taken_is_not_made_up_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    suffixes = iter(["one", "one", "two"])
    monkeypatch.setattr("enmasse.control.store.registry.generated_name", lambda prefix: prefix + next(suffixes))
    made = [api("POST", MAPS, json=config_map(generateName="n-")).json()["metadata"]["name"] for _ in range(2)]
    assert made == ["n-one", "n-two"]


def test_a_status_is_written_below_its_object_and_nowhere_else(api: Api) -> None:
    created = api("POST", ADDRESSES, json=address()).json()
    forged = created | {"status": {"phase": "Active", "isReady": True}, "spec": created["spec"] | {"plan": "large"}}
    status = api("PUT", f"{ORDERS}/status", json=forged)
    assert (status.status_code, status.json()["status"]["phase"]) == (200, "Active")
    assert (status.json()["spec"], status.json()["metadata"]["generation"]) == (created["spec"], 1)
    assert api("GET", f"{ORDERS}/status").json() == status.json()
    present = status.json() | {"status": {"phase": "Failed"}, "spec": created["spec"] | {"plan": "large"}}
    replaced = api("PUT", ORDERS, json=present).json()
    assert (replaced["status"]["phase"], replaced["spec"]["plan"]) == ("Active", "large")
    patch = {
        "headers": {"content-type": "application/merge-patch+json"},
        "content": b'{"status": {"phase": "Failed"}}',
    }
    assert api("PATCH", ORDERS, **patch).json()["status"]["phase"] == "Active"
    assert api("PATCH", f"{ORDERS}/status", **patch).json()["status"]["phase"] == "Failed"


def test_a_status_that_is_not_valid_or_not_of_this_version_is_refused(api: Api) -> None:
    created = api("POST", ADDRESSES, json=address()).json()
    wrong = api("PUT", f"{ORDERS}/status", json=created | {"status": {"phase": 5, "colour": "red"}})
    assert wrong.status_code == 422
    assert {cause["field"] for cause in wrong.json()["details"]["causes"]} == {"status.phase", "status.colour"}
    api("PUT", f"{ORDERS}/status", json=created | {"status": {"phase": "Active"}})
    assert api("PUT", f"{ORDERS}/status", json=created | {"status": {"phase": "Failed"}}).status_code == 409
    assert api("PUT", f"{ADDRESSES}/shop.none/status", json=address("shop.none")).status_code == 404
    assert api("GET", f"{MAPS}/m/status").status_code == 404


def test_an_object_with_finalizers_is_going_until_the_last_is_taken_off(api: Api) -> None:
    api("POST", MAPS, json=config_map(name="m", finalizers=["a.io/x", "b.io/x"]))
    going = api("DELETE", f"{MAPS}/m", params={"gracePeriodSeconds": "5", "propagationPolicy": "Foreground"})
    metadata = going.json()["metadata"]
    assert (going.status_code, going.json()["kind"]) == (200, "ConfigMap")
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == ("2026-01-01T00:00:00Z", 0)
    assert metadata["generation"] == 2
    assert api("DELETE", f"{MAPS}/m").json()["metadata"] == metadata
    more = going.json() | {"metadata": metadata | {"finalizers": ["a.io/x", "c.io/x"]}}
    refused = api("PUT", f"{MAPS}/m", json=more)
    assert (refused.status_code, refused.json()["details"]["causes"][0]["field"]) == (422, "metadata.finalizers")
    less = going.json() | {"metadata": metadata | {"finalizers": ["b.io/x"]}}
    one = api("PUT", f"{MAPS}/m", json=less).json()
    assert one["metadata"]["finalizers"] == ["b.io/x"]
    none = one | {"metadata": {key: value for key, value in one["metadata"].items() if key != "finalizers"}}
    assert api("PUT", f"{MAPS}/m", json=none).status_code == 200
    assert api("GET", f"{MAPS}/m").status_code == 404


@pytest.mark.parametrize(
    "parameters",
    [
        {"propagationPolicy": "Sideways"},
        {"gracePeriodSeconds": "-5"},
        {"dryRun": "Perhaps"},
        {"orphanDependents": "x"},
    ],
)
def test_a_deletion_that_makes_no_sense_deletes_nothing(api: Api, parameters: dict[str, str]) -> None:
    api("POST", MAPS, json=config_map(name="m"))
    assert api("DELETE", f"{MAPS}/m", params=parameters).status_code in (400, 422)
    assert api("GET", f"{MAPS}/m").status_code == 200


def test_a_deletion_takes_options_as_kubectl_sends_them(api: Api) -> None:
    uid = api("POST", MAPS, json=config_map(name="m")).json()["metadata"]["uid"]
    options = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
        "dryRun": ["All"],
    }
    assert api("DELETE", f"{MAPS}/m", content=_json(options), headers=JSON).json()["status"] == "Success"
    assert api("GET", f"{MAPS}/m").status_code == 200
    del options["dryRun"]
    gone = api("DELETE", f"{MAPS}/m", content=_json(options), headers=JSON).json()
    assert gone["details"] == {"name": "m", "group": "", "kind": "configmaps", "uid": uid}


JSON = {"content-type": "application/json"}


def _json(value: Any) -> bytes:
    import json

    return json.dumps(value).encode()


def test_namespaces_are_objects_and_what_lies_in_none_is_refused(api: Api) -> None:
    path = "/api/v1/namespaces/team/configmaps"
    missing = api("POST", path, json=config_map(name="m"))
    assert (missing.status_code, missing.json()["details"]) == (
        404,
        {"name": "team", "group": "", "kind": "namespaces"},
    )
    assert "kubectl create namespace team" in missing.json()["message"]
    assert api("POST", path, json=config_map(name="m"), params={"dryRun": "All"}).status_code == 404
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    created = api("POST", "/api/v1/namespaces", json=team).json()
    assert created["status"]["phase"] == "Active"
    assert api("POST", path, json=config_map(name="m")).status_code == 201
    going = api("DELETE", "/api/v1/namespaces/team").json()
    assert going["status"]["phase"] == "Terminating"
    late = api("POST", path, json=config_map(name="late"))
    assert (late.status_code, late.json()["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    assert api("DELETE", "/api/v1/namespaces/default").status_code == 403


def test_kinds_without_namespace_have_none(api: Api) -> None:
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "namespace": "default"}}
    assert api("POST", "/api/v1/namespaces", json=team).status_code == 400
    assert api("GET", "/apis/enmasse.io/v1beta1/addressspaceschemas").status_code == 200
    for method in ("POST", "DELETE"):
        assert api(method, "/apis/enmasse.io/v1beta1/addressspaceschemas").status_code == 405


@pytest.mark.slow
def test_writers_that_lock_optimistically_lose_no_update(api: Api) -> None:
    async def talk(client: httpx.AsyncClient) -> int:
        await client.post(MAPS, json=config_map(name="counter"))

        async def increment(times: int) -> int:
            conflicts = 0
            while times:
                found = (await client.get(f"{MAPS}/counter")).json()
                await asyncio.sleep(0)
                found["data"]["n"] = str(int(found["data"]["n"]) + 1)
                answer = await client.put(f"{MAPS}/counter", json=found)
                assert answer.status_code in (200, 409)
                times -= answer.status_code == 200
                conflicts += answer.status_code == 409
            return conflicts

        conflicts = await asyncio.gather(*(increment(5) for _ in range(8)))
        assert sum(conflicts) > 0
        return int((await client.get(f"{MAPS}/counter")).json()["data"]["n"])

    assert api.talk(talk) == 40


def test_versions_rise_and_order_holds_while_the_clock_goes_back(tmp_path: Path) -> None:
    times = iter(["2026-01-01T00:00:09Z", "2026-01-01T00:00:05Z", "1999-01-01T00:00:00Z", "2026-01-01T00:00:01Z"])
    with ResourceStore(tmp_path / "db") as store:
        registry = Registry(store, now=lambda: next(times), new_uid=lambda: f"u{store.version}")
        from enmasse.model.schema.objects import decode

        written = []
        for name in "ab":
            document = config_map(name=name, namespace="default")
            written.append(registry.create(decode(document)))
        document = config_map(name="a", namespace="default") | {"data": {"n": "1"}}
        written.append(registry.replace(decode(document)))
        assert [int(item["metadata"]["resourceVersion"]) for item in written] == [1, 2, 3]
        assert [change.version for change in store.changes(0)[0]] == [1, 2, 3]
        assert written[2]["metadata"]["creationTimestamp"] == "2026-01-01T00:00:09Z"


@pytest.mark.parametrize("fault", ["busy", "full", "read-only"])
def test_trouble_with_the_store_is_told_as_a_status_and_leaves_nothing(api: Api, tmp_path: Path, fault: str) -> None:
    api("POST", MAPS, json=config_map(name="before"))
    store: Any = api.registry.store
    database = store._database
    other = sqlite3.connect(tmp_path / "resources.db", isolation_level=None)
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    try:
        if fault == "busy":
            other.execute("BEGIN IMMEDIATE")
            code, reason, again = 503, "ServiceUnavailable", 1
        elif fault == "full":
            database.execute(f"PRAGMA max_page_count = {pages}")
            code, reason, again = 507, "InsufficientStorage", 30
        else:
            database.execute("PRAGMA query_only = ON")
            code, reason, again = 503, "ServiceUnavailable", 30
        large = config_map(name="during") | {"data": {"a": "x" * 100_000}}
        response = api("POST", MAPS, json=large)
        status = response.json()
        assert (response.status_code, status["code"], status["reason"]) == (code, code, reason)
        assert (status["details"]["retryAfterSeconds"], response.headers["retry-after"]) == (again, str(again))
        assert api("GET", f"{MAPS}/before").status_code == 200
    finally:
        other.close()
        database.execute("PRAGMA query_only = OFF")
        database.execute("PRAGMA max_page_count = 1000000")
    assert api("POST", MAPS, json=large).status_code == 201
    assert len(api("GET", MAPS).json()["items"]) == 2


def _nested_json(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def _bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"a: " + b"x" * 10_000_000, 413),
        (_nested_json(10_000), 400),
        (b"[" * 100_000, 400),
        (_bomb(), 400),
        (b"a: &a [*a]", 400),
        (b'{"metadata": {"name": "\\ud800"}}', 400),
        (b"? [a]\n: b", 400),
        (b"!!python/object/apply:os.system [id]", 400),
    ],
)
def test_bodies_that_mean_harm_are_refused(api: Api, method: str, body: bytes, code: int) -> None:
    path, parameters = (MAPS, {}) if method == "POST" else (f"{MAPS}/m", {"fieldManager": "eve"})
    headers = {"content-type": "application/yaml" if method == "POST" else "application/apply-patch+yaml"}
    response = api(method, path, content=body, headers=headers, params=parameters)
    assert (response.status_code, response.json()["code"], response.json()["kind"]) == (code, code, "Status")
