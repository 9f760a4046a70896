"""What else reaches addresses, nodes and counts: infrastructure, reasons to wait, forwarders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.model.schema.objects import decode
from tests.support.polling import until_async
from tests.unit.control.stage import node_of
from tests.unit.control.test_control_places import space_plan

if TYPE_CHECKING:
    from enmasse.model.schema.resource import Resource
    from tests.unit.control.stage import Stage

    Make = Callable[..., Resource]

Perform = Any


def test_an_infrastructure_configuration_reaches_the_addresses_whose_plans_name_it(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    def config(policy: str) -> Resource:
        return decode(
            {
                "apiVersion": "admin.enmasse.io/v1beta1",
                "kind": "StandardInfraConfig",
                "metadata": {"name": "ours", "namespace": "enmasse-infra"},
                "spec": {"broker": {"addressFullPolicy": policy}},
            }
        )

    async def scene(stage: Stage) -> None:
        def policy() -> str:
            return str(stage.node.state.addresses["default/shop.a"].settings.full_policy)

        stage.registry.create(config("FAIL"))
        stage.registry.create(space_plan(infraConfigRef="ours"))
        stage.registry.create(make_space(plan="tiny"))
        async with stage.controlled() as plane:
            stage.registry.create(make_address("a"))
            await stage.settled(plane)
            assert policy() == "reject"
            stage.registry.replace(config("DROP"))
            await stage.settled(plane)
            assert policy() == "drop-oldest"
            stage.registry.delete("StandardInfraConfig", "enmasse-infra", "ours")
            await stage.settled(plane)
            assert policy() == "block"

    perform(scene)


def test_a_node_is_told_why_an_address_waits_until_it_does_no_more(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        key = ("default/shop", "orders")
        stage.registry.create(make_space())
        async with stage.controlled() as plane:
            await stage.settled(plane)
            stage.registry.create(make_address("orders", plan="nope"))
            stage.registry.create(make_address("orders", name="again"))
            await stage.settled(plane)
            assert stage.node.pending == {key: "unknown address plan 'nope'"}
            stage.node.cut(lose=True)
            await until_async(lambda: node_of(plane).mirror.is_reachable is False)
            stage.node.connect()
            await stage.settled(plane)
            await until_async(lambda: stage.node.pending == {key: "unknown address plan 'nope'"})
            stage.registry.delete("Address", "default", "shop.again")
            stage.registry.replace(make_address("orders", deadletter="failed"))
            await stage.settled(plane)
            assert stage.node.pending == {key: "deadletter 'failed' does not exist yet"}
            stage.registry.delete("Address", "default", "shop.orders")
            await stage.settled(plane)
            assert stage.node.pending == {}

    perform(scene)


def test_forwarders_are_counted_with_their_addresses(perform: Perform, make_space: Make, make_address: Make) -> None:
    def forwarders(number: int) -> list[dict[str, str]]:
        return [{"name": f"f{n}", "remoteAddress": "there/x", "direction": "out"} for n in range(number)]

    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        stage.registry.create(make_address("a", forwarders=forwarders(1)))
        async with stage.controlled() as plane:
            await stage.settled(plane)
            stage.registry.create(make_address("b", forwarders=forwarders(3)))
            stage.registry.replace(make_address("b", forwarders=forwarders(2)))
            await stage.settled(plane)
            assert stage.registry.forwarders()["default/shop"] == 3
            stage.registry.delete("Address", "default", "shop.a")
            await stage.settled(plane)
            assert stage.registry.forwarders()["default/shop"] == 2

    perform(scene)


def test_a_node_is_told_why_a_connector_waits_until_it_does_no_more(perform: Perform, make_space: Make) -> None:
    async def scene(stage: Stage) -> None:
        def secret(**texts: str) -> Resource:
            metadata = {"name": "mill", "namespace": "default"}
            return decode({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": texts})

        key = ("default/shop", "mill")
        tls = {"caCert": {"valueFromSecret": {"name": "mill"}}}
        connector = {"name": "mill", "endpointHosts": [{"host": "mq.example.com"}], "tls": tls}
        stage.registry.create(make_space(connectors=[connector]))
        async with stage.controlled() as plane:
            missing = {key: "connector 'mill' waits: there is no Secret default/mill"}
            await until_async(lambda: stage.node.pending == missing)
            stage.node.cut(lose=True)
            await until_async(lambda: node_of(plane).mirror.is_reachable is False)
            stage.node.connect()
            await until_async(lambda: stage.node.pending == missing)
            stage.registry.create(secret(other="x"))
            await until_async(lambda: "has no entry 'ca.crt'" in stage.node.pending[key])
            stage.registry.replace(secret(**{"ca.crt": "x"}))
            await until_async(lambda: stage.node.pending == {})
            stage.registry.delete("Secret", "default", "mill")
            await until_async(lambda: stage.node.pending == missing)
            stage.registry.replace(make_space(connectors=[]))
            await until_async(lambda: stage.node.pending == {})

    perform(scene)
