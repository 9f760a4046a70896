"""The login of a connection: SASL mechanisms, passwords, certificates and tokens.

Rules:
1. A refusal does not contain its reason; ``Login.reason`` keeps it for the log.
2. The space is found before the user: users of different spaces may have the same name.
3. Names are compared as they are sent. Only where a password of our own is checked are they prepared first, as
   SASL demands; a name that would change by that is nobody's, as it is refused when it is registered.
4. Nothing is checked of a client that names no space where there are several: it is let in as nobody, which no space
   takes, and so it is told. SCRAM, which proves both sides, cannot: it is refused.
5. ``Passwords`` has passwords checked against SCRAM keys, which is slow on purpose; a ``TokenAuthority`` checks
   tokens, and the passwords that are not ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from enmasse.errors import RemoteError
from enmasse.identity.passwords import SOMEBODY, Checked, PasswordClient, Passwords, Postponed
from enmasse.identity.scram_server import Proof, read_client_first
from enmasse.identity.users import DEFAULT_MECHANISMS, User, UserDirectory
from enmasse.pending import Pending
from enmasse.wire.sasl.mechanisms import SaslCode, Verdict, plain_credentials
from enmasse.wire.sasl.scram import HASHES, saslprep, unquoted


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of checking a token or a password elsewhere.

    Attributes:
        user: with its permissions; None if it is refused in the space.
        reason: the reason of the refusal, for the log.
        is_temporary: true if the check failed for a reason that may pass, so that another attempt may succeed.
    """

    user: User | None = None
    reason: str = ""
    is_temporary: bool = False


Judged = Judgement | Pending[Judgement]
"""Known at once, or after a question to the provider, within seconds."""


class TokenAuthority(Protocol):
    """An identity provider that authenticates the users of some spaces."""

    def knows(self, space: str) -> bool:
        """Return whether it authenticates the users of a space."""

    def takes_passwords(self, space: str) -> bool:
        """Return whether it can check passwords of a space's users."""

    def judge_token(self, token: str, space: str) -> Judged:
        """Verify a token for a space."""

    def judge_password(self, user: str, password: str, space: str) -> Judged:
        """Check the password of a user of a space."""

    def judge_again(self, user: User) -> User | None:
        """Return a user who has logged in with its present permissions; None if it has to be disconnected."""


MAX_CREDENTIAL_LENGTH = 4_096
"""A longer name or password is nobody's: SASLprep takes microseconds for each of its characters."""

USER_AND_SPACE = "USER@SPACE.NAMESPACE"

NAME_THE_SPACE = f"the login names no space; name the space: {USER_AND_SPACE}"
"""The reason why a login fails that names no space where there are several."""

TOKEN_MECHANISMS = ("OAUTHBEARER", "XOAUTH2")


@dataclass(frozen=True, slots=True)
class LoginTarget:
    """The space that a client connects to, and the name of its user there.

    Attributes:
        space: ``<namespace>/<space>``; None if it is not known yet.
        user: without a realm that names the space.
        is_open: true if everybody may connect to it.
        reason: why no space is known, for the log, if there is another one than that the client has named none.
    """

    space: str | None
    user: str
    is_open: bool
    reason: str = ""

    @property
    def is_unnamed(self) -> bool:
        """True if the client has named no space, and has to."""
        return self.space is None and not self.is_open and not self.reason


def offered_mechanisms(
    users: UserDirectory,
    *,
    guarded: Sequence[str],
    has_open: bool,
    is_private: bool,
    has_certificate: bool,
    tokens: TokenAuthority | None = None,
) -> tuple[str, ...]:
    """Return the mechanisms that a listener offers: those that any of its spaces accepts, the strongest first.

    Args:
        users: all users.
        guarded: the spaces that only users may connect to.
        has_open: true if there are spaces that everybody may connect to.
        is_private: true if the connection is encrypted or local.
        has_certificate: true if the client has a verified certificate.
        tokens: authenticates the users of some of the spaces.
    """
    federated = [space for space in guarded if tokens is not None and tokens.knows(space)]
    own = [space for space in guarded if space not in federated]
    scram = {mechanism for space in own for mechanism in users.mechanisms(space)}
    if own and not scram:
        # No user can log in, which clients must not be able to find out.
        scram = set(DEFAULT_MECHANISMS)
    found = [mechanism for mechanism in HASHES if mechanism in scram]
    if has_certificate:
        found.insert(0, "EXTERNAL")
    if federated and is_private:
        found += TOKEN_MECHANISMS
    has_passwords = bool(own) or any(tokens is not None and tokens.takes_passwords(space) for space in federated)
    # Without encryption, clients of guarded spaces would pick PLAIN too, and reveal their passwords.
    if (has_open and not guarded) or (is_private and (has_open or has_passwords)):
        found.append("PLAIN")
    if has_open:
        found.append("ANONYMOUS")
    return tuple(found)


