"""One connection's login: from what a client says to the user that it is.

Rules:
1. A refusal says nothing of its reason to the client; ``reason`` keeps it for the log.
2. The space comes first: users of different spaces may have the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from enmasse.errors import RemoteError
from enmasse.identity.directory import UserDirectory
from enmasse.identity.passwords import Passwords
from enmasse.identity.scram_server import Proof, read_client_first
from enmasse.identity.tokens import Judged, Judgement, TokenAuthority
from enmasse.identity.users import DEFAULT_MECHANISMS, User
from enmasse.wire.amqp.pending import Pending
from enmasse.wire.amqp.sasl import SaslCode, Verdict, plain_credentials
from enmasse.wire.amqp.saslprep import saslprep
from enmasse.wire.amqp.scram import HASHES, unquoted

__all__ = ["TOKEN_MECHANISMS", "Login", "Place", "offered_mechanisms"]

TOKEN_MECHANISMS = ("OAUTHBEARER", "XOAUTH2")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client wants to go.

    Attributes:
        space: ``<namespace>/<space>``; nothing if that is not known yet.
        user: the user's name without a realm that names the space.
        is_open: whether everybody may go there.
    """

    space: str | None
    user: str
    is_open: bool


def offered_mechanisms(
    users: UserDirectory,
    *,
    guarded: Sequence[str],
    has_open: bool,
    is_private: bool,
    has_certificate: bool,
    tokens: TokenAuthority | None = None,
) -> tuple[str, ...]:
    """What a listener offers: whatever is good for any of its spaces, the best first.

    Args:
        users: all users.
        guarded: the spaces that only users may enter.
        has_open: whether there are spaces that everybody may enter.
        is_private: whether nobody else can read what is sent.
        has_certificate: whether the client has shown a certificate that holds.
        tokens: knows the users of some of them in place of us.
    """
    federated = [space for space in guarded if tokens is not None and tokens.knows(space)]
    own = [space for space in guarded if space not in federated]
    scram = {mechanism for space in own for mechanism in users.mechanisms(space)}
    if own and not scram:
        # Nobody can come in, which is for nobody to see.
        scram = set(DEFAULT_MECHANISMS)
    found = [mechanism for mechanism in HASHES if mechanism in scram]
    if has_certificate:
        found.insert(0, "EXTERNAL")
    if federated and is_private:
        found += TOKEN_MECHANISMS
    has_passwords = bool(own) or any(tokens is not None and tokens.takes_passwords(space) for space in federated)
    if has_open or (has_passwords and is_private):
        found.append("PLAIN")
    if has_open:
        found.append("ANONYMOUS")
    return tuple(found)


