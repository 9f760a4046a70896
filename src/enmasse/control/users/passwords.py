"""Passwords of messaging users: keys and hashes are made of them, and put aside, before anything is stored.

Rules:
1. A password is neither stored nor shown: keys are made of it and put aside, and it is left out of the object, and of
   the copy of the manifest that kubectl keeps in an annotation.
2. The same password again changes nothing: it is checked against the keys.
3. Making and checking keys is slow, and is not done on the event loop: see ``store/writes.py``.
4. A declaration without a password keeps the one that was set.
5. Hashes for a Keycloak can be made only while the password is known, so they are made then and kept beside the user.
"""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import b64decode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from enmasse.control.errors import UnfinishedWriteError
from enmasse.control.store.managed_fields import redacted
from enmasse.control.store.writes import SlowResults
from enmasse.errors import RemoteError
from enmasse.identity.federation import PASSWORD_ITERATIONS, hashed_password
from enmasse.identity.passwords import is_password_of
from enmasse.identity.permissions import pattern_problem
from enmasse.identity.users import DEFAULT_MECHANISMS, ScramKeys, key_fields, make_keys, read_keys
from enmasse.model.kinds.users import MessagingUser, password_of
from enmasse.model.schema.errors import InvalidResourceError, Problem
from enmasse.model.schema.kinds import MESSAGING_USER
from enmasse.wire.sasl.scram import HASHES, saslprep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enmasse.control.store.writes import Write
    from enmasse.model.schema.resource import Resource

ASIDE: Final = "scram"
"""The name under which the store keeps the keys."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Keys by mechanism.

    Attributes:
        id: changes with the keys; reveals nothing about them.
        keys: by mechanism.
    """

    id: str
    keys: Mapping[str, ScramKeys] = field(repr=False)

    def pack(self) -> bytes:
        """Return the form in which they are kept."""
        return json.dumps({"id": self.id, "keys": self.entity_keys()}, separators=(",", ":")).encode()

    def entity_keys(self) -> dict[str, Any]:
        """Return the keys in the form for nodes."""
        return {mechanism: key_fields(keys) for mechanism, keys in self.keys.items()}

    @staticmethod
    def id_of(kept: bytes) -> str:
        """Return the ``id`` of what ``pack`` has made."""
        found: str = json.loads(kept)["id"]
        return found

    @classmethod
    def unpack(cls, kept: bytes) -> Credentials:
        """Read what ``pack`` has made."""
        found = json.loads(kept)
        keys = found["keys"]
        return cls(
            found["id"],
            {
                mechanism: read_keys(mechanism, mechanism, keys[mechanism])
                for mechanism in HASHES
                if mechanism in keys
            },
        )


def make_credentials(
    password: str, mechanisms: tuple[str, ...], random: Callable[[int], bytes], known: Credentials | None = None
) -> Credentials:
    """Make the keys of a password; slow on purpose, about 10 ms for each mechanism.

    Args:
        password: any text.
        mechanisms: the mechanisms whose keys are wanted.
        random: gives that many fresh unguessable bytes.
        known: keys of this very password, which are kept as far as they are wanted.

    Raises:
        RemoteError: the password contains what no password may contain.
    """
    former: Mapping[str, ScramKeys] = known.keys if known else {}
    keys = {name: former.get(name) or make_keys(name, password, random(16)) for name in mechanisms}
    return Credentials(random(16).hex(), keys)


SCRAM_SHA_1: Final = "enmasse.io/scram-sha-1"
"""Annotation: with ``"true"``, keys for clients that support nothing newer are made of the next password."""

CREDENTIALS: Final = "enmasse.io/credentials"
"""Annotation that is written here: another one whenever the password is; so that a new password is a change of the
object.
"""

MAX_CERTIFICATE_BYTES = 253
"""The longest name in a certificate that a node accepts."""


