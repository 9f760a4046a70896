"""What nobody may write to the store, whichever way the request has come.

Rules:
1. Who writes may do so by their roles. The API has asked that already for what a path names; a service broker's
   request names it in its body.
2. Nobody gives away more than they may do themselves, but by a rule with the verb ``bind``.
3. The roles themselves are built in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.control.errors import ForbiddenError
from enmasse.identity.rbac import Ask, describe_refusal
from enmasse.identity.requester import OURSELVES
from enmasse.identity.roles import ROLES
from enmasse.model.errors import InvalidResourceError, Problem
from enmasse.model.kinds import KINDS, kind_of
from enmasse.model.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding
from enmasse.model.resource import Metadata

if TYPE_CHECKING:
    from enmasse.control.registry import Registry
    from enmasse.control.rights import Rights
    from enmasse.control.writes import Write
    from enmasse.model.resource import Resource

__all__ = ["BindingAdmission", "WriterAdmission", "plant_roles"]

_VERBS = {"CREATE": ("create",), "UPDATE": ("update", "patch"), "DELETE": ("delete", "deletecollection")}


class WriterAdmission:
    """Refuses what the writer has no right to.

    Args:
        rights: knows who may do what.
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
            self._look(write)
        return write.resource

    def _look(self, write: Write) -> None:
        kind, metadata = kind_of(write.resource), write.resource.metadata
        asks = [
            Ask(verb, kind.group, kind.plural, metadata.namespace, metadata.name) for verb in _VERBS[write.operation]
        ]
        namespace = write.store.find("Namespace", "", metadata.namespace) if metadata.namespace else None
        if write.operation == "DELETE" and namespace and namespace["metadata"].get("deletionTimestamp"):
            # Whoever may delete a namespace may delete what is in it, when it is being deleted.
            asks.append(Ask("delete", "", "namespaces", metadata.namespace, metadata.namespace))
        if not any(self._rights.allows(write.user, ask) for ask in asks):
            raise ForbiddenError(describe_refusal(write.user, asks[0]))


class BindingAdmission:
    """Refuses to give away more than the writer has, and to change what is built in.

    Args:
        rights: knows who may do what.
    """

    kinds = frozenset({"RoleBinding", "ClusterRoleBinding", "ClusterRole"})

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
            if write.user is not OURSELVES:
                raise ForbiddenError(f"clusterroles {write.resource.metadata.name!r}: roles are built in")
            return write.resource
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


def plant_roles(registry: Registry) -> None:
    """Have the built-in roles be in the store as this version knows them, for those who look."""
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
        if registry.store.find("ClusterRole", "", role.name) is None:
            registry.create(wanted, user=OURSELVES)
        else:
            registry.replace(wanted, user=OURSELVES)  # which writes nothing if it is the same
