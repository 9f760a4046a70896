"""The root of every error, split by who must act.

    EnmasseError
    ├── LocalError         our own code broke a rule: a bug, report it
    ├── RemoteError        the peer broke the protocol; carries the AMQP condition
    ├── ResourceError      a quota or limit is reached
    ├── UnavailableError   try again later
    └── ConfigError        an operator or tenant must edit something

Each room's ``errors.py`` refines this tree.
"""

from __future__ import annotations

from typing import TypeVar

__all__ = [
    "ConfigError",
    "EnmasseError",
    "LocalError",
    "RemoteError",
    "ResourceError",
    "UnavailableError",
    "kept",
]


class EnmasseError(Exception):
    """Anything that this package raises on purpose."""


ErrorT = TypeVar("ErrorT", bound=BaseException)


def kept(error: ErrorT) -> ErrorT:
    """Return an error without the frames that it came through: who keeps it is in one of them, which is a cycle."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


class LocalError(EnmasseError):
    """Our own code called something in the wrong state or order."""


class RemoteError(EnmasseError):
    """The peer broke the protocol.

    Attributes:
        condition: the AMQP error condition that names the breach.
        description: the fault, in words for the peer's developer.
    """

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


class ResourceError(EnmasseError):
    """A quota or limit is reached."""


class UnavailableError(EnmasseError):
    """A thing that cannot be reached now; trying again may help."""


class ConfigError(EnmasseError):
    """A configuration that cannot work; the message says what to edit."""
