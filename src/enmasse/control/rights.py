"""Who may do what, by the role bindings of the resource store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.control.errors import ExpiredVersionError, ForbiddenError
from enmasse.identity.rbac import Ask, Binding, describe_refusal, is_allowed, may_bind, rules_for
from enmasse.identity.roles import BUILT_IN_BINDINGS, ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.control.store import Document, ResourceStore
    from enmasse.identity.rbac import Role, Rule
    from enmasse.identity.requester import Requester

__all__ = ["BINDING_KINDS", "Rights"]

BINDING_KINDS = ("RoleBinding", "ClusterRoleBinding")


class Rights:
    """Decides by the bindings as they are at the moment of the question.

    Args:
        store: where they lie.
        roles: which may be bound.
    """

    def __init__(self, store: ResourceStore, roles: Mapping[str, Role] = ROLES) -> None:
        self._store = store
        self._roles = roles
        self._version = -1
        self._of_user: dict[str, list[Binding]] = {}
        self._of_group: dict[str, list[Binding]] = {}

    def allows(self, requester: Requester, ask: Ask) -> bool:
        """Whether somebody may do something."""
        return requester.is_admin or is_allowed(requester, ask, self._bindings_of(requester), self._roles)

    def require(self, requester: Requester, ask: Ask) -> None:
        """Refuse what somebody may not do.

        Raises:
            ForbiddenError: in the words of Kubernetes.
        """
        if not self.allows(requester, ask):
            raise ForbiddenError(describe_refusal(requester, ask))

    def rules(self, requester: Requester, namespace: str) -> list[Rule]:
        """Return what counts for somebody in a namespace; that administrators may do all is not among it."""
        return list(rules_for(requester, namespace, self._bindings_of(requester), self._roles))

    def require_bind(self, requester: Requester, role: str, namespace: str) -> None:
        """Refuse that somebody gives a role to others, in a namespace or, if that is empty, everywhere.

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
        """Take up what has changed; most versions are not about bindings, and cost a look at an index."""
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
    namespace = document["metadata"].get("namespace", "") if document["kind"] == "RoleBinding" else ""
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
