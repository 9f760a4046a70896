"""The registry: validates writes to the resource store and carries out what a write entails.

Rules:
1. Only valid objects get in; what is fixed since creation stays.
2. Users write what they declare, labels, annotations, finalizers and owners; only controllers write status.
3. ``generation`` rises when what is declared changes; a write that changes nothing is none.
4. An object with finalizers is not removed but marked, and is removed with the last of them.
5. Every ``Admission`` of a kind is called in the transaction of the write.
6. Every object lies in a namespace that exists, is not terminating, and may have it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from enmasse.control.errors import ConflictError, ForbiddenError, NamespaceNotFoundError, ResourceExistsError
from enmasse.control.installation import remember_removal
from enmasse.control.store.managed_fields import Manager, apply, list_type_of, settle, track
from enmasse.control.store.port import agree
from enmasse.control.store.resource_quotas import expect_room
from enmasse.control.store.writes import (
    Admission,
    Operation,
    Write,
    changed_form,
    configured_form,
    generated_name,
    is_ours,
    key_of,
    may_hold,
    with_managed_fields,
    without_empty,
)
from enmasse.identity.rbac import LOCAL_OPERATOR, Requester
from enmasse.model.catalog import CATALOG_REVISION, default_objects
from enmasse.model.kinds.changes import change_problems, keep_immutable
from enmasse.model.kinds.core import Namespace
from enmasse.model.schema.errors import InvalidResourceError, Problem
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, IN_SPACES, NAMESPACE
from enmasse.model.schema.metadata import Metadata
from enmasse.model.schema.names import PLAN_NAMESPACE, space_of
from enmasse.model.schema.objects import decode, decode_status, restore
from enmasse.model.schema.schema import without_nulls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from enmasse.control.store.managed_fields import ListType
    from enmasse.control.store.port import Document, Judge, Store
    from enmasse.model.schema.conditions import Unapplied
    from enmasse.model.schema.resource import Resource


HOME_FIELDS = ("home", "homeGeneration")
"""The fields of a space's status that no request changes: they say where its messages are."""

LASTING_NAMESPACES = ("default", PLAN_NAMESPACE)
"""The namespaces that always exist."""

CONTENTS = "enmasse.io/contents"
"""The finalizer of a namespace: removed when nothing lies in it any more."""

_GENERATED_NAME_TRIES = 8  # 27^5 names: a second try is rare, an eighth means that something else is wrong


@dataclass(frozen=True, slots=True)
class Preconditions:
    """Conditions that an object must still meet when it is deleted; empty: any."""

    uid: str = ""
    resource_version: str = ""


