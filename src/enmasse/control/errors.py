"""Errors of the control plane.

ConfigError
├── ResourceNotFoundError   there is no such object
├── ResourceExistsError     an object of this name exists
├── NodeRefusedError        the node says that it cannot do what is declared
└── DirectoryInUseError     another process works in the same directory
UnavailableError
├── ConflictError           the object changed meanwhile: read it again
├── ExpiredVersionError     the history no longer reaches back so far: list again
└── NodeUnavailableError    the node cannot be reached now
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ConflictError",
    "DirectoryInUseError",
    "ExpiredVersionError",
    "NodeRefusedError",
    "NodeUnavailableError",
    "ResourceExistsError",
    "ResourceNotFoundError",
]


class _AboutObjectError(ConfigError):
    """Something about one object, named by kind, namespace and name."""

    template = "{kind} {name}"

    def __init__(self, kind: str, namespace: str, name: str) -> None:
        super().__init__(self.template.format(kind=kind, namespace=namespace, name=name))
        self.kind = kind
        self.namespace = namespace
        self.name = name


class ResourceNotFoundError(_AboutObjectError):
    """There is no such object."""

    template = "there is no {kind} '{name}' in namespace {namespace}"


class ResourceExistsError(_AboutObjectError):
    """An object of this kind and name exists already."""

    template = "{kind} '{name}' exists already in namespace {namespace}"


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


class NodeUnavailableError(UnavailableError):
    """The node cannot be reached now."""