class UserPasswords:
    """Admission of messaging users that replaces their passwords by keys."""

    kinds = frozenset({MESSAGING_USER.name})

    def __init__(self) -> None:
        self._results = SlowResults()

    def admit(self, write: Write) -> Resource:
        """Return the user without its password, which is put aside as keys.

        Raises:
            InvalidResourceError: the password or a pattern cannot be used.
            UnfinishedWriteError: keys must be made first.
        """
        user = write.new
        if not isinstance(user, MessagingUser):
            return write.resource
        if problems := _problems(user):
            raise InvalidResourceError(f"MessagingUser {user.metadata.name}", problems)
        uid = user.metadata.uid
        kept = write.store.aside(uid, ASIDE)
        if user.spec.authentication.type != "password":
            kept = None
            write.store.take_aside(uid, ASIDE)
        elif (password := password_of(user)) is not None:
            wanted: tuple[str, ...] = DEFAULT_MECHANISMS
            if user.metadata.annotations.get(SCRAM_SHA_1) == "true":
                wanted = (*wanted, "SCRAM-SHA-1")
            kept = self._keys(password, wanted, kept)
            write.store.put_aside(uid, ASIDE, kept)
        return _without_password(user, None if kept is None else Credentials.id_of(kept))

    def _keys(self, password: str, wanted: tuple[str, ...], kept: bytes | None) -> bytes:
        """Return the keys of a password, if they were made by now."""
        asked = self._results.mark(" ".join(wanted).encode(), password.encode(), kept or b"")
        found = self._results.take(asked)  # two users with one password have different keys
        if found is not None:
            return found

        def work() -> None:
            known = None if kept is None else Credentials.unpack(kept)
            if known is not None and not is_password_of(known.keys, password):
                known = None
            if known is not None and set(known.keys) >= set(wanted):
                assert kept is not None
                self._results.add(asked, kept)
            else:
                made = make_credentials(password, wanted, secrets.token_bytes, known)
                self._results.add(asked, made.pack())

        raise UnfinishedWriteError("the keys of the password are not made yet", work)


def _problems(user: MessagingUser) -> list[Problem]:
    problems = []
    password = password_of(user)
    if password is not None:
        try:
            saslprep(password)
        except RemoteError as error:
            problems.append(Problem("spec.authentication.password", error.description))
    subject = user.spec.authentication.subject
    if subject is not None and len(subject.encode()) > MAX_CERTIFICATE_BYTES:
        problems.append(Problem("spec.authentication.subject", f"expected at most {MAX_CERTIFICATE_BYTES} bytes"))
    for index, grant in enumerate(user.spec.authorization):
        for number, pattern in enumerate(grant.addresses):
            if problem := pattern_problem(node_pattern(pattern)):
                problems.append(Problem(f"spec.authorization[{index}].addresses[{number}]", problem))
    return problems


def _without_password(user: MessagingUser, credentials_id: str | None) -> MessagingUser:
    authentication = user.spec.authentication.model_copy(update={"password": None})
    spec = user.spec.model_copy(update={"authentication": authentication})
    annotations = redacted(user.metadata.annotations, _take_out)
    annotations.pop(CREDENTIALS, None)
    if credentials_id is not None:
        annotations[CREDENTIALS] = credentials_id
    metadata = user.metadata.model_copy(update={"annotations": annotations})
    return user.model_copy(update={"spec": spec, "metadata": metadata})


def _take_out(spec: Any) -> bool:
    authentication = spec.get("authentication")
    return isinstance(authentication, dict) and authentication.pop("password", None) is not None


REALM_ASIDE: Final = "keycloak"
"""The name under which the store keeps the hashes."""

SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class RealmPassword:
    """The hash of a password.

    Attributes:
        id: changes with every password that is set; reveals nothing about it.
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
    """Admission of messaging users that makes hashes for a Keycloak; must come before the password is taken out.

    Args:
        is_wanted: returns whether users of a space (its key) are kept in a Keycloak, as far as that is known.
    """

    kinds = frozenset({MESSAGING_USER.name})

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
            write.store.take_aside(uid, REALM_ASIDE)
        elif (password := password_of(user)) is not None:
            if self._is_wanted(user.space_key):
                kept = write.store.aside(uid, REALM_ASIDE)
                write.store.put_aside(uid, REALM_ASIDE, self._hash(f"{user.key}\0{password}", password, kept))
            else:
                # One of a former password would let in who knows that.
                write.store.take_aside(uid, REALM_ASIDE)
        return user

    def _hash(self, owner: str, password: str, kept: bytes | None) -> bytes:
        """Return the hash of a password, if it was made by now; that of the same password stays the same."""
        asked = self._results.mark(owner.encode(), kept or b"")
        # It stays: a later admission may have the write begin once more.
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


def node_pattern(pattern: str) -> str:
    """Return a pattern as nodes keep it: ``*`` alone is all addresses, as in EnMasse 1.0, and ``+`` is ``*``."""
    if pattern == "*":
        return "#"
    return "/".join("*" if word == "+" else word for word in pattern.split("/"))
