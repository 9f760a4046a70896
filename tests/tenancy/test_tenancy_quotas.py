"""Red tries to have more than its namespace may; blue has what it had, and gets what it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.polling import until
from tests.tenancy.refusals import forbidden
from tests.tenancy.tenants import document, path_of

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

    Bound = Callable[..., None]

pytestmark = pytest.mark.slow

QUOTAS = "/api/v1/namespaces/team-a/resourcequotas"
PIPELINES = "/apis/enmasse.io/v1beta1/namespaces/team-a/pipelines"
PLANS = "/apis/admin.enmasse.io/v1beta2/namespaces/enmasse-infra/addressspaceplans"
MERGE = {"content-type": "application/merge-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def operator(tenants: Tenants) -> Iterator[httpx.Client]:
    token = tenants.place.ok("token", "create", "--account", "root-of-all", "--note", "tests").strip()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=tenants.api, headers=headers, trust_env=False, timeout=30) as http:
        yield http


@pytest.fixture
def red(tenants: Tenants) -> Iterator[httpx.Client]:
    with tenants.http("red") as http:
        yield http


@pytest.fixture
def blue(tenants: Tenants) -> Iterator[httpx.Client]:
    with tenants.http("blue") as http:
        yield http


@pytest.fixture
def bound(operator: httpx.Client) -> Iterator[Bound]:
    """Have the operator bound red's namespace for one test."""

    def bound(**hard: Any) -> None:
        metadata = {"name": "team", "namespace": "team-a"}
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
        operator.post(QUOTAS, json=body).raise_for_status()

    yield bound
    operator.delete(f"{QUOTAS}/team")


def facts(name: str, text: str = "x", namespace: str = "team-a") -> dict[str, Any]:
    return document("configmaps", namespace, name, data={"text": text})


def pipeline(**resources: Any) -> dict[str, Any]:
    spec = {
        "sources": [{"name": "rows", "address": "history"}],
        "sinks": [{"table": "out"}],
        "paused": True,
        "resources": {"session": "own"} | resources,
    }
    metadata = {"name": "red.heavy", "namespace": "team-a"}
    return {"apiVersion": "enmasse.io/v1beta1", "kind": "Pipeline", "metadata": metadata, "spec": spec}


def used(http: httpx.Client, name: str, wanted: str) -> None:
    """Wait until the quota says that so much is used."""

    def found() -> Any:
        return http.get(f"{QUOTAS}/team").json().get("status", {}).get("used", {}).get(name)

    until(lambda: found() == wanted, found)


