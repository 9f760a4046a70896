"""Admits a connection of any protocol: finds its space, and sees to it that it may stay.

It is authenticated first (``authentication.py``), then enters its space (``enter``); without credentials that is
possible for open spaces only.

Rules:
1. In a space without users everybody is ``anonymous`` and may do everything.
2. A client without credentials, or without SASL, may only enter such a space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.errors import RemoteError
from enmasse.node.errors import TenancyError
from enmasse.node.tenancy import choose_space, named_space, unnamed_space
from enmasse.node.users.authentication import Authentication

if TYPE_CHECKING:
    from enmasse.identity.users import User
    from enmasse.messaging.space import Space


class Admission(Authentication):
    """Authenticates one connection, and finds its space; see ``Authentication`` for what it is made of."""

    __slots__ = ()

    def enter(self, open_host: str | None) -> Space:
        """Return the space that the connection belongs to from now on.

        Raises:
            RemoteError: the connection names no space, several, or one that it may not enter.
        """
        if self._fixed is not None:
            return self._visited(open_host)
        if self._peer_info.refusal is not None:
            raise RemoteError("amqp:resource-limit-exceeded", self._peer_info.refusal)
        spaces, user = self._spaces(), self.rights.user
        if user is None:
            space = choose_space(
                spaces,
                server_name=self._peer_info.server_name,
                is_open=self._is_open,
                login_host=self._named_host,
                user=self._given_user,
                open_host=open_host,
                default=self._default,
                port_of=self._port_of,
                names=self._names,
            )
            if not self._is_open(space.name):
                raise RemoteError(
                    "amqp:unauthorized-access",
                    f"the space is for its users: authenticate, and name the space by {self._words.login} or by the "
                    "user's realm",
                )
        else:
            found = spaces.get(user.space)
            if found is None:
                raise TenancyError("amqp:not-found", f"space {user.space!r} does not exist (any more)")
            space = found
            user = self._same(user)
            if user is None:
                raise RemoteError("amqp:unauthorized-access", "the user's credentials have changed meanwhile")
            self.rights.user = user
            named = named_space(spaces, open_host, names=self._names)
            if named is None:
                unnamed_space({space.name: space}, open_host, names=self._names)
            elif named is not space:
                raise TenancyError("amqp:not-allowed", f"user {user.name!r} belongs to another space than open names")
            if self.devices and self.device and not self.devices.agrees(open_host, self.device.tenant):
                raise TenancyError("amqp:not-allowed", f"device {user.name!r} is of another tenant than open names")
            if not self._gate.entered(user):
                raise RemoteError(
                    "amqp:resource-limit-exceeded",
                    f"user {user.name!r} has {self._gate.options.max_user_connections} connections already",
                )
            self._is_counted = True
        self.rights.space = space
        # Nothing of the login is needed any more, for as long as the connection lasts.
        self._login = None
        self._waiting = bool
        return space

    @property
    def is_administrator(self) -> bool:
        """True if the client came by a listener for administrators, whom the limits of tenants do not concern."""
        return self._fixed is not None

    def _visited(self, host: str | None) -> Space:
        """Return the space that an administrator names as ``NAMESPACE/SPACE``, which no host can be called."""
        assert self._fixed is not None
        if host is None or "/" not in host:
            return self._fixed
        space = self._spaces().get(host)
        if space is None:
            raise TenancyError("amqp:not-found", f"space {host!r:.400} does not exist")
        return space

    def _listed(self, user: User) -> User | None:
        """Return the current state of the user; None if it was deleted, or its proof does not hold any longer."""
        if self.device is not None:
            devices = self._gate.devices
            if devices is None or not devices.is_valid(self.device):
                return None
            proof = self._peer_info.shown if self.mechanism == "EXTERNAL" else None
            return user if proof is None or proof.proves(self.device.tenant.id) else None
        by, tokens = self._proved_by, self._gate.tokens
        if user.identity is not None or (tokens is not None and tokens.knows(user.space) and by != "EXTERNAL"):
            return tokens.judge_again(user) if tokens is not None and tokens.knows(user.space) else None
        now = self._gate.users.find(user.space, user.name)
        if now is None:
            return None
        if by == "EXTERNAL":
            info = self._peer_info
            is_proved = not set(info.certified).isdisjoint(now.certificates) and info.is_vouched_for()
        elif by is not None and by in user.keys:
            is_proved = now.keys.get(by) == user.keys[by]
        else:
            is_proved = now.keys == user.keys  # a password in plain, which any of them may have confirmed
        return now if is_proved else None

    @property
    def certified_until(self) -> float | None:
        """The end of a user's certificate, in seconds since 1970 UTC; None: the proof was another one."""
        return self._peer_info.certified_until if self._proved_by == "EXTERNAL" else None

    def _same(self, user: User) -> User | None:
        """Return the current state of the user; None if that is another one of the name, too."""
        now = self._listed(user)
        return now if now is not None and now.owner == user.owner else None

    def leave(self) -> None:
        """Take the closed connection off its user's count."""
        self._is_gone = True
        user = self.rights.user
        if self._is_counted and user is not None:
            self._is_counted = False
            self._gate.left(user)

    @property
    def name(self) -> str:
        """The user's name for management and logs."""
        user = self.rights.user
        return "anonymous" if user is None else user.name

    def review(self) -> str | None:
        """Update the user after a change; return the reason if the connection may not stay."""
        space, user = self.rights.space, self.rights.user
        if space is None or self._fixed is not None or self._spaces().get(space.name) is not space:
            return None
        if user is None:
            return None if self._is_open(space.name) else f"space {space.name!r} is for its users now"
        now = self._same(user)
        if now is None:
            return f"the credentials of user {user.name!r} have changed"
        self.rights.user = now
        return None
