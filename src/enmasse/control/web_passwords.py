"""Passwords of accounts: kept as argon2id hashes [RFC 9106], slow to guess from."""

from __future__ import annotations

import secrets

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from enmasse.errors import ConfigError

__all__ = ["MAX_PASSWORD_BYTES", "MIN_PASSWORD_CHARACTERS", "WebPasswords"]

MIN_PASSWORD_CHARACTERS = 8
"""[NIST SP 800-63B 5.1.1]: length counts, composition does not."""

MAX_PASSWORD_BYTES = 1024
"""Nobody types more, and hashing megabytes is a way to keep us busy."""


class WebPasswords:
    """Hashes and checks passwords; both take about 50 ms and 64 MiB, so not on the event loop.

    Args:
        hasher: with its cost; by default the second recommendation of RFC 9106.
    """

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._nobody = ""

    def hash(self, password: str) -> str:
        """Return what is kept of a password.

        Raises:
            ConfigError: when it is too short or too long.
        """
        if len(password) < MIN_PASSWORD_CHARACTERS:
            raise ConfigError(
                f"the password is too short: {MIN_PASSWORD_CHARACTERS} characters are expected at least"
            )
        if len(password.encode("utf-8", "surrogatepass")) > MAX_PASSWORD_BYTES:
            raise ConfigError(f"the password is too long: {MAX_PASSWORD_BYTES} bytes are expected at most")
        return self._hasher.hash(password)

    def is_right(self, kept: str, password: str) -> bool:
        """Whether this is the password; for an account without one it is not, after as long a time."""
        if len(password.encode("utf-8", "surrogatepass")) > MAX_PASSWORD_BYTES:
            return False
        if not self._nobody:
            self._nobody = self._hasher.hash(secrets.token_urlsafe())
        try:
            return self._hasher.verify(kept or self._nobody, password) and bool(kept)
        except (VerificationError, InvalidHashError):
            return False