def test_red_reads_its_quota_and_changes_none(red: httpx.Client, blue: httpx.Client, bound: Bound) -> None:
    bound(**{"count/configmaps": "50"})
    assert red.get(f"{QUOTAS}/team").json()["spec"]["hard"] == {"count/configmaps": "50"}
    more = {"spec": {"hard": {"count/configmaps": "5000"}}}
    forbidden(red.patch(f"{QUOTAS}/team", json=more, headers=MERGE))
    forbidden(red.patch(f"{QUOTAS}/team/status", json={"status": {"used": {"count/configmaps": "0"}}}, headers=MERGE))
    forbidden(red.put(f"{QUOTAS}/team", json=red.get(f"{QUOTAS}/team").json() | more))
    forbidden(red.delete(f"{QUOTAS}/team"))
    forbidden(red.delete(QUOTAS))
    forbidden(
        red.post(QUOTAS, json={"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "mine"}} | more)
    )
    forbidden(red.get("/api/v1/resourcequotas"))
    forbidden(blue.get(QUOTAS))


def test_of_many_at_once_as_many_come_in_as_there_is_room_for(
    tenants: Tenants, red: httpx.Client, blue: httpx.Client, bound: Bound
) -> None:
    path, name = path_of("addresses", "team-a"), "count/addresses.enmasse.io"
    present = len(red.get(path).json()["items"])
    bound(**{name: str(present + 2)})

    def create(number: int) -> int:
        spec = {"address": f"more{number}", "type": "queue"}
        with tenants.http("red") as http:
            return http.post(path, json=document("addresses", "team-a", f"red.more{number}", spec=spec)).status_code

    with ThreadPoolExecutor(8) as threads:
        codes = sorted(threads.map(create, range(8)))
    assert codes == [201] * 2 + [403] * 6
    used(red, name, str(present + 2))
    refused = red.post(path, json=document("addresses", "team-a", "red.x", spec={"address": "x", "type": "queue"}))
    assert refused.json()["message"] == (
        f'addresses.enmasse.io "red.x" is forbidden: exceeded quota: team, requested: {name}=1, '
        f"used: {name}={present + 2}, limited: {name}={present + 2}"
    )
    spec = {"address": "more", "type": "queue"}
    blue.post(
        path_of("addresses", "team-b"), json=document("addresses", "team-b", "blue.more", spec=spec)
    ).raise_for_status()
    for http, namespace in ((red, "team-a"), (blue, "team-b")):
        for item in http.get(path_of("addresses", namespace)).json()["items"]:
            if item["spec"]["address"].startswith("more"):
                http.delete(path_of("addresses", namespace, item["metadata"]["name"])).raise_for_status()
    used(red, name, str(present))


def test_bytes_are_refused_however_they_come(red: httpx.Client, blue: httpx.Client, bound: Bound) -> None:
    path = path_of("configmaps", "team-a")
    red.post(path, json=facts("small")).raise_for_status()
    bound(**{"enmasse.io/object-bytes": "1Ki"})
    large = "x" * 100_000
    refused = red.post(path, json=facts("large", large))
    forbidden(refused)
    assert "exceeded quota: team, requested: enmasse.io/object-bytes=" in refused.json()["message"]
    generated = facts("", large)
    generated["metadata"] = {"generateName": "large-"}
    forbidden(red.post(path, json=generated))
    forbidden(red.put(f"{path}/small", json=facts("small", large)))
    forbidden(red.patch(f"{path}/small", json={"data": {"text": large}}, headers=MERGE))
    forbidden(red.patch(f"{path}/small", json={"metadata": {"annotations": {"a": large}}}, headers=MERGE))
    forbidden(red.patch(f"{path}/large", params={"fieldManager": "red"}, json=facts("large", large), headers=APPLY))
    forbidden(red.post(path, params={"dryRun": "All"}, json=facts("large", large)))
    # What is there may change and go.
    red.put(f"{path}/small", json=facts("small", "y")).raise_for_status()
    red.delete(f"{path}/small").raise_for_status()
    theirs = path_of("configmaps", "team-b")
    blue.post(theirs, json=facts("large", large, "team-b")).raise_for_status()
    blue.delete(f"{theirs}/large").raise_for_status()


def test_a_pipeline_asks_for_no_more_than_there_can_be(red: httpx.Client, bound: Bound) -> None:
    present = len(red.get(PIPELINES).json()["items"])  # others' tests have theirs
    bound(**{"requests.memory": "2Gi", "limits.cpu": "2", "count/pipelines.enmasse.io": str(present + 1)})
    for resources in ({"memory": "500Gi"}, {"cores": 64}, {"master": "local[64]"}):
        refused = red.post(PIPELINES, json=pipeline(**resources))
        forbidden(refused)
        assert "exceeded quota: team" in refused.json()["message"]
    red.post(PIPELINES, json=pipeline(memory="1Gi", cores=1)).raise_for_status()
    forbidden(red.patch(f"{PIPELINES}/red.heavy", json={"spec": {"resources": {"memory": "500Gi"}}}, headers=MERGE))
    second = pipeline()
    second["metadata"]["name"] = "red.second"
    forbidden(red.post(PIPELINES, json=second))
    red.delete(f"{PIPELINES}/red.heavy").raise_for_status()


def test_a_plan_for_others_is_refused_and_nobody_is_named(
    operator: httpx.Client, red: httpx.Client, blue: httpx.Client
) -> None:
    plan = {
        "apiVersion": "admin.enmasse.io/v1beta2",
        "kind": "AddressSpacePlan",
        "metadata": {"name": "gold", "namespace": "enmasse-infra"},
        "spec": {"addressSpaceType": "standard", "addressPlans": ["standard-small-queue"], "namespaces": ["team-b"]},
    }
    operator.post(PLANS, json=plan).raise_for_status()
    spec = {"type": "standard", "plan": "gold"}
    try:
        refused = red.post(
            path_of("addressspaces", "team-a"), json=document("addressspaces", "team-a", "g", spec=spec)
        )
        forbidden(refused)
        message = refused.json()["message"]
        assert "plan 'gold' is not for spaces of namespace team-a; there are free, standard-" in message
        assert "team-b" not in message
        forbidden(
            red.patch(path_of("addressspaces", "team-a", "red"), json={"spec": {"plan": "gold"}}, headers=MERGE)
        )
        schema = red.get("/apis/enmasse.io/v1beta1/addressspaceschemas/standard").json()
        assert "gold" not in [item["name"] for item in schema["spec"]["plans"]]
        path = path_of("addressspaces", "team-b")
        blue.post(path, json=document("addressspaces", "team-b", "g", spec=spec)).raise_for_status()
        blue.delete(f"{path}/g").raise_for_status()
        until(lambda: blue.get(f"{path}/g").status_code == 404)
    finally:
        operator.delete(f"{PLANS}/gold")
