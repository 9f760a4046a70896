"""The controller of addresses: one address at a time, with what it depends on and nothing else."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from enmasse.control.address_planning import (
    AddressView,
    Reference,
    address_status,
    claim_of,
    judge_address,
    wanted_address,
)
from enmasse.control.adoption import address_plans, adopted_address, differences
from enmasse.control.errors import ForbiddenError, NodeRefusedError, NodeUnavailableError, ResourceExistsError
from enmasse.control.placements import held_claim
from enmasse.control.ports import AddressEntity
from enmasse.control.quota import Place
from enmasse.control.space_planning import Outcome, SpaceView, condition, judge_space, readiness
from enmasse.control.verdicts import ADMITTED, Verdict
from enmasse.model.addresses import Address
from enmasse.model.errors import InvalidResourceError
from enmasse.model.kinds import restore

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.declared import AddressRow, Declared
    from enmasse.control.identity_providers import IdentityProviders
    from enmasse.control.installation import Removals
    from enmasse.control.node_mirror import NodeMirror
    from enmasse.control.placements import Placements
    from enmasse.control.ports import Entity, Sighting
    from enmasse.control.registry import Registry
    from enmasse.control.statuses import StatusWriter
    from enmasse.control.store import Document
    from enmasse.model.spaces import AddressSpace

__all__ = ["NOT_ADOPTABLE", "AddressLooks", "Kept", "bring_about", "conflict_with"]

_log = logging.getLogger(__name__)

_TRIES = 2
"""A node that refuses may have something else than we thought: then it is asked, and told once more."""

NOT_ADOPTABLE = (InvalidResourceError, ForbiddenError, ResourceExistsError)
"""Why something that a node has is not declared."""

Kept = dict[tuple[str, str], str]
"""Entities that are kept on a node although nobody declared them so: kind and key, with the reason."""


class AddressLooks:
    """Looks at addresses.

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
        space_changed: hears of a space of which the node has less than before.
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
        space_changed: Callable[[str], None],
    ) -> None:
        self.waiting: defaultdict[str, set[str]] = defaultdict(set)
        """By space, addresses of the node that can be declared as soon as their space is."""
        self._registry = registry
        self._store = registry.store
        self._declared = declared
        self._placements = placements
        self._mirror = mirror
        self._removals = removals
        self._kept = kept
        self._statuses = statuses
        self._providers = providers
        self._now = now
        self._space_changed = space_changed

    async def look(self, key: str) -> bool:
        """Put one address right; whether nothing is left to do."""
        if self._mirror.is_reachable is None:
            return True  # looked at again as soon as anything is known of the node
        row = self._declared.addresses.get(key)
        if row is None:
            return await self._settle_undeclared(key)
        seen, is_reachable = await self._find(row)
        document = self._store.find("Address", row.namespace, row.name)
        if document is None or self._declared.addresses.get(key) is not row or _uid(document) != row.uid:
            return True  # it has changed, and the change will have it looked at
        address = restore(document)
        assert isinstance(address, Address)
        if row.is_leaving:
            # It stays as it is until whoever holds it back has let it go.
            status = address.status.with_conditions(address.status.conditions, self._now(), deleted=True)
            self._statuses.publish(address, status)
            return True
        view = self.view(address, row, is_served=seen is not None and seen.uid == row.uid)
        verdict, place = self._place(view, row, document)
        outcome, entity = None, None
        if place is not None and verdict.is_yes:
            entity = wanted_address(view, await self._present_stream(view, seen, is_reachable=is_reachable))
            outcome = await self._bring_about(entity, seen, row, is_reachable=is_reachable)
        if self._declared.addresses.get(key) is not row:
            return True
        self._say(view, verdict, place, entity, outcome)
        if outcome is not None and outcome.present is not None:
            self._note(row, outcome)
        if outcome is not None and not outcome.is_reachable:
            raise NodeUnavailableError(f"node {self._mirror.name} cannot be reached")
        return outcome is None or not outcome.refusal

    def view(self, address: Address, row: AddressRow | None, *, is_served: bool = False) -> AddressView:
        """Return all that an address depends on.

        Args:
            address: as declared.
            row: its row; None: it is not declared yet.
            is_served: whether the node has it.
        """
        declared, spec = self._declared, address.spec
        space = declared.spaces.get(address.space_key)
        owner = declared.owner(address.space_key, spec.address)
        names = {name for name in (spec.topic, spec.deadletter, spec.expiry, spec.fallback) if name}
        return AddressView(
            address=address,
            space=space,
            space_verdict=self._judge(space) if space else ADMITTED,
            plans=declared.plans,
            rival=owner.name if owner is not None and owner is not row else "",
            references={name: self._reference(address.space_key, name) for name in names},
            topic=self._topic(address.space_key, spec.topic) if spec.topic else None,
            is_served=is_served,
        )

    def _judge(self, space: AddressSpace) -> Verdict:
        authentication = self._providers.of(space)
        return judge_space(SpaceView(space, self._declared.plans, authentication=authentication))

    def _reference(self, space: str, name: str) -> Reference:
        row = self._declared.owner(space, name)
        return Reference() if row is None else Reference(row.type, row.is_scheduled)

    def _topic(self, space: str, name: str) -> Address | None:
        row = self._declared.owner(space, name)
        document = self._store.find("Address", row.namespace, row.name) if row else None
        topic = restore(document) if document else None
        return topic if isinstance(topic, Address) else None

    def _place(self, view: AddressView, row: AddressRow, document: Document) -> tuple[Verdict, Place | None]:
        """Tell whether an address can be served, and where its place is."""
        verdict = judge_address(view)
        places = self._placements.of(row.space)
        if view.is_served and view.space is not None and places.place_of(row.key) is None:
            # It was told to the node before its status was published.
            places.hold(row.key, row.order, held_claim(document), Place())
        place = places.place_of(row.key)
        if verdict.is_yes:
            asked = places.ask(row.key, row.order, claim_of(view))
            place = asked or place
            if asked is None:
                verdict = Verdict("QuotaExceeded", places.refusal(row.key))
        elif place is None:
            places.give_back(row.key)  # it does not wait for a place, but for something else
        if row.is_scheduled != (place is not None):
            row.is_scheduled = place is not None
            self._declared.look_at_dependents(row)
        return verdict, place

    async def _find(self, row: AddressRow) -> tuple[Sighting | None, bool]:
        try:
            return await self._mirror.find("address", row.key), bool(self._mirror.is_reachable)
        except NodeUnavailableError:
            return None, False

    async def _present_stream(
        self, view: AddressView, seen: Sighting | None, *, is_reachable: bool
    ) -> AddressEntity | None:
        """Return what the node has of a stream whose number of partitions is told nowhere else."""
        address = view.address
        is_told = address.spec.partitions is not None or address.status.plan_status is not None
        if address.spec.type != "stream" or is_told or seen is None or not is_reachable:
            return None
        return await self._mirror.find_address(address.key)

    async def _bring_about(
        self, entity: AddressEntity, seen: Sighting | None, row: AddressRow, *, is_reachable: bool
    ) -> Outcome:
        if not is_reachable:
            return Outcome(self._mirror.digest(entity), is_reachable=False)
        space, declared = await self._mirror.find("space", row.space), self._declared.spaces.get(row.space)
        if space is None or declared is None or space.uid != declared.metadata.uid:
            return Outcome(self._mirror.digest(entity))  # the space is told first, and has its addresses looked at
        return await bring_about(self._mirror, entity, seen, self._removals.has)

    def _note(self, row: AddressRow, outcome: Outcome) -> None:
        """Take down what the node has now under the name of an address."""
        assert outcome.present is not None
        if outcome.present.uid == row.uid:
            self._kept.pop(("address", row.key), None)
        elif outcome.refusal:
            self._kept["address", row.key] = outcome.refusal
        self._removals.settle("Address", row.key, outcome.present.uid)

    async def _settle_undeclared(self, key: str) -> bool:
        """Take an address off the node that was deleted; one that nobody has deleted is declared as it is there."""
        seen = await self._mirror.find("address", key)
        if key in self._declared.addresses:
            return True
        namespace, _, name = key.partition("/")
        space = f"{namespace}/{name.partition('.')[0]}"
        if seen is not None and self._removals.has(seen.uid):
            await self._mirror.perform("delete", AddressEntity(key, space, "", "", "", 0, seen.uid, 0))
            seen = None
        self._removals.settle("Address", key, seen.uid if seen is not None else "")
        self._kept.pop(("address", key), None)
        if seen is not None:
            return await self._adopt(key, space)
        self._space_changed(space)
        return True

    async def _adopt(self, key: str, space: str) -> bool:
        """Declare an address as the node has it."""
        entity, home = await self._mirror.find_address(key), await self._mirror.find("space", space)
        declared = self._declared.spaces.get(space)
        if entity is None or home is None or self._removals.has(entity.uid) or self._removals.has(home.uid):
            return True  # gone or about to go, which has it looked at
        if declared is None or declared.metadata.uid != home.uid:
            self.waiting[space].add(key)
            self._kept["address", key] = f"its address space {space} is not declared as {self._mirror.name} has it"
            return True
        if declared.metadata.deletion_timestamp or self._store.find("Address", *key.split("/")) is not None:
            return True  # it goes with its space, or its change has it looked at
        try:
            self._registry.adopt(self._declaration(entity, declared))
        except NOT_ADOPTABLE as error:
            self._kept["address", key] = f"it cannot be declared as it is there: {error}"
            return False
        _log.warning("address %s, which node %s has, was not declared: it is now", key, self._mirror.name)
        return True

    def _declaration(self, entity: AddressEntity, space: AddressSpace) -> Address:
        """Return a declaration that comes to what the node has.

        Raises:
            InvalidResourceError: it has something that none can say.
            ForbiddenError: with each plan that there is it would be otherwise.
        """
        first: list[str] = []
        for plan in address_plans(entity, self._declared.plans, space.spec.plan_name):
            address = adopted_address(entity, self._mirror.name, plan=plan)
            assert isinstance(address, Address)
            found = differences(entity, wanted_address(self.view(address, None, is_served=True), entity))
            if not found:
                return address
            first = first or found
        raise ForbiddenError(f"no plan lets it have {', '.join(first)}; make one that does")

    def _say(
        self,
        view: AddressView,
        verdict: Verdict,
        place: Place | None,
        entity: AddressEntity | None,
        outcome: Outcome | None,
    ) -> None:
        address = view.address
        status, generation = address.status, address.metadata.generation
        if entity is not None and place is not None:
            status = address_status(view, entity, place, self._mirror.name)
        ready = readiness(verdict, entity, outcome, generation)
        status = status.with_conditions((condition("Scheduled", verdict, generation), ready), self._now())
        self._statuses.publish(address, status)


