"""Errors of the message format.

EnmasseError
└── RemoteError
    └── DecodeError            amqp:decode-error: bytes that are no AMQP value
"""

from __future__ import annotations

from enmasse.errors import RemoteError


class DecodeError(RemoteError):
    """Bytes that are no AMQP value, or not the value that was expected there [AMQP 2.8.15]."""

    def __init__(self, description: str) -> None:
        super().__init__("amqp:decode-error", description)
