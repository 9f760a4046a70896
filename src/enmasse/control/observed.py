"""What the node has, as far as we know: its last full answer, and what it did for us since."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from enmasse.control.ports import AddressEntity, NodeState, SpaceEntity

if TYPE_CHECKING:
    from enmasse.control.planning import Step
    from enmasse.control.ports import Entity

__all__ = ["Observed"]


class Observed:
    """The node's entities, arranged by space.

    Args:
        state: the node's full answer.
    """

    def __init__(self, state: NodeState) -> None:
        self._spaces: defaultdict[str, NodeState] = defaultdict(NodeState)
        for space in state.spaces.values():
            self._spaces[space.name].spaces[space.name] = space
        for address in state.addresses.values():
            self._spaces[address.space].addresses[address.name] = address

    def space_keys(self) -> set[str]:
        """Return the names of all spaces of which the node has anything."""
        return {key for key, state in self._spaces.items() if state.spaces or state.addresses}

    def of_space(self, key: str) -> NodeState:
        """Return what the node has of one space."""
        return self._spaces[key]

    def record(self, step: Step) -> None:
        """Take over what a step has changed on the node."""
        entities = self._table(step.entity)
        if step.action == "delete":
            entities.pop(step.entity.name, None)
        else:
            entities[step.entity.name] = step.entity

    def _table(self, entity: Entity) -> dict[str, Entity]:
        if isinstance(entity, SpaceEntity):
            return self._spaces[entity.name].spaces  # type: ignore[return-value]  # its own kind goes in
        assert isinstance(entity, AddressEntity)
        return self._spaces[entity.space].addresses  # type: ignore[return-value]  # its own kind goes in
