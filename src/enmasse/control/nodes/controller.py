"""Show what is of the nodes: whether each can be reached, and how many spaces are at home on it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from enmasse.control.errors import ForbiddenError
from enmasse.control.nodes.homes import make_nodes
from enmasse.control.runtime.controller import Controller
from enmasse.control.runtime.verdicts import Verdict, condition
from enmasse.model.kinds.nodes import MessagingNode
from enmasse.model.schema.conditions import READY, with_effect
from enmasse.model.schema.kinds import ADDRESS_SPACE, MESSAGING_NODE
from enmasse.model.schema.objects import restore

if TYPE_CHECKING:
    from enmasse.control.context import Context
    from enmasse.control.nodes.homes import Homes
    from enmasse.control.store.port import Change, Store
    from enmasse.control.store.writes import Write
    from enmasse.model.schema.resource import Resource

_MOST_NAMED = 10


class NodeController(Controller):
    """Publishes the statuses of nodes, and has spaces placed that waited for one. A key is a node's name.

    Args:
        context: the context of the controllers.
    """

    name = "nodes"

    def __init__(self, context: Context) -> None:
        super().__init__(jitter=context.jitter, observe=context.observe)
        self._context = context

    def load(self, store: Store) -> None:
        """Enqueue all nodes."""
        for document in store.select(MESSAGING_NODE.name):
            self.enqueue(document["metadata"]["name"])

    def apply(self, change: Change) -> None:
        """Enqueue what a change concerns."""
        document = change.document
        if document["kind"] == MESSAGING_NODE.name:
            self.enqueue(document["metadata"]["name"])
            for key in self._context.homes.waiting:
                self._context.enqueue_space(key)
        elif document["kind"] == ADDRESS_SPACE.name:
            former = (change.before or {}).get("status") or {}
            present = document.get("status") or {}
            for name in {former.get("home", ""), present.get("home", "")} - {""}:
                if change.action == "DELETED" or former.get("home") != present.get("home"):
                    self.enqueue(name)

    async def reconcile(self, key: str) -> bool:
        """Publish the status of one node."""
        document = self._context.store.find(MESSAGING_NODE.name, "", key)
        if document is None:
            make_nodes(self._context.registry, [key] if key in self._context.nodes else [])
            return True
        node = restore(document)
        assert isinstance(node, MessagingNode)
        managed = self._context.nodes.get(key)
        if managed is not None and managed.mirror.is_reachable is None:
            return True  # it is said as soon as anything is known
        generation = node.metadata.generation
        ready = condition(READY, self._verdict(key), generation)
        numbers = condition("LogNumbers", self._numbers(key), generation)
        found = with_effect((numbers, ready), self._context.effects.of(node), generation)
        status = node.status.with_conditions(found, self._context.now())
        spaces = len(self._context.homes.spaces_on(key))
        if status.spaces != spaces:
            status = status.model_copy(update={"spaces": spaces})
        self._context.statuses.publish(node, status, partial(self.enqueue, key))
        return True

    def _verdict(self, name: str) -> Verdict:
        node = self._context.nodes.get(name)
        if node is None:
            return Verdict("NotStarted", "the control process was not started with this node")
        if node.mirror.problem:
            return Verdict("LeftAlone", node.mirror.problem)
        if not node.mirror.is_reachable:
            return Verdict("NodeUnavailable", "the node cannot be reached")
        return Verdict("Connected")

    def _numbers(self, name: str) -> Verdict:
        problem = self._context.log_leases.problem(name)
        return Verdict("LogNumbersShort", problem) if problem else Verdict("Leased")


class NodeAdmission:
    """Refuses to delete the object of a node while spaces are at home on it.

    Args:
        homes: the homes of spaces.
    """

    kinds = frozenset({MESSAGING_NODE.name})

    def __init__(self, homes: Homes) -> None:
        self._homes = homes

    def admit(self, write: Write) -> Resource:
        """Return the object to be stored.

        Raises:
            ForbiddenError: spaces are at home on the node that is to be deleted.
        """
        if write.operation == "DELETE" and write.old is not None:
            name = write.old.metadata.name
            spaces = self._homes.spaces_on(name)
            if spaces:
                more = len(spaces) - _MOST_NAMED
                named = ", ".join(spaces[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
                raise ForbiddenError(f"node {name} cannot be deleted: it is the home of {named}; delete these first")
        return write.resource
