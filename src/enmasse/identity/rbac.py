"""What the API lets somebody do: roles, bound to users and groups.

Rules:
1. What no bound role allows is refused; there is no rule that forbids.
2. A role bound in a namespace counts for what lies in that namespace; one bound for the cluster counts everywhere.
3. A list over all namespaces is at the cluster scope: a role bound in each of them does not allow it.
4. Nobody binds a role that allows more than they may do, unless a rule with the verb ``bind`` names the role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from enmasse.identity.requester import Requester

__all__ = ["Ask", "Binding", "Role", "Rule", "describe_refusal", "is_allowed", "may_bind", "rules_for"]

EVERY = "*"


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing that somebody wants to do.

    Attributes:
        verb: such as ``list``.
        group: the API group; empty is the core group.
        resource: the plural, with a subresource as in ``addresses/status``.
        namespace: empty at the cluster scope.
        name: of the object; empty if there is none yet, or it is about many.
        path: what is asked for if it is no resource; then all others but the verb are empty.
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
        verbs: what may be done.
        groups: API groups.
        resources: plurals; a subresource has a name of its own, as in ``addresses/purge``.
        names: of objects; empty: all of them.
        paths: that are no resources; one that ends with ``*`` stands for all that begin so.
    """

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def allows(self, ask: Ask) -> bool:
        """Whether this is all that it takes."""
        if not _has(self.verbs, ask.verb):
            return False
        if ask.path:
            return any(_is_path(path, ask.path) for path in self.paths)
        return (
            _has(self.groups, ask.group)
            and _has(self.resources, ask.resource)
            and (not self.names or ask.name in self.names)
        )


@dataclass(frozen=True, slots=True)
class Role:
    """Rules under a name."""

    name: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A role for users and groups.

    Attributes:
        role: its name; one that does not exist allows nothing.
        users: their names.
        groups: their names.
        namespace: where the role counts; empty: everywhere.
    """

    role: str
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    namespace: str = ""

    def is_about(self, requester: Requester) -> bool:
        """Whether somebody has this role."""
        return requester.name in self.users or not self.groups.isdisjoint(requester.groups)


def is_allowed(requester: Requester, ask: Ask, bindings: Iterable[Binding], roles: Mapping[str, Role]) -> bool:
    """Decide whether somebody may do something."""
    return requester.is_admin or any(
        rule.allows(ask) for rule in rules_for(requester, ask.namespace, bindings, roles)
    )


def rules_for(
    requester: Requester, namespace: str, bindings: Iterable[Binding], roles: Mapping[str, Role]
) -> Iterator[Rule]:
    """Yield what counts for somebody in a namespace; empty: at the cluster scope."""
    for binding in bindings:
        if binding.namespace in ("", namespace) and binding.role in roles and binding.is_about(requester):
            yield from roles[binding.role].rules


def may_bind(
    requester: Requester, role: Role, namespace: str, bindings: Iterable[Binding], roles: Mapping[str, Role]
) -> bool:
    """Decide whether somebody may give a role to others, in a namespace or, if that is empty, everywhere."""
    if requester.is_admin:
        return True
    held = tuple(rules_for(requester, namespace, bindings, roles))
    ask = Ask("bind", "rbac.authorization.k8s.io", "clusterroles", namespace, role.name)
    if any(rule.allows(ask) for rule in held):
        return True
    return all(any(_covers(mine, atom) for mine in held) for rule in role.rules for atom in _atoms(rule))


def describe_refusal(requester: Requester, ask: Ask) -> str:
    """Say what was refused, in the words of Kubernetes, which tools look for."""
    if ask.path:
        return f'forbidden: User "{requester.name}" cannot {ask.verb} path "{ask.path}"'
    plural = ask.resource.partition("/")[0]
    subject = f"{plural}.{ask.group}" if ask.group else plural
    named = f' "{ask.name}"' if ask.name else ""
    where = f'in the namespace "{ask.namespace}"' if ask.namespace else "at the cluster scope"
    return (
        f'{subject}{named} is forbidden: User "{requester.name}" cannot {ask.verb} resource "{ask.resource}" '
        f'in API group "{ask.group}" {where}'
    )


def _has(given: tuple[str, ...], wanted: str) -> bool:
    return wanted in given or EVERY in given


def _is_path(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith(EVERY) else path == pattern


def _atoms(rule: Rule) -> Iterator[Rule]:
    """Cut a rule into rules of one verb on one thing: each may be covered by another rule of the holder's."""
    for verb in rule.verbs:
        for path in rule.paths:
            yield Rule((verb,), paths=(path,))
        for group in rule.groups:
            for resource in rule.resources:
                for name in rule.names or ("",):
                    yield Rule((verb,), (group,), (resource,), (name,) if name else ())


def _covers(mine: Rule, atom: Rule) -> bool:
    """Whether a rule allows all that a rule of one thing does; ``*`` is covered by ``*`` alone."""
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
