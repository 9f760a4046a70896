"""The port to whoever issues tokens."""

from __future__ import annotations

from typing import Protocol

from enmasse.identity.users import User

__all__ = ["TokenAuthority"]


class TokenAuthority(Protocol):
    """Knows what a bearer token is worth. It answers at once: what it needs for that it has fetched before."""

    def user_of(self, token: str, space: str) -> User | None:
        """The user that a token names, with its permissions; nothing if it is not good for the space."""
