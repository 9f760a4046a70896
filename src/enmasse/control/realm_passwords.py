"""What a Keycloak is to know of passwords: hashes, made while the password is known, and kept beside the user."""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import b64decode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from enmasse.control.errors import UnfinishedWriteError
from enmasse.control.unfinished import SlowResults
from enmasse.identity.keycloak import PASSWORD_ITERATIONS, hashed_password
from enmasse.model.users import MessagingUser, password_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enmasse.control.writes import Write
    from enmasse.model.resource import Resource

__all__ = ["ASIDE", "RealmPassword", "RealmPasswords"]

ASIDE: Final = "keycloak"
"""The name under which the store has them."""

SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class RealmPassword:
    """The hash of a password.

    Attributes:
        id: another one for every password that is set; says nothing about it.
        hashed: as ``identity.keycloak.hashed_password`` gives it.
    """

    id: str
    hashed: Mapping[str, Any] = field(repr=False)

    def pack(self) -> bytes:
        """Return the form in which it is kept."""
        return json.dumps({"id": self.id, **self.hashed}, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, kept: bytes) -> RealmPassword:
        """Read what ``pack`` has made."""
        found = json.loads(kept)
        return cls(found.pop("id"), found)


class RealmPasswords:
    """Has a say in what is written of messaging users; must be asked before the password is taken out.

    Args:
        is_wanted: whether users of a space (its key) are kept in a Keycloak, as far as that is known.
    """

    kinds = frozenset({"MessagingUser"})

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        self._is_wanted = is_wanted
        self._results = SlowResults()

    def admit(self, write: Write) -> Resource:
        """Return the user as it is, with the hash of its password put aside.

        Raises:
            UnfinishedWriteError: the hash must be made first.
        """
        user = write.new
        if not isinstance(user, MessagingUser):
            return write.resource
        uid = user.metadata.uid
        if user.spec.authentication.type != "password":
            write.store.take_aside(uid, ASIDE)
        elif (password := password_of(user)) is not None:
            if self._is_wanted(user.space_key):
                kept = write.store.aside(uid, ASIDE)
                write.store.put_aside(uid, ASIDE, self._hash(f"{user.key}\0{password}", password, kept))
            else:
                # One of a former password would let in who knows that.
                write.store.take_aside(uid, ASIDE)
        return user

    def _hash(self, whose: str, password: str, kept: bytes | None) -> bytes:
        """Return the hash of a password, if it was made by now; that of the same password stays the same."""
        asked = self._results.mark(whose.encode(), kept or b"")
        # It stays: somebody who is asked later may have the write begin once more.
        if (found := self._results.find(asked)) is not None:
            return found

        def work() -> None:
            if kept is not None and _is_of(RealmPassword.unpack(kept), password):
                self._results.add(asked, kept)
                return
            hashed = hashed_password(password, secrets.token_bytes(SALT_BYTES), PASSWORD_ITERATIONS)
            self._results.add(asked, RealmPassword(secrets.token_hex(16), hashed).pack())

        raise UnfinishedWriteError("the hash of the password is not made yet", work)


def _is_of(known: RealmPassword, password: str) -> bool:
    secret, how = known.hashed["secretData"], known.hashed["credentialData"]
    tried = hashed_password(password, b64decode(secret["salt"]), how["hashIterations"])
    return hmac.compare_digest(json.dumps(tried), json.dumps(known.hashed))