def conflict_with(node: str, entity: Entity, uid: str) -> str:
    """Return the sentence on an entity of a node that is in the way of another one, and is not deleted for it."""
    kind = "address space" if entity.entity_type == "space" else "address"
    return (
        f"{node} holds another {kind} of this name, of uid {uid}, which nobody has deleted: it is kept with all that "
        f"it stores. Delete this one (uid {entity.uid}), and the other one is declared in its place"
    )


async def bring_about(
    mirror: NodeMirror, entity: Entity, seen: Sighting | None, is_removed: Callable[[str], bool]
) -> Outcome:
    """Have a node be as an entity says.

    Args:
        mirror: the node.
        entity: what is to be.
        seen: what the node has under its name.
        is_removed: tells by its uid whether an object was deleted: nothing else makes way.
    """
    digest = mirror.digest(entity)
    for attempt in range(1, _TRIES + 1):
        is_other = seen is not None and seen.uid != entity.uid
        is_update = seen is not None and not is_other
        if seen is not None and is_other and not is_removed(seen.uid):
            return Outcome(digest, seen, refusal=conflict_with(mirror.name, entity, seen.uid), differs=True)
        if seen is not None and is_update and seen.digest == digest:
            return Outcome(digest, seen)
        try:
            if seen is not None and is_other:
                await mirror.perform("delete", replace(entity, uid=seen.uid))
            await mirror.perform("update" if is_update else "create", entity)
            seen = await mirror.find(entity.entity_type, entity.name)
        except NodeUnavailableError:
            return Outcome(digest, is_reachable=False)
        except NodeRefusedError as error:
            try:
                seen = await mirror.find(entity.entity_type, entity.name)
            except NodeUnavailableError:
                return Outcome(digest, is_reachable=False)
            if attempt == _TRIES or error.status not in (404, 409):
                _log.warning("node %s refuses %s: %s", mirror.name, entity.name, error)
                return Outcome(digest, seen, refusal=str(error), differs=is_update and error.status == 409)
    return Outcome(digest, seen)


def _uid(document: Document) -> str:
    uid: str = document["metadata"].get("uid", "")
    return uid
