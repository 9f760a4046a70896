"""Errors of the messaging core.

EnmasseError
└── RemoteError
    └── AttachError         a link is refused; carries the AMQP condition
        └── SelectorError   its selector is not understood
"""

from __future__ import annotations

from enmasse.errors import LocalError, RemoteError

__all__ = ["AttachError", "SelectorError"]


class AttachError(RemoteError):
    """A link cannot be attached: unknown address, wrong role, limit reached."""


class SelectorError(AttachError):
    """A selector that cannot be understood.

    Attributes:
        position: where in its text, counted in characters from 1; 0 if it is about the whole.
    """

    def __init__(self, description: str, position: int = 0) -> None:
        place = f" at character {position}" if position else ""
        super().__init__("amqp:invalid-field", f"the selector is not understood{place}: {description}")
        self.position = position


class DamagedFrameError(LocalError):
    """A frame on disk is not what was written; ``enmasse journal check`` tells more."""
