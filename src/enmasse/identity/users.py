"""Users: their names, the keys that their proofs are checked against, and what they may do."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from enmasse.identity.permissions import Permissions
from enmasse.wire.amqp.scram import HASHES, client_key, h, salted_password, server_key, sign

if TYPE_CHECKING:
    from enmasse.identity.oidc import Identity

__all__ = [
    "DEFAULT_ITERATIONS",
    "DEFAULT_MECHANISMS",
    "SALT_BYTES",
    "ScramKeys",
    "User",
    "Users",
    "keys_of_nobody",
    "make_keys",
]

DEFAULT_ITERATIONS = 15_000
"""What RFC 7677 recommends. A node has one thread: every PLAIN login that it checks costs it these iterations,
3 to 5 ms, and others wait for that long; SCRAM costs the client."""

DEFAULT_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
"""Keys that are made for a password unless something else is asked for."""

SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What is kept of a password for one mechanism: enough to check it, too little to log in with [RFC 5802 3].

    Attributes:
        iterations: how slow it is to guess.
        salt: makes equal passwords look different.
        stored: the hash of the client's key.
        server: the key by which the server proves itself.
    """

    iterations: int
    salt: bytes = field(repr=False)
    stored: bytes = field(repr=False)
    server: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may come in.

    Attributes:
        name: unique in the space.
        space: ``<namespace>/<space>``; a user belongs to one.
        permissions: what is allowed there.
        keys: by mechanism; empty for who has no password.
        certificates: names of client certificates that prove this user, unique in the space.
        identity: what a provider of identities says of it, if one does.
        is_listed: with an identity, whether its rights are those of a MessagingUser rather than of its token.
    """

    name: str
    space: str
    permissions: Permissions
    keys: Mapping[str, ScramKeys] = field(default_factory=dict)
    certificates: tuple[str, ...] = ()
    identity: Identity | None = None
    is_listed: bool = False


def make_keys(mechanism: str, password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> ScramKeys:
    """What is to be kept of a password.

    Args:
        mechanism: of ``HASHES``.
        password: any text.
        salt: fresh random bytes, ``SALT_BYTES`` of them.
        iterations: how slow it is to guess.

    Raises:
        RemoteError: the password contains what no password may contain.
    """
    name = HASHES[mechanism]
    salted = salted_password(name, password, salt, iterations)
    return ScramKeys(iterations, salt, h(name, client_key(name, salted)), server_key(name, salted))


def keys_of_nobody(
    seed: bytes, mechanism: str, space: str, name: str, iterations: int = DEFAULT_ITERATIONS
) -> ScramKeys:
    """Keys that no password fits.

    Args:
        seed: secret bytes, which stay the same for as long as users' own salts do.
        mechanism: of ``HASHES``.
        space: where the user would be.
        name: what it would be called.
        iterations: as many as users have.
    """
    given = f"{mechanism}\0{space}\0{name}".encode()
    size = hashlib.new(HASHES[mechanism]).digest_size
    salt = sign("sha256", seed, b"salt\0" + given)[:SALT_BYTES]
    stored = sign("sha512", seed, b"stored\0" + given)[:size]
    server = sign("sha512", seed, b"server\0" + given)[:size]
    return ScramKeys(iterations, salt, stored, server)


class Users:
    """All users, as the file had them at one moment.

    Args:
        users: no two of one name in one space, no certificate twice in one space.
        seed: secret bytes from which the salts of users are made that do not exist; should stay the same
            for as long as the users' own salts do, or the difference could be seen.
    """

    def __init__(self, users: Iterable[User] = (), seed: bytes = b"") -> None:
        self.seed = seed
        self._users = {(user.space, user.name): user for user in users}
        self._certificates: dict[str, list[User]] = {}
        self._mechanisms: dict[str, set[str]] = {}
        counts: dict[str, Counter[int]] = {name: Counter() for name in HASHES}
        for user in self._users.values():
            self._mechanisms.setdefault(user.space, set()).update(user.keys)
            for certificate in user.certificates:
                self._certificates.setdefault(certificate, []).append(user)
            for mechanism, keys in user.keys.items():
                counts[mechanism][keys.iterations] += 1
        self._iterations = {
            name: count.most_common(1)[0][0] if count else DEFAULT_ITERATIONS for name, count in counts.items()
        }

    def __len__(self) -> int:
        """How many there are."""
        return len(self._users)

    def __iter__(self) -> Iterator[User]:
        """All of them, in the order of the file."""
        return iter(self._users.values())

    def find(self, space: str, name: str) -> User | None:
        """A user by name."""
        return self._users.get((space, name))

    def certified(self, names: Iterable[str], space: str | None) -> list[User]:
        """The users that a certificate with these names proves: in a space, or in any."""
        found = [user for name in names for user in self._certificates.get(name, ()) if space in (None, user.space)]
        return list({(user.space, user.name): user for user in found}.values())

    def mechanisms(self, space: str) -> set[str]:
        """The SCRAM mechanisms for which a user of a space has keys."""
        return self._mechanisms.get(space, set())

    def keys_of_nobody(self, mechanism: str, space: str, name: str) -> ScramKeys:
        """Keys that no password fits, for a user that does not exist: always the same, like a user's own."""
        return keys_of_nobody(self.seed, mechanism, space, name, self._iterations[mechanism])