class Login:
    """Authenticates the client of one connection.

    Args:
        users: all users.
        target_of: finds the space for the name that a client sends, which may have a realm; raises ``RemoteError``
            if the name is invalid.
        passwords: checks and caches passwords.
        new_nonce: returns a fresh random text.
        certified: the names in the client's verified certificate.
        is_private: true if the connection is encrypted or local.
        tokens: authenticates the users of some spaces.
        client: the one who logs in, for a password that has to wait.
        is_foreign: returns true if a token is none of a user, which opens no space, not even one for everybody.

    Attributes:
        user: once authenticated; None in an open space.
        named: the name that the client sent.
        reason: the reason of a refusal.
        names_no_space: true if it has named no space, and has to.
        is_unread: true if what it sent was not looked at, right or wrong, as others could read it.
        guess: a hash of the password that was sent, valid in this process alone.
    """

    def __init__(
        self,
        users: UserDirectory,
        target_of: Callable[[str], LoginTarget],
        passwords: Passwords,
        *,
        new_nonce: Callable[[], str],
        certified: Sequence[str] = (),
        is_private: bool = False,
        tokens: TokenAuthority | None = None,
        client: PasswordClient = SOMEBODY,
        is_foreign: Callable[[str], bool] = lambda _token: False,
    ) -> None:
        self.user: User | None = None
        self.named = ""
        self.reason = ""
        self.names_no_space = False
        self.is_unread = False
        self.guess = 0
        self._users = users
        self._target_of = target_of
        self._passwords = passwords
        self._new_nonce = new_nonce
        self._certified = certified
        self._is_private = is_private
        self._tokens = tokens
        self._client = client
        self._is_foreign = is_foreign

    def begin(self, mechanism: str, response: bytes) -> Verdict:
        """Take the initial response of an offered mechanism.

        Raises:
            RemoteError: it is malformed.
        """
        if not response and mechanism not in ("ANONYMOUS", "EXTERNAL"):
            return _Prompt(self, mechanism)
        if mechanism in HASHES:
            return self._scram(mechanism, response)
        if mechanism == "PLAIN":
            return self._plain(response)
        if mechanism == "EXTERNAL":
            return self._external(response)
        if mechanism in TOKEN_MECHANISMS:
            return self._bearer(mechanism, response)
        return self._find_target("").is_open or self._refuse("only users may enter the space")

    def _find_target(self, named: str) -> LoginTarget:
        self.named = named
        target = self._target_of(named)
        self.names_no_space = target.is_unnamed
        if target.space is None and not target.is_open:
            self.reason = target.reason or NAME_THE_SPACE
        return target

    def _refuse(self, reason: str) -> bool:
        self.reason = self.reason or reason
        return False

    def _admit(self, user: User) -> bool:
        self.user = user
        self.reason = ""
        return True

    def _plain(self, response: bytes) -> Verdict:
        credentials = plain_credentials(response)
        if credentials is None:
            return self._refuse("the response is malformed")
        return self.password(*credentials)

    def password(self, named: str, password: str) -> Verdict:
        """Authenticate by a name and a password.

        Raises:
            RemoteError: the name is invalid.
        """
        if len(named) > MAX_CREDENTIAL_LENGTH:
            return self._refuse("the name is too long")
        target = self._find_target(_checked(named))
        if target.is_open:
            return True
        if not self._is_private:
            self.is_unread = True
            return self._refuse("a password was sent without encryption; use TLS or SCRAM")
        if target.is_unnamed:
            return True
        self.guess = hash((named, password))
        if self._tokens is not None and target.space is not None and self._tokens.knows(target.space):
            if not self._tokens.takes_passwords(target.space):
                return self._refuse("users of the space log in with tokens, not with passwords")
            judged = self._tokens.judge_password(target.user, password, target.space)
            # The provider decides on the name of the user: people log in by their mail addresses too.
            return self._judged(judged, replace(target, user=""))
        if len(password) > MAX_CREDENTIAL_LENGTH:
            return self._refuse("the password is too long")
        # Users of our own are registered in the form that PLAIN and SCRAM prepare [RFC 4616 2, RFC 5802 5.1].
        target = replace(target, user=saslprep(target.user))
        user = None if target.space is None else self._users.find(target.space, target.user)

        def decide(found: Checked) -> Verdict:
            if isinstance(found, Postponed):
                self._refuse(found.value)
                return SaslCode.SYS_TEMP
            if not found or user is None:
                return self._refuse("no such user" if user is None else "wrong password")
            return self._admit(user)

        checked = self._passwords.check(self._users, target, user, password, self._client)
        return checked.map(decide) if isinstance(checked, Pending) else decide(checked)

    def _scram(self, mechanism: str, response: bytes) -> Verdict:
        first = read_client_first(response)
        target = self._find_target(first.user)
        if target.is_unnamed:
            return False
        space = target.space or ""
        is_ours = self._tokens is None or not self._tokens.knows(space)
        user = self._users.find(space, target.user) if is_ours else None
        keys = None if user is None else user.keys.get(mechanism)

        def decide(is_proved: bool) -> bool:
            if target.is_open:
                return self._refuse("the space has no users: connect without a user, or with PLAIN")
            if user is None or keys is None:
                return self._refuse("no such user" if user is None else f"the user has no keys for {mechanism}")
            return self._admit(user) if is_proved else self._refuse("wrong password")

        asked = keys or self._users.decoy_keys(mechanism, space, target.user)
        return Proof(mechanism, first, asked, self._new_nonce(), decide)

    def _external(self, response: bytes) -> Verdict:
        try:
            named = response.decode()
        except UnicodeDecodeError:
            return self._refuse("the response is not UTF-8")
        return self.certificate(_checked(named))

    def certificate(self, named: str) -> Verdict:
        """Authenticate by the certificate that TLS has verified, and the name of the user, if the client sent one."""
        target = self._find_target(named)
        self.reason, self.names_no_space = "", False
        found = [
            user for user in self._users.certified(self._certified, target.space) if target.user in ("", user.name)
        ]
        if target.is_open and (target.space is not None or len(found) != 1):
            return True
        if target.is_unnamed and len(found) > 1:
            self.reason, self.names_no_space = NAME_THE_SPACE, True
            return True
        if len(found) != 1:
            return self._refuse(f"the certificate authenticates {len(found)} users, not one")
        self.named = found[0].name
        return self._admit(found[0])

    def _bearer(self, mechanism: str, response: bytes) -> Verdict:
        # Clients of XOAUTH2 do not expect a challenge with the reason, and some fail at it.
        return self.token(*_read_bearer(mechanism, response), _Refused() if mechanism == "OAUTHBEARER" else False)

    def token(self, named: str, token: str, refused: Verdict = False) -> Verdict:
        """Authenticate by a bearer token, and the name of its user, if the client sent one.

        Args:
            named: the name; empty: the token says it.
            token: the token as it was sent.
            refused: the verdict on an invalid token.

        Raises:
            RemoteError: the name is invalid.
        """
        target = self._find_target(_checked(named))
        if target.is_open:
            if self._is_foreign(token):
                self._refuse("the token is none of a user")
                return refused
            return True
        if not self._is_private:
            self.is_unread = True
            return self._refuse("a token was sent without encryption; use TLS")
        if target.is_unnamed:
            return True
        if self._tokens is None or target.space is None or not self._tokens.knows(target.space):
            return self._refuse("no identity provider is configured for the space")
        return self._judged(self._tokens.judge_token(token, target.space), target, refused)

    def _judged(self, judged: Judged, target: LoginTarget, refused: Verdict = False) -> Verdict:
        """Decide by the result of the authority, now or when it arrives."""

        def decide(found: Judgement) -> Verdict:
            user = found.user
            if user is not None and user.space == target.space and target.user in ("", user.name):
                self.named = self.named or user.name
                return self._admit(user)
            self._refuse(found.reason or "the token is not valid for the space and the user")
            return SaslCode.SYS_TEMP if found.is_temporary else refused

        return judged.map(decide) if isinstance(judged, Pending) else decide(judged)


