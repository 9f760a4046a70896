"""The registry: what a write entails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.errors import ConflictError, ForbiddenError, ResourceNotFoundError
from enmasse.control.store.managed_fields import Manager
from enmasse.control.store.registry import Preconditions, Registry
from enmasse.control.store.writes import Write
from enmasse.identity.rbac import LOCAL_OPERATOR, PIPELINE_HOST, Requester
from enmasse.model.catalog import default_objects
from enmasse.model.schema.conditions import Condition
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.objects import decode, restore

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.model.schema.resource import Resource

    Make = Callable[..., Resource]


def test_a_new_object_gets_an_identity(registry: Registry, make_space: Make) -> None:
    metadata = registry.create(make_space())["metadata"]
    assert metadata["uid"] == "uid-1"
    assert metadata["generation"] == 1
    assert metadata["resourceVersion"] == "1"
    assert metadata["creationTimestamp"].endswith("Z")


def test_only_a_new_spec_is_a_new_generation(registry: Registry, make_address: Make) -> None:
    registry.create(make_address())
    orders = make_address()
    labelled = orders.model_copy(update={"metadata": orders.metadata.model_copy(update={"labels": {"a": "b"}})})
    assert registry.replace(labelled)["metadata"]["generation"] == 1
    changed = registry.replace(make_address(plan="standard-large-queue"))["metadata"]
    assert (changed["generation"], changed["resourceVersion"], changed["uid"]) == (2, "3", "uid-1")


def test_a_write_that_changes_nothing_is_none(registry: Registry, make_address: Make) -> None:
    created = registry.create(make_address())
    assert registry.replace(make_address()) == created
    assert registry.store.version == 1


def test_a_user_cannot_write_a_status(registry: Registry, make_address: Make) -> None:
    registry.create(make_address())
    forged = make_address(plan="p")
    forged = forged.model_copy(update={"status": forged.status.model_copy(update={"is_ready": True})})
    assert registry.replace(forged)["status"]["isReady"] is False


def test_a_controller_writes_nothing_but_status(registry: Registry, make_address: Make) -> None:
    stale = restore(registry.create(make_address()))
    registry.replace(make_address(plan="standard-large-queue"))
    ready = (Condition(type="Ready", status="True", reason="Served"),)
    registry.write_status([stale.model_copy(update={"status": stale.status.with_conditions(ready, "t")})])
    stored = registry.store.get("Address", "default", "shop.orders")
    assert stored["spec"]["plan"] == "standard-large-queue"
    assert stored["metadata"]["generation"] == 2
    assert stored["status"]["phase"] == "Active"


def test_a_status_about_a_former_object_of_the_name_is_passed_over(registry: Registry, make_address: Make) -> None:
    former = restore(registry.create(make_address()))
    registry.delete("Address", "default", "shop.orders")
    registry.create(make_address())
    version = registry.store.version
    registry.write_status([former])
    assert registry.store.version == version


def test_what_is_fixed_stays(registry: Registry, make_address: Make) -> None:
    registry.create(make_address())
    with pytest.raises(InvalidResourceError, match=r"spec\.type: cannot change from 'queue' to 'topic'"):
        registry.replace(make_address(kind="topic"))


@pytest.mark.parametrize("field", [{"uid": "uid-9"}, {"resource_version": "9"}])
def test_a_replacement_of_another_version_is_refused(
    registry: Registry, make_address: Make, field: dict[str, Any]
) -> None:
    registry.create(make_address())
    orders = make_address(plan="p")
    with pytest.raises(ConflictError):
        registry.replace(orders.model_copy(update={"metadata": orders.metadata.model_copy(update=field)}))


def test_a_space_takes_its_addresses_with_it(registry: Registry, make_space: Make, make_address: Make) -> None:
    for space in ("shop", "shopping"):
        registry.create(make_space(space))
        registry.create(make_address(space=space))
    registry.delete("AddressSpace", "default", "shop")
    assert [item["metadata"]["name"] for item in registry.store.select("Address")] == ["shopping.orders"]
    assert [item["metadata"]["name"] for item in registry.store.select("AddressSpace")] == ["shopping"]


def test_a_deletion_keeps_its_preconditions(registry: Registry, make_space: Make) -> None:
    registry.create(make_space())
    with pytest.raises(ConflictError):
        registry.delete("AddressSpace", "default", "shop", preconditions=Preconditions(uid="other"))
    registry.delete("AddressSpace", "default", "shop", preconditions=Preconditions(uid="uid-1"))
    with pytest.raises(ResourceNotFoundError):
        registry.delete("AddressSpace", "default", "shop")


def test_dry_runs_find_what_a_write_would_find_and_change_nothing(
    registry: Registry, make_space: Make, make_address: Make
) -> None:
    registry.create(make_space())
    registry.create(make_address())
    version = registry.store.version
    registry.create(make_address("other"), dry_run=True)
    registry.replace(make_address(plan="p"), dry_run=True)
    registry.delete("AddressSpace", "default", "shop", dry_run=True)
    with pytest.raises(InvalidResourceError):
        registry.replace(make_address(kind="topic"), dry_run=True)
    assert registry.store.version == version
    assert len(registry.store.select("Address")) == 1


def test_the_catalog_is_planted_once(registry: Registry) -> None:
    registry.create_catalog()
    for item in default_objects():
        assert registry.store.find(item.kind, item.metadata.namespace, item.metadata.name), item.key
    registry.delete("AddressPlan", "enmasse-infra", "standard-small-queue")
    registry.create_catalog()
    assert registry.store.find("AddressPlan", "enmasse-infra", "standard-small-queue") is None


def test_a_catalog_of_before_is_followed_but_for_what_somebody_has_changed(registry: Registry) -> None:
    registry.create_catalog()
    former = {name: _with_credits(registry, name) for name in ("standard-small", "standard-medium", "free")}
    registry.store.write_fact("catalog", 3)
    registry.replace(former["standard-small"])  # by the catalog before
    registry.replace(former["standard-medium"], manager=Manager("kubectl", "v1beta2"))
    registry.create_catalog()
    left = {
        item["metadata"]["name"]: "resourceLimits" in item["spec"]
        for item in registry.store.select("AddressSpacePlan", "enmasse-infra")
    }
    assert {name for name, has_credits in left.items() if has_credits} == {"standard-medium"}


def _with_credits(registry: Registry, name: str) -> Resource:
    document = registry.store.get("AddressSpacePlan", "enmasse-infra", name)
    return decode(document | {"spec": document["spec"] | {"resourceLimits": {"router": 1}, "quota": "limits"}})


class Doorman:
    """An admission that labels what it lets in, puts something aside, and refuses on demand."""

    kinds = frozenset({"AddressSpace"})

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.refuses = False

    def admit(self, write: Write) -> Resource:
        self.seen.append((write.operation, write.user.name))
        resource = write.resource
        write.store.put_aside(resource.metadata.uid, "note", write.operation.encode())
        if self.refuses:
            raise ForbiddenError("not today")
        labelled = resource.metadata.model_copy(update={"labels": {"seen": "yes"}})
        return resource.model_copy(update={"metadata": labelled})


def test_an_admission_sees_every_write_of_its_kinds_and_may_change_what_is_stored(
    registry: Registry, make_space: Make, make_address: Make
) -> None:
    doorman = Doorman()
    registry.add_admission(doorman)
    created = registry.create(make_space(), user=Requester("ann"))
    assert created["metadata"]["labels"] == {"seen": "yes"}
    registry.create(make_address())
    registry.replace(make_space(plan="other"), user=Requester("bob"))
    assert registry.store.aside(created["metadata"]["uid"], "note") == b"UPDATE"
    registry.delete("AddressSpace", "default", "shop")
    assert doorman.seen == [("CREATE", "ann"), ("UPDATE", "bob"), ("DELETE", "system:operator")]


def test_what_an_admission_refuses_leaves_nothing(registry: Registry, make_space: Make) -> None:
    doorman = Doorman()
    registry.add_admission(doorman)
    created = registry.create(make_space())
    doorman.refuses = True
    with pytest.raises(ForbiddenError):
        registry.create(make_space("other"))
    with pytest.raises(ForbiddenError):
        registry.replace(make_space(plan="p"))
    with pytest.raises(ForbiddenError):
        registry.delete("AddressSpace", "default", "shop")
    assert registry.store.select("AddressSpace") == [created]
    assert registry.store.aside(created["metadata"]["uid"], "note") == b"CREATE"


def test_an_object_with_finalizers_is_marked_and_goes_with_the_last_of_them(
    registry: Registry, make_space: Make
) -> None:
    uid = registry.create(make_space())["metadata"]["uid"]
    registry.change_finalizers("AddressSpace", "default", "shop", uid=uid, add="enmasse.io/infra")
    registry.change_finalizers("AddressSpace", "default", "shop", uid=uid, add="example.com/mine")
    marked = registry.delete("AddressSpace", "default", "shop")
    assert marked["metadata"]["deletionTimestamp"]
    assert registry.delete("AddressSpace", "default", "shop") == marked
    registry.change_finalizers("AddressSpace", "default", "shop", uid=uid, remove="enmasse.io/infra")
    assert registry.store.get("AddressSpace", "default", "shop")["metadata"]["finalizers"] == ["example.com/mine"]
    registry.change_finalizers("AddressSpace", "default", "shop", uid=uid, add="example.com/late")
    registry.change_finalizers("AddressSpace", "default", "shop", uid="former", remove="example.com/mine")
    assert registry.store.find("AddressSpace", "default", "shop") is not None
    registry.change_finalizers("AddressSpace", "default", "shop", uid=uid, remove="example.com/mine")
    assert registry.store.find("AddressSpace", "default", "shop") is None


@pytest.mark.parametrize("user", [Requester.known("tina"), LOCAL_OPERATOR, PIPELINE_HOST], ids=lambda user: user.name)
def test_finalizers_of_the_platform_are_not_a_tenants_to_set(
    registry: Registry, make_address: Make, user: Requester
) -> None:
    asked = ("a.io/x", "enmasse.io/checkpoints", "iot.enmasse.io/tenant", "notenmasse.io/z", "plain")
    theirs = ("a.io/x", "notenmasse.io/z", "plain")
    kept = theirs if user.name == "tina" else asked

    def finalizers(document: dict[str, Any]) -> tuple[str, ...]:
        return tuple(document["metadata"].get("finalizers", ()))

    def asking(resource: Resource, **fields: Any) -> Resource:
        return resource.model_copy(update={"metadata": resource.metadata.model_copy(update=fields)})

    created = registry.create(asking(make_address("one"), finalizers=asked), user=user)
    assert finalizers(created) == kept
    registry.create(make_address("two"))
    assert set(finalizers(registry.replace(asking(make_address("two"), finalizers=asked), user=user))) == set(kept)
    config = {"metadata": {"finalizers": list(asked)}}
    document = make_address("three").to_dict()
    document["metadata"] |= config["metadata"]
    applied, _, _ = registry.apply(document, Manager("tests", "Apply"), user=user)
    assert set(finalizers(applied)) == set(kept)
    # What is there stays, whoever writes.
    uid = created["metadata"]["uid"]
    registry.change_finalizers("Address", "default", "shop.one", uid=uid, add="enmasse.io/infra")
    assert "enmasse.io/infra" in finalizers(registry.replace(make_address("one", plan="p"), user=user))


def test_finalizers_and_owners_that_a_blind_write_does_not_mention_stay(
    registry: Registry, make_address: Make
) -> None:
    def metadata(resource: Resource, **fields: Any) -> Resource:
        return resource.model_copy(update={"metadata": resource.metadata.model_copy(update=fields)})

    registry.create(metadata(make_address(), finalizers=("a.io/x", "enmasse.io/y"), labels={"a": "b"}))
    blind = registry.replace(make_address(plan="p"))["metadata"]
    assert (blind["finalizers"], "labels" in blind) == (["a.io/x", "enmasse.io/y"], False)
    version = blind["resourceVersion"]
    seeing = registry.replace(metadata(make_address(plan="p"), resource_version=version))["metadata"]
    assert seeing["finalizers"] == ["enmasse.io/y"]
    going = registry.delete("Address", "default", "shop.orders")["metadata"]
    registry.replace(metadata(make_address(plan="p"), resource_version=going["resourceVersion"]))
    assert registry.store.find("Address", "default", "shop.orders") is None
