"""Pipelines over the API: what their author is told, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.api.access.authentication import Authenticator
from enmasse.api.app import ApiParts, create_app
from enmasse.api.pipelines import PipelineHost
from enmasse.control.access.accounts import Accounts
from enmasse.model.kinds.pipelines.builtins import BUILTINS

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.store.registry import Registry

    Api = Callable[..., httpx.Response]

BASE = "/apis/enmasse.io/v1beta1/namespaces/default"


def member(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "enmasse.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def pipeline(address: str = "telemetry", **spec: Any) -> dict[str, Any]:
    whole = {"sources": [{"name": "readings", "address": address}], "sinks": [{"address": "alerts"}]}
    return member("Pipeline", "shop.hot", **whole | spec)


def warnings(response: httpx.Response) -> list[str]:
    assert response.status_code in (200, 201), response.text
    return [line.removeprefix('299 - "').removesuffix('"') for line in response.headers.get_list("warning")]


def make_space(api: Api, **addresses: str) -> None:
    assert api("POST", f"{BASE}/addressspaces", json=member("AddressSpace", "shop")).status_code == 201
    for name, kind in ({"alerts": "queue"} | addresses).items():
        spec = {"address": name, "type": kind} | ({"topic": "t"} if kind == "subscription" else {})
        assert api("POST", f"{BASE}/addresses", json=member("Address", f"shop.{name}", **spec)).status_code == 201


def test_a_pipeline_over_a_stream_applies_without_a_warning(api: Api) -> None:
    make_space(api, telemetry="stream")
    assert warnings(api("POST", f"{BASE}/pipelines", json=pipeline())) == []
    listed = api("GET", f"{BASE}/pipelines").json()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["shop.hot"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("queue", "is a queue: what the pipeline reads is taken from other receivers, and may be read twice"),
        ("subscription", "is a subscription: what the pipeline reads is taken"),
        ("deadletter", "is a deadletter address: what the pipeline reads is taken"),
        ("anycast", "is anycast: the pipeline is one of its receivers"),
        ("topic", "is a topic: the pipeline gets what is sent from its first start on"),
        ("multicast", "is multicast: what is sent while the pipeline does not run is lost for it"),
    ],
)
def test_reading_what_is_not_kept_is_warned_of(api: Api, kind: str, said: str) -> None:
    make_space(api, telemetry=kind)
    (warning,) = warnings(api("POST", f"{BASE}/pipelines", json=pipeline()))
    assert warning.startswith(f"shop.hot: spec.sources[0].address: 'telemetry' {said}")


@pytest.mark.parametrize("is_declared_there", [False, True])
def test_losing_what_cannot_be_decoded_is_warned_of(api: Api, *, is_declared_there: bool) -> None:
    make_space(api, spoilt="queue")
    spec: dict[str, Any] = {"address": "telemetry", "type": "queue"}
    source = {"name": "readings", "address": "telemetry"}
    if is_declared_there:
        spec |= {"schema": {"format": "json", "definition": "device STRING"}}
    else:
        source |= {"format": "json", "schema": "device STRING"}
    assert api("POST", f"{BASE}/addresses", json=member("Address", "shop.telemetry", **spec)).status_code == 201
    *_, warning = warnings(api("POST", f"{BASE}/pipelines", json=pipeline(sources=[source])))
    assert warning.startswith("shop.hot: spec.sources[0]: what cannot be decoded is counted and dropped; badRecords")
    kept = pipeline(sources=[source | {"badRecords": "spoilt"}])
    assert len(warnings(api("PUT", f"{BASE}/pipelines/shop.hot", json=kept))) == 1


def test_what_is_not_there_yet_is_warned_of_and_not_refused(api: Api) -> None:
    (no_space,) = warnings(api("POST", f"{BASE}/pipelines", json=pipeline()))
    assert no_space == "shop.hot: there is no address space shop in namespace default yet; the pipeline waits for it"
    make_space(api)
    (no_address,) = warnings(api("PUT", f"{BASE}/pipelines/shop.hot", json=pipeline()))
    assert no_address.startswith("shop.hot: spec.sources[0].address: space shop has no address 'telemetry' yet")
    watermark = {"column": "timestamp", "delay": "1s", "late": "stragglers"}
    source = {"name": "readings", "address": "telemetry", "watermark": watermark}
    *_, no_late = warnings(api("PUT", f"{BASE}/pipelines/shop.hot", json=pipeline(sources=[source])))
    assert no_late.startswith("shop.hot: spec.sources[0].watermark.late: space shop has no address 'stragglers' yet")


def test_an_address_of_another_space_is_none(api: Api) -> None:
    make_space(api)
    api("POST", f"{BASE}/addresses", json=member("Address", "other.telemetry", address="telemetry", type="stream"))
    (warning,) = warnings(api("POST", f"{BASE}/pipelines", json=pipeline()))
    assert "space shop has no address 'telemetry' yet" in warning


def test_warnings_are_few_whatever_a_pipeline_names(api: Api) -> None:
    make_space(api)
    sources = [{"name": f"r{number}", "address": f"a{number}"} for number in range(40)]
    found = warnings(api("POST", f"{BASE}/pipelines", json=pipeline(sources=sources)))
    assert (len(found), found[-1]) == (11, "shop.hot: 30 more of this kind")


def test_the_addresses_of_a_builtin_pipeline_are_looked_at(api: Api) -> None:
    make_space(api, telemetry="queue")
    builtin = {"name": "heartbeat", "parameters": {"address": "telemetry", "alerts": "warnings"}}
    found = warnings(api("POST", f"{BASE}/pipelines", json=member("Pipeline", "shop.beat", builtin=builtin)))
    assert [line[:60] for line in found] == [
        "shop.beat: spec.builtin.parameters: 'telemetry' is a queue: ",
        "shop.beat: spec.builtin.parameters: space shop has no addres",
    ]


def test_what_is_wrong_is_a_status_with_its_place(api: Api) -> None:
    make_space(api, telemetry="stream")
    step = {"name": "x", "sql": "SELECT *\nFROM reading"}
    refused = api("POST", f"{BASE}/pipelines", json=pipeline(steps=[step]))
    assert refused.status_code == 422
    (cause,) = refused.json()["details"]["causes"]
    assert cause["field"] == "spec.steps[0].sql"
    assert cause["message"] == "line 2, column 6: there is no relation 'reading'; did you mean 'readings'?"


def test_a_list_of_pipelines_is_a_table_with_rates(api: Api) -> None:
    make_space(api, telemetry="stream")
    api("POST", f"{BASE}/pipelines", json=pipeline())
    table = api("GET", f"{BASE}/pipelines", headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}).json()
    shown = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    assert shown == ["Name", "Ready", "Phase", "Rows", "Rate", "Lag", "Age"]


def test_built_in_pipelines_are_listed_with_their_parameters(api: Api) -> None:
    listed = api("GET", "/apis/enmasse.io/v1beta1/builtinpipelines").json()
    found = {item["name"]: item for item in listed["items"]}
    assert list(found) == list(BUILTINS)
    assert found["windows"]["does"].startswith("counts, mean")
    schema = found["windows"]["schema"]
    assert schema["required"] == ["address"]
    assert schema["properties"]["size"] == {
        "type": "string",
        "description": "The length of a window.",
        "default": "10s",
    } | {
        key: value
        for key, value in schema["properties"]["size"].items()
        if key not in ("type", "description", "default")
    }
    assert schema["properties"]["emit"]["enum"] == ["final", "changes"]


@pytest.mark.parametrize(("role", "may_start"), [("tenant-view", False), ("tenant-edit", True)])
async def test_who_may_not_query_starts_no_spark_by_looking_at_tables(
    registry: Registry, tmp_path: Path, role: str, may_start: bool
) -> None:
    class Noting(PipelineHost):
        asked: tuple[dict[str, Any], ...] = ()

        async def query(self, command: dict[str, Any]) -> dict[str, Any]:
            Noting.asked += (command,)
            return {"columns": [], "rows": [], "truncated": False}

    registry.store.create(member("AddressSpace", "shop") | {"metadata": {"name": "shop", "namespace": "default"}})
    registry.store.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "vera", "namespace": "default", "uid": "vera"},
            "roleRef": {"kind": "ClusterRole", "name": f"enmasse.io:{role}"},
            "subjects": [{"kind": "User", "name": "vera"}],
        }
    )
    with Accounts(tmp_path / "access.db", now=lambda: 1_000.0) as accounts:
        accounts.add("vera", password_hash="", groups=())
        headers = {"authorization": f"Bearer {accounts.create_token('vera').secret}"}
        authenticator = Authenticator(accounts, is_required=True)
        app = create_app(
            ApiParts(
                registry=registry,
                stop=asyncio.Event(),
                pipelines=Noting(Path("nowhere")),
                authenticator=authenticator,
            )
        )
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="https://localhost", headers=headers) as client:
            answer = await client.get(f"{BASE}/addressspaces/shop/tables")
    assert answer.status_code == 200, answer.text
    assert [command["mayStart"] for command in Noting.asked] == [may_start]


@pytest.mark.parametrize(
    ("sql", "code", "said"),
    [
        ("SELECT a\nFROM t GRUP BY a", 422, "line 2, column 13: unexpected 'BY'"),
        ("DESCRIBE EXTENDED t", 422, "line 1, column 1: expected SHOW TABLES"),
        ("SELECT java_method('a')", 422, "line 1, column 8: java_method() may not be called"),
        ("SELECT a FROM nowhere", 503, "the host of pipelines"),
        ("SHOW TABLES", 503, "the host of pipelines"),
    ],
)
async def test_what_is_no_query_is_refused_before_anybody_is_asked(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, sql: str, code: int, said: str
) -> None:
    monkeypatch.setattr("enmasse.api.pipelines._START_S", 0.0)  # it is not just starting
    registry.store.create(member("AddressSpace", "shop") | {"metadata": {"name": "shop", "namespace": "default"}})
    app = create_app(ApiParts(registry=registry, stop=asyncio.Event(), pipelines=PipelineHost(Path("nowhere"))))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://localhost") as client:
        answer = await client.post(f"{BASE}/addressspaces/shop/query", json={"sql": sql})
    assert (answer.status_code, said in answer.json()["message"]) == (code, True), answer.text
    if code == 422:
        assert [cause["field"] for cause in answer.json()["details"]["causes"]] == ["sql"]


async def test_a_query_ends_with_its_client(registry: Registry) -> None:
    class Waiting(PipelineHost):
        begun, ended = asyncio.Event(), False

        async def query(self, command: dict[str, Any]) -> dict[str, Any]:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                Waiting.ended = True
            raise AssertionError("nobody waits for it any more")

    host = Waiting(Path("nowhere"))
    registry.store.create(member("AddressSpace", "shop") | {"metadata": {"name": "shop", "namespace": "default"}})
    app = create_app(ApiParts(registry=registry, stop=asyncio.Event(), pipelines=host))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": f"{BASE}/addressspaces/shop/query",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    told = [{"type": "http.request", "body": b'{"sql": "SELECT 1"}', "more_body": False}]

    async def receive() -> dict[str, Any]:
        if told:
            return told.pop()
        await host.begun.wait()
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        return

    await asyncio.wait_for(app(scope, receive, send), 60)
    assert host.ended
