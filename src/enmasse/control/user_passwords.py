"""Takes the password out of a MessagingUser before anything is stored.

Rules:
1. A password is neither stored nor shown: keys are made of it and put aside, and it is left out of the object, and of
   the copy of the manifest that kubectl keeps in an annotation.
2. The password that is there already changes nothing: it is checked against the keys.
3. Making and checking keys is slow, and is not done on the event loop: see ``unfinished``.
4. A declaration without a password keeps the one that was set.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from enmasse.control.errors import UnfinishedWriteError
from enmasse.control.last_applied import redacted
from enmasse.control.unfinished import SlowResults
from enmasse.control.user_credentials import ASIDE, Credentials, make_credentials
from enmasse.control.user_planning import told_pattern
from enmasse.errors import RemoteError
from enmasse.identity.passwords import is_password_of
from enmasse.identity.permissions import pattern_problem
from enmasse.identity.users import DEFAULT_MECHANISMS
from enmasse.model.errors import InvalidResourceError, Problem
from enmasse.model.users import MessagingUser, password_of
from enmasse.wire.amqp.saslprep import saslprep

if TYPE_CHECKING:
    from enmasse.control.writes import Write
    from enmasse.model.resource import Resource

__all__ = ["CREDENTIALS", "SCRAM_SHA_1", "UserPasswords"]

SCRAM_SHA_1: Final = "enmasse.io/scram-sha-1"
"""Annotation: with ``"true"``, keys for clients that know nothing newer are made of the next password."""

CREDENTIALS: Final = "enmasse.io/credentials"
"""Annotation that is written here: another one whenever the password is; so that a change is seen to be one."""

MAX_CERTIFICATE_BYTES = 253
"""What a node takes as a name in a certificate."""


class UserPasswords:
    """Has a say in what is written of messaging users."""

    kinds = frozenset({"MessagingUser"})

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
            if problem := pattern_problem(told_pattern(pattern)):
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
