"""What may be written to the resource store, and what a write entails.

Rules:
1. Only valid objects get in; what is fixed since creation stays.
2. Users write what they declare, labels, annotations, finalizers and owners; only controllers write status.
3. ``generation`` rises when what is declared changes; a write that changes nothing is none.
4. An object with finalizers is not removed but marked, and goes when the last of them is taken off.
5. Whoever has a say in a kind (``Admission``) is asked in the transaction of the write.
6. Everything lies in a namespace that exists and is not about to go.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from enmasse.control.errors import (
    ConflictError,
    ForbiddenError,
    NamespaceNotFoundError,
    ResourceExistsError,
)
from enmasse.control.writes import LOCAL_OPERATOR, Admission, Operation, Requester, Write
from enmasse.model.catalog import CATALOG_REVISION, default_plans
from enmasse.model.changes import change_problems, keep_immutable
from enmasse.model.errors import InvalidResourceError, Problem
from enmasse.model.kinds import kind_named, restore
from enmasse.model.plans import PLAN_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from enmasse.control.store import Document, ResourceStore
    from enmasse.model.resource import Resource

__all__ = ["LASTING_NAMESPACES", "Preconditions", "Registry"]

LASTING_NAMESPACES = ("default", PLAN_NAMESPACE)
"""The namespaces that always exist."""

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes has them: no vowels, so no words
_SUFFIX_LENGTH = 5
_NAME_LIMIT = 253
_GENERATED_NAME_TRIES = 8  # 27^5 names: a second try is rare, an eighth means that something else is wrong

_OF_USERS = ("labels", "annotations", "finalizers", "ownerReferences")


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
        admission: who is asked about writes, in this order.
    """

    def __init__(
        self,
        store: ResourceStore,
        *,
        now: Callable[[], str],
        new_uid: Callable[[], str],
        admission: Sequence[Admission] = (),
    ) -> None:
        self.store = store
        self._now = now
        self._new_uid = new_uid
        self._admission: defaultdict[str, list[Admission]] = defaultdict(list)
        for item in admission:
            self.ask(item)

    def ask(self, admission: Admission) -> None:
        """Have one more be asked about writes, after the others."""
        for kind in admission.kinds:
            self._admission[kind].append(admission)

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

    def create(self, resource: Resource, *, dry_run: bool = False, user: Requester = LOCAL_OPERATOR) -> Document:
        """Add an object and return its stored form.

        Args:
            resource: valid, with a namespace if its kind has one, with a name or ``generateName``.
            dry_run: do everything but the write.
            user: who asks for it.

        Raises:
            ResourceExistsError: when there is one of this name.
            NamespaceNotFoundError: when its namespace does not exist.
            ForbiddenError: when its namespace is about to go, or an admission forbids it.
        """
        if resource.metadata.name:
            return self._create(resource, resource.metadata.name, dry_run, user)
        prefix = resource.metadata.generate_name[: _NAME_LIMIT - _SUFFIX_LENGTH]
        for _ in range(_GENERATED_NAME_TRIES - 1):
            try:
                return self._create(resource, prefix + _suffix(), dry_run, user)
            except ResourceExistsError:
                continue
        return self._create(resource, prefix + _suffix(), dry_run, user)

    def replace(self, resource: Resource, *, dry_run: bool = False, user: Requester = LOCAL_OPERATOR) -> Document:
        """Change an object to what is given, but for what its owner cannot change.

        Args:
            resource: valid, with a namespace; a uid or resource version in it must be the present one.
            dry_run: do everything but the write.
            user: who asks for it.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when it changed since the caller read it.
            InvalidResourceError: when it changes what is fixed since creation.
            ForbiddenError: when an admission forbids it.
        """
        with self.store.transaction(dry_run=dry_run):
            given = resource.metadata
            former = self.store.get(resource.kind, given.namespace, given.name)
            old = restore(former)
            subject = f"{old.kind} {old.metadata.name}"
            _expect(subject, "uid", given.uid, old.metadata.uid)
            _expect(subject, "version", given.resource_version, old.metadata.resource_version)
            kept = keep_immutable(old, resource)
            if problems := change_problems(old, kept):
                raise InvalidResourceError(subject, problems)
            metadata = given.model_copy(
                update={
                    "uid": old.metadata.uid,
                    "resource_version": old.metadata.resource_version,
                    "creation_timestamp": old.metadata.creation_timestamp,
                    "deletion_timestamp": old.metadata.deletion_timestamp,
                }
            )
            new = kept.model_copy(update={"metadata": metadata, "status": old.status})
            changed = _changed(former, self._admit("UPDATE", old, new, user).to_dict())
            return former if changed == former else self._store_change(former, changed)

    def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions = Preconditions(),
        dry_run: bool = False,
        user: Requester = LOCAL_OPERATOR,
    ) -> Document:
        """Remove an object, or mark it if it has finalizers, and return its last form.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when a precondition does not hold.
            ForbiddenError: when it may not be deleted.
        """
        with self.store.transaction(dry_run=dry_run):
            found = self.store.get(kind, namespace, name)
            metadata = found["metadata"]
            _expect(f"{kind} {name}", "uid", preconditions.uid, metadata["uid"])
            _expect(f"{kind} {name}", "version", preconditions.resource_version, metadata["resourceVersion"])
            if kind == "Namespace" and name in LASTING_NAMESPACES:
                raise ForbiddenError(f"the namespace {name} cannot be deleted: it always exists")
            if self._admission.get(kind):
                self._admit("DELETE", restore(found), None, user)
            if not metadata.get("finalizers"):
                self._delete_contents(kind, namespace, name)
                return self.store.delete(kind, namespace, name)
            if metadata.get("deletionTimestamp"):
                return found
            marks = {
                "deletionTimestamp": self._now(),
                "deletionGracePeriodSeconds": 0,
                "generation": metadata.get("generation", 0) + 1,
            }
            return self.store.replace(found | {"metadata": metadata | marks})

    def change_finalizers(
        self, kind: str, namespace: str, name: str, *, uid: str, add: str = "", remove: str = ""
    ) -> Document | None:
        """Put a finalizer on an object, or take one off, and return its present form.

        Args:
            kind: the kind of the object.
            namespace: where it lies.
            name: its name.
            uid: its identity; a later object of the same name is left alone.
            add: the finalizer to put on, unless the object is about to go.
            remove: the one to take off; an object about to go goes with its last one.

        Returns:
            None when there is no such object.
        """
        with self.store.transaction():
            found = self.store.find(kind, namespace, name)
            if found is None or found["metadata"]["uid"] != uid:
                return None
            finalizers = [item for item in found["metadata"].get("finalizers") or () if item != remove]
            if add and add not in finalizers and not found["metadata"].get("deletionTimestamp"):
                finalizers.append(add)
            metadata = _without_empty(found["metadata"] | {"finalizers": finalizers})
            changed = found | {"metadata": metadata}
            return found if changed == found else self._store_change(found, changed)

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

    def _create(self, resource: Resource, name: str, dry_run: bool, user: Requester) -> Document:
        metadata = resource.metadata.model_copy(
            update={
                "name": name,
                "uid": self._new_uid(),
                "generation": 1,
                "creation_timestamp": self._now(),
                "deletion_timestamp": None,
                "resource_version": "",
            }
        )
        with self.store.transaction(dry_run=dry_run):
            self._expect_namespace(metadata.namespace)
            new = self._admit("CREATE", None, resource.model_copy(update={"metadata": metadata}), user)
            return self.store.create(new.to_dict())

    def _admit(self, operation: Operation, old: Resource | None, new: Resource | None, user: Requester) -> Resource:
        write = Write(operation, old, new, self.store, user)
        for admission in self._admission.get(write.resource.kind, ()):
            admitted = admission.admit(write)
            if new is not None:
                write = Write(operation, old, admitted, self.store, user)
        return write.resource

    def _expect_namespace(self, namespace: str) -> None:
        if namespace in ("", *LASTING_NAMESPACES) or kind_named("Namespace") is None:
            return
        found = self.store.find("Namespace", "", namespace)
        if found is None:
            raise NamespaceNotFoundError(namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise ForbiddenError(
                f"nothing new can be created in namespace {namespace}, because it is being deleted",
                cause="NamespaceTerminating",
            )

    def _store_change(self, former: Document, changed: Document) -> Document:
        """Store an object, or remove it when the last that was to be done before is done."""
        metadata = changed["metadata"]
        if not metadata.get("deletionTimestamp"):
            return self.store.replace(changed)
        finalizers = metadata.get("finalizers") or []
        if new := [item for item in finalizers if item not in (former["metadata"].get("finalizers") or ())]:
            problem = Problem("metadata.finalizers", f"no new ones while the object is being deleted, got {new[0]}")
            raise InvalidResourceError(f"{changed['kind']} {metadata['name']}", [problem])
        stored = self.store.replace(changed)
        if not finalizers:
            key = (changed["kind"], metadata.get("namespace", ""), metadata["name"])
            self._delete_contents(*key)
            return self.store.delete(*key)
        return stored

    def _delete_contents(self, kind: str, namespace: str, name: str) -> None:
        if kind == "AddressSpace":
            for address in self.store.select("Address", namespace, prefix=f"{name}."):
                self.delete("Address", namespace, address["metadata"]["name"])


def _changed(former: Document, new: Document) -> Document:
    """Return the former object with what its owner may change as it is in the new one."""
    kept = {key: value for key, value in former["metadata"].items() if key not in _OF_USERS}
    given = {key: value for key, value in new["metadata"].items() if key in _OF_USERS}
    changed = new | {"metadata": _without_empty(kept | given)}
    if "status" in former:
        changed["status"] = former["status"]
    if _declared(changed) != _declared(former):
        changed["metadata"]["generation"] = kept.get("generation", 0) + 1
    return changed


def _declared(document: Document) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in ("metadata", "status")}


def _without_empty(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if value not in ([], {})}


def _expect(subject: str, what: str, expected: str, found: str) -> None:
    if expected and expected != found:
        raise ConflictError(subject, f"{what} {expected}", f"{what} {found}")


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