class Login:
    """Decides whether a client may come in, and as whom.

    Args:
        users: all users.
        place_of: where a user wants to go, given its name as it was said, perhaps with a realm; it may
            raise ``RemoteError`` if that cannot be.
        passwords: checks those that are sent.
        new_nonce: gives a fresh unguessable word.
        certified: the names in the client's certificate, if it holds.
        is_private: whether nobody else can read what is sent.
        tokens: knows the users of some spaces in place of us.

    Attributes:
        user: who it is, once let in; nobody if everybody may come in.
        named: the name that was said.
        reason: why a client was refused.
    """

    def __init__(
        self,
        users: UserDirectory,
        place_of: Callable[[str], Place],
        passwords: Passwords,
        *,
        new_nonce: Callable[[], str],
        certified: Sequence[str] = (),
        is_private: bool = False,
        tokens: TokenAuthority | None = None,
    ) -> None:
        self.user: User | None = None
        self.named = ""
        self.reason = ""
        self._users = users
        self._place_of = place_of
        self._passwords = passwords
        self._new_nonce = new_nonce
        self._certified = certified
        self._is_private = is_private
        self._tokens = tokens

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
        return self._goes_to("").is_open or self._refuse("only users may enter the space")

    def _goes_to(self, named: str) -> Place:
        self.named = named
        place = self._place_of(named)
        if place.space is None and not place.is_open:
            self.reason = "nothing has named a space yet"
        return place

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
        place = self._goes_to(saslprep(credentials[0]))
        if place.is_open:
            return True
        if not self._is_private:
            return self._refuse("a password was sent where others can read it; use TLS or SCRAM")
        if self._tokens is not None and place.space is not None and self._tokens.knows(place.space):
            if not self._tokens.takes_passwords(place.space):
                return self._refuse("users of the space show tokens, no passwords")
            judged = self._tokens.judge_password(place.user, credentials[1], place.space)
            # Who that is, is for the other side to say: people log in by their mail addresses too.
            return self._judged(judged, replace(place, user=""))
        user = None if place.space is None else self._users.find(place.space, place.user)
        if not self._passwords.check(self._users, place, user, credentials[1]) or user is None:
            return self._refuse("no such user" if user is None else "wrong password")
        return self._admit(user)

    def _scram(self, mechanism: str, response: bytes) -> Verdict:
        first = read_client_first(response)
        place = self._goes_to(first.user)
        space = place.space or ""
        is_ours = self._tokens is None or not self._tokens.knows(space)
        user = self._users.find(space, place.user) if is_ours else None
        keys = None if user is None else user.keys.get(mechanism)

        def decide(is_proved: bool) -> bool:
            if place.is_open:
                return self._refuse("the space has no users: connect without a user, or with PLAIN")
            if user is None or keys is None:
                return self._refuse("no such user" if user is None else f"the user has no keys for {mechanism}")
            return self._admit(user) if is_proved else self._refuse("wrong password")

        asked = keys or self._users.keys_of_nobody(mechanism, space, place.user)
        return Proof(mechanism, first, asked, self._new_nonce(), decide)

    def _external(self, response: bytes) -> Verdict:
        try:
            named = saslprep(response.decode())
        except UnicodeDecodeError:
            return self._refuse("the response is no UTF-8")
        place = self._goes_to(named)
        self.reason = ""
        found = [
            user for user in self._users.certified(self._certified, place.space) if place.user in ("", user.name)
        ]
        if place.is_open and (place.space is not None or len(found) != 1):
            return True
        if len(found) != 1:
            return self._refuse(f"the certificate is good for {len(found)} users")
        self.named = found[0].name
        return self._admit(found[0])

    def _bearer(self, mechanism: str, response: bytes) -> Verdict:
        named, token = _read_bearer(mechanism, response)
        place = self._goes_to(saslprep(named))
        if place.is_open:
            return True
        if self._tokens is None or place.space is None or not self._tokens.knows(place.space):
            return self._refuse("nobody knows what the token is worth")
        # Clients of the older mechanism do not expect to be told why, and some fail at it.
        refused = _Refused() if mechanism == "OAUTHBEARER" else False
        return self._judged(self._tokens.judge_token(token, place.space), place, refused)

    def _judged(self, judged: Judged, place: Place, refused: Verdict = False) -> Verdict:
        """Follow somebody else's judgement, now or when it comes."""

        def decide(found: Judgement) -> Verdict:
            user = found.user
            if user is not None and user.space == place.space and place.user in ("", user.name):
                self.named = self.named or user.name
                return self._admit(user)
            self._refuse(found.reason or "the token is not good for the space and the user")
            return SaslCode.SYS_TEMP if found.is_temporary else refused

        return judged.map(decide) if isinstance(judged, Pending) else decide(judged)


class _Prompt:
    """The client has only named its mechanism: let it speak."""

    challenge = b""

    def __init__(self, login: Login, mechanism: str) -> None:
        self._login = login
        self._mechanism = mechanism

    def answer(self, response: bytes) -> Verdict:
        """Take what it should have said at once."""
        return self._login.begin(self._mechanism, response) if response else False


class _Refused:
    """Says why a token is refused; whatever the client answers, it does not come in [RFC 7628 3.2.3]."""

    challenge = b'{"status":"invalid_token"}'

    def answer(self, response: bytes) -> Verdict:
        """The client has heard it."""
        return False


def _read_bearer(mechanism: str, response: bytes) -> tuple[str, str]:
    """User, if it is named, and token."""
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
