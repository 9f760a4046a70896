"""Errors of users and their proofs.

EnmasseError
├── ConfigError
│   └── UsersFileError     the file of users holds what cannot be; the message says where and what to write
└── RemoteError            a proof is malformed; never says more than that
"""

from __future__ import annotations

from enmasse.errors import ConfigError, RemoteError

__all__ = ["RemoteError", "UsersFileError"]


class UsersFileError(ConfigError):
    """The file of users holds what cannot be."""
