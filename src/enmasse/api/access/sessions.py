"""Sessions of browsers, and fresh proofs of the person in one.

Rules:
1. Sessions outlive the process: of each the hash of its secret is kept, and that of what it ends with. Those of an
   identity provider are in memory alone, because they need its tokens.
2. Each account has a bound of its own, and the oldest of the same account goes. When all places are taken, an account
   gives one up that has most: nobody's sessions push out those of others.
3. The cookie of a session may be stolen. What outlasts the session, such as a token, asks for a fresh proof besides:
   it is in no cookie, lasts ``PROOF_S`` and counts in its session alone.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from enmasse.control.access.accounts import KeptSession, hash_token
from enmasse.control.errors import ForbiddenError
from enmasse.identity.rbac import LOCAL_OPERATOR, PROOF_REQUIRED, Requester
from enmasse.net.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enmasse.api.access.browser_logins import ProviderProof
    from enmasse.control.access.accounts import Accounts
    from enmasse.identity.rbac import AccessRequest


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long sessions last.

    Attributes:
        idle_s: seconds without a request after which one ends.
        whole_s: seconds after which one ends in any case.
    """

    idle_s: float
    whole_s: float


COOKIE: Final = "enmasse_session"

PROOF_HEADER: Final = "EnMasse-Proof"
"""The header of a request that carries a fresh proof. Pages keep it for their origin, other than cookies, which a
browser shows to every port of a host."""

LOCAL: Final = Lifetime(idle_s=12 * 3600.0, whole_s=7 * 86_400.0)
"""Where the API serves this machine alone."""

REMOTE: Final = Lifetime(idle_s=3600.0, whole_s=12 * 3600.0)
"""Where it serves others."""

_USED_EVERY_S: Final = 60.0
"""The last use is kept this exactly; more would be a write per request."""

PROOF_S: Final = 600
"""Seconds for which a proof is fresh."""

MAX_SESSIONS: Final = 10_000
MAX_SESSIONS_OF_ACCOUNT: Final = 50
"""More than a person has browsers, and tests of a team share an account."""

_SECRET_BYTES: Final = 32
_ID_BYTES: Final = 5
_MAX_AGENT_CHARACTERS: Final = 256


@dataclass(slots=True)
class Session:
    """A session of a browser.

    Attributes:
        key: the hash of its secret.
        id: names it, and is no secret.
        requester: the person who has logged in.
        password: the hash of the hash of the account's password, with which the session ends; None: it is of no
            account.
        began: the time at which it began, in seconds of the clock of sessions.
        used: the time at which it was used last.
        host: the host from which it was begun.
        agent: the browser, by its own word.
        provider: the proof by a provider, with which the session ends; None: it is of no provider.
        used_as_kept: the time of its last use that is kept.
    """

    key: bytes
    id: str
    requester: Requester
    password: bytes | None
    began: float
    used: float
    host: str = ""
    agent: str = ""
    provider: ProviderProof | None = None
    used_as_kept: float = 0.0

    @property
    def way_to_prove(self) -> str:
        """The way in which its person proves who they are: ``password``, ``link`` or ``provider``."""
        if self.password is not None:
            return "password"
        return "link" if self.requester is LOCAL_OPERATOR else "provider"


