"""What a namespace may have: counted as it is written, refused in the words of Kubernetes, and said in the status."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.addresses.plans import QuotaController
from enmasse.control.context import Context
from enmasse.control.errors import ForbiddenError, ResourceExistsError
from enmasse.control.runtime.controller import Runtime
from enmasse.control.store import resource_quotas
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.identity.rbac import PIPELINE_HOST
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.objects import decode, restore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from enmasse.model.schema.resource import Resource


def quota(hard: dict[str, Any]) -> Resource:
    metadata = {"name": "team", "namespace": "default"}
    return decode({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})


def facts(name: str, text: str = "x", namespace: str = "default") -> Resource:
    metadata = {"name": name, "namespace": namespace}
    return decode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}})


def pipeline(name: str = "shop.all", **resources: Any) -> Resource:
    spec = {
        "sources": [{"name": "rows", "address": "in"}],
        "sinks": [{"table": "out"}],
        "resources": {"session": "own"} | resources,
    }
    metadata = {"name": name, "namespace": "default"}
    return decode({"apiVersion": "enmasse.io/v1beta1", "kind": "Pipeline", "metadata": metadata, "spec": spec})


def test_one_more_than_a_quota_counts_is_refused_in_the_words_of_kubernetes(registry: Registry) -> None:
    registry.create(quota({"count/configmaps": "2"}))
    registry.create(facts("a"))
    registry.create(facts("b"))
    with pytest.raises(ForbiddenError) as caught:
        registry.create(facts("c"))
    assert str(caught.value) == (
        'configmaps "c" is forbidden: exceeded quota: team, requested: count/configmaps=1, '
        "used: count/configmaps=2, limited: count/configmaps=2"
    )
    assert registry.store.find("ConfigMap", "default", "c") is None
    with pytest.raises(ResourceExistsError):
        registry.create(facts("a"))


def test_another_namespace_has_what_this_one_has_not(registry: Registry) -> None:
    registry.create_namespaces()
    registry.create(quota({"count/configmaps": 0}))
    registry.create(facts("a", namespace="enmasse-infra"))
    with pytest.raises(ForbiddenError, match="exceeded quota"):
        registry.create(facts("a"))


def test_what_is_deleted_makes_room(registry: Registry) -> None:
    registry.create(quota({"count/configmaps": 1}))
    registry.create(facts("a"))
    registry.delete("ConfigMap", "default", "a")
    registry.create(facts("b"))


def test_what_is_there_may_change_under_a_smaller_quota_but_not_grow(registry: Registry) -> None:
    registry.create(facts("a", "x" * 2000))
    registry.create(quota({"enmasse.io/object-bytes": 1000, "enmasse.io/objects": 0}))
    registry.replace(facts("a", "y" * 2000))
    registry.replace(facts("a", "y" * 1500))
    with pytest.raises(ForbiddenError, match=r"requested: enmasse.io/object-bytes=100,"):
        registry.replace(facts("a", "y" * 1600))
    registry.delete("ConfigMap", "default", "a")


def test_bytes_are_those_of_the_stored_form_and_of_what_is_put_aside(store: ResourceStore) -> None:
    with store.transaction():
        store.put_aside("u", "key", b"12345")
        store.create({"kind": "Thing", "metadata": {"namespace": "default", "name": "a", "uid": "u"}, "text": "éé"})
    body = store.page("Thing", limit=1)[0][2]
    assert store.usage.of("default")["Thing"] == (1, len(body.encode()) + 5)
    with store.transaction():
        store.put_aside("u", "key", b"1")
    body = store.page("Thing", limit=1)[0][2]
    assert store.usage.of("default")["Thing"] == (1, len(body.encode()) + 1)
    store.delete("Thing", "default", "a")
    assert store.usage.of("default") == {}


def test_a_transaction_that_fails_uses_nothing(store: ResourceStore) -> None:
    with suppress(ZeroDivisionError), store.transaction():
        store.create({"kind": "Thing", "metadata": {"namespace": "default", "name": "a", "uid": "u"}})
        raise ZeroDivisionError
    with store.transaction(dry_run=True):
        store.create({"kind": "Thing", "metadata": {"namespace": "default", "name": "a", "uid": "u"}})
    assert store.usage.of("default") == {}


def test_one_that_is_refused_leaves_nothing_in_a_transaction_that_goes_on(registry: Registry) -> None:
    registry.create(quota({"count/configmaps": 1}))
    with registry.store.transaction():
        registry.create(facts("a"))
        with pytest.raises(ForbiddenError):
            registry.create(facts("b"))
    found = registry.store.select("ConfigMap")
    assert [item["metadata"]["name"] for item in found] == ["a"]
    assert registry.store.version == 2
    assert registry.store.usage.of("default")["ConfigMap"].objects == 1


def test_the_count_is_the_same_after_a_restart(tmp_path: Path) -> None:
    def name(number: int, kind: str = "Thing") -> dict[str, Any]:
        metadata = {"namespace": "default", "name": f"n{number}", "uid": f"{kind}-{number}"}
        return {"kind": kind, "metadata": metadata, "text": "é" * number}

    with ResourceStore(tmp_path / "db") as store:
        for number in range(5):
            store.create(name(number))
        store.create(name(1, "Other"))
        store.put_aside("Other-1", "key", b"secret")
        store.delete("Thing", "default", "n2")
        counted = dict(store.usage.of("default"))
    with ResourceStore(tmp_path / "db") as store:
        assert dict(store.usage.of("default")) == counted


def test_every_namespace_has_bounds_without_a_quota_and_one_that_names_them_takes_their_place(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        resource_quotas, "DEFAULTS", dict.fromkeys(resource_quotas.DEFAULTS, 1) | {"enmasse.io/object-bytes": 10_000}
    )
    registry.create(facts("a"))
    with pytest.raises(ForbiddenError, match=r"exceeded quota: default of the installation.*enmasse.io/objects=1"):
        registry.create(facts("b"))
    registry.create(quota({"enmasse.io/objects": 2}))
    registry.create(facts("b"))
    with pytest.raises(ForbiddenError, match="object-bytes"):
        registry.replace(facts("b", "x" * 20_000))


def test_a_pipeline_that_asks_for_more_than_there_can_be_is_refused_at_once(
    registry: Registry, make_space: Callable[..., Resource]
) -> None:
    registry.create(make_space())
    registry.create(pipeline("shop.former", memory="4Gi"))
    registry.create(quota({"requests.memory": "2Gi", "limits.cpu": 2}))
    with pytest.raises(ForbiddenError, match=r"requested: requests.memory=500Gi, used: .*=0, limited: .*=2Gi"):
        registry.create(pipeline(memory="500Gi"))
    with pytest.raises(ForbiddenError, match=r"requested: limits.cpu=3"):
        registry.create(pipeline(cores=3))
    with pytest.raises(ForbiddenError, match=r"requested: limits.cpu=64"):
        registry.create(pipeline(master="local[64]"))
    registry.create(pipeline(memory="2Gi", cores=2))
    # What is there may change, as long as it asks for no more.
    registry.replace(pipeline("shop.former", memory="3Gi"))


def test_the_host_of_pipelines_is_counted_and_not_refused(registry: Registry) -> None:
    registry.create(quota({"count/configmaps": 0}))
    registry.create(facts("a"), user=PIPELINE_HOST)
    assert registry.store.usage.of("default")["ConfigMap"].objects == 1


@pytest.mark.parametrize(
    ("name", "amount", "message"),
    [
        ("count/adresses.enmasse.io", 1, "did you mean count/addresses.enmasse.io?"),
        ("pods", 1, "it would bound nothing"),
        ("count/events", 1, "it would bound nothing"),
        ("count/configmaps", "500m", "expected a whole number"),
        ("count/configmaps", "-1", "expected a quantity"),
    ],
)
def test_a_bound_that_would_bound_nothing_is_refused(name: str, amount: Any, message: str) -> None:
    with pytest.raises(InvalidResourceError, match=message):
        quota({name: amount})


def test_the_status_says_what_is_used_and_keeps_what_the_host_has_said(registry: Registry) -> None:
    runtime = Runtime(registry.store)
    runtime.add(QuotaController(Context(registry, now=str, jitter=lambda: 1.0)))

    def status() -> dict[str, Any]:
        found: dict[str, Any] = registry.store.get("ResourceQuota", "default", "team")["status"]
        return found

    async def play() -> None:
        running = asyncio.create_task(runtime.run())

        async def settle() -> None:
            while not runtime.is_settled:
                await asyncio.sleep(0.01)

        registry.create(quota({"count/configmaps": "2", "requests.memory": "1024Mi"}))
        registry.create(facts("a"))
        await settle()
        assert status() == {
            "hard": {"count/configmaps": "2", "requests.memory": "1Gi"},
            "used": {"count/configmaps": "1", "requests.memory": "0"},
        }
        said = restore(registry.store.get("ResourceQuota", "default", "team"))
        used = {"count/configmaps": "1", "requests.memory": "640Mi"}
        registry.write_status([said.model_copy(update={"status": said.status.model_copy(update={"used": used})})])
        registry.delete("ConfigMap", "default", "a")
        await settle()
        assert status()["used"] == {"count/configmaps": "0", "requests.memory": "640Mi"}
        running.cancel()

    asyncio.run(play())
