"""Projects of the IoT layer: their spaces, addresses and tenants come, change and go with them."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.projects.controller import keep_open
from enmasse.iot.documents import RegistryError
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.store import DeviceStore
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.objects import decode
from tests.support.polling import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.unit.control.stage import Stage

    Perform = Callable[..., None]

TENANT = "default.plant"
NAMES = ["telemetry", "event", "command", "command-response"]


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[DeviceRegistry]:
    numbers = itertools.count(1)
    with DeviceStore(tmp_path / "devices.db") as store:
        yield DeviceRegistry(store, now=str, new_id=str, new_version=lambda: f"v{next(numbers)}")


def project(strategy: dict[str, Any], **configuration: Any) -> dict[str, Any]:
    return {
        "apiVersion": "iot.enmasse.io/v1alpha1",
        "kind": "IoTProject",
        "metadata": {"name": "plant", "namespace": "default"},
        "spec": {"downstreamStrategy": strategy} | ({"configuration": configuration} if configuration else {}),
    }


PROVIDED = {"providedStrategy": {"addressSpaceName": "shop"}}
MANAGED = {"managedStrategy": {"addressSpace": {"name": "shop"}, "addresses": {"telemetry": {"type": "queue"}}}}


@asynccontextmanager
async def working(stage: Stage, devices: DeviceRegistry) -> AsyncIterator[None]:
    stage.registry.create_namespaces()
    stage.registry.create_catalog()
    async with stage.controlled(devices=devices):
        yield


def addresses(stage: Stage) -> dict[str, str]:
    """The addresses that there are, with their types."""
    found = stage.registry.store.select("Address", "default")
    return {item["spec"]["address"]: item["spec"]["type"] for item in found}


def test_a_project_with_a_space_of_its_own_becomes_ready(perform: Perform, devices: DeviceRegistry) -> None:
    async def scene(stage: Stage) -> None:
        async with working(stage, devices):
            stage.registry.create(
                decode(project(MANAGED, registrationLimits={"maximumDevices": 1}, minimumMessageSize=10))
            )
            await until_async(lambda: stage.condition("IoTProject", "plant", "Ready")[0] == "True")
            assert addresses(stage) == {
                f"telemetry/{TENANT}": "queue",
                f"event/{TENANT}": "queue",
                f"command/{TENANT}": "anycast",
                f"command_response/{TENANT}": "topic",
                f"inquiry/{TENANT}": "anycast",
            }
            status = stage.status("IoTProject", "plant")
            assert (status["tenant"], status["phase"], status["isReady"]) == (TENANT, "Active", True)
            effect = stage.condition("IoTProject", "plant", "InEffect")
            assert effect[0] == "False"
            assert effect[2].startswith(
                "spec.configuration.minimumMessageSize has no effect: the device registry keeps"
            )
            document, version = devices.tenant(TENANT)
            assert document == {"minimum-message-size": 10, "registration-limits": {"max-devices": 1}}
            devices.create_device(TENANT, "d-1", {}, "me")
            stage.registry.replace(decode(project(MANAGED, enabled=False)))
            await until_async(lambda: devices.tenant(TENANT)[1] != version)
            assert devices.tenant(TENANT)[0] == {"enabled": False}
            assert devices.device(TENANT, "d-1")[1]

    perform(scene)


def test_a_project_waits_for_its_space_and_takes_everything_but_the_space_along(
    perform: Perform, devices: DeviceRegistry
) -> None:
    devices.create_tenant(TENANT, {"alias": "plant"})  # by the registry's own API, which a project leaves as it is

    async def scene(stage: Stage) -> None:
        async with working(stage, devices):
            stage.registry.create(decode(project(PROVIDED)))
            await until_async(lambda: stage.condition("IoTProject", "plant", "Ready")[1] == "SpaceMissing")
            assert addresses(stage) == {}
            space = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace"}
            stage.registry.create(decode(space | {"metadata": {"name": "shop", "namespace": "default"}, "spec": {}}))
            await until_async(lambda: stage.condition("IoTProject", "plant", "Ready")[0] == "True")
            assert stage.condition("IoTProject", "plant", "InEffect")[0] == "True"
            assert devices.tenant(TENANT)[0] == {"alias": "plant"}
            stage.registry.delete("IoTProject", "default", "plant")
            await until_async(lambda: addresses(stage) == {} and not stage.registry.store.select("IoTProject"))
            assert stage.registry.store.find("AddressSpace", "default", "shop") is not None
            with pytest.raises(RegistryError, match="there is no tenant"):
                devices.tenant(TENANT)

    perform(scene)


SPACE: dict[str, Any] = {
    "apiVersion": "enmasse.io/v1beta1",
    "kind": "AddressSpace",
    "metadata": {"name": "shop", "namespace": "default"},
}
OPEN, GUARDED = ({"authenticationService": {"type": name}} for name in ("none", "standard"))


@pytest.mark.parametrize(
    ("space", "is_anonymous", "service", "reason", "are_closed"),
    [
        (None, False, "standard", "UsersOnly", True),
        (None, True, "none", "OpenToEverybody", False),
        (GUARDED, False, "standard", "UsersOnly", True),
        (OPEN, False, "none", "SpaceOpen", True),
        (OPEN, True, "none", "OpenToEverybody", False),
        (GUARDED, True, "standard", "UsersOnly", False),
    ],
)
def test_a_project_is_for_those_who_log_in_unless_it_says_otherwise(
    perform: Perform,
    devices: DeviceRegistry,
    space: dict[str, Any] | None,
    is_anonymous: bool,
    service: str,
    reason: str,
    are_closed: bool,
) -> None:
    async def scene(stage: Stage) -> None:
        async with working(stage, devices):
            if space is not None:
                stage.registry.create(decode(SPACE | {"spec": space}))
            wanted = project(MANAGED)
            if is_anonymous:
                wanted["spec"]["anonymous"] = True
            stage.registry.create(decode(wanted))
            await until_async(lambda: stage.condition("IoTProject", "plant", "Ready")[0] == "True")
            found = stage.registry.store.find("AddressSpace", "default", "shop")
            assert found is not None
            assert found["spec"]["authenticationService"] == {"type": service}
            condition = stage.condition("IoTProject", "plant", "LoginRequired")
            assert condition[:2] == ("True" if reason == "UsersOnly" else "False", reason)
            made = stage.registry.store.select("Address", "default")
            assert [item["spec"]["usersOnly"] for item in made] == [are_closed] * 5
            if reason == "SpaceOpen":
                stage.registry.replace(decode(SPACE | {"spec": GUARDED}))
                await until_async(lambda: stage.condition("IoTProject", "plant", "LoginRequired")[0] == "True")

    perform(scene)


def test_projects_of_an_older_version_stay_as_open_as_they_were(perform: Perform, devices: DeviceRegistry) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create_namespaces()
        specs: dict[str, dict[str, Any]] = {"open": {}, "guarded": GUARDED}
        for name, spec in specs.items():
            metadata = {"name": f"{name}-space", "namespace": "default"}
            stage.registry.create(decode(SPACE | {"metadata": metadata, "spec": spec}))
            strategy = {"providedStrategy": {"addressSpaceName": f"{name}-space"}}
            metadata = {"name": name, "namespace": "default"}
            stage.registry.create(decode(project(strategy) | {"metadata": metadata}))
        stage.registry.create(decode(project({"managedStrategy": {"addressSpace": {"name": "to-come"}}})))
        keep_open(stage.registry)

        def found() -> dict[str, bool]:
            items = stage.registry.store.select("IoTProject", "default")
            return {item["metadata"]["name"]: item["spec"].get("anonymous", False) for item in items}

        assert found() == {"open": True, "guarded": False, "plant": False}
        stage.registry.create(decode(project(PROVIDED) | {"metadata": {"name": "later", "namespace": "default"}}))
        stage.registry.create(decode(SPACE | {"spec": OPEN}))
        keep_open(stage.registry)  # at the next start
        assert not found()["later"]

    perform(scene)


def test_what_stands_in_the_way_of_a_project_is_said(perform: Perform, devices: DeviceRegistry) -> None:
    async def scene(stage: Stage) -> None:
        async with working(stage, devices):
            taken = {
                "apiVersion": "enmasse.io/v1beta1",
                "kind": "Address",
                "metadata": {"name": "shop.iot-plant-event", "namespace": "default"},
                "spec": {"address": "mine", "type": "queue"},
            }
            stage.registry.create(decode(taken))
            stage.registry.create(decode(project(MANAGED)))
            await until_async(lambda: stage.condition("IoTProject", "plant", "Ready")[1] == "AddressTaken")
            assert "shop.iot-plant-event" in stage.condition("IoTProject", "plant", "ResourcesCreated")[2]
            assert stage.condition("IoTProject", "plant", "ConfigurationAccepted")[:2] == ("True", "Accepted")
            stage.registry.delete("Address", "default", "shop.iot-plant-event")
            stage.registry.replace(decode(project(MANAGED, ext={"a": "b" * 70_000})))
            await until_async(lambda: stage.condition("IoTProject", "plant", "Ready")[1] == "TenantRefused")

    perform(scene)


@pytest.mark.parametrize(
    ("strategy", "path"),
    [
        ({}, "spec.downstreamStrategy"),
        (PROVIDED | MANAGED, "spec.downstreamStrategy"),
        ({"providedStrategy": {"addressSpaceName": "a.b"}}, "spec.downstreamStrategy"),
        (
            {"providedStrategy": {"addressSpaceName": "shop", "namespace": "other"}},
            "spec.downstreamStrategy.providedStrategy.namespace",
        ),
        ({"externalStrategy": {"host": "mq.example"}}, "spec.downstreamStrategy.externalStrategy"),
    ],
)
def test_a_project_names_one_space_of_its_namespace(strategy: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidResourceError) as caught:
        decode(project(strategy))
    assert path in {problem.path for problem in caught.value.problems}


STREAMED = {"managedStrategy": {"addressSpace": {"name": "shop"}, "addresses": {"telemetry": {"type": "stream"}}}}
ASKED: dict[str, Any] = {
    "telemetry": {},
    "events": {"table": "kept"},
    "lake": {},
    "anomalies": {"bands": {"a": "0:9"}},
}


def piped(strategy: dict[str, Any] = STREAMED, **pipelines: Any) -> dict[str, Any]:
    """A project that asks for pipelines, by their names and parameters."""
    document = project(strategy)
    document["spec"]["pipelines"] = [
        {"name": name.replace("_", "-"), "parameters": parameters} for name, parameters in pipelines.items()
    ]
    return document


def test_pipelines_come_change_and_go_as_the_project_says(perform: Perform, devices: DeviceRegistry) -> None:
    async def scene(stage: Stage) -> None:
        def pipelines() -> dict[str, Any]:
            return {
                item["metadata"]["name"]: item["spec"]
                for item in stage.registry.store.select("Pipeline", "default")
                if not item["metadata"].get("deletionTimestamp")
            }

        async with working(stage, devices):
            stage.registry.create(decode(piped(**ASKED)))
            await until_async(lambda: len(pipelines()) == 4)
            made = pipelines()
            assert made["shop.iot-plant-lake"]["builtin"] == {
                "name": "lake",
                "parameters": {"address": f"telemetry/{TENANT}", "table": "plant_raw"},
            }
            found = made["shop.iot-plant-anomalies"]["builtin"]["parameters"]
            assert found == {"address": f"telemetry/{TENANT}", "bands": {"a": "0:9"}, "table": "plant_anomalies"}
            assert [sink["table"] for sink in made["shop.iot-plant-telemetry"]["sinks"]] == ["plant_telemetry"]
            assert [sink["table"] for sink in made["shop.iot-plant-events"]["sinks"]] == ["kept"]
            assert [source["address"] for source in made["shop.iot-plant-events"]["sources"]] == [f"event/{TENANT}"]
            stage.registry.replace(decode(piped(lake={"table": "raw"})))
            await until_async(lambda: len(pipelines()) == 1)
            changed = pipelines()["shop.iot-plant-lake"]["builtin"]["parameters"]
            assert changed == {"address": f"telemetry/{TENANT}", "table": "raw"}
            # Who deletes one has it made anew.
            stage.registry.delete("Pipeline", "default", "shop.iot-plant-lake")
            await until_async(lambda: len(pipelines()) == 1)

    perform(scene)


@pytest.mark.parametrize(
    ("strategy", "pipelines", "problem"),
    [
        (MANAGED, {"lake": {}}, "addresses.telemetry.type: expected stream"),
        (PROVIDED, {"telemetry": {}}, "addresses.telemetry.type: expected stream"),
        (STREAMED, {"lake": {"address": "other"}}, "spec.pipelines[0].parameters.address: it is that of the"),
        (STREAMED, {"anomalies": {}}, "spec.pipelines[0].parameters.bands: required"),
        (STREAMED, {"lake": {}, "last_value": {"tables": "x"}}, "spec.pipelines[1].parameters.tables"),
        (STREAMED, {"telemetry": {"size": "10s"}}, "spec.pipelines[0].parameters: expected table"),
    ],
)
def test_pipelines_that_cannot_be_are_refused(
    strategy: dict[str, Any], pipelines: dict[str, Any], problem: str
) -> None:
    document = piped(strategy, **pipelines)
    with pytest.raises(InvalidResourceError) as refused:
        decode(document)
    assert problem in str(refused.value)