class Sessions:
    """The sessions of one installation.

    Args:
        now: returns seconds since 1970 UTC: sessions outlive the process, and the machine's start.
        lifetime: how long they last.
        kept: keeps them; None: they end with the process.
        operator: the token of the local operator, with which the operator's sessions end at the next start.

    Attributes:
        lifetime: as given.
    """

    def __init__(
        self,
        now: Callable[[], float],
        lifetime: Lifetime = LOCAL,
        kept: Accounts | None = None,
        operator: str = "",
    ) -> None:
        self._operator = hash_token(operator)
        self._now = now
        self.lifetime = lifetime
        self._kept = kept
        self._sessions: dict[bytes, Session] = {}
        self._shares: Shares[bytes] = Shares(MAX_SESSIONS)
        self._proving = secrets.token_bytes(_SECRET_BYTES)
        for found in kept.sessions() if kept is not None else ():
            self._take_up(found)

    def _take_up(self, found: KeptSession) -> None:
        """Go on with a session of a former process; its account is looked at when it is used."""
        is_operator = found.requester == LOCAL_OPERATOR.name
        if found.password is None or (is_operator and found.password != self._operator):
            if self._kept is not None:
                self._kept.forget_session(found.key)
            return
        who = LOCAL_OPERATOR if is_operator else Requester.known(found.requester)
        password = None if is_operator else found.password
        session = Session(
            found.key,
            found.id,
            who,
            password,
            found.began,
            found.used,
            found.host,
            found.agent,
            None,
            found.used,
        )
        self._sessions[found.key] = session
        self._shares.take((who.name,), found.key)
        if not self._is_alive(session, self._now()):
            self.end(session)

    def __len__(self) -> int:
        """Return the number of sessions, with those that have ended and were not asked for since."""
        return len(self._sessions)

    def begin(
        self,
        requester: Requester,
        password: str | None = None,
        *,
        host: str = "",
        agent: str = "",
        provider: ProviderProof | None = None,
    ) -> str:
        """Begin a session, and return its secret.

        Args:
            requester: the person who has logged in.
            password: the hash of the account's password, with which the session ends; None: it is of no account.
            host: the host from which it is begun.
            agent: the browser, by its own word.
            provider: the proof by a provider; None: it is of no provider.
        """
        now, owner = self._now(), (requester.name,)
        self._make_place(owner)
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        key, name = hash_token(secret), secrets.token_hex(_ID_BYTES)
        ends_with = None if password is None else hash_token(password)
        agent = agent[:_MAX_AGENT_CHARACTERS]
        self._sessions[key] = Session(key, name, requester, ends_with, now, now, host, agent, provider, now)
        self._shares.take(owner, key)
        kept_with = self._operator if requester is LOCAL_OPERATOR else ends_with
        if self._kept is not None and provider is None and kept_with is not None:
            self._kept.keep_session(KeptSession(key, name, requester.name, kept_with, now, now, host, agent))
        return secret

    def find(self, secret: str, *, is_used: bool = True) -> Session | None:
        """Return a session, and record its use; None if it has ended.

        Args:
            secret: the secret of the session.
            is_used: False: this does not count as its use.
        """
        session = self._sessions.get(hash_token(secret))
        now = self._now()
        if session is None or not self._is_alive(session, now):
            if session is not None:
                self.end(session)
            return None
        if is_used:
            session.used = now
            if self._kept is not None and now - session.used_as_kept >= _USED_EVERY_S:
                session.used_as_kept = now
                self._kept.use_session(session.key, now)
        return session

    def of(self, name: str) -> list[Session]:
        """Return the sessions of a requester by name, the oldest first."""
        now = self._now()
        found = [self._sessions[key] for key in self._shares.of((name,))]
        return [session for session in found if self._is_alive(session, now)]

    def age_of(self, session: Session) -> tuple[float, float]:
        """Return the seconds since a session began, and since it was used."""
        now = self._now()
        return now - session.began, now - session.used

    def end(self, session: Session) -> None:
        """End a session, if it has not ended yet."""
        if self._sessions.pop(session.key, None) is not None:
            self._shares.leave((session.requester.name,), session.key)
            if self._kept is not None:
                self._kept.forget_session(session.key)

    def prove(self, session: Session) -> str:
        """Return a fresh proof for a session, whose person has just proved who they are."""
        until = int(self._now()) + PROOF_S
        return f"{until}.{self._seal(session, until)}"

    def is_proved(self, session: Session, proof: str) -> bool:
        """Return whether a proof is one of this session, and still fresh."""
        found = _PROOF.fullmatch(proof)
        if found is None or int(found[1]) <= self._now():
            return False
        return hmac.compare_digest(found[2], self._seal(session, int(found[1])))

    def _seal(self, session: Session, until: int) -> str:
        return hmac.digest(self._proving, b"%d.%s" % (until, session.key), "sha256").hex()

    def _make_place(self, owner: tuple[str]) -> None:
        """End what has to go for one more session of an account."""
        now = self._now()
        looked_at = [*self._sessions] if self._shares.is_full else self._shares.of(owner)
        for session in map(self._sessions.__getitem__, looked_at):
            if not self._is_alive(session, now):
                self.end(session)
        own = self._shares.of(owner)
        if len(own) >= MAX_SESSIONS_OF_ACCOUNT:
            self.end(self._sessions[own[0]])
        elif self._shares.is_full:
            others = next(self._shares.richer_than(owner), None)
            self.end(self._sessions[others or next(iter(own or self._sessions))])

    def _is_alive(self, session: Session, now: float) -> bool:
        return now - session.began < self.lifetime.whole_s and now - session.used < self.lifetime.idle_s


