"""The identity of an installation, shared by its store and its nodes, and the removals that nodes still have to do.

Rules:
1. A store and the journals of its nodes carry one id. One without an id takes the other's; where both have one and
   they differ, the node belongs to another installation: nothing of it is changed until an operator takes it in by
   name.
2. What a node holds is deleted there because the store remembers that this very object, by its uid, was deleted, and
   for no other reason. The store remembers it from the transaction that removed the object until every node that may
   have the object has deleted it; a node that is away does so when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING

from enmasse.control.errors import ForeignNodeError
from enmasse.errors import EnmasseError
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, MESSAGING_USER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.control.ports import JournalOwner
    from enmasse.control.store.port import Change, Document, Store


_NAMED = (ADDRESS_SPACE.name, ADDRESS.name)
"""The kinds of objects that nodes have under the same name."""

_KINDS = (*_NAMED, MESSAGING_USER.name)
"""The kinds of objects that nodes have something of."""

_GATHER_S = 0.02
"""Removals that are done within it are recorded with one write; the first of a burst at once."""

_AGAIN_S = 1.0

_log = logging.getLogger(__name__)


async def admit_node(store: Store, node: JournalOwner) -> None:
    """Ensure that store and node belong to one installation; the one without an id takes the other's.

    Raises:
        ForeignNodeError: the node's journal belongs to another installation.
        NodeUnavailableError: the node cannot be reached.
        NodeRefusedError: it does not take the id.
    """
    found = await node.installation()
    own = store.installation.id()
    if not own:
        own = store.installation.join(found or str(uuid.uuid4()))
        _log.info("the resource store belongs to installation %s now", own)
    if not found:
        await node.join(own)
        _log.info("node %s belongs to installation %s now", node.name, own)
    elif found != own:
        raise ForeignNodeError(node.name, found, own)


async def take_node_in(store: Store, node: JournalOwner, former: str) -> None:
    """Make a node's journal belong to the installation of a store.

    Args:
        store: the store of the installation.
        node: the owner of the journal.
        former: the id that the journal has now, so that an operator takes in the one that was shown.

    Raises:
        NodeRefusedError: the journal has another id by now.
        NodeUnavailableError: the node cannot be reached.
    """
    own = store.installation.id()
    await node.take_over(former, own)
    _log.warning("the journal of node %s, which was installation %s's, is %s's now", node.name, former, own)


def remember_removal(store: Store, document: Document) -> None:
    """Record, in the transaction that removes an object, that every node that may have it has to delete it."""
    metadata = document["metadata"]
    if document["kind"] in _KINDS:
        store.installation.remember_removal(
            document["kind"], metadata["namespace"], metadata["name"], metadata["uid"]
        )


class Removals:
    """The objects that one node still has to delete; a listener of the store's changes.

    Args:
        store: the store of the removals.
        node: the name of the node.
    """

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._node = node
        self._pending: dict[tuple[str, str], None] = {}
        """Kinds and keys of which something was removed; users are known by their uids alone."""
        self._done: set[str] = set()
        """Uids that the node is known not to have any more."""
        self._something = asyncio.Event()
        store.installation.know_node(node)

    def __len__(self) -> int:
        """Return the number of removals that are done and not recorded in the store yet."""
        return len(self._done)

    def load(self, store: Store) -> None:
        """Load what the store remembers."""
        found = store.installation.removed_names(self._node)
        self._pending = {(kind, f"{namespace}/{name}"): None for kind, namespace, name in found if kind in _NAMED}

    def apply(self, change: Change) -> None:
        """Take one change."""
        kind, metadata = change.document["kind"], change.document["metadata"]
        if change.action == "DELETED" and kind in _NAMED:
            self._pending[kind, f"{metadata['namespace']}/{metadata['name']}"] = None

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind of which something was removed."""
        return [key for found, key in self._pending if found == kind]

    def uids(self, kind: str) -> list[str]:
        """Return the uids of the removed objects of a kind."""
        return self._store.installation.removed_uids(self._node, kind)

    def has(self, uid: str) -> bool:
        """Return whether an object was removed that the node has to delete."""
        return self._store.installation.is_removed(self._node, uid)

    def settle(self, kind: str, key: str, present: str = "") -> None:
        """Forget the removals of a name but for that of the one object that the node has under it now.

        Args:
            kind: the kind of the objects.
            key: ``<namespace>/<name>``.
            present: the uid of what the node has there; empty: nothing.
        """
        if (kind, key) not in self._pending:
            return
        namespace, _, name = key.partition("/")
        uids = set(self._store.installation.removed_uids(self._node, kind, (namespace, name)))
        if present not in uids:
            del self._pending[kind, key]
        self.confirm(uids - {present})

    def confirm(self, uids: Iterable[str]) -> None:
        """Record that the node has none of these any more; the store forgets them soon."""
        self._done.update(uids)
        if self._done:
            self._something.set()

    async def run(self) -> None:
        """Record removals that are done in the store, until cancelled: many with one write."""
        while True:
            await self._something.wait()
            try:
                self.flush()
            except EnmasseError as error:
                _log.warning("what node %s has deleted is not noted now: %s", self._node, error)
                await asyncio.sleep(_AGAIN_S)
            else:
                await asyncio.sleep(_GATHER_S)

    def flush(self) -> None:
        """Record removals that are done in the store."""
        done = list(self._done)
        self._store.installation.forget_removals(self._node, done)
        self._done.difference_update(done)
        self._something.clear()