class _Prompt:
    """The empty challenge to a client that sent a mechanism without an initial response."""

    challenge = b""

    def __init__(self, login: Login, mechanism: str) -> None:
        self._login = login
        self._mechanism = mechanism

    def answer(self, response: bytes) -> Verdict:
        """Take the initial response."""
        return self._login.begin(self._mechanism, response) if response else False


class _Refused:
    """The challenge with the reason of a refused token; the login fails after the response [RFC 7628 3.2.3]."""

    challenge = b'{"status":"invalid_token"}'

    def answer(self, response: bytes) -> Verdict:
        """Take the dummy response."""
        return False


def _checked(named: str) -> str:
    """Return a name as it is if it has no character that names may not have.

    Raises:
        RemoteError: it has one.
    """
    saslprep(named)
    return named


def _read_bearer(mechanism: str, response: bytes) -> tuple[str, str]:
    """Return the name of the user, which may be empty, and the token."""
    malformed = RemoteError("amqp:unauthorized-access", "the response is malformed")
    head, *parts = response.split(b"\x01")
    if mechanism == "OAUTHBEARER":
        flag, _, rest = head.partition(b",")
        user, comma, after = rest.partition(b",")
        if flag not in (b"n", b"y") or not comma or after or (user and not user.startswith(b"a=")):
            raise malformed
        named = unquoted(user[2:])
    else:
        if not head.startswith(b"user="):
            raise malformed
        try:
            named = head[5:].decode()
        except UnicodeDecodeError:
            raise malformed from None
    given = [part for part in parts if part[:12].lower() == b"auth=bearer "]
    if len(given) != 1 or not given[0].isascii() or not response.endswith(b"\x01\x01"):
        raise malformed
    return named, given[0][12:].strip().decode("ascii")
