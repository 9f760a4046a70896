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
├── ExpiredVersionError     the history no longer reaches back so far: list again
├── FutureVersionError      the store has not come to this version
├── StoreBusyError          another process has the file of the resource store locked
├── StoreReadOnlyError      the file of the resource store cannot be written now
└── NodeUnavailableError    the node cannot be reached now
ResourceError
└── StoreFullError          there is no room for another write
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.errors import ConfigError, ResourceError, UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ConflictError",
    "DirectoryInUseError",
    "ExpiredVersionError",
    "ForbiddenError",
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
    """The object changed since the caller read it."""

    def __init__(self, subject: str, expected: str, found: str) -> None:
        super().__init__(
            f"{subject} changed meanwhile (expected {expected}, found {found}): read it again, then repeat"
        )


class ExpiredVersionError(UnavailableError):
    """The history of changes does not cover the version that was asked for."""

    def __init__(self, version: int, oldest: int, newest: int) -> None:
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


class NodeUnavailableError(UnavailableError):
    """The node cannot be reached now."""
