"""Role-based access control: which requests and writes the stored role bindings allow.

Rules:
1. A writer needs a role that allows the write. The API has checked that already for what a path names; a service
   broker's request names its object in the body, so every write is checked again in the store's transaction.
2. A writer cannot bind a role that allows more than the writer has, except by a rule with the verb ``bind``.
3. The roles themselves are built in. EnMasse's files that contain them can be applied, and change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.control.access.roles import BUILT_IN_BINDINGS, ROLES
from enmasse.control.errors import ExpiredVersionError, ForbiddenError
from enmasse.identity.rbac import (
    CONTROL_PROCESS,
    PROOF_REQUIRED,
    AccessRequest,
    Binding,
    describe_refusal,
    is_allowed,
    may_bind,
    rules_for,
)
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding
from enmasse.model.kinds.spaces import AddressSpace
from enmasse.model.schema.errors import InvalidResourceError, Problem
from enmasse.model.schema.kinds import (
    ADDRESS_SPACE,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    KINDS,
    NAMESPACE,
    PIPELINE,
    ROLE_BINDING,
    kind_of,
)
from enmasse.model.schema.metadata import Metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from enmasse.control.store.port import Document, Store
    from enmasse.control.store.registry import Registry
    from enmasse.control.store.writes import Write
    from enmasse.identity.rbac import Requester, Role, Rule
    from enmasse.model.schema.resource import Resource

BINDING_KINDS = (ROLE_BINDING.name, CLUSTER_ROLE_BINDING.name)


class Rights:
    """The rights of requesters, by the bindings as they are at the moment of each request.

    Args:
        store: the store of the bindings.
        roles: the roles that may be bound.
    """

    def __init__(self, store: Store, roles: Mapping[str, Role] = ROLES) -> None:
        self._store = store
        self._roles = roles
        self._version = -1
        self._of_user: dict[str, list[Binding]] = {}
        self._of_group: dict[str, list[Binding]] = {}

    def allows(self, requester: Requester, ask: AccessRequest) -> bool:
        """Return whether a requester may do something."""
        return requester.is_admin or is_allowed(requester, ask, self._bindings_of(requester), self._roles)

    def require(self, requester: Requester, ask: AccessRequest) -> None:
        """Raise an error unless a requester may do something.

        Raises:
            ForbiddenError: in the words of Kubernetes.
        """
        if not self.allows(requester, ask):
            raise ForbiddenError(describe_refusal(requester, ask))

    def rules(self, requester: Requester, namespace: str) -> list[Rule]:
        """Return the rules for a requester in a namespace; administrators' right to everything is not included."""
        return list(rules_for(requester, namespace, self._bindings_of(requester), self._roles))

    def require_bind(self, requester: Requester, role: str, namespace: str) -> None:
        """Raise an error unless a requester may bind a role, in a namespace or, if that is empty, everywhere.

        Raises:
            ForbiddenError: there is no such role, or it allows more than they may do.
        """
        found = self._roles.get(role)
        if found is None:
            known = ", ".join(sorted(name for name in self._roles if not name.startswith("system:")))
            raise ForbiddenError(f'there is no ClusterRole "{role}"; there are {known}')
        if not may_bind(requester, found, namespace, self._bindings_of(requester), self._roles):
            raise ForbiddenError(
                f'User "{requester.name}" cannot bind ClusterRole "{role}": it grants permissions not currently held'
            )

    def _bindings_of(self, requester: Requester) -> list[Binding]:
        self._follow()
        found = dict.fromkeys(self._of_user.get(requester.name, ()))
        for group in requester.groups:
            found.update(dict.fromkeys(self._of_group.get(group, ())))
        return list(found)

    def _follow(self) -> None:
        """Load changed bindings; most versions do not change any, and cost one query of an index."""
        version = self._store.version
        if version == self._version:
            return
        try:
            changed = self._version < 0 or self._store.changes(self._version, kinds=BINDING_KINDS, limit=1)[0]
        except ExpiredVersionError:
            changed = True
        if changed:
            self._load()
        self._version = version

    def _load(self) -> None:
        self._of_user, self._of_group = {}, {}
        stored = [item for kind in BINDING_KINDS for item in self._store.select(kind)]
        for binding in (*BUILT_IN_BINDINGS, *map(_read, stored)):
            for user in binding.users:
                self._of_user.setdefault(user, []).append(binding)
            for group in binding.groups:
                self._of_group.setdefault(group, []).append(binding)


def _read(document: Document) -> Binding:
    # Service accounts have user names, by which tokens of a Kubernetes cluster name them.
    subjects = document.get("subjects") or ()
    namespace = document["metadata"].get("namespace", "") if document["kind"] == ROLE_BINDING.name else ""
    return Binding(
        role=document["roleRef"]["name"],
        users=frozenset(_user(item) for item in subjects if item["kind"] != "Group"),
        groups=frozenset(item["name"] for item in subjects if item["kind"] == "Group"),
        namespace=namespace,
    )


def _user(subject: Document) -> str:
    if subject["kind"] == "User":
        return str(subject["name"])
    return f"system:serviceaccount:{subject['namespace']}:{subject['name']}"


