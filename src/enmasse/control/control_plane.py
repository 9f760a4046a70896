"""All controllers of one installation: for ever, bring the node to what is declared, and say how far it is.

Others join in by ``add``: a controller with its listener. What they need is public: the node as control sees it
(``mirror``), what is declared (``declared``), who has a place (``placements``).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from enmasse.control.address_controller import AddressLooks
from enmasse.control.declared import Declared
from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.identity_providers import IdentityProviders
from enmasse.control.installation import Removals, admit_node, installation_of, take_node_in
from enmasse.control.node_mirror import NodeMirror
from enmasse.control.placements import Placements
from enmasse.control.plan_controller import PlanLooks
from enmasse.control.preview import Preview
from enmasse.control.runtime import Controller, Runtime
from enmasse.control.schema_controller import SchemaPublisher
from enmasse.control.space_admission import SpaceAdmission
from enmasse.control.space_controller import SpaceLooks
from enmasse.control.statuses import StatusWriter
from enmasse.model.addresses import Address
from enmasse.model.spaces import AddressSpace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from enmasse.control.address_controller import Kept
    from enmasse.control.declared import AddressRow
    from enmasse.control.events import EventRecorder
    from enmasse.control.ports import EntityType, NodeAdmin
    from enmasse.control.registry import Registry
    from enmasse.control.runtime import Listener
    from enmasse.model.resource import Resource

__all__ = ["ControlPlane"]

_MOST_AT_ONCE = 1_000
"""More addresses than these are looked at in the background, so that they hold up nobody."""


_MOST_NAMED = 10
"""Of what a node has and is not declared; there may be as much of it as there is on the node."""


class ControlPlane:
    """Reconciles what is declared with one node.

    Args:
        registry: where the declarations lie and the statuses go.
        node: the node.
        now: gives the present, RFC 3339 in UTC.
        jitter: gives a factor around 1 for delays.
        resync_s: seconds between two checks for drift.
        grace_s: seconds that a node may be away before every address says so.
        looked: hears how long each look took, in seconds.
        events: hears of changes of phases.
    """

    def __init__(
        self,
        registry: Registry,
        node: NodeAdmin,
        *,
        now: Callable[[], str],
        jitter: Callable[[], float],
        resync_s: float = 10.0,
        grace_s: float = 5.0,
        looked: Callable[[float], None] = lambda _seconds: None,
        events: EventRecorder | None = None,
    ) -> None:
        store = registry.store
        self._registry = registry
        self._grace_s = grace_s
        self._absence: asyncio.TimerHandle | None = None
        self._is_settling = True
        self.hosts_of: Callable[[AddressSpace], tuple[str, ...]] = lambda _space: ()
        """Gives the hosts of a space's routes; for whoever looks at endpoints to set."""
        self.port_of: Callable[[AddressSpace], int] = lambda _space: 0
        """Gives the port of a space's own, 0 for none; likewise."""
        self.declared = Declared(self)
        self.placements = Placements(self.declared, store)
        self.removals = Removals(store, node.name)
        self.kept: Kept = {}
        """Entities that are kept on the node although nobody declared them so, and why."""
        self._node = node
        self.mirror = NodeMirror(
            node,
            admit=lambda: admit_node(store, node),
            resync_s=resync_s,
            changed=self._node_changed,
            reached=self._node_reached,
            observed=self._node_observed,
        )
        self.providers = IdentityProviders(store, lambda: self.declared.spaces, self._provider_changed)
        self._watchers: list[Callable[[EntityType, str], None]] = []
        self.statuses = StatusWriter(store, self._stale, events)
        self.address_looks = AddressLooks(
            registry,
            self.declared,
            self.placements,
            self.mirror,
            self.removals,
            self.kept,
            self.statuses,
            self.providers,
            now=now,
            space_changed=self._space_has_less,
        )
        self.space_looks = SpaceLooks(
            registry,
            self.declared,
            self.placements,
            self.mirror,
            self.removals,
            self.kept,
            self.statuses,
            self.providers,
            now=now,
            look_again=self.look_at_space,
            look_at_addresses=self._look_at_addresses,
            take_waiting=lambda key: sorted(self.address_looks.waiting.pop(key, ())),
            hosts_of=lambda space: self.hosts_of(space),  # noqa: PLW0108  # it is set later
            port_of=lambda space: self.port_of(space),  # noqa: PLW0108  # likewise
        )
        plan_looks = PlanLooks(store, self.declared, self.statuses, now=now)
        self._addresses = Controller("addresses", self.address_looks.look, jitter=jitter, looked=looked)
        self._spaces = Controller("spaces", self.space_looks.look, jitter=jitter, looked=looked)
        self._plans = Controller("plans", plan_looks.look, jitter=jitter, looked=looked)
        self._runtime = Runtime(store)
        # Whoever looks at what is declared no more asks whether it was deleted.
        self._runtime.listen(self.removals)
        # Whoever looks at a space asks how its users are known.
        self._runtime.listen(self.providers)
        self._runtime.listen(self.declared)
        for controller in (self._spaces, self._addresses, self._plans):
            self._runtime.add(controller)
        schemas = SchemaPublisher(registry, jitter=jitter)
        self.add(schemas.controller, schemas)
        registry.ask(SpaceAdmission(self.placements))
        registry.preview = Preview(self, now=now)
        registry.tally = lambda: self.declared.phases

    @property
    def is_settled(self) -> bool:
        """Whether all changes are known, nothing that can be done is left to do, and all is said."""
        return self._runtime.is_settled and not len(self.statuses) and not len(self.removals)

    def add(self, controller: Controller, listener: Listener | None = None) -> None:
        """Have another controller run with these, before ``run``.

        Args:
            controller: looks at what is not ours.
            listener: hears of every change of the store, after ``declared`` has taken it.
        """
        self._runtime.add(controller)
        if listener is not None:
            self._runtime.listen(listener)

    def watch_node(self, changed: Callable[[EntityType, str], None]) -> None:
        """Have somebody hear of every entity of the node that is not as it was known to be."""
        self._watchers.append(changed)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._runtime.run(), name="controllers")
                tasks.create_task(self.statuses.run(), name="publish statuses")
                tasks.create_task(self.mirror.run(), name="node")
                tasks.create_task(self.removals.run(), name="note what is deleted")
        finally:
            if self._absence is not None:
                self._absence.cancel()

    async def take_node_in(self, installation: str) -> None:
        """Have the node, whose journal belongs to another installation, belong to this one.

        Args:
            installation: the id that the journal has now.

        Raises:
            NodeRefusedError: the journal has another id by now.
            NodeUnavailableError: the node cannot be reached.
        """
        await take_node_in(self._registry.store, self._node, installation)
        self.mirror.look_again()

    async def journal(self) -> dict[str, str]:
        """Return to which installation the node's journal belongs, since when, and which one this is.

        Raises:
            NodeUnavailableError: the node cannot be reached.
        """
        return {
            "installation": await self._node.installation(),
            "since": await self._node.since(),
            "own": installation_of(self._registry.store),
        }

    def expect_on_node(self, key: str) -> None:
        """See that what the node has under the name of an address is that address.

        Raises:
            NodeUnavailableError: the node belongs to another installation.
            NodeRefusedError: it has another address there, which is not ours to touch.
        """
        if self.mirror.problem:
            raise NodeUnavailableError(self.mirror.problem)
        if reason := self.kept.get(("address", key)):
            raise NodeRefusedError(409, reason)

    def problems(self) -> list[str]:
        """Return why the node is left alone, or what it has that is left there although it is not as declared."""
        if self.mirror.problem:
            return [self.mirror.problem]
        problems = [f"{kind} {key} is kept: {reason}" for (kind, key), reason in sorted(self.kept.items())]
        more = len(problems) - _MOST_NAMED
        return [*problems[:_MOST_NAMED], f"and {more} more are kept"] if more > 0 else problems

    # What is declared has changed

    def look_at_address(self, key: str, *, background: bool = False) -> None:
        """Have an address looked at."""
        self._addresses.look_at(key, background=background)

    def look_at_space(self, key: str, *, background: bool = False) -> None:
        """Have a space looked at."""
        self._spaces.look_at(key, background=background)

    def _provider_changed(self, key: str) -> None:
        """How the users of a space are known has changed, and with it whether it can be served."""
        self.look_at_space(key)
        self._look_at_addresses(self.declared.addresses_of(key))

    def look_at_plan(self, kind: str, name: str) -> None:
        """Have a plan looked at."""
        self._plans.look_at(f"{kind}/{name}")

    def limits_changed(self, space: str) -> None:
        """Take over the limits of a space, and have those looked at that found a place by that."""
        self._look_at_addresses(self.placements.refresh(space))

    def forget_address(self, row: AddressRow) -> None:
        """Give the place of an address to who waits for one."""
        self._look_at_addresses(self.placements.give_back(row))
        self._space_has_less(row.space)

    def reloaded(self) -> None:
        """Have everything looked at."""
        self.placements.clear()
        self._is_settling = True
        for kind, plans in (
            ("AddressSpacePlan", self.declared.space_plans),
            ("AddressPlan", self.declared.address_plans),
        ):
            for name in plans:
                self.look_at_plan(kind, name)
        if self.mirror.is_reachable is not None:
            self._settle()

    def _space_has_less(self, key: str) -> None:
        space = self.declared.spaces.get(key)
        if space is None or space.metadata.deletion_timestamp:
            self.look_at_space(key)

    # The node has changed

    def _node_reached(self, _is_reachable: bool) -> None:
        if self._absence is not None:
            self._absence.cancel()
            self._absence = None
        self._settle()

    def _settle(self) -> None:
        """Have those looked at that are waiting for something, or are not known to be as they should be."""
        for key in self.declared.spaces:
            self.look_at_space(key)
        self._look_at_addresses([row.key for row in self.declared.addresses.values() if row.phase != "Active"])
        if self.mirror.is_reachable is False:
            self._absence = asyncio.get_running_loop().call_later(self._grace_s, self._say_that_node_is_away)
        elif self.mirror.is_complete:
            self._look_at_everything()

    def _say_that_node_is_away(self) -> None:
        for key in self.declared.addresses:
            self.look_at_address(key, background=True)

    def _node_observed(self) -> None:
        for key in {*self.mirror.names("space"), *self.removals.keys("AddressSpace")}:
            space = self.declared.spaces.get(key)
            if space is None or space.metadata.deletion_timestamp:
                self.look_at_space(key)
        on_node, removed = self.mirror.names("address"), self.removals.keys("Address")
        self._look_at_addresses([key for key in on_node if key not in self.declared.addresses])
        self._look_at_addresses(removed)
        for key, space in self.declared.spaces.items():
            if space.metadata.deletion_timestamp:
                self.look_at_space(key)
        self._look_at_everything()

    def _look_at_everything(self) -> None:
        """Once after a start, or after changes were missed: later on, changes alone tell what to look at."""
        if self._is_settling:
            self._is_settling = False
            for key in self.declared.addresses:
                self.look_at_address(key, background=True)

    def _node_changed(self, kind: EntityType, name: str) -> None:
        if kind == "space":
            self.look_at_space(name)
        elif kind == "address":
            self.look_at_address(name, background=len(self._addresses) > _MOST_AT_ONCE)
        for changed in self._watchers:
            changed(kind, name)

    # Others

    def _look_at_addresses(self, keys: Iterable[str]) -> None:
        found = list(keys)
        for key in found:
            self.look_at_address(key, background=len(found) > _MOST_AT_ONCE)

    def _stale(self, resource: Resource) -> None:
        """Have an object looked at whose status was not written because it has changed."""
        match resource:
            case Address():
                self.look_at_address(resource.key)
            case AddressSpace():
                self.look_at_space(resource.key)
            case _:
                self.look_at_plan(resource.kind, resource.metadata.name)
