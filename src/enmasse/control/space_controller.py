"""The controller of spaces: each is on the node before its addresses, and goes after them.

A space has a finalizer: it stays, Terminating, until its addresses and users are deleted and the node has nothing
of it any more.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from enmasse.control.address_controller import NOT_ADOPTABLE, bring_about, conflict_with
from enmasse.control.adoption import adopted_space, choose_service, differences, space_plans
from enmasse.control.authentication import resolve_authentication
from enmasse.control.effective import effective_space_limits
from enmasse.control.errors import ForbiddenError, NodeUnavailableError
from enmasse.control.placements import plan_limits
from enmasse.control.ports import AddressEntity, SpaceEntity
from enmasse.control.space_planning import (
    Outcome,
    SpaceView,
    condition,
    judge_space,
    readiness,
    space_conditions,
    wanted_space,
)
from enmasse.control.verdicts import Verdict
from enmasse.model.conditions import READY
from enmasse.model.kinds import restore
from enmasse.model.spaces import AddressSpace

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.address_controller import Kept
    from enmasse.control.authentication import Authentication
    from enmasse.control.declared import Declared
    from enmasse.control.identity_providers import IdentityProviders
    from enmasse.control.installation import Removals
    from enmasse.control.node_mirror import NodeMirror
    from enmasse.control.placements import Placements
    from enmasse.control.registry import Registry
    from enmasse.control.statuses import StatusWriter

__all__ = ["FINALIZER", "SpaceLooks"]

FINALIZER = "enmasse.io/infra"
"""Holds a space until the node has nothing of it."""

_STEP = 100
"""Objects that are deleted with one write, so that nobody waits long for the store."""

# What reads and writes goes before what is read and written.
_DEPENDENTS = ("Pipeline", "Address", "MessagingUser")

_log = logging.getLogger(__name__)


class SpaceLooks:
    """Looks at spaces.

    Args:
        registry: where they lie.
        declared: what is declared.
        placements: who has a place.
        mirror: the node.
        removals: what the node has to delete yet.
        kept: takes what is left on the node, and why.
        statuses: takes what was found.
        providers: knows how users are known.
        now: gives the present, RFC 3339 in UTC.
        look_again: has a space looked at once more.
        look_at_addresses: has addresses looked at, because their space or their places have changed.
        take_waiting: gives the addresses of the node that waited for their space to be declared.
        hosts_of: gives the hosts of a space's routes.
        port_of: gives the port of a space's own, 0 for none.
    """

    def __init__(
        self,
        registry: Registry,
        declared: Declared,
        placements: Placements,
        mirror: NodeMirror,
        removals: Removals,
        kept: Kept,
        statuses: StatusWriter,
        providers: IdentityProviders,
        *,
        now: Callable[[], str],
        look_again: Callable[[str], None],
        look_at_addresses: Callable[[list[str]], None],
        take_waiting: Callable[[str], list[str]],
        hosts_of: Callable[[AddressSpace], tuple[str, ...]] = lambda _space: (),
        port_of: Callable[[AddressSpace], int] = lambda _space: 0,
    ) -> None:
        self._registry = registry
        self._declared = declared
        self._placements = placements
        self._mirror = mirror
        self._removals = removals
        self._kept = kept
        self._statuses = statuses
        self._providers = providers
        self._now = now
        self._look_again = look_again
        self._look_at_addresses = look_at_addresses
        self._take_waiting = take_waiting
        self._hosts_of = hosts_of
        self._port_of = port_of

    async def look(self, key: str) -> bool:
        """Put one space right; whether nothing is left to do."""
        if self._mirror.is_reachable is None:
            return True
        declared = self._declared.spaces.get(key)
        if declared is None:
            self._placements.drop(key)
            return await self._settle_undeclared(key)
        space = self._read(declared)
        if space is None:
            return True  # it has changed, and the change will have it looked at
        metadata = space.metadata
        if metadata.deletion_timestamp:
            return await self._terminate(space)
        if FINALIZER not in metadata.finalizers and self._mirror.is_reachable:
            # From now on the node may have something of it.
            self._registry.change_finalizers(
                space.kind, metadata.namespace, metadata.name, uid=metadata.uid, add=FINALIZER
            )
            return True  # that change has it looked at
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
        return SpaceView(
            space,
            self._declared.plans,
            self._excess(space),
            self._providers.of(space),
            self._hosts_of(space),
            self._port_of(space),
        )

    def _excess(self, space: AddressSpace) -> tuple[str, ...]:
        plan = self._declared.space_plans.get(space.spec.plan_name)
        return tuple(self._placements.of(space.key).excess(plan_limits(space, plan)))

    async def _serve(self, space: AddressSpace) -> bool:
        view = self.view(space)
        verdict = judge_space(view)
        entity, outcome = None, None
        if verdict.is_yes:
            entity = wanted_space(view)
            outcome = await self._bring_about(entity, is_held=FINALIZER in space.metadata.finalizers)
        self._say(view, verdict, entity, outcome)
        if ("space", space.key) not in self._kept:
            self._look_at_addresses(self._take_waiting(space.key))
        if outcome is not None and not outcome.is_reachable:
            raise NodeUnavailableError(f"node {self._mirror.name} cannot be reached")
        return outcome is None or not outcome.refusal

    async def _bring_about(self, entity: SpaceEntity, *, is_held: bool) -> Outcome:
        try:
            seen = await self._mirror.find("space", entity.name)
            if not self._mirror.is_reachable or not is_held:
                return Outcome(self._mirror.digest(entity), is_reachable=False)
            if seen is not None and seen.uid != entity.uid:
                # One of the same name was there before, and so may be what was in it.
                if not self._removals.has(seen.uid):
                    refusal = conflict_with(self._mirror.name, entity, seen.uid)
                    self._kept["space", entity.name] = refusal
                    return Outcome(self._mirror.digest(entity), seen, refusal=refusal, differs=True)
                if not await self._clear_node(entity.name):
                    return Outcome(self._mirror.digest(entity))
                seen = None
        except NodeUnavailableError:
            return Outcome(self._mirror.digest(entity), is_reachable=False)
        outcome = await bring_about(self._mirror, entity, seen, self._removals.has)
        if outcome.present is not None and outcome.present.uid == entity.uid:
            self._kept.pop(("space", entity.name), None)
            self._removals.settle("AddressSpace", entity.name, entity.uid)
        if seen is None and outcome.present is not None:
            self._look_at_addresses(list(self._declared.addresses_of(entity.name)))
        return outcome

    async def _terminate(self, space: AddressSpace) -> bool:
        """Take a space away, with all that is in it."""
        metadata = space.metadata
        left = self._delete_contents(space)
        if left == 0 and await self._clear_node(space.key, metadata.uid):
            self._registry.change_finalizers(
                space.kind, metadata.namespace, metadata.name, uid=metadata.uid, remove=FINALIZER
            )
            return True
        message = "something that belongs to it is still there" if left else "the node still has something of it"
        if not self._mirror.is_reachable:
            message = "the node cannot be reached"
        ready = condition(READY, Verdict("Terminating", message), metadata.generation)
        others = tuple(item for item in space.status.conditions if item.type != READY)
        status = space.status.with_conditions((*others, ready), self._now(), deleted=True)
        self._statuses.publish(space, status)
        return left > 0  # else the node is asked again; what is left tells of its end

    def _delete_contents(self, space: AddressSpace) -> int:
        """Delete some of what a space has; return how many objects are left, as far as they were counted."""
        registry, namespace, prefix = self._registry, space.metadata.namespace, f"{space.metadata.name}."
        left = 0
        for kind in _DEPENDENTS:
            found = registry.store.select(kind, namespace, prefix, limit=_STEP)
            going = [item["metadata"]["name"] for item in found if not item["metadata"].get("deletionTimestamp")]
            with registry.store.transaction():
                for name in going:
                    registry.delete(kind, namespace, name)
            if going:
                self._look_again(space.key)
            left += len(registry.store.select(kind, namespace, prefix, limit=_STEP))
        return left

    async def _settle_undeclared(self, key: str) -> bool:
        """Take a space off the node that was deleted; one that nobody has deleted is declared as it is there."""
        seen = await self._mirror.find("space", key)
        if key in self._declared.spaces:
            return True
        self._kept.pop(("space", key), None)
        if seen is not None and not self._removals.has(seen.uid):
            self._removals.settle("AddressSpace", key, seen.uid)
            return await self._adopt(key)
        return await self._clear_node(key)

    async def _adopt(self, key: str) -> bool:
        """Declare a space as the node has it."""
        entity, node = await self._mirror.find_space(key), self._mirror.name
        if entity is None or self._removals.has(entity.uid):
            return True  # gone or about to go, which has it looked at
        namespace, _, name = key.partition("/")
        if self._registry.store.find("AddressSpace", namespace, name) is not None:
            return True  # its change has it looked at
        try:
            self._registry.adopt(self._declaration(entity))
        except NOT_ADOPTABLE as error:
            self._kept["space", key] = f"it cannot be declared as it is there: {error}"
            return False
        _log.warning("space %s, which node %s has, was not declared: it is now", key, node)
        return True

    def _declaration(self, entity: SpaceEntity) -> AddressSpace:
        """Return a declaration that comes to what the node has.

        Raises:
            InvalidResourceError: it has something that none can say.
            ForbiddenError: with each plan that there is it would be otherwise, or others would come in.
        """
        services, find_secret = self._providers.services, self._providers.find_secret

        def declared_with(service: str, plan: str | None = None) -> AddressSpace:
            space = adopted_space(entity, self._mirror.name, service=service, plan=plan)
            assert isinstance(space, AddressSpace)
            return space

        def authentication_of(space: AddressSpace) -> Authentication:
            return resolve_authentication(space, services, find_secret)

        service = choose_service(entity, {name: authentication_of(declared_with(name)) for name in services})
        first: list[str] = []
        for plan in space_plans(entity, self._declared.space_plans.values()):
            space = declared_with(service, plan)
            authentication = authentication_of(space)
            if authentication.verdict.is_yes and authentication.kind != entity.authentication:
                raise ForbiddenError(f"its authentication is {entity.authentication}, not {authentication.kind}")
            view = SpaceView(space, self._declared.plans, (), authentication, entity.hosts, entity.port)
            found = differences(entity, wanted_space(view))
            if not found:
                return space
            first = first or found
        raise ForbiddenError(f"no plan lets it have {', '.join(first) or f'port {entity.port}'}; make one that does")

    async def _clear_node(self, key: str, going: str = "") -> bool:
        """Take a space that is deleted off the node, with all that the node has in it.

        Args:
            key: of the space.
            going: the uid of the one that is about to go.

        Returns:
            Whether the node has nothing of it any more; it may have another space of the same name.
        """
        if not self._mirror.is_complete:
            return False
        seen = await self._mirror.find("space", key)
        if seen is not None and (seen.uid == going or self._removals.has(seen.uid)):
            await self._clear_addresses(key)
            await self._mirror.perform("delete", SpaceEntity(key, "", "", seen.uid, 0))
            seen = None
        self._removals.settle("AddressSpace", key, seen.uid if seen is not None else "")
        return True

    async def _clear_addresses(self, space: str) -> None:
        names = list(self._mirror.names_in("address", space))
        for start in range(0, len(names), _STEP):
            found = [await self._mirror.find("address", name) for name in names[start : start + _STEP]]
            going = [AddressEntity(item.name, space, "", "", "", 0, item.uid, 0) for item in found if item]
            await asyncio.gather(*(self._mirror.perform("delete", item) for item in going))
            for item in going:
                self._removals.settle("Address", item.name)

    def _say(self, view: SpaceView, verdict: Verdict, entity: SpaceEntity | None, outcome: Outcome | None) -> None:
        space = view.space
        ready = readiness(verdict, entity, outcome, space.metadata.generation)
        limits = effective_space_limits(space.spec, view.plan.spec if view.plan else None)
        told = limits if limits.model_fields_set and limits.to_dict() else None
        found = space_conditions(view, ready)
        own = {item.type for item in found}
        kept = tuple(item for item in space.status.conditions if item.type not in own)
        status = space.status.with_conditions((*kept, *found), self._now())
        if status.limits != told:
            status = status.model_copy(update={"limits": told})
        self._statuses.publish(space, status)
