"""Users: their names, permissions and SCRAM keys, and the port to a directory of them.

Keys have one written form, in the file of users, in control's store and in a node's journal.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from enmasse.errors import RemoteError
from enmasse.identity.errors import UsersFileError
from enmasse.identity.permissions import Permissions
from enmasse.wire.sasl.scram import (
    HASHES,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    client_key,
    h,
    salted_password,
    saslprep,
    server_key,
    sign,
)

if TYPE_CHECKING:
    from enmasse.identity.oidc import Identity

DEFAULT_ITERATIONS = 15_000
"""The recommendation of RFC 7677. A node has one thread: every PLAIN login that it checks costs it these iterations,
3 to 5 ms, and others wait for that long; SCRAM costs the client."""

DEFAULT_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
"""The mechanisms that keys are made for by default."""

SALT_BYTES = 16

BY_IDENTITY = "oidc:"
"""The owners that a provider knows begin with this."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """Keys derived from a password for one mechanism: enough to check it, not to log in with [RFC 5802 3].

    Attributes:
        iterations: the cost of one guess.
        salt: makes equal passwords look different.
        stored: the hash of the client's key.
        server: the key by which the server proves itself.
    """

    iterations: int
    salt: bytes = field(repr=False)
    stored: bytes = field(repr=False)
    server: bytes = field(repr=False)


CHEAPEST = ("SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-1")
"""The order in which keys are used to check a password, if there are several: SHA-256 has hardware support."""

_WEIGHTS = {"SCRAM-SHA-1": 1, "SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The cost of an iteration, as far as processors agree."""


