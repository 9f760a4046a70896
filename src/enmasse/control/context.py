"""State that the controllers share: the desired state and what is derived from it, the nodes, and the work queues."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.in_effect import Effects
from enmasse.control.installation import Removals, admit_node, take_node_in
from enmasse.control.log_numbers import LogLeases
from enmasse.control.nodes.homes import Homes
from enmasse.control.runtime.desired import Desired
from enmasse.control.runtime.node_mirror import NodeMirror
from enmasse.control.runtime.statuses import StatusWriter
from enmasse.control.spaces.placements import Placements
from enmasse.control.users.identity_providers import IdentityProviders
from enmasse.errors import EnmasseError
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE
from enmasse.model.schema.names import PLAN_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from enmasse.control.ports import EntityType, NodeAdmin
    from enmasse.control.runtime.controller import Controller, Listener
    from enmasse.control.runtime.desired import AddressRow
    from enmasse.control.runtime.events import EventRecorder
    from enmasse.control.store.registry import Registry
    from enmasse.net.special_addresses import Network

_log = logging.getLogger(__name__)

_MAX_AT_ONCE = 1_000
"""More addresses than these are reconciled in the background, so that other keys do not wait for them."""

_MAX_NAMED = 10
"""Undeclared entities of a node in a message; there may be as many as the node has."""

Kept = dict[tuple[str, str], str]
"""Entities that are kept on a node although they are not declared so: kind and key, with the reason."""


async def together(acts: Sequence[Awaitable[bool]]) -> bool:
    """Do things for several nodes at the same time; return whether nothing is left to do on any.

    Raises:
        EnmasseError: the first failure, when all are done.
    """
    if len(acts) == 1:
        return await acts[0]
    found = await asyncio.gather(*acts, return_exceptions=True)
    for item in found:
        if isinstance(item, BaseException):
            raise item
    return all(found)


class Context:
    """State and services that the controllers share.

    Args:
        registry: the registry of the declarations, to which the statuses go.
        nodes: the ports to the nodes, the first one first; all of them know a space, and its home has its addresses.
        now: gives the present, RFC 3339 in UTC.
        jitter: gives a factor around 1 for delays.
        resync_s: seconds between two checks of a node for drift.
        grace_s: seconds that a node may be away before every address says so.
        networks: the networks in which hosts that tenants name may be although that is not public.
        observe: is called with the seconds that each key of a controller took.
        events: records events for users; None: none.

    Attributes:
        desired: the declarations, in memory.
        homes: the home of each space.
        placements: the place of each address that has one.
        providers: the authentication of each space.
        effects: finds what of an object has no effect.
        statuses: writes what was found.
        log_leases: the log numbers of the nodes.
        nodes: by name.
        controllers: by name, those that run.
        of_namespaces: each removes what it keeps of a namespace, by its name, before the namespace goes; in a thread.
    """

    def __init__(
        self,
        registry: Registry,
        nodes: Sequence[NodeAdmin] = (),
        *,
        now: Callable[[], str],
        jitter: Callable[[], float],
        resync_s: float = 10.0,
        grace_s: float = 5.0,
        networks: Sequence[Network] = (),
        observe: Callable[[float], None] = lambda _seconds: None,
        events: EventRecorder | None = None,
    ) -> None:
        self.registry = registry
        self.store = store = registry.store
        self.now = now
        self.jitter = jitter
        self.networks = networks
        self.observe = observe
        self.events = events
        self.grace_s = grace_s
        self.controllers: dict[str, Controller] = {}
        self.of_namespaces: list[Callable[[str], None]] = []
        self.desired = Desired(self)
        self.log_leases = LogLeases(
            store,
            [admin.name for admin in nodes],
            lambda name: self.nodes[name].mirror.is_reachable is False,
            patience_s=0.5,
        )
        self.nodes = {admin.name: Node(self, admin, resync_s) for admin in nodes}
        self.homes = Homes(
            store,
            self.desired,
            [admin.name for admin in nodes],
            lambda name: bool(self.nodes[name].mirror.is_reachable),
        )
        self.placements = Placements(self.desired, store, self.homes.name_of)
        self.providers = IdentityProviders(store, lambda: self.desired.spaces, self._provider_changed, networks)
        self.effects = Effects(store, self.desired, self.providers)
        self.statuses = StatusWriter(store, events)

    @property
    def listeners(self) -> list[Listener]:
        """The listeners of the store, in the order in which they have to get a change: before any controller."""
        # Controllers need to know whether an undeclared object was deleted, and of a space, how its users
        # are known.
        return [*(node.removals for node in self.nodes.values()), self.providers, self.desired]

    @property
    def is_settled(self) -> bool:
        """True when everything that was published is written."""
        return not len(self.statuses) and not any(len(node.removals) for node in self.nodes.values())

    async def run(self) -> None:
        """Follow the nodes, and write what is published, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.statuses.run(), name="write statuses")
            for node in self.nodes.values():
                tasks.create_task(node.run(), name=f"node {node.name}")
            if self.events is not None:
                tasks.create_task(self.events.run(), name="write events")

    def node_of(self, space: str) -> Node:
        """Return the home of a space, the node with all its addresses; the first node for one that has none yet.

        Raises:
            NodeUnavailableError: this control process was not started with that node.
        """
        name = self.homes.name_of(space)
        if name not in self.nodes:
            raise NodeUnavailableError(f"{space} is at home on node {name}, which control was not started with")
        return self.nodes[name]

    async def on_nodes(self, act: Callable[[Node], Awaitable[bool]]) -> bool:
        """Do something for every node of which anything is known; return whether nothing is left to do on any.

        They are served at the same time, and one that fails holds up no other; see ``together``.
        """
        # What is not known yet is reconciled as soon as anything is known of the node.
        return await together([act(node) for node in self.nodes.values() if node.mirror.is_reachable is not None])

    # Queues of the controllers

    def enqueue(self, controller: str, key: str, *, background: bool = False) -> None:
        """Enqueue a key of a controller, if that runs."""
        if (found := self.controllers.get(controller)) is not None:
            found.enqueue(key, background=background)

    def enqueue_address(self, key: str, *, background: bool = False) -> None:
        """Enqueue an address."""
        self.enqueue("addresses", key, background=background)

    def enqueue_addresses(self, keys: Iterable[str]) -> None:
        """Enqueue addresses: in the background if they are many."""
        found = list(keys)
        for key in found:
            self.enqueue_address(key, background=len(found) > _MAX_AT_ONCE)

    def enqueue_space(self, key: str, *, background: bool = False) -> None:
        """Enqueue a space."""
        self.enqueue("spaces", key, background=background)

    def enqueue_plan(self, kind: str, name: str) -> None:
        """Enqueue a plan."""
        self.enqueue("plans", f"{kind}/{PLAN_NAMESPACE}/{name}")

    def enqueue_emptied(self, space: str) -> None:
        """Enqueue a space of which a node has less than before, if it is being deleted."""
        found = self.desired.spaces.get(space)
        if found is None or found.metadata.deletion_timestamp:
            self.enqueue_space(space)

    # The desired state has changed

    def limits_changed(self, space: str) -> None:
        """Apply the limits of a space, and enqueue the addresses that found a place by that."""
        self.enqueue_addresses(self.placements.refresh(space))

    def forget_address(self, row: AddressRow) -> None:
        """Give the place of an address to one that waits for it."""
        self.enqueue_addresses(self.placements.give_back(row))

    def reloaded(self) -> None:
        """Enqueue everything."""
        self.homes.clear()
        self.placements.clear()
        for node in self.nodes.values():
            node.reloaded()

    def _provider_changed(self, space: str) -> None:
        """Enqueue a space whose authentication has changed, and with it whether it can be served."""
        self.enqueue_space(space)
        self.enqueue_addresses(self.desired.addresses_of(space))


