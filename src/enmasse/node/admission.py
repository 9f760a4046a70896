"""How one connection comes in.

Rules:
1. Whatever a client proves, it proves for one space: its user belongs to that.
2. Where a space has no users, everybody is ``anonymous`` and may do everything.
3. Who has shown no proof, or left SASL out, may only enter such a space.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from enmasse.errors import RemoteError
from enmasse.identity.login import Login, Place, offered_mechanisms
from enmasse.identity.requester import OURSELVES
from enmasse.identity.users import User
from enmasse.node.errors import TenancyError
from enmasse.node.gate import Gate
from enmasse.node.rights import Rights
from enmasse.node.tenancy import choose_space, named_space
from enmasse.wire.amqp.pending import Pending
from enmasse.wire.amqp.sasl import Admitted, Question, SaslCode, SaslServer, Verdict

if TYPE_CHECKING:
    from enmasse.messaging.space import Space

__all__ = ["ADMIN_MECHANISMS", "Admission", "Facts"]

ADMIN_MECHANISMS = ("ANONYMOUS", "PLAIN")
"""Who reaches the administrator's socket is the administrator; whatever it says of itself."""


class Facts(NamedTuple):
    """What is known of a client before it has said anything.

    Attributes:
        peer: where it is, as ``host:port`` or ``unix``.
        is_private: whether nobody else can read what is sent.
        server_name: the host that it named for TLS.
        certified: the names in its certificate, if it holds.
        refusal: why the node has no room for it, if so.
    """

    peer: str
    is_private: bool = False
    server_name: str | None = None
    certified: tuple[str, ...] = ()
    refusal: str | None = None


