"""Reconcile addresses with the nodes, one address at a time, with what it depends on and nothing else."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from enmasse.control.addresses.planning import (
    AddressView,
    Reference,
    address_status,
    claim_of,
    judge_address,
    wanted_address,
)
from enmasse.control.errors import ForbiddenError, NodeUnavailableError
from enmasse.control.ports import AddressEntity
from enmasse.control.runtime.controller import Controller
from enmasse.control.runtime.node_mirror import Outcome, apply_entity
from enmasse.control.runtime.verdicts import ADMITTED, Verdict, condition
from enmasse.control.spaces.adoption import NOT_ADOPTABLE, address_plans, adopted_address, differences
from enmasse.control.spaces.placements import held_claim
from enmasse.control.spaces.planning import NODE_UNAVAILABLE, SpaceView, judge_space, readiness
from enmasse.control.spaces.quota import Place
from enmasse.model.kinds.addresses import Address
from enmasse.model.schema.conditions import READY, with_effect
from enmasse.model.schema.kinds import ADDRESS
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from enmasse.control.context import Context, Node
    from enmasse.control.ports import ObservedEntity
    from enmasse.control.runtime.desired import AddressRow
    from enmasse.control.store.port import Document
    from enmasse.model.kinds.spaces import AddressSpace


_log = logging.getLogger(__name__)


class AddressController(Controller):
    """Reconciles addresses with the nodes that they are placed on; ``Desired`` enqueues their keys."""

    name = "addresses"

    def __init__(self, context: Context) -> None:
        super().__init__(jitter=context.jitter, observe=context.observe)
        self._context = context
        self._store = context.store
        self._desired = context.desired
        self._statuses = context.statuses
        self._now = context.now

    async def reconcile(self, key: str) -> bool:
        """Reconcile one address with its node; return whether nothing is left to do."""
        row = self._desired.addresses.get(key)
        if row is None:
            return await self._context.on_nodes(lambda node: self._settle_undeclared(node, key))
        node = self._context.node_of(row.space)
        if node.mirror.is_reachable is None:
            return True  # reconciled as soon as anything is known of the node
        seen, is_reachable = await self._find(node, row)
        document = self._store.find(ADDRESS.name, row.namespace, row.name)
        if document is None or self._desired.addresses.get(key) is not row or _uid(document) != row.uid:
            return True  # it has changed, and the change will have it reconciled
        address = restore(document)
        assert isinstance(address, Address)
        if row.is_leaving:
            # It stays as it is until its last finalizer is removed.
            status = address.status.with_conditions(address.status.conditions, self._now(), deleted=True)
            self._statuses.publish(address, status, partial(self.enqueue, address.key))
            return True
        view = self.view(address, row, is_served=seen is not None and seen.uid == row.uid)
        verdict, place = self._place(view, row, document)
        outcome, entity = None, None
        if place is not None and verdict.is_yes:
            entity = wanted_address(view, await self._present_stream(node, view, seen, is_reachable=is_reachable))
            outcome = await self._apply(node, entity, seen, row, is_reachable=is_reachable)
        kept = await self._judge_kept(node, view, verdict, is_reachable=is_reachable)
        if self._desired.addresses.get(key) is not row:
            return True
        self._publish_status(node, view, verdict, place, entity, outcome, kept)
        if outcome is not None and outcome.present is not None:
            self._record_outcome(node, row, outcome)
        await self._set_pending(node, key, row, _reason_to_wait(view, verdict, outcome))
        if outcome is not None and not outcome.is_reachable:
            raise NodeUnavailableError(f"node {node.name} cannot be reached")
        return outcome is None or not outcome.refusal

    def view(self, address: Address, row: AddressRow | None, *, is_served: bool = False) -> AddressView:
        """Return everything that an address depends on.

        Args:
            address: the address as declared.
            row: its row; None: it is not declared yet.
            is_served: whether the node has it.
        """
        desired, spec = self._desired, address.spec
        space = desired.spaces.get(address.space_key)
        owner = desired.owner(address.space_key, spec.address)
        names = {name for name in (spec.topic, spec.deadletter, spec.expiry, spec.fallback) if name}
        return AddressView(
            address=address,
            space=space,
            space_verdict=self._judge(space) if space else ADMITTED,
            plans=desired.plans,
            rival=owner.name if owner is not None and owner is not row else "",
            references={name: self._reference(address.space_key, name) for name in names},
            topic=self._topic(address.space_key, spec.topic) if spec.topic else None,
            is_served=is_served,
        )

    def _judge(self, space: AddressSpace) -> Verdict:
        authentication = self._context.providers.of(space)
        unplaced = self._context.homes.why_not(space.key)
        return judge_space(SpaceView(space, self._desired.plans, authentication=authentication, unplaced=unplaced))

    def _reference(self, space: str, name: str) -> Reference:
        row = self._desired.owner(space, name)
        return Reference() if row is None else Reference(row.type, row.is_scheduled)

    def _topic(self, space: str, name: str) -> Address | None:
        row = self._desired.owner(space, name)
        document = self._store.find(ADDRESS.name, row.namespace, row.name) if row else None
        topic = restore(document) if document else None
        return topic if isinstance(topic, Address) else None

    def _place(self, view: AddressView, row: AddressRow, document: Document) -> tuple[Verdict, Place | None]:
        """Return whether an address can be served, and its place."""
        verdict = judge_address(view)
        places = self._context.placements.of(row.space)
        if view.is_served and view.space is not None and places.place_of(row.key) is None:
            # The node got it before its status was published.
            places.hold(row.key, row.order, held_claim(document), Place())
        place = places.place_of(row.key)
        if verdict.is_yes:
            granted = places.acquire(row.key, row.order, claim_of(view))
            place = granted or place
            if granted is None:
                verdict = Verdict("QuotaExceeded", places.refusal(row.key))
        elif place is None:
            places.give_back(row.key)  # it does not wait for a place, but for something else
        if row.is_scheduled != (place is not None):
            row.is_scheduled = place is not None
            self._desired.enqueue_dependents(row)
        return verdict, place

    async def _find(self, node: Node, row: AddressRow) -> tuple[ObservedEntity | None, bool]:
        try:
            return await node.mirror.find("address", row.key), bool(node.mirror.is_reachable)
        except NodeUnavailableError:
            return None, False

    async def _present_stream(
        self, node: Node, view: AddressView, seen: ObservedEntity | None, *, is_reachable: bool
    ) -> AddressEntity | None:
        """Return the node's entity of a stream whose number of partitions is known nowhere else."""
        address = view.address
        is_known = address.spec.partitions is not None or address.status.plan_status is not None
        if address.spec.type != "stream" or is_known or seen is None or not is_reachable:
            return None
        return await node.mirror.find_address(address.key)

    async def _apply(
        self, node: Node, entity: AddressEntity, seen: ObservedEntity | None, row: AddressRow, *, is_reachable: bool
    ) -> Outcome:
        mirror = node.mirror
        if not is_reachable:
            return Outcome(mirror.digest(entity), is_reachable=False)
        space, declared = await mirror.find("space", row.space), self._desired.spaces.get(row.space)
        if space is None or declared is None or space.uid != declared.metadata.uid:
            node.waiting[row.space].add(row.key)  # the space goes first
            return Outcome(mirror.digest(entity))
        return await apply_entity(mirror, entity, seen, node.removals.has)

    async def _judge_kept(
        self, node: Node, view: AddressView, verdict: Verdict, *, is_reachable: bool
    ) -> Verdict | None:
        """Return how an address without its plan is served; None where it has a plan, or was changed since."""
        if verdict.reason != "UnknownPlan" or not view.is_served:
            return None
        if not is_reachable:
            return NODE_UNAVAILABLE
        present = await node.mirror.find_address(view.address.key)
        is_as_declared = present is not None and present.generation == view.address.metadata.generation
        return Verdict("Served") if is_as_declared else None

    async def _set_pending(self, node: Node, key: str, row: AddressRow | None, reason: str) -> None:
        """Send a node the reason why an address is not there yet, for its clients."""
        space, address, _ = node.pending.get(key, ("", "", ""))
        if row is not None:
            space, address = row.space, row.address
        await node.set_pending(key, space, address, reason)

    def _record_outcome(self, node: Node, row: AddressRow, outcome: Outcome) -> None:
        """Record what the node has now under the name of an address."""
        assert outcome.present is not None
        if outcome.present.uid == row.uid:
            node.kept.pop(("address", row.key), None)
        elif outcome.refusal:
            node.kept["address", row.key] = outcome.refusal
        node.removals.settle(ADDRESS.name, row.key, outcome.present.uid)

    async def _settle_undeclared(self, node: Node, key: str) -> bool:
        """Remove a deleted address from a node; adopt one that was never deleted."""
        seen = await node.mirror.find("address", key)
        if key in self._desired.addresses:
            return True
        namespace, _, name = key.partition("/")
        space = f"{namespace}/{name.partition('.')[0]}"
        if seen is not None and node.removals.has(seen.uid):
            await node.mirror.perform("delete", AddressEntity(key, space, "", "", "", 0, seen.uid, 0))
            seen = None
        node.removals.settle(ADDRESS.name, key, seen.uid if seen is not None else "")
        node.kept.pop(("address", key), None)
        await self._set_pending(node, key, None, "")
        if seen is not None:
            return await self._adopt(node, key, space)
        self._context.enqueue_emptied(space)
        return True

    async def _adopt(self, node: Node, key: str, space: str) -> bool:
        """Declare an address as a node has it."""
        entity, home = await node.mirror.find_address(key), await node.mirror.find("space", space)
        declared = self._desired.spaces.get(space)
        if entity is None or home is None or node.removals.has(entity.uid) or node.removals.has(home.uid):
            return True  # deleted or about to be, which has it reconciled
        if declared is None or declared.metadata.uid != home.uid:
            node.waiting[space].add(key)
            node.kept["address", key] = f"its address space {space} is not declared as {node.name} has it"
            return True
        if declared.metadata.deletion_timestamp or self._store.find(ADDRESS.name, *key.split("/")) is not None:
            return True  # it goes with its space, or its change has it reconciled
        try:
            self._context.registry.adopt(self._declaration(node, entity, declared))
        except NOT_ADOPTABLE as error:
            node.kept["address", key] = f"it cannot be declared as it is there: {error}"
            return False
        _log.warning("address %s, which node %s has, was not declared: it is now", key, node.name)
        return True

    def _declaration(self, node: Node, entity: AddressEntity, space: AddressSpace) -> Address:
        """Return a declaration that results in what the node has.

        Raises:
            InvalidResourceError: no declaration can express what it has.
            ForbiddenError: it would differ with every plan that there is.
        """
        first: list[str] = []
        for plan in address_plans(entity, self._desired.plans, space.spec.plan_name):
            address = adopted_address(entity, node.name, plan=plan)
            assert isinstance(address, Address)
            found = differences(entity, wanted_address(self.view(address, None, is_served=True), entity))
            if not found:
                return address
            first = first or found
        raise ForbiddenError(f"no plan lets it have {', '.join(first)}; make one that does")

    def _publish_status(
        self,
        node: Node,
        view: AddressView,
        verdict: Verdict,
        place: Place | None,
        entity: AddressEntity | None,
        outcome: Outcome | None,
        kept: Verdict | None,
    ) -> None:
        address = view.address
        status, generation = address.status, address.metadata.generation
        if entity is not None and place is not None:
            status = address_status(view, entity, place, node.name)
        scheduled, ready = (
            condition("Scheduled", verdict, generation),
            readiness(verdict, entity, outcome, generation),
        )
        if kept is not None:
            message = f"{verdict.message}; what is served stays as it is, and nothing new is served with such a plan"
            scheduled = scheduled.model_copy(update={"status": "True", "message": message})
            ready = condition(READY, kept, generation)
        effects = self._context.effects.of(address)
        status = status.with_conditions(with_effect((scheduled, ready), effects, generation), self._now())
        self._statuses.publish(address, status, partial(self.enqueue, address.key))


_ELSEWHERE = frozenset({"SpaceMissing", "SpaceNotReady", "SpaceTerminating", "DuplicateAddress"})
"""Reasons that clients never see: none is in the space, or another object serves the address."""


def _reason_to_wait(view: AddressView, verdict: Verdict, outcome: Outcome | None) -> str:
    """Return the reason why an address is not served yet; empty: none that a client should know."""
    if view.is_served or verdict.reason in _ELSEWHERE:
        return ""
    return verdict.message or (outcome.refusal if outcome is not None else "")


def _uid(document: Document) -> str:
    uid: str = document["metadata"].get("uid", "")
    return uid
