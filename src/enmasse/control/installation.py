"""Keeps which installation a store and its nodes belong to, and what the nodes have to delete yet.

Rules:
1. A store and the journals of its nodes carry one id. Who has none takes the other's; where both have one and they
   differ, the node is another installation's: nothing of it is changed until somebody takes it in by name.
2. Whatever a node holds is deleted there because the store remembers that this very object, by its uid, was
   deleted, and for no other reason. It remembers it from the transaction that removed the object until every node
   that may have it has done so; a node that is away does it when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING

from enmasse.control.errors import ForeignNodeError
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.control.ports import JournalOwner
    from enmasse.control.store import Change, Document, ResourceStore

__all__ = ["Removals", "admit_node", "installation_of", "know_node", "remember_removal", "take_node_in"]

_NAMED = ("AddressSpace", "Address")
"""The kinds of objects that nodes have under the same name."""

_KINDS = (*_NAMED, "MessagingUser")
"""The kinds of objects that nodes have something of."""

_GATHER_S = 0.02
"""What was done within it is noted with one write; the first of a burst at once."""

_AGAIN_S = 1.0

_log = logging.getLogger(__name__)


def installation_of(store: ResourceStore) -> str:
    """Return the id of the installation that a store belongs to; empty as long as it has none."""
    rows = store.execute("SELECT id FROM installation")
    return str(rows[0][0]) if rows else ""


def _join(store: ResourceStore, installation: str) -> str:
    with store.transaction():
        store.execute(
            "INSERT INTO installation SELECT ? WHERE NOT EXISTS (SELECT * FROM installation)", (installation,)
        )
    return installation_of(store)


async def admit_node(store: ResourceStore, node: JournalOwner) -> None:
    """See that store and node belong to one installation; who has no id yet takes the other's.

    Raises:
        ForeignNodeError: the node's journal belongs to another installation.
        NodeUnavailableError: the node cannot be reached.
        NodeRefusedError: it does not take the id.
    """
    found = await node.installation()
    own = installation_of(store)
    if not own:
        own = _join(store, found or str(uuid.uuid4()))
        _log.info("the resource store belongs to installation %s now", own)
    if not found:
        await node.join(own)
        _log.info("node %s belongs to installation %s now", node.name, own)
    elif found != own:
        raise ForeignNodeError(node.name, found, own)


async def take_node_in(store: ResourceStore, node: JournalOwner, former: str) -> None:
    """Have a node's journal belong to the installation of a store.

    Args:
        store: whose installation.
        node: whose journal.
        former: the id that the journal has now, so that nobody takes in another one than he was shown.

    Raises:
        NodeRefusedError: the journal has another id by now.
        NodeUnavailableError: the node cannot be reached.
    """
    own = installation_of(store)
    await node.take_over(former, own)
    _log.warning("the journal of node %s, which was installation %s's, is %s's now", node.name, former, own)


def know_node(store: ResourceStore, node: str) -> None:
    """Note that a node may have something of what is declared, so that it is to do what is deleted, too."""
    if store.execute("SELECT 1 FROM nodes WHERE name = ?", (node,)):
        return
    with store.transaction():
        store.execute("INSERT INTO nodes VALUES (?)", (node,))
        store.execute("UPDATE OR REPLACE removals SET node = ? WHERE node = ''", (node,))


def remember_removal(store: ResourceStore, document: Document) -> None:
    """Note, in the transaction that removes an object, that every node which may have it is to delete it."""
    metadata = document["metadata"]
    if document["kind"] in _KINDS:
        store.execute(
            "INSERT OR IGNORE INTO removals SELECT name, ?, ?, ?, ? FROM nodes",
            (metadata["uid"], document["kind"], metadata["namespace"], metadata["name"]),
        )


class Removals:
    """What one node has to delete yet; a listener of the store's changes.

    Args:
        store: which remembers it.
        node: the name of the node.
    """

    def __init__(self, store: ResourceStore, node: str) -> None:
        self._store = store
        self._node = node
        self._pending: dict[tuple[str, str], None] = {}
        """Kinds and keys of which something was removed; users are known by their uids alone."""
        self._done: set[str] = set()
        """Uids that the node is known not to have any more."""
        self._something = asyncio.Event()
        know_node(store, node)

    def __len__(self) -> int:
        """How many were done of which the store does not know yet."""
        return len(self._done)

    def load(self, store: ResourceStore) -> None:
        """Take up what the store remembers."""
        rows = store.execute("SELECT DISTINCT kind, namespace, name FROM removals WHERE node = ?", (self._node,))
        self._pending = {(kind, f"{namespace}/{name}"): None for kind, namespace, name in rows if kind in _NAMED}

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
        rows = self._store.execute("SELECT uid FROM removals WHERE node = ? AND kind = ?", (self._node, kind))
        return [row[0] for row in rows]

    def has(self, uid: str) -> bool:
        """Whether an object was removed that the node is to delete."""
        return bool(self._store.execute("SELECT 1 FROM removals WHERE node = ? AND uid = ?", (self._node, uid)))

    def settle(self, kind: str, key: str, present: str = "") -> None:
        """Forget the removals of a name but for that of the one object that the node has under it now.

        Args:
            kind: of the objects.
            key: ``<namespace>/<name>``.
            present: the uid of what the node has there; empty: nothing.
        """
        if (kind, key) not in self._pending:
            return
        namespace, _, name = key.partition("/")
        rows = self._store.execute(
            "SELECT uid FROM removals WHERE node = ? AND kind = ? AND namespace = ? AND name = ?",
            (self._node, kind, namespace, name),
        )
        uids = {row[0] for row in rows}
        if present not in uids:
            del self._pending[kind, key]
        self.confirm(uids - {present})

    def confirm(self, uids: Iterable[str]) -> None:
        """Note that the node has none of these any more; the store forgets them soon."""
        self._done.update(uids)
        if self._done:
            self._something.set()

    async def run(self) -> None:
        """Have the store forget what is done until cancelled: much of it with one write."""
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
        """Have the store forget what is done."""
        done = list(self._done)
        with self._store.transaction():
            for uid in done:
                self._store.execute("DELETE FROM removals WHERE node = ? AND uid = ?", (self._node, uid))
        self._done.difference_update(done)
        self._something.clear()
