"""The controller against a node in memory: it gets there, comes back, and tells."""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

from enmasse import control
from enmasse.control import control_plane
from enmasse.control.errors import NodeUnavailableError, StoreFullError
from enmasse.control.runtime.controller import Controller
from tests.support.polling import until_async

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from enmasse.control.ports import Entity
    from enmasse.model.schema.resource import Resource
    from tests.unit.control.stage import Stage

    Make = Callable[..., Resource]

SERVED = {"default/shop": 1, "default/shop.orders": 1}


Perform = Any


def test_what_is_declared_comes_to_be_and_is_ready(perform: Perform, make_space: Make, make_address: Make) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        async with stage.controlled():
            stage.registry.create(make_address())
            await until_async(lambda: stage.status("Address", "shop.orders")["isReady"])
            assert stage.node.generations() == SERVED
            assert stage.status("AddressSpace", "shop")["phase"] == "Active"
            stage.registry.replace(make_address(plan="standard-large-queue"))
            await until_async(lambda: stage.node.generations()["default/shop.orders"] == 2)
            await until_async(lambda: stage.ready_generation("Address", "shop.orders") == 2)
            assert stage.status("Address", "shop.orders")["planStatus"]["name"] == "standard-large-queue"

    perform(scene)


def test_an_address_comes_to_be_though_the_answer_about_its_space_was_lost(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        create, is_lost = stage.node.create, asyncio.Event()

        async def create_without_answer(entity: Entity) -> bool:
            done: bool = await create(entity)
            if entity.entity_type == "space" and not is_lost.is_set():
                await is_lost.wait()
                raise NodeUnavailableError("no answer came in time")
            return done

        stage.node.create = create_without_answer
        async with stage.controlled() as plane:
            await stage.settled(plane)
            stage.registry.create(make_space())
            await until_async(lambda: stage.node.generations() == {"default/shop": 1})
            stage.registry.create(make_address())
            await until_async(lambda: stage.reason("Address", "shop.orders") == "Configuring")
            is_lost.set()
            await until_async(lambda: stage.status("Address", "shop.orders")["isReady"])

    perform(scene)


def test_what_is_deleted_leaves_the_node(perform: Perform, make_space: Make, make_address: Make) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        stage.registry.create(make_address())
        async with stage.controlled():
            await until_async(lambda: stage.node.generations() == SERVED)
            stage.registry.delete("AddressSpace", "default", "shop")
            await until_async(lambda: stage.node.generations() == {})

    perform(scene)


def test_what_nobody_declared_is_taken_off_the_node(perform: Perform, make_space: Make) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        async with stage.controlled():
            await until_async(lambda: len(stage.node.generations()) == 1)
        stage.registry.delete("AddressSpace", "default", "shop")
        assert stage.node.generations() == {"default/shop": 1}
        async with stage.controlled():
            await until_async(lambda: stage.node.generations() == {})

    perform(scene)


def test_a_node_that_comes_back_empty_is_told_everything_at_once(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        stage.registry.create(make_address())
        async with stage.controlled():
            await until_async(lambda: stage.status("Address", "shop.orders")["isReady"])
            stage.node.cut(lose=True)
            await until_async(lambda: stage.reason("Address", "shop.orders") == "NodeUnavailable")
            stage.node.connect()
            await until_async(lambda: stage.status("Address", "shop.orders")["isReady"])
            assert stage.node.generations() == SERVED

    perform(scene)


def test_what_is_declared_while_the_node_is_away_is_there_when_it_is_back(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.node.cut()
        async with stage.controlled():
            stage.registry.create(make_space())
            stage.registry.create(make_address())
            await until_async(lambda: stage.reason("Address", "shop.orders") == "NodeUnavailable")
            stage.node.connect()
            await until_async(lambda: stage.node.generations() == SERVED)

    perform(scene)


def test_what_drifts_is_put_right(perform: Perform, make_space: Make, make_address: Make) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        stage.registry.create(make_address())
        async with stage.controlled(resync_s=0.02):
            await until_async(lambda: stage.node.generations() == SERVED)
            stage.node.forget("default/shop.orders")
            await until_async(lambda: stage.node.generations() == SERVED)

    perform(scene)


def test_a_subscription_is_made_as_soon_as_its_topic_exists(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        async with stage.controlled():
            stage.registry.create(make_address("reader", "subscription", topic="news"))
            await until_async(lambda: stage.reason("Address", "shop.reader") == "SpaceMissing")
            stage.registry.create(make_space())
            await until_async(lambda: stage.reason("Address", "shop.reader") == "TopicMissing")
            stage.registry.create(make_address("news", "topic"))
            await until_async(lambda: stage.status("Address", "shop.reader")["isReady"])

    perform(scene)


def test_a_refusal_is_shown_tried_again_and_does_not_hold_up_others(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.node.refused["default/shop.orders"] = (501, "no queues today")
        stage.registry.create(make_space())
        stage.registry.create(make_address())
        stage.registry.create(make_address("other"))
        async with stage.controlled():
            await until_async(lambda: stage.status("Address", "shop.other")["isReady"])
            await until_async(lambda: stage.status("Address", "shop.orders")["phase"] == "Failed")
            assert stage.status("Address", "shop.orders")["messages"] == ["the node answered 501: no queues today"]
            stage.node.refused.clear()
            await until_async(lambda: stage.status("Address", "shop.orders")["isReady"])

    perform(scene)


def test_a_refusal_makes_the_controller_ask_what_the_node_really_has(
    perform: Perform, make_space: Make, make_address: Make
) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        async with stage.controlled():
            await until_async(lambda: stage.status("AddressSpace", "shop")["isReady"])
            stage.node.forget("default/shop")
            stage.node.refused["default/shop.orders"] = (404, "there is no space")
            stage.registry.create(make_address())
            await until_async(lambda: "default/shop" in stage.node.generations())
            stage.node.refused.clear()
            await until_async(lambda: stage.node.generations() == SERVED)

    perform(scene)


def test_nothing_is_said_before_anything_is_known(perform: Perform, make_space: Make) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        async with stage.controlled() as plane:
            await until_async(lambda: stage.status("AddressSpace", "shop")["isReady"])
            await stage.settled(plane)
        version = stage.registry.store.version
        async with stage.controlled():
            await until_async(lambda: stage.node.questions == 2)
            await asyncio.sleep(0.02)
        assert stage.registry.store.version == version

    perform(scene)


def test_a_settled_world_is_left_alone(perform: Perform, make_space: Make, make_address: Make) -> None:
    async def scene(stage: Stage) -> None:
        stage.registry.create(make_space())
        stage.registry.create(make_address())
        async with stage.controlled(resync_s=0.005):
            await until_async(lambda: stage.status("Address", "shop.orders")["isReady"])
            await until_async(lambda: stage.status("AddressSpace", "shop")["isReady"])
            version, calls, questions = stage.registry.store.version, len(stage.node.calls), stage.node.questions
            await until_async(lambda: stage.node.questions > questions + 3)
            assert (stage.registry.store.version, len(stage.node.calls)) == (version, calls)

    perform(scene)


def test_a_store_that_is_full_for_a_while_gets_its_statuses_later(
    perform: Perform, make_space: Make, make_address: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enmasse.control.runtime.statuses._LATER_S", 0.01)

    async def scene(stage: Stage) -> None:
        store: Any = stage.registry.store
        full = True
        begin = store.transaction

        def refuse(*, dry_run: bool = False) -> Any:
            if full:
                raise StoreFullError("the disk is full")
            return begin(dry_run=dry_run)

        stage.registry.create(make_space())
        stage.registry.create(make_address())
        async with stage.controlled():
            await until_async(lambda: stage.status("AddressSpace", "shop").get("isReady", False))
            stage.registry.create(make_address("other"))
            with monkeypatch.context() as patch:
                patch.setattr(store, "transaction", refuse)
                await until_async(lambda: "default/shop.other" in stage.node.generations())
                await asyncio.sleep(0.05)
                assert not stage.status("Address", "shop.other").get("conditions")
                full = False
                await until_async(lambda: stage.status("Address", "shop.other").get("isReady", False))

    perform(scene)


def test_every_controller_is_in_the_list_of_the_control_plane() -> None:
    listed = inspect.getsource(control_plane)
    for module in pkgutil.walk_packages(control.__path__, "enmasse.control."):
        for name, found in inspect.getmembers(import_module(module.name), inspect.isclass):
            if issubclass(found, Controller) and found is not Controller:
                assert f"{name}(context" in listed, f"the control plane does not run {name}"
