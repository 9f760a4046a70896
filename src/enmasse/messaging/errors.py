"""Errors of the messaging core.

EnmasseError
└── RemoteError
    └── AttachError    a link is refused; carries the AMQP condition
"""

from __future__ import annotations

from enmasse.errors import RemoteError

__all__ = ["AttachError"]


class AttachError(RemoteError):
    """A link cannot be attached: unknown address, wrong role, limit reached."""