_PROOF: Final = re.compile(r"([0-9]{1,12})\.([0-9a-f]{64})", re.ASCII)

_WRITES: Final = frozenset({"create", "update", "patch"})

_LASTING: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("access.enmasse.io", "tokens"): frozenset({"create"}),
    ("access.enmasse.io", "accounts"): frozenset({"create"}),
    ("rbac.authorization.k8s.io", "rolebindings"): _WRITES,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _WRITES,
    ("admin.enmasse.io", "authenticationservices"): _WRITES,
    ("user.enmasse.io", "messagingusers"): _WRITES,
    # A change may let everybody into a space, or a project's devices, that is there already.
    ("enmasse.io", "addressspaces"): frozenset({"update", "patch"}),
    ("iot.enmasse.io", "iotprojects"): frozenset({"update", "patch"}),
    # Their messages go on to whoever was named, for good.
    ("enmasse.io", "webhooks"): _WRITES,
    # Passwords and keys, read as well as exchanged for others.
    ("", "secrets"): _WRITES | {"get", "list", "watch"},
}
"""The verbs on resources that ask for a fresh proof in a session."""

_REGISTRY: Final = re.compile(r"/registry/v1/(tenants|credentials|import)(/.*)?", re.DOTALL)
"""Authorities of tenants, and what devices prove themselves by."""

_BINDING: Final = re.compile(r"/osbapi/v2/service_instances/.*/service_bindings/.*", re.DOTALL)
"""A binding of the service broker is a user with a password."""


def outlasts_session(access: AccessRequest) -> bool:
    """Return whether an action gives access that outlasts the session in which it is done: see rule 3."""
    if not access.path:
        return access.verb in _LASTING.get((access.group, access.resource), ())
    written = _REGISTRY.fullmatch(access.path) if access.verb in ("post", "put") else None
    bound = _BINDING.fullmatch(access.path) if access.verb in ("put", "get") else None
    return bool(written or bound)


_WAYS: Final[Mapping[str, str]] = {
    "password": "POST your password to /login/proof",
    "link": "open the console again, by `enmasse console` or the link of `enmasse up`",
    "provider": "log in again at the identity provider, by /login/oidc?fresh=true",
}


def refusal_of(session: Session) -> str:
    """Return why something is refused that asks for a fresh proof, and how the person of a session gives one."""
    return (
        f"this outlasts your session and asks for a fresh proof: {_WAYS[session.way_to_prove]}; then send it again "
        f"with the proof in the header {PROOF_HEADER}"
    )


def proof_required(session: Session) -> ForbiddenError:
    """Return the refusal of what asks for a fresh proof."""
    return ForbiddenError(refusal_of(session), cause=PROOF_REQUIRED)