class Admission:
    """One connection's way in.

    Args:
        gate: what all connections have in common.
        spaces: what a client may belong to, by name.
        default: the name of the space that is meant by a connection which names none.
        facts: what is known of the client.
        fixed: the space of every connection of the listener, whose peers are all administrators.

    Attributes:
        rights: who it is, once it has proved that, and what it may do.
    """

    __slots__ = (
        "_account_name", "_default", "_facts", "_fixed", "_gate", "_given_user", "_is_counted", "_is_here", "_login",
        "_sasl_host", "_spaces", "mechanism", "rights",
    )  # fmt: skip

    def __init__(
        self,
        gate: Gate,
        *,
        spaces: Callable[[], Mapping[str, Space]],
        default: str | None,
        facts: Facts,
        fixed: Space | None = None,
    ) -> None:
        self.rights = Rights()
        self._gate = gate
        self._spaces = spaces
        self._default = default
        self._facts = facts
        self._fixed = fixed
        self._is_here = _is_here(facts.peer)
        self._account_name = ""
        """For whom failures are counted."""
        self._sasl_host: str | None = None
        self._given_user: str | None = None
        self.mechanism: str | None = None
        """By which the client wants to come in."""
        self._login: Login | None = None
        self._is_counted = False

    @property
    def named(self) -> str:
        """The name that the client has said."""
        return "" if self._login is None else self._login.named

    @property
    def refusal(self) -> str:
        """Why the login failed; for the log, never for the client."""
        return "" if self._login is None else self._login.reason

    def _is_open(self, space: str) -> bool:
        """Whether this client may enter a space without being anybody."""
        return self._gate.is_open(space, is_here=self._is_here)

    # SASL

    def sasl(self) -> SaslServer:
        """The server's side of SASL for this connection."""
        if self._fixed is not None:
            if self._facts.peer != "unix":  # from another machine
                return SaslServer(("EXTERNAL",), self._is_control, is_optional=False)
            return SaslServer(ADMIN_MECHANISMS, lambda *_: True, is_optional=True)
        gate = self._gate
        names = self._candidates()
        guarded = [name for name in names if not self._is_open(name)]
        has_open = len(guarded) < len(names) or not names
        offered = offered_mechanisms(
            gate.users,
            guarded=guarded,
            has_open=has_open,
            is_private=self._is_private,
            has_certificate=bool(self._facts.certified),
            tokens=gate.tokens,
        )
        return SaslServer(offered, self._authenticate, is_optional=has_open)

    def _is_control(self, mechanism: str, response: bytes, hostname: str | None) -> Verdict:
        """Whether it has shown the control process's certificate: others of the same authority will not do."""
        return mechanism == "EXTERNAL" and OURSELVES.name in self._facts.certified

    @property
    def _is_private(self) -> bool:
        return self._facts.is_private or self._gate.options.allow_insecure_plain

    def _candidates(self) -> list[str]:
        """The spaces that the client may mean, as far as that is known before it speaks."""
        spaces = self._spaces()
        try:
            named = named_space(spaces, self._facts.server_name, names=self._gate.names)
        except TenancyError:
            # It will be told so when it opens; until then it is anybody.
            return []
        return list(spaces) if named is None else [named.name]

    def _authenticate(self, mechanism: str, response: bytes, hostname: str | None) -> Verdict:
        gate, host = self._gate, self._host
        self._sasl_host = hostname
        self.mechanism = mechanism
        if mechanism not in ("ANONYMOUS", "EXTERNAL") and gate.must_wait(host):
            return SaslCode.SYS_TEMP
        login = self._login = Login(
            gate.users,
            self._place_of,
            gate.passwords,
            new_nonce=lambda: secrets.token_urlsafe(18),
            certified=self._facts.certified,
            is_private=self._is_private,
            tokens=gate.tokens,
        )
        return self._judge(lambda: login.begin(mechanism, response))

    @property
    def _host(self) -> str:
        """Whom failures are counted for."""
        peer = self._facts.peer
        return peer.rpartition(":")[0] if ":" in peer else peer

    def _judge(self, ask: Callable[[], Verdict]) -> Verdict:
        """Take one step of a login, and keep account of its end."""
        login = self._login
        assert login is not None
        try:
            verdict = ask()
        except _MustWaitError:
            return SaslCode.SYS_TEMP
        except RemoteError as error:
            login.reason = error.description
            verdict = False
        return self._account(login, verdict)

    def _account(self, login: Login, verdict: Verdict) -> Verdict:
        if isinstance(verdict, Pending):
            return verdict.map(lambda later: self._account(login, later))
        if not isinstance(verdict, int | Admitted):
            return _Step(verdict, lambda question, response: self._judge(lambda: question.answer(response)))
        if verdict is True or isinstance(verdict, Admitted):
            self.rights.user = login.user
        elif verdict is False:
            # Another answer says nothing of the credentials.
            self._gate.failed(self._host, self._account_name or login.named)
        return verdict

    def _place_of(self, named: str) -> Place:
        """Where somebody wants to go, unless that must wait."""
        place = self._find_place(named)
        # With the space: equal names in two spaces are two users, and neither locks the other out.
        self._account_name = f"{place.space or ''} {place.user}" if named else ""
        if named and self._gate.must_wait(self._host, self._account_name):
            raise _MustWaitError("amqp:resource-limit-exceeded", "too many logins have failed")
        return place

    def _find_place(self, named: str) -> Place:
        """Where somebody wants to go, as far as the connection has said that by now."""
        spaces = self._spaces()
        self._given_user = named
        name, _, realm = named.rpartition("@")
        is_anywhere_open = not spaces or any(map(self._is_open, spaces))
        try:
            user = name if name and named_space(spaces, realm, names=self._gate.names) is not None else named
            hosts = (self._facts.server_name, self._sasl_host, realm if name else None)
            space = named_space(spaces, *hosts, names=self._gate.names)
        except TenancyError:
            if not is_anywhere_open:
                raise
            # It comes in as nobody, to be told at open what is wrong.
            return Place(None, named, is_open=True)
        if space is None:
            if self._default is not None:
                space = spaces.get(self._default)
            elif len(spaces) == 1:
                space = next(iter(spaces.values()))
            if space is None or (not named and not self._facts.certified):
                # What open names may be a space for everybody.
                return Place(None if space is None else space.name, user, is_open=is_anywhere_open)
        return Place(space.name, user, is_open=self._is_open(space.name))

    # Open

    def enter(self, open_host: str | None) -> Space:
        """The space that the connection belongs to from now on.

        Raises:
            RemoteError: it names none, or several, or one that it may not enter.
        """
        if self._fixed is not None:
            return self._fixed
        if self._facts.refusal is not None:
            raise RemoteError("amqp:resource-limit-exceeded", self._facts.refusal)
        spaces, user = self._spaces(), self.rights.user
        if user is None:
            space = choose_space(
                spaces,
                server_name=self._facts.server_name,
                is_open=self._is_open,
                sasl_host=self._sasl_host,
                user=self._given_user,
                open_host=open_host,
                default=self._default,
                names=self._gate.names,
            )
            if not self._is_open(space.name):
                raise RemoteError(
                    "amqp:unauthorized-access",
                    f"space {space.name!r} is for its users: authenticate by SASL, and name the space by the host "
                    "in sasl-init or by the user's realm",
                )
        else:
            found = spaces.get(user.space)
            if found is None:
                raise TenancyError("amqp:not-found", f"space {user.space!r} does not exist (any more)")
            space = found
            user = self._listed(user)
            if user is None:
                raise RemoteError("amqp:unauthorized-access", "the user's credentials have changed meanwhile")
            self.rights.user = user
            named = named_space(spaces, open_host, names=self._gate.names)
            if named not in (None, space):
                raise TenancyError("amqp:not-allowed", f"user {user.name!r} belongs to another space than open names")
            if not self._gate.entered(user):
                raise RemoteError(
                    "amqp:resource-limit-exceeded",
                    f"user {user.name!r} has {self._gate.options.max_user_connections} connections already",
                )
            self._is_counted = True
        self.rights.space = space
        self._login = None
        return space

    def _listed(self, user: User) -> User | None:
        """The user as the file has it now; nothing if it is another one, or none any more."""
        tokens = self._gate.tokens
        if tokens is not None and tokens.knows(user.space) and self.mechanism != "EXTERNAL":
            return tokens.judge_again(user)
        now = self._gate.users.find(user.space, user.name)
        return None if now is None or (now.keys, now.certificates) != (user.keys, user.certificates) else now

    def leave(self) -> None:
        """The connection is gone."""
        user = self.rights.user
        if self._is_counted and user is not None:
            self._is_counted = False
            self._gate.left(user)

    @property
    def name(self) -> str:
        """How the user is shown."""
        user = self.rights.user
        return "anonymous" if user is None else user.name

    def review(self) -> str | None:
        """Users or spaces have changed: why the connection may not stay, if it may not."""
        space, user = self.rights.space, self.rights.user
        if space is None or self._fixed is not None or self._spaces().get(space.name) is not space:
            return None
        if user is None:
            return None if self._is_open(space.name) else f"space {space.name!r} is for its users now"
        now = self._listed(user)
        if now is None:
            return f"the credentials of user {user.name!r} have changed"
        self.rights.user = now
        return None


def _is_here(peer: str) -> bool:
    """Whether a client is on this machine."""
    if peer == "unix":
        return True
    try:
        return ipaddress.ip_address(peer.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return False


class _MustWaitError(RemoteError):
    """Too many logins have failed of late."""


class _Step:
    """A question of a login, whose answer is judged like the first message."""

    def __init__(self, question: Question, judge: Callable[[Question, bytes], Verdict]) -> None:
        self.challenge = question.challenge
        self._question = question
        self._judge = judge

    def answer(self, response: bytes) -> Verdict:
        """Go on with the login."""
        return self._judge(self._question, response)
