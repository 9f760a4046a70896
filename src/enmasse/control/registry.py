"""What may be written to the resource store, and what a write entails.

Rules:
1. Only valid objects get in; what is fixed since creation stays.
2. Users write spec, labels and annotations; only controllers write status.
3. ``generation`` rises when the spec changes; a write that changes nothing is none.
4. A space takes its addresses with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from enmasse.control.errors import ConflictError
from enmasse.model.catalog import CATALOG_REVISION, default_plans
from enmasse.model.changes import change_problems, keep_immutable
from enmasse.model.errors import InvalidResourceError
from enmasse.model.kinds import restore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from enmasse.control.store import Document, ResourceStore
    from enmasse.model.resource import Resource

__all__ = ["Preconditions", "Registry"]


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What must still hold of an object when it is deleted; empty: anything."""

    uid: str = ""
    resource_version: str = ""


class Registry:
    """The writing side of the resource store.

    Args:
        store: where the objects lie.
        now: gives the present, RFC 3339 in UTC.
        new_uid: gives a unique identity.
    """

    def __init__(self, store: ResourceStore, *, now: Callable[[], str], new_uid: Callable[[], str]) -> None:
        self.store = store
        self._now = now
        self._new_uid = new_uid

    def plant_catalog(self) -> None:
        """Create the default plans, once for each revision of the catalog."""
        if self.store.fact("catalog") >= CATALOG_REVISION:
            return
        known = {
            (item["kind"], item["metadata"]["name"])
            for kind in ("AddressSpacePlan", "AddressPlan")
            for item in self.store.select(kind)
        }
        with self.store.transaction():
            for plan in default_plans():
                if (plan.kind, plan.metadata.name) not in known:
                    self.create(plan)
            self.store.write_fact("catalog", CATALOG_REVISION)

    def create(self, resource: Resource, *, dry_run: bool = False) -> Document:
        """Add an object and return its stored form.

        Args:
            resource: valid, with a namespace.
            dry_run: do everything but the write.

        Raises:
            ResourceExistsError: when there is one of this name.
        """
        metadata = resource.metadata.model_copy(
            update={
                "uid": self._new_uid(),
                "generation": 1,
                "creation_timestamp": self._now(),
                "deletion_timestamp": None,
                "resource_version": "",
            }
        )
        document = resource.model_copy(update={"metadata": metadata}).to_dict()
        with self.store.transaction(dry_run=dry_run):
            return self.store.create(document)

    def replace(self, resource: Resource, *, dry_run: bool = False) -> Document:
        """Change an object to what is given, but for what its owner cannot change.

        Args:
            resource: valid, with a namespace; a uid or resource version in it must be the present one.
            dry_run: do everything but the write.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when it changed since the caller read it.
            InvalidResourceError: when it changes what is fixed since creation.
        """
        given = resource.metadata
        document = self.store.get(resource.kind, given.namespace, given.name)
        old = restore(document)
        subject = f"{old.kind} {old.metadata.name}"
        _expect(subject, "uid", given.uid, old.metadata.uid)
        _expect(subject, "version", given.resource_version, old.metadata.resource_version)
        new = keep_immutable(old, resource)
        if problems := change_problems(old, new):
            raise InvalidResourceError(subject, problems)
        metadata = old.metadata.model_copy(
            update={
                "labels": given.labels,
                "annotations": given.annotations,
                "generation": old.metadata.generation + (new.spec != old.spec),
            }
        )
        changed = new.model_copy(update={"metadata": metadata, "status": old.status})
        if changed == old:
            return document
        with self.store.transaction(dry_run=dry_run):
            return self.store.replace(changed.to_dict())

    def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions = Preconditions(),
        dry_run: bool = False,
    ) -> Document:
        """Remove an object, a space with all its addresses, and return its last form.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when a precondition does not hold.
        """
        found = self.store.get(kind, namespace, name)["metadata"]
        _expect(f"{kind} {name}", "uid", preconditions.uid, found["uid"])
        _expect(f"{kind} {name}", "version", preconditions.resource_version, found["resourceVersion"])

        with self.store.transaction(dry_run=dry_run):
            if kind == "AddressSpace":
                for address in self.store.select("Address", namespace, prefix=f"{name}."):
                    self.store.delete("Address", namespace, address["metadata"]["name"])
            return self.store.delete(kind, namespace, name)

    def write_status(self, resources: Iterable[Resource]) -> None:
        """Publish the status of objects, all in one transaction.

        An object that was deleted or made anew meanwhile is passed over: what
        was found is about another one. Its spec and metadata stay as they are.
        """
        with self.store.transaction():
            for resource in resources:
                metadata = resource.metadata
                document = self.store.find(resource.kind, metadata.namespace, metadata.name)
                if document is not None and document["metadata"]["uid"] == metadata.uid:
                    self.store.replace(document | {"status": resource.status.to_dict()})


def _expect(subject: str, what: str, expected: str, found: str) -> None:
    if expected and expected != found:
        raise ConflictError(subject, f"{what} {expected}", f"{what} {found}")
