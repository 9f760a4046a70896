"""Requesters of the API, and the roles bound to them as users and members of groups.

Rules:
1. A request that no bound role allows is refused; there are no rules that deny.
2. A role bound in a namespace applies to objects of that namespace; one bound for the cluster applies everywhere.
3. A list over all namespaces is at the cluster scope: a role bound in each of them does not allow it.
4. A role can only be bound by a requester who has all its permissions, or a rule with the verb ``bind`` on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

ADMINISTRATORS: Final = "system:masters"
"""The group whose members may do everything; the name is that of Kubernetes."""

AUTHENTICATED: Final = "system:authenticated"
"""The group of all authenticated requesters."""


@dataclass(frozen=True, slots=True)
class Requester:
    """The user that a request is made by.

    Attributes:
        name: the name of the user, as role bindings have it.
        groups: of which the user is a member.
        is_admin: true if everything is allowed.
        unproved: the refusal of what outlasts the session in which the request is made without a fresh proof; empty:
            it has one, or needs none.
    """

    name: str
    groups: tuple[str, ...] = ()
    is_admin: bool = False
    unproved: str = ""

    @classmethod
    def known(cls, name: str, groups: tuple[str, ...] = ()) -> Requester:
        """Return an authenticated requester."""
        every = tuple(dict.fromkeys((*groups, AUTHENTICATED)))
        return cls(name, every, ADMINISTRATORS in every)


PROOF_REQUIRED: Final = "FreshProofRequired"
"""The cause of a refusal for want of a fresh proof, for programs."""

LOCAL_OPERATOR: Final = Requester.known("system:operator", (ADMINISTRATORS,))
"""The requester who can read the data directory, or reach an API that is open on loopback."""

CONTROL_PROCESS: Final = Requester.known("system:enmasse:control", (ADMINISTRATORS,))
"""The control process itself, as its controllers write."""

PIPELINE_HOST: Final = Requester.known("system:enmasse:pipelines")
"""The process that runs pipelines: a client of the API like any other, with a role of its own."""

ANONYMOUS: Final = Requester("system:anonymous", ("system:unauthenticated",))
"""A requester without credentials."""


EVERY = "*"


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """An action on a resource or a path that authorization decides on.

    Attributes:
        verb: such as ``list``.
        group: the API group; empty is the core group.
        resource: the plural, with a subresource as in ``addresses/status``.
        namespace: empty at the cluster scope.
        name: the name of the object; empty on creation, and for actions on a collection.
        path: for an action that is not on a resource; then all others but the verb are empty.
    """

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on resources of groups, or on paths; ``*`` is every one of its kind.

    Attributes:
        verbs: allowed actions.
        groups: API groups.
        resources: plurals; a subresource has a name of its own, as in ``addresses/purge``.
        names: the names of objects; empty: all of them.
        paths: outside of resources; one that ends with ``*`` is a prefix.
    """

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def allows(self, access: AccessRequest) -> bool:
        """Return whether this rule allows a request."""
        if not _has(self.verbs, access.verb):
            return False
        if access.path:
            return any(_is_path(path, access.path) for path in self.paths)
        return (
            _has(self.groups, access.group)
            and _has(self.resources, access.resource)
            and (not self.names or access.name in self.names)
        )


@dataclass(frozen=True, slots=True)
class Role:
    """A named set of rules."""

    name: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A role for users and groups.

    Attributes:
        role: its name; a role that does not exist allows nothing.
        users: their names.
        groups: their names.
        namespace: the namespace in which the role applies; empty: everywhere.
    """

    role: str
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    namespace: str = ""

    def applies_to(self, requester: Requester) -> bool:
        """Return whether a requester has this role."""
        return requester.name in self.users or not self.groups.isdisjoint(requester.groups)


def is_allowed(
    requester: Requester, access: AccessRequest, bindings: Iterable[Binding], roles: Mapping[str, Role]
) -> bool:
    """Return whether a requester may do something."""
    return requester.is_admin or any(
        rule.allows(access) for rule in rules_for(requester, access.namespace, bindings, roles)
    )


def rules_for(
    requester: Requester, namespace: str, bindings: Iterable[Binding], roles: Mapping[str, Role]
) -> Iterator[Rule]:
    """Yield the rules of a requester in a namespace; empty: at the cluster scope."""
    for binding in bindings:
        if binding.namespace in ("", namespace) and binding.role in roles and binding.applies_to(requester):
            yield from roles[binding.role].rules


def may_bind(
    requester: Requester, role: Role, namespace: str, bindings: Iterable[Binding], roles: Mapping[str, Role]
) -> bool:
    """Return whether a requester may bind a role in a namespace, or everywhere if that is empty."""
    if requester.is_admin:
        return True
    held = tuple(rules_for(requester, namespace, bindings, roles))
    access = AccessRequest("bind", "rbac.authorization.k8s.io", "clusterroles", namespace, role.name)
    if any(rule.allows(access) for rule in held):
        return True
    return all(any(_covers(mine, atom) for mine in held) for rule in role.rules for atom in _atoms(rule))


def describe_refusal(requester: Requester, access: AccessRequest) -> str:
    """Return the message of a refusal, in the words of Kubernetes, which tools match."""
    if access.path:
        return f'forbidden: User "{requester.name}" cannot {access.verb} path "{access.path}"'
    plural = access.resource.partition("/")[0]
    subject = f"{plural}.{access.group}" if access.group else plural
    named = f' "{access.name}"' if access.name else ""
    where = f'in the namespace "{access.namespace}"' if access.namespace else "at the cluster scope"
    return (
        f'{subject}{named} is forbidden: User "{requester.name}" cannot {access.verb} resource "{access.resource}" '
        f'in API group "{access.group}" {where}'
    )


def _has(given: tuple[str, ...], wanted: str) -> bool:
    return wanted in given or EVERY in given


def _is_path(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith(EVERY) else path == pattern


def _atoms(rule: Rule) -> Iterator[Rule]:
    """Split a rule into rules of one verb on one thing, each of which another rule of the holder may cover."""
    for verb in rule.verbs:
        for path in rule.paths:
            yield Rule((verb,), paths=(path,))
        for group in rule.groups:
            for resource in rule.resources:
                for name in rule.names or ("",):
                    yield Rule((verb,), (group,), (resource,), (name,) if name else ())


def _covers(mine: Rule, atom: Rule) -> bool:
    """Return whether a rule allows everything that an atom does; ``*`` is covered by ``*`` alone."""
    if not _has(mine.verbs, atom.verbs[0]):
        return False
    if atom.paths:
        wanted = atom.paths[0]
        return any(wanted == path or (path.endswith(EVERY) and wanted.startswith(path[:-1])) for path in mine.paths)
    return (
        _has(mine.groups, atom.groups[0])
        and _has(mine.resources, atom.resources[0])
        and (not mine.names or (bool(atom.names) and atom.names[0] in mine.names))
    )
