"""Reconcile spaces with the nodes: a space is there before its addresses, and is removed after them.

A space has a finalizer: it stays, Terminating, until all that is in it is deleted and the nodes have nothing of it
any more.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from enmasse.control.errors import ForbiddenError, NodeUnavailableError
from enmasse.control.nodes.planning import Home
from enmasse.control.ports import AddressEntity, SpaceEntity
from enmasse.control.runtime.controller import Controller
from enmasse.control.runtime.node_mirror import Outcome, apply_entity, conflict_with
from enmasse.control.runtime.verdicts import Verdict, condition
from enmasse.control.spaces.adoption import NOT_ADOPTABLE, adopted_space, choose_service, differences, space_plans
from enmasse.control.spaces.connectors import connector_statuses, connectors_of
from enmasse.control.spaces.effective import effective_space_limits
from enmasse.control.spaces.placements import plan_limits
from enmasse.control.spaces.planning import SpaceView, judge_space, readiness, space_conditions, wanted_space
from enmasse.model.kinds.limits import SpaceLimits
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.conditions import READY, with_effect
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, IN_SPACES
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from enmasse.control.context import Context, Node
    from enmasse.control.endpoints.controller import EndpointController
    from enmasse.control.store.port import Change


FINALIZER = "enmasse.io/infra"
"""The finalizer of a space, removed when the nodes have nothing of it."""

_IN_SPACES = [kind.name for kind in IN_SPACES]

_STEP = 100
"""Objects that are deleted with one write, so that others do not wait long for the store."""

_log = logging.getLogger(__name__)


class SpaceController(Controller):
    """Reconciles spaces with all nodes, and removes those that are deleted; ``Desired`` enqueues their keys.

    Args:
        context: the context of the controllers.
        endpoints: gives the hosts and the port that a space gets; None: none gets any.
    """

    name = "spaces"

    def __init__(self, context: Context, endpoints: EndpointController | None = None) -> None:
        super().__init__(jitter=context.jitter, observe=context.observe)
        self._context = context
        self._registry = context.registry
        self._desired = context.desired
        self._placements = context.placements
        self._providers = context.providers
        self._statuses = context.statuses
        self._now = context.now
        self._endpoints = endpoints

    def apply(self, change: Change) -> None:
        """Enqueue a space that is being deleted when something in it is gone, whichever controller had held it."""
        document = change.document
        if change.action == "DELETED" and document["kind"] in _IN_SPACES:
            metadata = document["metadata"]
            self._context.enqueue_emptied(f"{metadata['namespace']}/{metadata['name'].partition('.')[0]}")

    async def reconcile(self, key: str) -> bool:
        """Reconcile one space with the nodes; return whether nothing is left to do."""
        nodes = self._context.nodes.values()
        if all(node.mirror.is_reachable is None for node in nodes):
            return True  # reconciled as soon as anything is known of a node
        declared = self._desired.spaces.get(key)
        if declared is None:
            self._placements.drop(key)
            self._context.homes.drop(key)
            return await self._context.on_nodes(lambda node: self._settle_undeclared(node, key))
        if not declared.metadata.deletion_timestamp:
            self._context.homes.place(declared)
        space = self._read(declared)
        if space is None:
            return True  # it has changed, and the change will have it reconciled
        metadata = space.metadata
        if metadata.deletion_timestamp:
            return await self._terminate(space)
        if FINALIZER not in metadata.finalizers and any(node.mirror.is_reachable for node in nodes):
            # From now on nodes may have something of it.
            self._registry.change_finalizers(
                space.kind, metadata.namespace, metadata.name, uid=metadata.uid, add=FINALIZER
            )
            return True  # that change has it reconciled
        return await self._serve(space)

    def _read(self, declared: AddressSpace) -> AddressSpace | None:
        metadata = declared.metadata
        document = self._registry.store.find(declared.kind, metadata.namespace, metadata.name)
        if document is None or document["metadata"]["uid"] != metadata.uid:
            return None
        space = restore(document)
        assert isinstance(space, AddressSpace)
        return space

    def view(self, space: AddressSpace) -> SpaceView:
        """Return all that a space depends on."""
        connectors, waiting = connectors_of(space, self._providers.find_secret)
        homes = self._context.homes
        return SpaceView(
            space,
            self._desired.plans,
            self._excess(space),
            self._providers.of(space),
            self._endpoints.hosts_of(space) if self._endpoints is not None else (),
            self._endpoints.port_of(space) if self._endpoints is not None else 0,
            connectors,
            waiting,
            homes.of(space.key) if homes.are_several else None,
            homes.why_not(space.key),
        )

    def _excess(self, space: AddressSpace) -> tuple[str, ...]:
        plan = self._desired.space_plans.get(space.spec.plan_name)
        return tuple(self._placements.of(space.key).excess(plan_limits(space, plan)))

    async def _serve(self, space: AddressSpace) -> bool:
        view = self.view(space)
        verdict = judge_space(view)
        entity = wanted_space(view) if verdict.is_yes else None
        outcomes: dict[str, Outcome] = {}
        home = self._context.homes.name_of(space.key)

        async def serve(node: Node) -> bool:
            if entity is None:
                return True
            is_home = node.name == home
            wanted = entity if is_home else replace(entity, port=0, connectors=())  # which are its home's alone
            outcome = await self._apply(node, wanted, is_held=FINALIZER in space.metadata.finalizers)
            outcomes[node.name] = outcome
            if outcome.is_reachable and not outcome.refusal:
                await node.note_waiting(space.key, view.waiting if is_home else {})
            return outcome.is_reachable and not outcome.refusal

        is_settled = await self._context.on_nodes(serve)
        if entity is None or home in outcomes:  # else it is said as soon as anything is known of its home
            # A node that is away lets nobody in: what counts is the home of the space, and the nodes that are there.
            heard = {name: found for name, found in outcomes.items() if found.is_reachable or name == home}
            self._publish_status(view, verdict, entity, heard, heard.get(home))
        if self._endpoints is not None:
            problems = {outcome.present.problem for outcome in outcomes.values() if outcome.present is not None}
            self._endpoints.note_port(space.key, "; ".join(sorted(filter(None, problems))))
        for node in self._context.nodes.values():
            if ("space", space.key) not in node.kept:
                self._context.enqueue_addresses(sorted(node.waiting.pop(space.key, ())))
        if away := [name for name, outcome in outcomes.items() if not outcome.is_reachable]:
            raise NodeUnavailableError(f"node {', '.join(away)} cannot be reached")
        return is_settled

    async def _apply(self, node: Node, entity: SpaceEntity, *, is_held: bool) -> Outcome:
        mirror = node.mirror
        try:
            seen = await mirror.find("space", entity.name)
            if not mirror.is_reachable or not is_held:
                return Outcome(mirror.digest(entity), is_reachable=False)
            if seen is not None and seen.uid != entity.uid:
                # One of the same name was there before, and so may be what was in it.
                if not node.removals.has(seen.uid):
                    refusal = conflict_with(entity, seen.uid)
                    node.kept["space", entity.name] = refusal
                    return Outcome(mirror.digest(entity), seen, refusal=refusal, differs=True)
                if not await self._clear_node(node, entity.name):
                    return Outcome(mirror.digest(entity))
                seen = None
        except NodeUnavailableError:
            return Outcome(mirror.digest(entity), is_reachable=False)
        outcome = await apply_entity(mirror, entity, seen, node.removals.has)
        if outcome.present is not None and outcome.present.uid == entity.uid:
            node.kept.pop(("space", entity.name), None)
            node.removals.settle(ADDRESS_SPACE.name, entity.name, entity.uid)
        if seen is None and outcome.present is not None:
            self._context.enqueue_addresses(self._desired.addresses_of(entity.name))
        return outcome

    async def _terminate(self, space: AddressSpace) -> bool:
        """Delete a space, with all that is in it."""
        metadata = space.metadata
        left = self._delete_contents(space)
        if left == 0 and await self._clear_nodes(space.key, metadata.uid):
            self._registry.change_finalizers(
                space.kind, metadata.namespace, metadata.name, uid=metadata.uid, remove=FINALIZER
            )
            return True
        message = "something that belongs to it is still there" if left else "the node still has something of it"
        if not all(node.mirror.is_reachable for node in self._context.nodes.values()):
            message = "the node cannot be reached"
        ready = condition(READY, Verdict("Terminating", message), metadata.generation)
        others = tuple(item for item in space.status.conditions if item.type != READY)
        status = space.status.with_conditions((*others, ready), self._now(), deleted=True)
        self._statuses.publish(space, status, partial(self.enqueue, space.key))
        return left > 0  # else the node is checked again; a deletion of what is left has this one reconciled

    def _delete_contents(self, space: AddressSpace) -> int:
        """Delete some of what a space has; return how many objects are left, as far as they were counted."""
        registry, namespace, prefix = self._registry, space.metadata.namespace, f"{space.metadata.name}."
        left = 0
        for kind in _IN_SPACES:
            found = registry.store.select(kind, namespace, prefix, limit=_STEP)
            terminating = [
                item["metadata"]["name"] for item in found if not item["metadata"].get("deletionTimestamp")
            ]
            with registry.store.transaction():
                for name in terminating:
                    registry.delete(kind, namespace, name)
            if terminating:
                self.enqueue(space.key)
            left += len(registry.store.select(kind, namespace, prefix, limit=_STEP))
        return left

    async def _settle_undeclared(self, node: Node, key: str) -> bool:
        """Remove a deleted space from a node; adopt one that was never deleted."""
        seen = await node.mirror.find("space", key)
        if key in self._desired.spaces:
            return True
        node.kept.pop(("space", key), None)
        await node.note_waiting(key, {})
        if seen is not None and not node.removals.has(seen.uid):
            node.removals.settle(ADDRESS_SPACE.name, key, seen.uid)
            return await self._adopt(node, key)
        return await self._clear_node(node, key)

    async def _adopt(self, node: Node, key: str) -> bool:
        """Declare a space as a node has it."""
        entity = await node.mirror.find_space(key)
        if entity is None or node.removals.has(entity.uid):
            return True  # deleted or about to be, which has it reconciled
        if entity.home != node.name and entity.home in self._context.nodes:
            return True  # its home knows more of it, and tells it
        namespace, _, name = key.partition("/")
        if self._registry.store.find(ADDRESS_SPACE.name, namespace, name) is not None:
            return True  # its change has it reconciled
        try:
            declaration = self._declaration(node, entity)
            self._registry.adopt(declaration)
        except NOT_ADOPTABLE as error:
            node.kept["space", key] = f"it cannot be declared as it is there: {error}"
            return False
        self._context.homes.settle(declaration, Home(entity.home or node.name, entity.home_generation or 1))
        _log.warning("space %s, which node %s has, was not declared: it is now", key, node.name)
        for connector in entity.connectors:
            # Its secrets a node does not tell.
            if not connector.servers:
                _log.warning("connector %s of space %s ends: declare it again", connector.name, key)
            elif connector.origins:
                _log.warning("connector %s of space %s needs its secrets: its status says which", connector.name, key)
        return True

    def _declaration(self, node: Node, entity: SpaceEntity) -> AddressSpace:
        """Return a declaration that results in what the node has.

        Raises:
            InvalidResourceError: no declaration can express what it has.
            ForbiddenError: it would differ with every plan that there is, or admit other users.
        """
        services = self._providers.services

        def declared_with(service: str, plan: str | None = None) -> AddressSpace:
            space = adopted_space(entity, node.name, service=service, plan=plan)
            assert isinstance(space, AddressSpace)
            return space

        authentication_of = self._providers.resolve
        service = choose_service(entity, {name: authentication_of(declared_with(name)) for name in services})
        first: list[str] = []
        namespace = entity.name.partition("/")[0]
        offered = [plan for plan in self._desired.space_plans.values() if plan.is_for(namespace)]
        for plan in space_plans(entity, offered):
            space = declared_with(service, plan)
            authentication = authentication_of(space)
            if authentication.verdict.is_yes and authentication.kind != entity.authentication:
                raise ForbiddenError(f"its authentication is {entity.authentication}, not {authentication.kind}")
            view = SpaceView(space, self._desired.plans, (), authentication, entity.hosts, entity.port)
            found = differences(entity, wanted_space(view))
            if not found:
                return space
            first = first or found
        raise ForbiddenError(f"no plan lets it have {', '.join(first) or f'port {entity.port}'}; make one that does")

    async def _clear_nodes(self, key: str, terminating: str) -> bool:
        """Remove a terminating space from all nodes; return whether none has anything of it any more."""
        is_clear = await self._context.on_nodes(lambda node: self._clear_node(node, key, terminating))
        return is_clear and all(node.mirror.is_reachable is not None for node in self._context.nodes.values())

    async def _clear_node(self, node: Node, key: str, terminating: str = "") -> bool:
        """Remove a deleted space from a node, with all that the node has in it.

        Args:
            node: the node.
            key: the key of the space.
            terminating: the uid of the space that is being deleted.

        Returns:
            Whether the node has nothing of it any more; it may have another space of the same name.
        """
        if not node.mirror.is_complete:
            return False
        seen = await node.mirror.find("space", key)
        if seen is not None and (seen.uid == terminating or node.removals.has(seen.uid)):
            await self._clear_addresses(node, key)
            await node.mirror.perform("delete", SpaceEntity(key, "", "", seen.uid, 0))
            seen = None
        node.removals.settle(ADDRESS_SPACE.name, key, seen.uid if seen is not None else "")
        return True

    async def _clear_addresses(self, node: Node, space: str) -> None:
        names = list(node.mirror.names_in("address", space))
        for start in range(0, len(names), _STEP):
            found = [await node.mirror.find("address", name) for name in names[start : start + _STEP]]
            terminating = [AddressEntity(item.name, space, "", "", "", 0, item.uid, 0) for item in found if item]
            await asyncio.gather(*(node.mirror.perform("delete", item) for item in terminating))
            for item in terminating:
                node.removals.settle(ADDRESS.name, item.name)

    def _publish_status(
        self,
        view: SpaceView,
        verdict: Verdict,
        entity: SpaceEntity | None,
        outcomes: dict[str, Outcome],
        at_home: Outcome | None,
    ) -> None:
        space = view.space
        generation = space.metadata.generation
        found = {name: readiness(verdict, entity, outcome, generation) for name, outcome in outcomes.items()}
        ready = readiness(verdict, entity, None, generation)
        if found:  # of several nodes, one that does not serve it
            ready = next((item for item in found.values() if item.status != "True"), next(iter(found.values())))
        limits = effective_space_limits(space.spec, view.plan.spec if view.plan else None)
        published = limits if limits != SpaceLimits() else None
        found_now = with_effect(space_conditions(view, ready), self._context.effects.of(space), generation)
        own = {item.type for item in found_now}
        kept = tuple(item for item in space.status.conditions if item.type not in own)
        status = space.status.with_conditions((*kept, *found_now), self._now())
        if status.limits != published:
            status = status.model_copy(update={"limits": published})
        present = at_home.present if at_home is not None else None
        problems = None if present is None else dict(present.connectors)
        connectors = connector_statuses(view, problems, self._now())
        if status.connectors != connectors:
            status = status.model_copy(update={"connectors": connectors})
        self._statuses.publish(space, status, partial(self.enqueue, space.key))
