"""What goes with something else: contents of namespaces, and objects of owners."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.context import Context
from enmasse.control.errors import ForbiddenError, NamespaceNotFoundError
from enmasse.control.runtime.collector import Collector
from enmasse.control.runtime.controller import Runtime
from enmasse.model.schema.objects import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.store.registry import Registry


def settle(registry: Registry, *, steps: int = 1000, forget: Callable[[str], None] | None = None) -> None:
    """Let the collector work until nothing is left to do."""
    context = Context(registry, now=str, jitter=lambda: 1.0)
    context.of_namespaces += [] if forget is None else [forget]

    async def body() -> None:
        runtime = Runtime(registry.store)
        runtime.add(Collector(context))
        running = asyncio.create_task(runtime.run())
        for _ in range(steps):
            await asyncio.sleep(0)
            if runtime.is_settled:
                break
        else:
            pytest.fail("the collector does not come to an end")
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(body())


def put(registry: Registry, kind: str, name: str, *, namespace: str = "", owners: tuple[str, ...] = ()) -> str:
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid} for uid in owners]
    metadata: dict[str, Any] = {"name": name} | ({"namespace": namespace} if namespace else {})
    document = {"apiVersion": "v1", "kind": kind, "metadata": metadata | {"ownerReferences": references}}
    uid: str = registry.create(decode(document))["metadata"]["uid"]
    return uid


def names(registry: Registry, kind: str, namespace: str | None = None) -> list[str]:
    return [item["metadata"]["name"] for item in registry.store.select(kind, namespace)]


def test_nothing_can_be_created_in_a_namespace_that_does_not_exist(registry: Registry) -> None:
    with pytest.raises(NamespaceNotFoundError, match=r"`enmasse create namespace team` or `kubectl create namespace"):
        put(registry, "ConfigMap", "a", namespace="team")


def test_what_others_keep_of_a_namespace_is_gone_before_it(registry: Registry) -> None:
    put(registry, "Namespace", "team")
    registry.delete("Namespace", "", "team")
    seen: list[tuple[str, bool]] = []
    settle(
        registry, steps=10_000_000, forget=lambda name: seen.append((name, "team" in names(registry, "Namespace")))
    )
    assert seen == [("team", True)]
    assert "team" not in names(registry, "Namespace")


def test_a_deleted_namespace_goes_when_all_that_lies_in_it_is_gone(registry: Registry) -> None:
    put(registry, "Namespace", "team")
    for number in range(120):
        put(registry, "ConfigMap", f"c{number}", namespace="team")
    uid = put(registry, "Secret", "held", namespace="team")
    put(registry, "ConfigMap", "elsewhere", namespace="default")
    registry.change_finalizers("Secret", "team", "held", uid=uid, add="example.com/hold")
    marked = registry.delete("Namespace", "", "team")
    assert marked["status"]["phase"] == "Terminating"
    with pytest.raises(ForbiddenError, match="is being deleted"):
        put(registry, "ConfigMap", "late", namespace="team")
    settle(registry)
    assert (names(registry, "ConfigMap"), names(registry, "Secret")) == (["elsewhere"], ["held"])
    assert "team" in names(registry, "Namespace")
    registry.change_finalizers("Secret", "team", "held", uid=uid, remove="example.com/hold")
    settle(registry)
    assert "team" not in names(registry, "Namespace")


@pytest.mark.parametrize("name", ["default", "enmasse-infra"])
def test_the_namespaces_that_always_exist_cannot_be_deleted(registry: Registry, name: str) -> None:
    registry.create_namespaces()
    assert name in names(registry, "Namespace")
    with pytest.raises(ForbiddenError, match="always exists"):
        registry.delete("Namespace", "", name)


def test_namespaces_of_objects_that_are_there_already_are_made(registry: Registry) -> None:
    registry.store.create({"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "old", "uid": "u"}})
    registry.create_namespaces()
    registry.create_namespaces()
    assert names(registry, "Namespace") == ["default", "enmasse-infra", "old"]


def test_an_object_goes_with_its_last_owner(registry: Registry) -> None:
    first, second = (put(registry, "ConfigMap", name, namespace="default") for name in ("first", "second"))
    both = put(registry, "Secret", "both", namespace="default", owners=(first, second))
    put(registry, "Secret", "one", namespace="default", owners=(first,))
    put(registry, "Secret", "grandchild", namespace="default", owners=(both,))
    registry.delete("ConfigMap", "default", "first")
    settle(registry)
    assert names(registry, "Secret") == ["both", "grandchild"]
    kept = registry.store.get("Secret", "default", "both")["metadata"]["ownerReferences"]
    assert [item["uid"] for item in kept] == [second]
    registry.delete("ConfigMap", "default", "second")
    settle(registry)
    assert names(registry, "Secret") == []


def test_an_object_of_an_owner_that_never_was_goes_too(registry: Registry) -> None:
    put(registry, "Secret", "lost", namespace="default", owners=("nobody",))
    settle(registry)
    assert names(registry, "Secret") == []


def test_dependents_can_be_kept(registry: Registry) -> None:
    owner = put(registry, "ConfigMap", "owner", namespace="default")
    put(registry, "Secret", "kept", namespace="default", owners=(owner,))
    registry.delete("ConfigMap", "default", "owner", keep_dependents=True)
    settle(registry)
    assert "ownerReferences" not in registry.store.get("Secret", "default", "kept")["metadata"]
