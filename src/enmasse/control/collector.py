"""What goes with something else: the contents of a deleted namespace, and objects whose owner is gone.

Rules:
1. Much is deleted in steps, each a transaction of its own, so that the others are served in between.
2. An object that waits for its finalizers is left to whoever takes them off; when it is gone the rest goes on.
3. An object with several owners goes with the last of them; until then it forgets those that are gone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from enmasse.control.registry import CONTENTS, Preconditions
from enmasse.control.runtime import Controller
from enmasse.control.stored_form import key_of, without_empty
from enmasse.model.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.registry import Registry
    from enmasse.control.store import Change, Document, ResourceStore

__all__ = ["Collector"]

_NAMESPACE, _OWNER = "namespace ", "owner "  # what keys begin with
_STEP = 50

# What refers to something goes before it.
_KINDS = tuple(kind.name for kind in reversed(KINDS) if kind.scope == "Namespaced")


class Collector:
    """Deletes what goes with something else; a listener of the store.

    Args:
        registry: what deletes.
        jitter: gives a factor around 1 for delays.

    Attributes:
        controller: what has to run for it.
    """

    def __init__(self, registry: Registry, *, jitter: Callable[[], float]) -> None:
        self._registry = registry
        self._store = registry.store
        self._going: set[str] = set()  # namespaces
        self.controller = Controller("collector", self._look, jitter=jitter, workers=1)

    def load(self, store: ResourceStore) -> None:
        """Find what was left to do."""
        self._going.clear()
        for namespace in store.select("Namespace"):
            self._see_namespace(namespace)
        for owner in store.lost_owners():
            self.controller.look_at(f"{_OWNER}{owner}")

    def apply(self, change: Change) -> None:
        """Take one change."""
        document = change.document
        metadata = document["metadata"]
        if change.action == "DELETED":
            if self._store.dependents(metadata["uid"], limit=1):
                self.controller.look_at(f"{_OWNER}{metadata['uid']}")
            if (namespace := metadata.get("namespace")) in self._going:
                self.controller.look_at(f"{_NAMESPACE}{namespace}")
            if document["kind"] == "Namespace":
                self._going.discard(metadata["name"])
            return
        for owner in metadata.get("ownerReferences") or ():
            if self._store.find_uid(owner["uid"]) is None:
                self.controller.look_at(f"{_OWNER}{owner['uid']}")
        if document["kind"] == "Namespace":
            self._see_namespace(document)

    def _see_namespace(self, namespace: Document) -> None:
        metadata = namespace["metadata"]
        if metadata.get("deletionTimestamp"):
            self._going.add(metadata["name"])
            self.controller.look_at(f"{_NAMESPACE}{metadata['name']}")

    async def _look(self, key: str) -> bool:
        if key.startswith(_NAMESPACE):
            await self._empty(key.removeprefix(_NAMESPACE))
        else:
            await self._delete_dependents(key.removeprefix(_OWNER))
        return True

    async def _empty(self, name: str) -> None:
        namespace = self._store.find("Namespace", "", name)
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
            self._registry.change_finalizers("Namespace", "", name, uid=namespace["metadata"]["uid"], remove=CONTENTS)

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
        if self._store.find(*key_of(document)) is not None:  # it may have gone with one before it
            self._registry.delete(*key_of(document), preconditions=Preconditions(uid=document["metadata"]["uid"]))