_VERBS = {"CREATE": ("create",), "UPDATE": ("update", "patch"), "DELETE": ("delete", "deletecollection")}


class WriterAdmission:
    """Admission that refuses writes that the writer has no right to.

    Args:
        rights: the rights of requesters.
    """

    kinds = frozenset(kind.name for kind in KINDS)

    def __init__(self, rights: Rights) -> None:
        self._rights = rights

    def admit(self, write: Write) -> Resource:
        """Return the object as it is.

        Raises:
            ForbiddenError: in the words of Kubernetes.
        """
        if not write.user.is_admin:
            self._require(write)
        return write.resource

    def _require(self, write: Write) -> None:
        kind, metadata = kind_of(write.resource), write.resource.metadata
        asks = [
            AccessRequest(verb, kind.group, kind.plural, metadata.namespace, metadata.name)
            for verb in _VERBS[write.operation]
        ]
        namespace = write.store.find(NAMESPACE.name, "", metadata.namespace) if metadata.namespace else None
        if write.operation == "DELETE" and namespace and namespace["metadata"].get("deletionTimestamp"):
            # Whoever may delete a namespace may delete what is in it, when it is being deleted.
            asks.append(AccessRequest("delete", "", "namespaces", metadata.namespace, metadata.namespace))
        if not any(self._rights.allows(write.user, ask) for ask in asks):
            raise ForbiddenError(describe_refusal(write.user, asks[0]))


class SecretAdmission:
    """Admission that refuses what would show a Secret to a host of its writer's choice that the writer may not read.

    It is for pipelines with databases, and for connectors of spaces.

    Args:
        rights: the rights of requesters.
    """

    kinds = frozenset({PIPELINE.name, ADDRESS_SPACE.name})

    def __init__(self, rights: Rights) -> None:
        self._rights = rights

    def admit(self, write: Write) -> Resource:
        """Return the object as it is.

        Raises:
            ForbiddenError: the writer may not read a Secret which the object did not use for the same before, or
                does it in a session without a fresh proof: whoever it names gets what is in it.
        """
        if write.operation != "DELETE":
            former = list(_uses(write.old))
            namespace = write.resource.metadata.namespace
            for use in _uses(write.resource):
                if use not in former:
                    if write.user.unproved:
                        raise ForbiddenError(write.user.unproved, cause=PROOF_REQUIRED)
                    self._rights.require(
                        write.user, AccessRequest("get", resource="secrets", namespace=namespace, name=use[0])
                    )
        return write.resource


def _uses(resource: Resource | None) -> Iterator[tuple[str, object]]:
    """Yield each Secret that an object uses, with what it is for."""
    match resource:
        case Pipeline():
            for parts, is_written in ((resource.spec.sources, False), (resource.spec.sinks, True)):
                for part in parts:
                    if part.database is not None:
                        yield part.database.credentials_secret, (part.database, is_written)
        case AddressSpace():
            for connector in resource.spec.connectors:
                for secret in connector.secrets:
                    yield secret, connector


class BindingAdmission:
    """Admission that refuses bindings of more rights than the writer has, and changes of built-in roles.

    Args:
        rights: the rights of requesters.
    """

    kinds = frozenset({ROLE_BINDING.name, CLUSTER_ROLE_BINDING.name, CLUSTER_ROLE.name})

    def __init__(self, rights: Rights) -> None:
        self._rights = rights

    def admit(self, write: Write) -> Resource:
        """Return the object as it is.

        Raises:
            ForbiddenError: the writer may not bind this role, or it is a role that is written.
            InvalidResourceError: a binding was to become one to another role.
        """
        new, old = write.new, write.old
        if isinstance(write.resource, ClusterRole):
            if write.user is CONTROL_PROCESS:
                return write.resource
            if write.operation == "UPDATE" and write.old is not None:
                return write.old
            name = write.resource.metadata.name
            raise ForbiddenError(f"clusterroles {name!r}: roles are built in; there are {', '.join(ROLES)}")
        if not isinstance(new, RoleBinding | ClusterRoleBinding):
            return write.resource
        if isinstance(old, RoleBinding | ClusterRoleBinding):
            if old.role_ref != new.role_ref:
                problem = Problem("roleRef", "cannot be changed: delete the binding, and create another")
                raise InvalidResourceError(f"{new.kind} {new.metadata.name}", [problem])
            if old.subjects == new.subjects:
                return new
        self._rights.require_bind(write.user, new.role_ref.name, new.metadata.namespace)
        return new


def store_built_in_roles(registry: Registry) -> None:
    """Write the built-in roles of this version to the store, so that they can be listed."""
    for role in ROLES.values():
        rules = tuple(
            PolicyRule(
                verbs=rule.verbs,
                api_groups=rule.groups,
                resources=rule.resources,
                resource_names=rule.names,
                nonResourceURLs=rule.paths,
            )
            for rule in role.rules
        )
        wanted = ClusterRole(metadata=Metadata(name=role.name), rules=rules)
        if registry.store.find(CLUSTER_ROLE.name, "", role.name) is None:
            registry.create(wanted, user=CONTROL_PROCESS)
        else:
            registry.replace(wanted, user=CONTROL_PROCESS)  # which writes nothing if it is the same