class Node:
    """One node, with the state that control keeps of it.

    Args:
        context: the context of the controllers.
        admin: the port to the node.
        resync_s: seconds between two checks for drift.

    Attributes:
        mirror: the observed state of the node.
        removals: the objects that the node still has to delete.
        kept: entities that are left on the node although they are not declared so, and why.
        waiting: by space, addresses of the node that can be declared as soon as their space is.
        pending: the pending addresses that the node knows, and connectors that wait: space, address and reason by
            key.
    """

    def __init__(self, context: Context, admin: NodeAdmin, resync_s: float) -> None:
        self.name = admin.name
        self.removals = Removals(context.store, admin.name)
        self.kept: Kept = {}
        self.waiting: defaultdict[str, set[str]] = defaultdict(set)
        self.pending: dict[str, tuple[str, str, str]] = {}
        self.mirror = NodeMirror(
            admin,
            admit=self._admit,
            resync_s=resync_s,
            changed=self._entity_changed,
            reached=self._reached,
            observed=self._observed,
        )
        self._context = context
        self._admin = admin
        self._resync_s = resync_s
        self._absence: asyncio.TimerHandle | None = None
        self._is_settling = True

    async def run(self) -> None:
        """Follow the node until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.mirror.run(), name=f"mirror of {self.name}")
                tasks.create_task(self.removals.run(), name=f"what {self.name} has deleted")
                tasks.create_task(self._keep_log_numbers(), name=f"log numbers of {self.name}")
        finally:
            if self._absence is not None:
                self._absence.cancel()

    async def _admit(self) -> None:
        """Ensure that the node belongs to this installation, and has numbers of its own for what it stores."""
        await admit_node(self._context.store, self._admin)
        await self._context.log_leases.keep(self._admin)

    async def _keep_log_numbers(self) -> None:
        while True:
            await asyncio.sleep(self._resync_s)
            if self.mirror.is_reachable:
                try:
                    await self._context.log_leases.keep(self._admin)
                except EnmasseError as error:
                    _log.debug("log numbers of node %s: %s", self.name, error)

    async def take_in(self, installation: str) -> None:
        """Take in a node whose journal belongs to another installation.

        Args:
            installation: the id that the journal has now.

        Raises:
            NodeRefusedError: the journal has another id by now.
            NodeUnavailableError: the node cannot be reached.
        """
        await take_node_in(self._context.store, self._admin, installation)
        self.mirror.check_again()

    async def journal(self) -> dict[str, str]:
        """Return the installation that the node's journal belongs to, since when, and this one.

        Raises:
            NodeUnavailableError: the node cannot be reached.
        """
        return {
            "installation": await self._admin.installation(),
            "since": await self._admin.since(),
            "own": self._context.store.installation.id(),
        }

    async def set_pending(self, key: str, space: str, address: str, reason: str) -> None:
        """Send the node the reason why a name leads nowhere yet, for its clients, unless it knows it.

        Args:
            key: the key of the object to which the name is to lead.
            space: its space.
            address: the name; of a connector its first word.
            reason: the reason; empty if there is none any more.
        """
        if reason == self.pending.get(key, ("", "", ""))[2]:
            return
        try:
            await self.mirror.set_pending(space, address, reason)
        except (NodeUnavailableError, NodeRefusedError) as error:
            _log.debug("node %s did not accept that %s is pending: %s", self.name, key, error)
            return  # once it is back, all that is pending is sent
        self.pending.pop(key, None)
        if reason:
            self.pending[key] = (space, address, reason)

    async def note_waiting(self, space: str, waiting: Mapping[str, str]) -> None:
        """Send the node which connectors of a space wait, and why, for its clients.

        Args:
            space: the space.
            waiting: the reason for each that waits, by its name.
        """
        start = f"connector {space}/"
        known = {key.removeprefix(start) for key in self.pending if key.startswith(start)}
        for name in sorted(known | waiting.keys()):
            reason = f"connector {name!r} waits: {waiting[name]}" if name in waiting else ""
            await self.set_pending(start + name, space, name, reason)

    def expect(self, key: str) -> None:
        """Raise an error unless what the node has under the name of an address is that address.

        Raises:
            NodeUnavailableError: the node belongs to another installation.
            NodeRefusedError: it has another address there, which is not ours to touch.
        """
        if self.mirror.problem:
            raise NodeUnavailableError(self.mirror.problem)
        if reason := self.kept.get(("address", key)):
            raise NodeRefusedError(409, reason)

    def problems(self) -> list[str]:
        """Return the reason why the node is left alone, or its entities that are kept although not as declared."""
        if self.mirror.problem:
            return [self.mirror.problem]
        problems = [f"{kind} {key} is kept: {reason}" for (kind, key), reason in sorted(self.kept.items())]
        more = len(problems) - _MAX_NAMED
        return [*problems[:_MAX_NAMED], f"and {more} more are kept"] if more > 0 else problems

    def reloaded(self) -> None:
        """Enqueue everything of the node."""
        self._is_settling = True
        if self.mirror.is_reachable is not None:
            self._settle()

    def _addresses(self) -> Iterable[AddressRow]:
        """Return all declared addresses that are placed on this node."""
        node_of = self._context.placements.node_of
        return (row for row in self._context.desired.addresses.values() if node_of(row.space) == self.name)

    def _reached(self, _is_reachable: bool) -> None:
        if self._absence is not None:
            self._absence.cancel()
            self._absence = None
        self.pending.clear()
        self._context.enqueue("nodes", self.name)
        self._settle()

    def _settle(self) -> None:
        """Enqueue everything that waits, or is not known to be as it should be."""
        for key in self._context.desired.spaces:
            self._context.enqueue_space(key)
        if not (self.mirror.is_reachable and self.mirror.was_complete and not self.mirror.is_complete):
            self._enqueue_inactive()  # else as soon as it is known what the node has kept
        if self.mirror.is_reachable is False:
            self._absence = asyncio.get_running_loop().call_later(self._context.grace_s, self._enqueue_addresses)
        elif self.mirror.is_complete:
            self._enqueue_everything()

    def _enqueue_inactive(self) -> None:
        self._context.enqueue_addresses([row.key for row in self._addresses() if row.phase != "Active"])

    def _observed(self) -> None:
        context, desired = self._context, self._context.desired
        self._enqueue_inactive()
        for key in {*self.mirror.names("space"), *self.removals.keys(ADDRESS_SPACE.name)}:
            context.enqueue_emptied(key)
        context.enqueue_addresses([key for key in self.mirror.names("address") if key not in desired.addresses])
        context.enqueue_addresses(self.removals.keys(ADDRESS.name))
        for key, space in desired.spaces.items():
            if space.metadata.deletion_timestamp:
                context.enqueue_space(key)
        self._enqueue_everything()

    def _enqueue_everything(self) -> None:
        """Enqueue everything once after a start, or after changes were missed; later on, changes enqueue keys."""
        if self._is_settling:
            self._is_settling = False
            self._enqueue_addresses()

    def _enqueue_addresses(self) -> None:
        for row in self._addresses():
            self._context.enqueue_address(row.key, background=True)

    def _entity_changed(self, kind: EntityType, name: str) -> None:
        context = self._context
        if kind == "space":
            context.enqueue_space(name)
        else:
            waiting = context.controllers.get("addresses", ())
            context.enqueue_address(name, background=len(waiting) > _MAX_AT_ONCE)
