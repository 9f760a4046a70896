"""Checks passwords that are sent, against keys that were not made for that."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from enmasse.errors import RemoteError
from enmasse.identity.users import ScramKeys, User
from enmasse.wire.amqp.scram import HASHES, client_key, h, salted_password, sign

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.identity.directory import UserDirectory
    from enmasse.identity.login import Place

__all__ = ["Passwords", "is_password_of"]

REMEMBERED = 4_096

CHEAPEST = ("SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-1")
"""Whose keys to use if there are several: processors help with SHA-256, so it takes a quarter of the time."""


def is_password_of(keys: Mapping[str, ScramKeys], password: str) -> bool:
    """Whether keys were made of a password; slow on purpose.

    Raises:
        RemoteError: the password contains what no password may contain.
    """
    mechanism = next((name for name in CHEAPEST if name in keys), None)
    if mechanism is None:
        return False
    name, kept = HASHES[mechanism], keys[mechanism]
    salted = salted_password(name, password, kept.salt, kept.iterations)
    return hmac.compare_digest(h(name, client_key(name, salted)), kept.stored)


class Passwords:
    """Checks passwords, and remembers those that were right, because checking is slow on purpose.

    What it remembers is no password, and is worth nothing without the secret.

    Args:
        secret: random bytes that this process keeps to itself.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._right: dict[bytes, bytes] = {}
        """The key that a password was found to fit, to the password's signature."""

    def check(self, users: UserDirectory, place: Place, user: User | None, password: str) -> bool:
        """Whether a password is right; for nobody it is not, after as long a time."""
        mechanism = next((name for name in CHEAPEST if user is not None and name in user.keys), CHEAPEST[0])
        keys = None if user is None else user.keys.get(mechanism)
        tried = keys or users.keys_of_nobody(mechanism, place.space or "", place.user)
        signature = sign("sha256", self._secret, tried.stored + password.encode("utf-8", "surrogatepass"))
        known = self._right.get(tried.stored)
        if known is not None and hmac.compare_digest(known, signature):
            return keys is not None
        name = HASHES[mechanism]
        try:
            salted = salted_password(name, password, tried.salt, tried.iterations)
        except RemoteError:
            return False
        if not hmac.compare_digest(h(name, client_key(name, salted)), tried.stored) or keys is None:
            return False
        if len(self._right) >= REMEMBERED:
            del self._right[next(iter(self._right))]
        self._right[tried.stored] = signature
        return True
