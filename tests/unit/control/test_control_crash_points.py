"""The control process dies at each of its writes, to the store and to the node, and converges to the same state."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.context import Context
from enmasse.control.control_plane import ControlPlane
from enmasse.control.errors import ResourceExistsError, ResourceNotFoundError
from enmasse.control.nodes.homes import make_nodes
from enmasse.control.store.registry import Registry
from enmasse.control.store.store import ResourceStore
from enmasse.control.users.passwords import UserPasswords
from enmasse.model.schema.objects import decode
from tests.unit.control.memory_users import MemoryUsers
from tests.unit.control.stage import node_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from enmasse.model.schema.resource import Resource

    Make = Callable[..., Resource]
    Act = Callable[[Registry], object]

PATIENCE_S = 20
_OF_ONE_RUN = re.compile(r"^(uid|resourceVersion|creationTimestamp|deletionTimestamp|lastTransitionTime)$")


class ProcessDeathError(BaseException):
    """What cannot be caught: nothing of the process runs on."""


class Fate:
    """Counts writes, and ends the process at one of them.

    Args:
        at: at which; 0 for never.
        is_before: whether the write itself is lost.
    """

    def __init__(self, at: int = 0, *, is_before: bool = False) -> None:
        self.count = 0
        self.is_dead = False
        self._at = at
        self._is_before = is_before

    def before(self) -> None:
        if self.is_dead:
            raise ProcessDeathError
        self.count += 1
        if self.count == self._at and self._is_before:
            self._die()

    def after(self) -> None:
        if self.count == self._at and not self.is_dead:
            self._die()

    def _die(self) -> None:
        self.is_dead = True
        raise ProcessDeathError


class MortalStore(ResourceStore):
    """A store on disk whose process dies before or after a commit."""

    fate = Fate()

    @contextmanager
    def transaction(self, *, dry_run: bool = False) -> Iterator[None]:
        if self._is_writing or dry_run:
            with super().transaction(dry_run=dry_run):
                yield
            return
        self.fate.before()
        with super().transaction():
            yield
        self.fate.after()


def mortal(node: Any, fate: Fate) -> Any:
    """A node in memory, told by a process that dies before or after one of its orders."""

    class Mortal:
        def __getattr__(self, name: str) -> Any:
            found = getattr(node, name)
            if name.partition("_")[0] not in ("create", "update", "delete"):
                return found

            async def order(*arguments: Any) -> Any:
                fate.before()
                answer = await found(*arguments)
                fate.after()
                return answer

            return order

    return Mortal()


class World:
    """What survives a process: the disk, and the node."""

    def __init__(self, path: Path, node: Any) -> None:
        self.path = path
        self.node = node
        self.users = MemoryUsers()
        self._uids = itertools.count(1)
        self._seconds = itertools.count()

    @asynccontextmanager
    async def process(self, fate: Fate) -> AsyncIterator[tuple[Registry, ControlPlane]]:
        """One life of the control process."""
        self.node.connect()
        with MortalStore(self.path) as store:
            store._database.execute("PRAGMA synchronous = OFF")  # the machine does not crash, only the process
            # The clock goes backwards all the time: nothing may depend on it.
            registry = Registry(
                store,
                now=lambda: f"2026-01-01T00:00:{59 - next(self._seconds) % 60:02}Z",
                new_uid=lambda: f"uid-{next(self._uids)}",
                admission=[UserPasswords()],
            )
            store.fate = fate
            options: Any = {"now": registry._now, "jitter": lambda: 0.01}
            context = Context(registry, [mortal(self.node, fate)], resync_s=1000, grace_s=1000, **options)
            plane = ControlPlane(context, users=[mortal(self.users, fate)])
            work = asyncio.create_task(plane.run())
            try:
                yield registry, plane
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def live(self, acts: list[list[Act]], fate: Fate) -> None:
        """Do what is left of the acts, in groups that are settled before the next, until all are done or death."""
        try:
            async with self.process(fate) as (registry, plane):
                while acts:
                    while acts[0]:
                        acts[0][0](registry)
                        del acts[0][0]
                        await asyncio.sleep(0)
                    await settled(plane, fate)
                    del acts[0]
                await settled(plane, fate)
        except ProcessDeathError:
            assert fate.is_dead

    def state(self) -> dict[str, Any]:
        """Everything that there is, but for what differs from one run to the next."""
        names = {}
        found: dict[str, Any] = {}
        with ResourceStore(self.path) as store:
            for kind in ("AddressSpace", "Address", "MessagingUser", "AddressPlan"):
                for document in store.select(kind):
                    names[document["metadata"]["uid"]] = document["metadata"]["name"]
                    found[f"{kind} {document['metadata']['name']}"] = _lasting(document)
        entities = [*self.node.state.spaces.values(), *self.node.state.addresses.values(), *self.users.users.values()]
        for entity in entities:
            assert entity.uid in names, f"{entity.name} on the node belongs to no object"
            found[f"node {entity.name}"] = re.sub(r"(uid|revision)='[^']*'", "", repr(entity))
        return found


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if not _OF_ONE_RUN.match(key)}
    return [_lasting(item) for item in value] if isinstance(value, list) else value


async def settled(plane: ControlPlane, fate: Fate) -> None:
    async with asyncio.timeout(PATIENCE_S):
        calm = 0
        while calm < 3:
            await asyncio.sleep(0.002)
            if fate.is_dead:
                raise ProcessDeathError
            calm = calm + 1 if plane.is_settled and node_of(plane).mirror.is_complete else 0


def apply(resource: Resource) -> Act:
    """What ``kubectl apply`` does, however often it is repeated."""

    def act(registry: Registry) -> None:
        try:
            registry.create(resource)
        except ResourceExistsError:
            registry.replace(resource)

    return act


def delete(kind: str, name: str, namespace: str = "default") -> Act:
    def act(registry: Registry) -> None:
        with suppress(ResourceNotFoundError):
            registry.delete(kind, namespace, name)

    return act


def make_user(name: str) -> Resource:
    return decode(
        {
            "apiVersion": "user.enmasse.io/v1beta1",
            "kind": "MessagingUser",
            "metadata": {"name": f"shop.{name}", "namespace": "default"},
            "spec": {
                "username": name,
                "authentication": {
                    "type": "federated",
                    "provider": "x",
                    "federatedUserid": "1",
                    "federatedUsername": name,
                },
                "authorization": [{"operations": ["send"], "addresses": ["*"]}],
            },
        }
    )


def small_plan(addresses: int) -> Resource:
    """A space plan for so many addresses."""
    return decode(
        {
            "apiVersion": "admin.enmasse.io/v1beta2",
            "kind": "AddressSpacePlan",
            "metadata": {"name": "tiny", "namespace": "enmasse-infra"},
            "spec": {
                "addressSpaceType": "standard",
                "resourceLimits": {},
                "addressPlans": ["standard-small-queue", "standard-small-topic", "standard-small-subscription"],
                "limits": {"addresses": addresses},
            },
        }
    )


@pytest.fixture
def scenes(make_space: Make, make_address: Make) -> dict[str, list[list[Act]]]:
    shop = make_space(authenticationService={"type": "standard"})
    news = make_address("news", "topic")
    reader = make_address("reader", "subscription", topic="news")
    tiny = make_space(plan="tiny")
    limited = make_address(limits={"maxBytes": 1000})
    hasty = make_address("news", "topic", messageTtl={"maximum": 9})
    return {
        "create": [
            [apply(reader), apply(shop), apply(make_user("jo")), apply(make_address()), apply(news)],
        ],
        "update": [
            [apply(shop), apply(make_address()), apply(news), apply(make_user("jo"))],
            [apply(limited), apply(hasty)],
            [delete("Address", "shop.orders"), apply(make_address(plan="standard-large-queue"))],
        ],
        "delete": [
            [apply(shop), apply(make_address()), apply(make_user("jo"))],
            [delete("AddressSpace", "shop")],
            [apply(shop), apply(make_address())],
        ],
        "quota": [
            [apply(small_plan(2)), apply(tiny)],
            [*(apply(make_address(name)) for name in ("z", "y", "x", "w"))],
            [delete("Address", "shop.z")],
            [apply(small_plan(3))],
        ],
    }  # fmt: skip


@pytest.fixture
def planted(memory_node: Any, tmp_path: Path) -> Path:
    """A store with what every installation starts with, looked at by its controllers."""
    path = tmp_path / "planted.db"
    with ResourceStore(path) as store:
        uids = itertools.count(1)
        registry = Registry(store, now=lambda: "2026-01-01T00:00:00Z", new_uid=lambda: f"plan-{next(uids)}")
        registry.create_namespaces()
        registry.create_catalog()
        make_nodes(registry, ["node-0"])
    asyncio.run(World(path, memory_node()).live([[]], Fate()))
    return path


def converge(path: Path, node: Any, acts: list[list[Act]], fate: Fate) -> tuple[dict[str, Any], int]:
    """Live with a fate, and after death once more without; the state then, and the writes until death."""

    async def body() -> dict[str, Any]:
        world = World(path, node)
        left = [list(group) for group in acts]
        await world.live(left, fate)
        if fate.is_dead:
            world.node.cut()
            await world.live(left or [[]], Fate())
        return world.state()

    return asyncio.run(body()), fate.count


@pytest.mark.parametrize(
    "name", ["create", *(pytest.param(name, marks=pytest.mark.slow) for name in ("update", "delete", "quota"))]
)
def test_death_at_any_write_changes_nothing_in_the_end(
    name: str, scenes: dict[str, list[list[Act]]], memory_node: Any, planted: Path, tmp_path: Path
) -> None:
    acts = scenes[name]

    def converge_at(name: str, fate: Fate) -> tuple[dict[str, Any], int]:
        path = tmp_path / f"{name}.db"
        shutil.copy(planted, path)
        return converge(path, memory_node(), acts, fate)

    expected, writes = converge_at("undisturbed", Fate())
    assert writes > 5
    deaths = 0
    for at in range(1, writes + 1):
        # Before the one, after the next: nothing lies between them.
        fate = Fate(at, is_before=at % 2 == 0)
        found, _ = converge_at(str(at), fate)
        assert found == expected, f"after death at write {at}"
        deaths += fate.is_dead
    # What is written together depends on the moment: now and then a run has fewer writes than the first.
    assert deaths > writes // 2
