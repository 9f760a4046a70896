"""Errors of users and their proofs.

EnmasseError
├── ConfigError
│   └── UsersFileError     the file of users holds what cannot be; the message says where and what to write
└── RemoteError            a proof is malformed; never says more than that
    └── TokenError         a bearer token is not good; the message says why, for a log
        └── UnknownKeyError  it is signed with a key that its provider has not shown us yet
"""

from __future__ import annotations

from enmasse.errors import ConfigError, RemoteError

__all__ = ["RemoteError", "TokenError", "UnknownKeyError", "UsersFileError"]


class UsersFileError(ConfigError):
    """The file of users holds what cannot be."""


class TokenError(RemoteError):
    """A bearer token, or what is needed to judge it, is not good; the message is for a log, not for the bearer."""

    def __init__(self, description: str) -> None:
        super().__init__("amqp:unauthorized-access", description)


class UnknownKeyError(TokenError):
    """A token is signed with a key that its provider has not shown us yet; it may have a new one."""