class PasswordCost(NamedTuple):
    """The cost of checking a password.

    Attributes:
        mechanism: the mechanism of the keys.
        iterations: the iterations of the keys.
    """

    mechanism: str
    iterations: int

    @property
    def weight(self) -> int:
        """The cost as a number."""
        return self.iterations * _WEIGHTS[self.mechanism]

    def less(self, other: PasswordCost) -> PasswordCost:
        """Return what is missing of it once another one was spent; it may be nothing."""
        return PasswordCost(self.mechanism, max(self.weight - other.weight, 0) // _WEIGHTS[self.mechanism])


def password_cost(keys: Mapping[str, ScramKeys]) -> PasswordCost | None:
    """Return what the check of a user's password costs; None: it has none."""
    mechanism = next((name for name in CHEAPEST if name in keys), None)
    return None if mechanism is None else PasswordCost(mechanism, keys[mechanism].iterations)


USUAL_COST = PasswordCost(CHEAPEST[0], DEFAULT_ITERATIONS)


@dataclass(frozen=True, slots=True)
class User:
    """A user of a space.

    Attributes:
        name: unique in the space.
        space: ``<namespace>/<space>``; a user belongs to one.
        permissions: in the space.
        keys: by mechanism; empty without a password.
        certificates: names of client certificates that authenticate this user, unique in the space.
        identity: as an identity provider states it; None for a user of our own.
        is_listed: with an identity, whether its rights are those of a MessagingUser rather than of its token.
        uid: tells it from a former user of its name; empty: nothing does.
        client_ids: the names that its clients have for themselves: one ``*`` stands for any letters, and
            ``${username}`` or ``%u`` for its own name. Empty: any.
    """

    name: str
    space: str
    permissions: Permissions
    keys: Mapping[str, ScramKeys] = field(default_factory=dict)
    certificates: tuple[str, ...] = ()
    identity: Identity | None = None
    is_listed: bool = False
    uid: str = ""
    client_ids: str = ""

    def may_call_itself(self, client: str) -> bool:
        """Return whether a client of the user may have a name for itself."""
        if not self.client_ids:
            return True
        first, star, last = (
            part.replace("${username}", self.name).replace("%u", self.name) for part in self.client_ids.partition("*")
        )
        if not star:
            return client == first
        return len(client) >= len(first) + len(last) and client.startswith(first) and client.endswith(last)

    @property
    def owner(self) -> str:
        """Identifies the user as the owner of what it leaves behind, which the next of its name is not.

        It is the uid; of a user that a provider alone knows, the issuer and the permanent id there.
        """
        if self.uid:
            return f"user:{self.uid}"
        if self.identity is not None:
            subject = self.identity.subject
            return f"{BY_IDENTITY}{self.identity.issuer} {subject or f'name {self.name}'}"
        return f"name:{self.name}"


def make_keys(mechanism: str, password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> ScramKeys:
    """Return the keys of a password.

    Args:
        mechanism: of ``HASHES``.
        password: any text.
        salt: fresh random bytes, ``SALT_BYTES`` of them.
        iterations: the cost of one guess.

    Raises:
        RemoteError: the password contains a forbidden character.
    """
    name = HASHES[mechanism]
    salted = salted_password(name, password, salt, iterations)
    return ScramKeys(iterations, salt, h(name, client_key(name, salted)), server_key(name, salted))


def decoy_keys(seed: bytes, mechanism: str, space: str, name: str, iterations: int = DEFAULT_ITERATIONS) -> ScramKeys:
    """Return keys that no password matches, for an unknown user: always the same, as those of a known one.

    Args:
        seed: secret bytes, unchanged for as long as users' salts are.
        mechanism: of ``HASHES``.
        space: the space of the user.
        name: the name of the user.
        iterations: as in the keys of users.
    """
    given = f"{mechanism}\0{space}\0{name}".encode()
    size = hashlib.new(HASHES[mechanism]).digest_size
    salt = sign("sha256", seed, b"salt\0" + given)[:SALT_BYTES]
    stored = sign("sha512", seed, b"stored\0" + given)[:size]
    server = sign("sha512", seed, b"server\0" + given)[:size]
    return ScramKeys(iterations, salt, stored, server)


class Users:
    """The users of one version of the file.

    Args:
        users: no two of one name in one space, no certificate twice in one space.
        seed: secret bytes that keys of unknown users are derived from; unchanged for as long as the salts of users
            are, or clients could tell unknown users from known ones.
    """

    def __init__(self, users: Iterable[User] = (), seed: bytes = b"") -> None:
        self.seed = seed
        self._users = {(user.space, user.name): user for user in users}
        self._certificates: dict[str, list[User]] = {}
        self._mechanisms: dict[str, set[str]] = {}
        counts: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self._costs: dict[str, PasswordCost] = {}
        for user in self._users.values():
            self._mechanisms.setdefault(user.space, set()).update(user.keys)
            for certificate in user.certificates:
                self._certificates.setdefault(certificate, []).append(user)
            for mechanism, keys in user.keys.items():
                for place in (user.space, ""):
                    counts[place, mechanism][keys.iterations] += 1
            cost = password_cost(user.keys)
            if cost is not None:
                for place in (user.space, ""):
                    self._costs[place] = max(self._costs.get(place, cost), cost, key=lambda each: each.weight)
        self._iterations = {place: count.most_common(1)[0][0] for place, count in counts.items()}
        """By space and mechanism; without a space those of all."""

    def __len__(self) -> int:
        """Return the number of users."""
        return len(self._users)

    def __iter__(self) -> Iterator[User]:
        """Iterate over the users in the order of the file."""
        return iter(self._users.values())

    def find(self, space: str, name: str) -> User | None:
        """Return a user by name, None if there is none."""
        return self._users.get((space, name))

    def certified(self, names: Iterable[str], space: str | None) -> list[User]:
        """Return the users that a certificate with these names authenticates: in a space, or in any."""
        found = [user for name in names for user in self._certificates.get(name, ()) if space in (None, user.space)]
        return list({(user.space, user.name): user for user in found}.values())

    def mechanisms(self, space: str) -> set[str]:
        """Return the SCRAM mechanisms that users of a space have keys for."""
        return self._mechanisms.get(space, set())

    def decoy_keys(self, mechanism: str, space: str, name: str) -> ScramKeys:
        """Return keys that no password matches, for an unknown user: always the same, as those of a known one."""
        iterations = self._iterations.get((space, mechanism)) or self._iterations.get(("", mechanism))
        return decoy_keys(self.seed, mechanism, space, name, iterations or DEFAULT_ITERATIONS)

    def password_cost(self, space: str) -> PasswordCost:
        """Return what the check of a password costs at most in a space; of one without users, in all of them."""
        return self._costs.get(space) or self._costs.get("", USUAL_COST)


class UserDirectory(Protocol):
    """The users of all spaces at this moment; no method waits."""

    def find(self, space: str, name: str) -> User | None:
        """Return a user by name, None if there is none."""

    def certified(self, names: Iterable[str], space: str | None) -> list[User]:
        """Return the users that a certificate with these names authenticates: in a space, or in any."""

    def mechanisms(self, space: str) -> set[str]:
        """Return the SCRAM mechanisms that users of a space have keys for."""

    def decoy_keys(self, mechanism: str, space: str, name: str) -> ScramKeys:
        """Return keys that no password matches, for an unknown user: always the same, as those of a known one."""

    def password_cost(self, space: str) -> PasswordCost:
        """Return what the check of a password costs at most in a space; of one without users, anywhere."""


MAX_NAME_LENGTH = 255


def space_name(text: str) -> str:
    """Return ``<namespace>/<space>``; a name without a slash is of the namespace ``default``.

    Raises:
        UsersFileError: it is not a name of a space.
    """
    words = text.split("/")
    if len(words) > 2 or not all(words) or any(letter.isspace() for letter in text):
        raise UsersFileError(f"{text!r:.100} names no space; NAMESPACE/SPACE is expected, such as default/shop")
    return text if len(words) == 2 else f"default/{text}"


def user_name(text: str) -> str:
    """Return the name of a new user: one that SASLprep leaves as it is, or else another could be taken for it.

    Raises:
        UsersFileError: it is not a name of a user.
    """
    name = prepared_name(text)
    if name != text:
        raise UsersFileError(
            f"{text!a:.200} cannot be a user's name: SASLprep (RFC 4013) makes {name!a:.200} of it; take that one"
        )
    return name


def prepared_name(text: str) -> str:
    """Return the name of a user in the form in which PLAIN and SCRAM compare it.

    Raises:
        UsersFileError: it is not a name of a user.
    """
    try:
        name = saslprep(text)
    except RemoteError as error:
        raise UsersFileError(f"{text!r:.100} cannot be a user's name: {error.description}") from None
    if not 1 <= len(name) <= MAX_NAME_LENGTH or any(letter.isspace() for letter in name):
        raise UsersFileError(
            f"{text!r:.100} cannot be a user's name: it has 1 to {MAX_NAME_LENGTH} characters and no white space"
        )
    return name


_FIELDS = ("iterations", "salt", "storedKey", "serverKey")


def key_fields(keys: ScramKeys) -> dict[str, Any]:
    """Return keys as fields of a document."""
    return {
        "iterations": keys.iterations,
        "salt": to_text(keys.salt),
        "storedKey": to_text(keys.stored),
        "serverKey": to_text(keys.server),
    }


def read_keys(where: str, mechanism: str, item: Any) -> ScramKeys:
    """Read keys from fields of a document.

    Args:
        where: the name of the fields in messages.
        mechanism: of ``HASHES``.
        item: the fields.

    Raises:
        UsersFileError: they are invalid; the message contains no value, which may be a secret.
    """
    if not isinstance(item, Mapping) or not all(isinstance(key, str) for key in item):
        raise UsersFileError(f"{where}: fields are expected, not {shown(item)}")
    for key in item:
        if key not in _FIELDS:
            raise UsersFileError(f"{where}: there is no field {key!r:.100}; there are {', '.join(_FIELDS)}")
    iterations = item.get("iterations")
    if (
        not isinstance(iterations, int)
        or isinstance(iterations, bool)
        or not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS
    ):
        raise UsersFileError(
            f"{where}.iterations: a number from {MIN_ITERATIONS} to {MAX_ITERATIONS} is expected, "
            f"not {shown(iterations)}"
        )
    salt, stored, server = (to_bytes(f"{where}.{key}", item.get(key)) for key in _FIELDS[1:])
    size = hashlib.new(HASHES[mechanism]).digest_size
    for key, value in (("storedKey", stored), ("serverKey", server)):
        if len(value) != size:
            raise UsersFileError(f"{where}.{key}: {size} bytes are expected, not {len(value)}")
    if not salt:
        raise UsersFileError(f"{where}.salt: at least one byte is expected")
    return ScramKeys(iterations, salt, stored, server)


def to_text(data: bytes) -> str:
    """Encode bytes in base64."""
    return b64encode(data).decode("ascii")


def to_bytes(where: str, value: Any) -> bytes:
    """Decode base64.

    Raises:
        UsersFileError: it is not base64.
    """
    try:
        if isinstance(value, str):
            return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        pass
    # The value may be a secret in the wrong place.
    raise UsersFileError(f"{where}: a text in base64 is expected")


def shown(value: Any) -> str:
    """Describe the type of a value, without its contents: they may be secret."""
    kinds = {dict: "fields", list: "a list", str: "a text", int: "a number", float: "a number", type(None): "nothing"}
    return kinds.get(type(value), type(value).__name__)
