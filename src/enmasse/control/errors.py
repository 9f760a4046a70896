"""Errors of the control plane.

ConfigError
├── ResourceNotFoundError   there is no such object
│   └── NamespaceNotFoundError  nor anything that its objects could lie in
├── ResourceExistsError     an object of this name exists
├── ForbiddenError          whoever asks may not do that, or nobody may now
├── NodeRefusedError        the node says that it cannot do what is declared
├── DirectoryInUseError     another process works in the same directory
└── StoreBrokenError        the file of the resource store is damaged
UnavailableError
├── ConflictError           the object changed meanwhile: read it again
├── FieldConflictError      a configuration would change what others have set
├── ExpiredVersionError     the history no longer reaches back so far: list again
├── FutureVersionError      the store has not come to this version
├── StoreBusyError          another process has the file of the resource store locked
├── StoreReadOnlyError      the file of the resource store cannot be written now
├── UnfinishedWriteError    slow work has to be done first: do it, then write again
└── NodeUnavailableError    the node cannot be reached now
    └── ForeignNodeError        its journal belongs to another installation
ResourceError
└── StoreFullError          there is no room for another write
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from enmasse.errors import ConfigError, ResourceError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = [
    "ConflictError",
    "DirectoryInUseError",
    "ExpiredVersionError",
    "FieldConflictError",
    "ForbiddenError",
    "ForeignNodeError",
    "FutureVersionError",
    "NamespaceNotFoundError",
    "NodeRefusedError",
    "NodeUnavailableError",
    "ResourceExistsError",
    "ResourceNotFoundError",
    "StoreBrokenError",
    "StoreBusyError",
    "StoreFullError",
    "StoreReadOnlyError",
    "UnfinishedWriteError",
]


class _AboutObjectError(ConfigError):
    """Something about one object, named by kind, namespace and name."""

    template = "{kind} {name}"

    def __init__(self, kind: str, namespace: str, name: str) -> None:
        where = f" in namespace {namespace}" if namespace else ""
        super().__init__(self.template.format(kind=kind, where=where, name=name))
        self.kind = kind
        self.namespace = namespace
        self.name = name


class ResourceNotFoundError(_AboutObjectError):
    """There is no such object."""

    template = "there is no {kind} '{name}'{where}"


class NamespaceNotFoundError(ResourceNotFoundError):
    """An object cannot be created, because its namespace does not exist."""

    template = (
        "there is no namespace '{name}': create it with `enmasse create namespace {name}` "
        "or `kubectl create namespace {name}`"
    )

    def __init__(self, name: str) -> None:
        super().__init__("Namespace", "", name)


class ResourceExistsError(_AboutObjectError):
    """An object of this kind and name exists already."""

    template = "{kind} '{name}' exists already{where}"


class ForbiddenError(ConfigError):
    """Whoever asks may not do that, or nobody may as things are.

    Attributes:
        cause: a word for programs, as ``NamespaceTerminating``; empty when there is none.
    """

    def __init__(self, message: str, *, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class NodeRefusedError(ConfigError):
    """The node says that it cannot do what is declared.

    Attributes:
        status: the status code of the management reply.
        description: the node's own words.
    """

    def __init__(self, status: int, description: str) -> None:
        super().__init__(f"the node answered {status}: {description}")
        self.status = status
        self.description = description


class DirectoryInUseError(ConfigError):
    """Another process works in the same directory."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{directory} is in use by {owner}: stop that one first, or choose another directory with --data"
        )
        self.pid = pid


class ConflictError(UnavailableError):
    """The object changed since the caller read it.

    Attributes:
        subject: the kind and name of the object.
    """

    def __init__(self, subject: str, expected: str, found: str) -> None:
        self.subject = subject
        super().__init__(
            f"{subject} changed meanwhile (expected {expected}, found {found}): read it again, then repeat"
        )


class FieldConflictError(UnavailableError):
    """A configuration would change fields that others own.

    Attributes:
        conflicts: who owns which of them: a manager, the version that it speaks, and the path of the field.
    """

    def __init__(self, conflicts: Sequence[tuple[str, str, str]]) -> None:
        self.conflicts = tuple(conflicts)
        fields: defaultdict[str, list[str]] = defaultdict(list)
        for manager, version, path in conflicts:
            fields[f'"{manager}" using {version}'].append(path)
        if len(conflicts) == 1:
            owner, (path,) = next(iter(fields.items()))
            told = f"1 conflict: conflict with {owner}: {path}"
        else:
            owners = (f"conflicts with {owner}:\n- " + "\n- ".join(paths) for owner, paths in fields.items())
            told = f"{len(conflicts)} conflicts: " + "\n".join(owners)
        super().__init__(f"Apply failed with {told}")


class ExpiredVersionError(UnavailableError):
    """The history of changes does not cover the version that was asked for.

    Attributes:
        version: the one that was asked for.
        oldest: the oldest that is covered.
        newest: the newest.
    """

    def __init__(self, version: int, oldest: int, newest: int) -> None:
        self.version, self.oldest, self.newest = version, oldest, newest
        super().__init__(f"changes since version {version} are not known (known: {oldest} to {newest}): list again")


class FutureVersionError(UnavailableError):
    """The store has not come to the version that was asked for."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(f"Too large resource version: {version}, current: {newest}")


class StoreBusyError(UnavailableError):
    """Another process has the file of the resource store locked."""


class StoreReadOnlyError(UnavailableError):
    """The file of the resource store cannot be written now."""


class StoreFullError(ResourceError):
    """There is no room for another write to the resource store."""


class StoreBrokenError(ConfigError):
    """The file of the resource store is damaged, or its disk fails."""


class UnfinishedWriteError(UnavailableError):
    """Nothing was written, because slow work has to be done first.

    Attributes:
        work: does it; not to be called on the event loop. The same write then finds it done.
    """

    def __init__(self, message: str, work: Callable[[], None]) -> None:
        super().__init__(f"{message}: try again")
        self.work = work


class NodeUnavailableError(UnavailableError):
    """The node cannot be reached now."""


class ForeignNodeError(NodeUnavailableError):
    """What a node holds was declared in another installation, so nothing of it may be changed.

    Attributes:
        installation: the id that the node's journal has.
    """

    def __init__(self, node: str, found: str, own: str) -> None:
        super().__init__(
            f"the journal of {node} belongs to installation {found}, and this one is {own}: what it holds is kept "
            "and served as it is, and nothing that is declared here reaches it; "
            f"`enmasse journal adopt --name {node}` tells what it is and takes it in"
        )
        self.installation = found
