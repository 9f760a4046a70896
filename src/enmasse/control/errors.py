"""Errors of the control plane.

ConfigError
├── ResourceNotFoundError   there is no such object
│   └── NamespaceNotFoundError  nor anything that its objects could lie in
├── ResourceExistsError     an object of this name exists
├── ForbiddenError          the requester may not do that, or no one may now
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
from enmasse.model.schema.kinds import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class _AboutObjectError(ConfigError):
    """Base of errors about one object, named by kind, namespace and name."""

    template = "{kind} {name}"

    def __init__(self, kind: str, namespace: str, name: str) -> None:
        where = f" in namespace {namespace}" if namespace else ""
        super().__init__(self.template.format(kind=kind, where=where, name=name))
        self.kind = kind
        self.namespace = namespace
        self.name = name


class ResourceNotFoundError(_AboutObjectError):
    """Raised when there is no such object."""

    template = "there is no {kind} '{name}'{where}"


class NamespaceNotFoundError(ResourceNotFoundError):
    """Raised when an object cannot be created, because its namespace does not exist."""

    template = (
        "there is no namespace '{name}': create it with `enmasse create namespace {name}` "
        "or `kubectl create namespace {name}`"
    )

    def __init__(self, name: str) -> None:
        super().__init__(NAMESPACE.name, "", name)


class ResourceExistsError(_AboutObjectError):
    """Raised when an object of this kind and name exists already."""

    template = "{kind} '{name}' exists already{where}"


class ForbiddenError(ConfigError):
    """Raised when the requester may not do that, or no one may as things are.

    Attributes:
        cause: a word for programs, as ``NamespaceTerminating``; empty when there is none.
    """

    def __init__(self, message: str, *, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class NodeRefusedError(ConfigError):
    """Raised when a node refuses what is declared.

    Attributes:
        status: the status code of the management reply.
        description: the node's own words.
    """

    def __init__(self, status: int, description: str) -> None:
        super().__init__(f"the node answered {status}: {description}")
        self.status = status
        self.description = description


class DirectoryInUseError(ConfigError):
    """Raised when another process works in the same directory."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{directory} is in use by {owner}: stop that one first, or choose another directory with --data"
        )
        self.pid = pid


class ConflictError(UnavailableError):
    """Raised when the object changed since the caller read it.

    Attributes:
        subject: the kind and name of the object.
    """

    def __init__(self, subject: str, expected: str, found: str) -> None:
        self.subject = subject
        super().__init__(
            f"{subject} changed meanwhile (expected {expected}, found {found}): read it again, then repeat"
        )


class FieldConflictError(UnavailableError):
    """Raised when a configuration would change fields that others own.

    Attributes:
        conflicts: the owners of these fields: a manager, its version of the kind, and the path of the field.
    """

    def __init__(self, conflicts: Sequence[tuple[str, str, str]]) -> None:
        self.conflicts = tuple(conflicts)
        fields: defaultdict[str, list[str]] = defaultdict(list)
        for manager, version, path in conflicts:
            fields[f'"{manager}" using {version}'].append(path)
        if len(conflicts) == 1:
            owner, (path,) = next(iter(fields.items()))
            described = f"1 conflict: conflict with {owner}: {path}"
        else:
            owners = (f"conflicts with {owner}:\n- " + "\n- ".join(paths) for owner, paths in fields.items())
            described = f"{len(conflicts)} conflicts: " + "\n".join(owners)
        super().__init__(f"Apply failed with {described}")


class ExpiredVersionError(UnavailableError):
    """Raised when the history of changes does not cover the requested version.

    Attributes:
        version: the requested one.
        oldest: the oldest that is covered.
        newest: the newest.
    """

    def __init__(self, version: int, oldest: int, newest: int) -> None:
        self.version, self.oldest, self.newest = version, oldest, newest
        super().__init__(f"changes since version {version} are not known (known: {oldest} to {newest}): list again")


class FutureVersionError(UnavailableError):
    """Raised when the store has not reached the requested version."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(f"Too large resource version: {version}, current: {newest}")


class StoreBusyError(UnavailableError):
    """Raised when another process has the file of the resource store locked."""


class StoreReadOnlyError(UnavailableError):
    """Raised when the file of the resource store cannot be written now."""


class StoreFullError(ResourceError):
    """Raised when there is no room for another write to the resource store."""


class StoreBrokenError(ConfigError):
    """Raised when the file of the resource store is damaged, or its disk fails."""


class UnfinishedWriteError(UnavailableError):
    """Raised when nothing was written, because slow work has to be done first.

    Attributes:
        work: does it; not to be called on the event loop. The same write then finds it done.
    """

    def __init__(self, message: str, work: Callable[[], None]) -> None:
        super().__init__(f"{message}: try again")
        self.work = work


class NodeUnavailableError(UnavailableError):
    """Raised when the node cannot be reached now."""


class ForeignNodeError(NodeUnavailableError):
    """Raised when a node belongs to another installation, so that nothing of it may be changed.

    Attributes:
        installation: the id that the node's journal has.
    """

    def __init__(self, node: str, found: str, own: str) -> None:
        super().__init__(
            f"the journal of {node} belongs to installation {found}, and this one is {own}: what it holds is kept "
            "and served as it is, and nothing that is declared here reaches it; "
            f"`enmasse journal adopt --name {node}` shows what it is and takes it in"
        )
        self.installation = found
