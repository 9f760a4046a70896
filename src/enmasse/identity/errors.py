"""Errors of users and their credentials.

EnmasseError
├── ConfigError
│   └── UsersFileError     the file of users is invalid; the message says where and what to write
└── RemoteError            credentials are malformed; the message never says more than that
    └── TokenError         a bearer token is refused; the message says why, for a log
        └── UnknownKeyError  it is signed with a key that the provider has not published yet
"""

from __future__ import annotations

from enmasse.errors import ConfigError, RemoteError


class UsersFileError(ConfigError):
    """The file of users is invalid."""


class TokenError(RemoteError):
    """A bearer token, or what is needed to verify it, is invalid; the message is for a log, not for the client."""

    def __init__(self, description: str) -> None:
        super().__init__("amqp:unauthorized-access", description)


class UnknownKeyError(TokenError):
    """A token is signed with a key that is not among the known keys of its provider, which may have a new one."""
