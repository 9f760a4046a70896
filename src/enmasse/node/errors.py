"""Errors of a node.

EnmasseError
├── RemoteError
│   └── TenancyError       a connection that names no space, or several; carries the condition
└── EntityError            a management request that cannot be done; carries the status code
"""

from __future__ import annotations

from enmasse.errors import EnmasseError, RemoteError


class TenancyError(RemoteError):
    """A connection that names no space, or more than one."""


class EntityError(EnmasseError):
    """A management request that cannot be done.

    Attributes:
        status: 400, 404, 409, 501 or 503, as HTTP has them.
    """

    def __init__(self, status: int, description: str) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
