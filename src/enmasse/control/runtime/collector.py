"""Garbage collection: delete the contents of a deleted namespace, and objects whose owners no longer exist.

Rules:
1. Large deletions are done in steps, each a transaction of its own, so that others are served in between.
2. An object with finalizers waits until these are removed; the rest follows after that.
3. An object with several owners is deleted with the last of them; until then its references to owners
   that no longer exist are removed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from enmasse.control.runtime.controller import Controller
from enmasse.control.store.registry import CONTENTS, Preconditions
from enmasse.control.store.writes import key_of, without_empty
from enmasse.model.schema.kinds import KINDS, NAMESPACE

if TYPE_CHECKING:
    from enmasse.control.context import Context
    from enmasse.control.store.port import Change, Document, Store


_NAMESPACE, _OWNER = "namespace ", "owner "  # what keys begin with
_STEP = 50

# What refers to something goes before it.
_KINDS = tuple(kind.name for kind in reversed(KINDS) if kind.scope == "Namespaced")


class Collector(Controller):
    """The garbage collector: deletes contents of namespaces and dependents of owners."""

    name = "collector"
    workers = 1

    def __init__(self, context: Context) -> None:
        super().__init__(jitter=context.jitter)
        self._context = context
        self._registry = context.registry
        self._store = context.store
        self._terminating: set[str] = set()  # namespaces

    def load(self, store: Store) -> None:
        """Enqueue what was left to do."""
        self._terminating.clear()
        for namespace in store.select(NAMESPACE.name):
            self._apply_namespace(namespace)
        for owner in store.lost_owners():
            self.enqueue(f"{_OWNER}{owner}")

    def apply(self, change: Change) -> None:
        """Take one change."""
        document = change.document
        metadata = document["metadata"]
        if change.action == "DELETED":
            if self._store.dependents(metadata["uid"], limit=1):
                self.enqueue(f"{_OWNER}{metadata['uid']}")
            if (namespace := metadata.get("namespace")) in self._terminating:
                self.enqueue(f"{_NAMESPACE}{namespace}")
            if document["kind"] == NAMESPACE.name:
                self._terminating.discard(metadata["name"])
            return
        for owner in metadata.get("ownerReferences") or ():
            if self._store.find_uid(owner["uid"]) is None:
                self.enqueue(f"{_OWNER}{owner['uid']}")
        if document["kind"] == NAMESPACE.name:
            self._apply_namespace(document)

    def _apply_namespace(self, namespace: Document) -> None:
        metadata = namespace["metadata"]
        if metadata.get("deletionTimestamp"):
            self._terminating.add(metadata["name"])
            self.enqueue(f"{_NAMESPACE}{metadata['name']}")

    async def reconcile(self, key: str) -> bool:
        """Delete the contents of a namespace, or the dependents of an owner."""
        if key.startswith(_NAMESPACE):
            await self._empty(key.removeprefix(_NAMESPACE))
        else:
            await self._delete_dependents(key.removeprefix(_OWNER))
        return True

    async def _empty(self, name: str) -> None:
        namespace = self._store.find(NAMESPACE.name, "", name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return
        for kind in _KINDS:
            after = ""
            while found := self._store.select(kind, name, after=after, limit=_STEP):
                with self._store.transaction():
                    for document in found:
                        self._delete(document)
                after = found[-1]["metadata"]["name"]
                await asyncio.sleep(0)
        # Nothing new can come into a namespace that is going, so what is left now is all that is left.
        if not any(self._store.select(kind, name, limit=1) for kind in _KINDS):
            for forget in self._context.of_namespaces:
                await asyncio.to_thread(forget, name)
            self._registry.change_finalizers(
                NAMESPACE.name, "", name, uid=namespace["metadata"]["uid"], remove=CONTENTS
            )

    async def _delete_dependents(self, owner: str) -> None:
        if self._store.find_uid(owner) is not None:
            return
        after = ""
        while found := self._store.dependents(owner, after=after, limit=_STEP):
            with self._store.transaction():
                for document in found:
                    self._lose_owner(document, owner)
            after = found[-1]["metadata"]["uid"]
            await asyncio.sleep(0)

    def _lose_owner(self, document: Document, owner: str) -> None:
        metadata = document["metadata"]
        others = [item for item in metadata["ownerReferences"] if item["uid"] != owner]
        if any(self._store.find_uid(item["uid"]) is not None for item in others):
            self._store.replace(document | {"metadata": without_empty(metadata | {"ownerReferences": others})})
        else:
            self._delete(document)

    def _delete(self, document: Document) -> None:
        if self._store.find(*key_of(document)) is not None:  # it may have been deleted with one before it
            self._registry.delete(*key_of(document), preconditions=Preconditions(uid=document["metadata"]["uid"]))