class Registry:
    """Validates and executes writes to the resource store.

    Args:
        store: the store of the objects.
        now: gives the present, RFC 3339 in UTC.
        new_uid: gives a unique identity.
        admission: called for writes, in this order.
    """

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], str],
        new_uid: Callable[[], str],
        admission: Sequence[Admission] = (),
    ) -> None:
        self.store = store
        self._now = now
        self._new_uid = new_uid
        self.preview: Callable[[Document], Document] = lambda document: document
        """Completes the answer of a dry run with the status that the object would have."""
        self.forwarders: Callable[[], Counter[str]] = Counter
        """Counts the forwarders of each space's addresses; set by a controller that follows them."""
        self.unapplied: Callable[[Resource], Iterable[Unapplied]] = lambda resource: resource.unapplied()
        """Finds the settings of an object without effect, by all that is declared beside it."""
        self.tally: Callable[[], Counter[tuple[str, str]]] = self._tally
        """Counts the addresses of each space (``<namespace>/<space>``) by phase."""
        self._admission: defaultdict[str, list[Admission]] = defaultdict(list)
        for item in admission:
            self.add_admission(item)

    def add_admission(self, admission: Admission) -> None:
        """Add an admission, which is called after the others."""
        for kind in admission.kinds:
            self._admission[kind].append(admission)

    def create_catalog(self) -> None:
        """Create what an installation starts with, once for each revision of the catalog.

        Objects that were not changed since they were created follow the catalog.
        """
        if self.store.fact("catalog") >= CATALOG_REVISION:
            return
        with self.store.transaction():
            for resource in default_objects():
                metadata = resource.metadata
                found = self.store.find(resource.kind, metadata.namespace, metadata.name)
                if found is None:
                    self.create(resource)
                elif found["metadata"].get("generation") == 1 or not found["metadata"].get("managedFields"):
                    # A former catalog may have raised the generation; every other writer leaves a manager's name.
                    self.replace(resource.model_copy(update={"metadata": restore(found).metadata}))
            self.store.write_fact("catalog", CATALOG_REVISION)

    def create_namespaces(self) -> None:
        """Create the namespaces that always exist, and those that objects of an older store lie in."""
        with self.store.transaction():
            for name in (*LASTING_NAMESPACES, *self.store.namespaces()):
                if name and self.store.find(NAMESPACE.name, "", name) is None:
                    self.create(Namespace(metadata=Metadata(name=name)))

    def create(
        self,
        resource: Resource,
        *,
        dry_run: bool = False,
        user: Requester = LOCAL_OPERATOR,
        manager: Manager | None = None,
    ) -> Document:
        """Add an object and return its stored form.

        Args:
            resource: valid, with a namespace if its kind has one, with a name or ``generateName``.
            dry_run: do everything but the write.
            user: the requester.
            manager: the program that writes; None: the fields have no owner.

        Raises:
            ResourceExistsError: when there is one of this name.
            NamespaceNotFoundError: when its namespace does not exist.
            ForbiddenError: when its namespace is about to go, or an admission forbids it.
        """

        def managed(document: Document) -> list[Document] | None:
            return None if manager is None else track(None, document, manager, self._now(), _lists(document))

        name, prefix = resource.metadata.name, resource.metadata.generate_name
        for tries_left in reversed(range(_GENERATED_NAME_TRIES)):
            try:
                return self._create(resource, name or generated_name(prefix), managed, dry_run, user)
            except ResourceExistsError:
                if name or not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def adopt(self, resource: Resource) -> Document:
        """Add an object that a node has as it is there, with its identity, and return its stored form.

        Raises:
            ResourceExistsError: when there is one of this name, or of this identity under another one.
            InvalidResourceError: when it breaks a rule.
            ForbiddenError: when its namespace, or what else it belongs to, is about to go.
        """
        metadata = resource.metadata
        with self.store.transaction():
            other = self.store.find_uid(metadata.uid)
            if other is not None:
                raise ResourceExistsError(*key_of(other))
            if self.store.find(NAMESPACE.name, "", metadata.namespace) is None:
                self.create(Namespace(metadata=Metadata(name=metadata.namespace)))
            self._expect_namespace(metadata.namespace)
            stamped = resource.model_copy(
                update={"metadata": metadata.model_copy(update={"creation_timestamp": self._now()})}
            )
            return self.store.create(self._admit("CREATE", None, stamped, LOCAL_OPERATOR).to_dict())

    def replace(
        self,
        resource: Resource,
        *,
        dry_run: bool = False,
        user: Requester = LOCAL_OPERATOR,
        manager: Manager | None = None,
        forget_managers: bool = False,
    ) -> Document:
        """Change an object to what is given, but for what its owner cannot change.

        Args:
            resource: valid, with a namespace; a uid or resource version in it must be the present one.
            dry_run: do everything but the write.
            user: the requester.
            manager: the program that writes; None: the fields have no owner.
            forget_managers: from now on the fields have no owner.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when it changed since the caller read it.
            InvalidResourceError: when it changes what is fixed since creation.
            ForbiddenError: when an admission forbids it.
        """

        def managed(former: Document, changed: Document) -> list[Document] | None:
            if forget_managers:
                return []
            return None if manager is None else track(former, changed, manager, self._now(), _lists(changed))

        with self.store.transaction(dry_run=dry_run):
            replaced = self._replace(resource, managed, user)
            return self.preview(replaced) if dry_run else replaced

    def apply(
        self,
        config: Document,
        manager: Manager,
        *,
        force: bool = False,
        dry_run: bool = False,
        user: Requester = LOCAL_OPERATOR,
        decode: Callable[[Document], Resource] = decode,
    ) -> tuple[Document, Resource, bool]:
        """Apply a configuration: set its fields as it says, and leave the others.

        Args:
            config: an object, as far as the manager has an opinion on it; with kind, name and namespace.
            manager: the manager who applies it, with the operation ``Apply``.
            force: take fields from managers who own them.
            dry_run: do everything but the write.
            user: the requester.
            decode: turns the result into a valid object.
            user: the requester.

        Returns:
            The stored object, what was to be stored, and whether it was created.

        Raises:
            FieldConflictError: when others own fields that would change.
            InvalidResourceError: when the result is not valid.
        """
        config = configured_form(config)
        kind, namespace, name = key_of(config)
        with self.store.transaction(dry_run=dry_run):
            live = self.store.find(kind, namespace, name)
            merged, managed = apply(live, config, manager, self._now(), list_type_of(kind), force=force)
            resource = decode(merged)

            def kept(*documents: Document) -> list[Document]:
                return settle(managed, live, documents[-1], list_type_of(kind))

            if live is None:
                return self._create(resource, name, kept, dry_run, user), resource, True
            replaced = self._replace(resource, kept, user)
            return self.preview(replaced) if dry_run else replaced, resource, False

    def apply_status(
        self, config: Document, manager: Manager, *, force: bool = False, dry_run: bool = False
    ) -> Document:
        """Set the fields of a status as a configuration says.

        Raises:
            ResourceNotFoundError: when there is no such object.
            FieldConflictError: when others own fields that would change.
            InvalidResourceError: when the result is not valid.
        """
        config = without_nulls(config)
        kind, namespace, name = key_of(config)
        with self.store.transaction(dry_run=dry_run):
            live = self.store.get(kind, namespace, name)
            merged, managed = apply(live, config, manager, self._now(), list_type_of(kind), force=force)
            status = _keeping(live, decode_status(merged).to_dict())
            changed = with_managed_fields(live | {"status": status}, managed)
            return live if changed == live else self.store.replace(changed)

    def replace_status(self, document: Document, *, manager: Manager, dry_run: bool = False) -> Document:
        """Change the status of an object to what is given, and nothing else.

        Args:
            document: the object with its status; a uid or resource version in it must be the present one.
            manager: the program that writes, with the subresource ``status``.
            dry_run: do everything but the write.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when it changed since the caller read it.
            InvalidResourceError: when the status is not valid.
        """
        status = decode_status(document).to_dict()
        kind, namespace, name = key_of(document)
        with self.store.transaction(dry_run=dry_run):
            former = self.store.get(kind, namespace, name)
            _expect_same(former, document["metadata"])
            changed = former | {"status": _keeping(former, status)}
            changed = with_managed_fields(changed, track(former, changed, manager, self._now(), list_type_of(kind)))
            return former if changed == former else self.store.replace(changed)

    def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        preconditions: Preconditions = Preconditions(),
        dry_run: bool = False,
        user: Requester = LOCAL_OPERATOR,
        keep_dependents: bool = False,
    ) -> Document:
        """Remove an object, or mark it if it has finalizers, and return its last form.

        Args:
            kind: the kind of the object.
            namespace: the namespace of the object.
            name: its name.
            preconditions: conditions that it must still meet.
            dry_run: do everything but the write.
            user: the requester.
            keep_dependents: keep the objects that name it as an owner, and remove their references to it.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when a precondition does not hold.
            ForbiddenError: when it may not be deleted.
        """
        if kind == NAMESPACE.name and name in LASTING_NAMESPACES:
            raise ForbiddenError(f"the namespace {name} cannot be deleted: it always exists")
        with self.store.transaction(dry_run=dry_run):
            found = self.store.get(kind, namespace, name)
            metadata = found["metadata"]
            _expect_same(found, {"uid": preconditions.uid, "resourceVersion": preconditions.resource_version})
            if self._admission.get(kind):
                self._admit("DELETE", restore(found), None, user)
            if keep_dependents:
                self._release(metadata["uid"])
            if not metadata.get("finalizers"):
                self._delete_contents(kind, namespace, name)
                return self._remove(kind, namespace, name)
            if metadata.get("deletionTimestamp"):
                return found
            marks = {
                "deletionTimestamp": self._now(),
                "deletionGracePeriodSeconds": 0,
                "generation": metadata.get("generation", 0) + 1,
            }
            if kind == NAMESPACE.name:
                found = found | {"status": (found.get("status") or {}) | {"phase": "Terminating"}}
            return self.store.replace(found | {"metadata": metadata | marks})

    def change_finalizers(
        self, kind: str, namespace: str, name: str, *, uid: str, add: str = "", remove: str = ""
    ) -> Document | None:
        """Add or remove a finalizer of an object; return its present form, None when there is no such object.

        Args:
            kind: the kind of the object.
            namespace: the namespace of the object.
            name: its name.
            uid: its identity; a later object of the same name is left alone.
            add: the finalizer to add, unless the object is terminating.
            remove: the one to remove; a terminating object is removed with its last one.
        """
        with self.store.transaction():
            found = self.store.find(kind, namespace, name)
            if found is None or found["metadata"]["uid"] != uid:
                return None
            finalizers = [item for item in found["metadata"].get("finalizers") or () if item != remove]
            if add and add not in finalizers and not found["metadata"].get("deletionTimestamp"):
                finalizers.append(add)
            metadata = without_empty(found["metadata"] | {"finalizers": finalizers})
            changed = found | {"metadata": metadata}
            return found if changed == found else self._store_change(found, changed)

    def write_status(self, resources: Iterable[Resource]) -> None:
        """Write the statuses of objects, all in one transaction.

        An object that was deleted or created again meanwhile is skipped: the status is about another one. Its spec
        and metadata stay as they are.
        """
        with self.store.transaction():
            for resource in resources:
                metadata = resource.metadata
                document = self.store.find(resource.kind, metadata.namespace, metadata.name)
                if document is not None and document["metadata"]["uid"] == metadata.uid:
                    self.store.replace(document | {"status": resource.status.to_dict()})

    def _tally(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for address in self.store.bodies(ADDRESS.name):
            metadata = address["metadata"]
            phase = (address.get("status") or {}).get("phase", "Pending")
            found[f"{metadata['namespace']}/{space_of(metadata['name'])}", phase] += 1
        return found

    def _create(
        self,
        resource: Resource,
        name: str,
        managed: Callable[[Document], list[Document] | None],
        dry_run: bool,
        user: Requester,
    ) -> Document:
        metadata = resource.metadata.model_copy(
            update={
                "name": name,
                "uid": self._new_uid(),
                "generation": 1,
                "creation_timestamp": self._now(),
                "deletion_timestamp": None,
                "deletion_grace_period_seconds": None,
                "resource_version": "",
            }
        )
        if not may_hold(user):
            theirs = tuple(item for item in metadata.finalizers if not is_ours(item))
            metadata = metadata.model_copy(update={"finalizers": theirs})
        if resource.kind == NAMESPACE.name and CONTENTS not in metadata.finalizers:
            metadata = metadata.model_copy(update={"finalizers": (*metadata.finalizers, CONTENTS)})
        with self.store.transaction(dry_run=dry_run):
            self._expect_namespace(metadata.namespace)
            admitted = self._admit("CREATE", None, resource.model_copy(update={"metadata": metadata}), user)
            new = admitted.to_dict()
            judge = partial(expect_room, Write("CREATE", None, admitted, self.store, user))
            created = self.store.create(with_managed_fields(new, managed(new)), judge)
            return self.preview(created) if dry_run else created

    def _replace(
        self, resource: Resource, managed: Callable[[Document, Document], list[Document] | None], user: Requester
    ) -> Document:
        given = resource.metadata
        former = self.store.get(resource.kind, given.namespace, given.name)
        _expect_same(former, given.to_dict())
        old = restore(former)
        kept = keep_immutable(old, resource)
        if problems := change_problems(old, kept):
            raise InvalidResourceError(f"{old.kind} {old.metadata.name}", problems)
        identity = ("uid", "resource_version", "creation_timestamp", "deletion_timestamp")
        metadata = given.model_copy(update={name: getattr(old.metadata, name) for name in identity})
        new = kept.model_copy(update={"metadata": metadata, "status": old.status})
        admitted = self._admit("UPDATE", old, new, user)
        is_blind = not given.resource_version
        changed = changed_form(former, admitted.to_dict(), is_blind=is_blind, may_hold=may_hold(user))
        changed = with_managed_fields(changed, managed(former, changed))
        judge = partial(expect_room, Write("UPDATE", old, admitted, self.store, user))
        return former if changed == former else self._store_change(former, changed, judge)

    def _admit(self, operation: Operation, old: Resource | None, new: Resource | None, user: Requester) -> Resource:
        write = Write(operation, old, new, self.store, user)
        for admission in self._admission.get(write.resource.kind, ()):
            admitted = admission.admit(write)
            if new is not None:
                write = Write(operation, old, admitted, self.store, user)
        return write.resource

    def _expect_namespace(self, namespace: str) -> None:
        if namespace in ("", *LASTING_NAMESPACES):
            return
        found = self.store.find(NAMESPACE.name, "", namespace)
        if found is None:
            raise NamespaceNotFoundError(namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise ForbiddenError(
                f"nothing new can be created in namespace {namespace}, because it is being deleted",
                cause="NamespaceTerminating",
            )

    def _store_change(self, former: Document, changed: Document, judge: Judge = agree) -> Document:
        """Store an object, or remove it when it is terminating and has no finalizers left."""
        metadata = changed["metadata"]
        if not metadata.get("deletionTimestamp"):
            return self.store.replace(changed, judge=judge)
        finalizers = metadata.get("finalizers") or []
        if new := [item for item in finalizers if item not in (former["metadata"].get("finalizers") or ())]:
            problem = Problem("metadata.finalizers", f"no new ones while the object is being deleted, got {new[0]}")
            raise InvalidResourceError(f"{changed['kind']} {metadata['name']}", [problem])
        stored = self.store.replace(changed, judge=judge)
        if not finalizers:
            key = key_of(changed)
            self._delete_contents(*key)
            return self._remove(*key)
        return stored

    def _remove(self, kind: str, namespace: str, name: str) -> Document:
        """Remove an object, and record that the nodes have to do the same."""
        removed = self.store.delete(kind, namespace, name)
        remember_removal(self.store, removed)
        return removed

    def _release(self, owner: str) -> None:
        while found := self.store.dependents(owner):
            for document in found:
                metadata = document["metadata"]
                others = [item for item in metadata["ownerReferences"] if item["uid"] != owner]
                self.store.replace(document | {"metadata": without_empty(metadata | {"ownerReferences": others})})

    def _delete_contents(self, kind: str, namespace: str, name: str) -> None:
        if kind == ADDRESS_SPACE.name:
            for member in IN_SPACES:
                for document in self.store.select(member.name, namespace, prefix=f"{name}."):
                    self.delete(member.name, namespace, document["metadata"]["name"])


def _expect_same(found: Document, wanted: Document) -> None:
    """Raise an error for another object, or another version of it, than the caller knows."""
    for field, what in (("uid", "uid"), ("resourceVersion", "version")):
        expected, present = wanted.get(field), found["metadata"].get(field)
        if expected and expected != present:
            subject = f"{found['kind']} {found['metadata']['name']}"
            raise ConflictError(subject, f"{what} {expected}", f"{what} {present}")


def _lists(document: Document) -> ListType:
    return list_type_of(document["kind"])


def _keeping(former: Document, status: Document) -> Document:
    """Return a status that somebody gives an object, with what only control decides as it is."""
    if former["kind"] != ADDRESS_SPACE.name:
        return status
    present = former.get("status") or {}
    others = {name: value for name, value in status.items() if name not in HOME_FIELDS}
    return others | {name: present[name] for name in HOME_FIELDS if name in present}
