"""Admits a connection of any protocol: finds its space, and sees to it that it may stay.

It is authenticated first (``authentication.py``), then enters its space (``enter``); without credentials that is
possible for open spaces only.

Rules:
1. In a space without users everybody is ``anonymous`` and may do everything.
2. A client without credentials, or without SASL, may only enter such a space.
3. A client whose connection another node of the installation has handed over does not log in here: that node says who
   it is (``assert_identity``). It comes in if what it has proved holds by what is known here, and is then as one that
   has logged in here: what changes later is noticed here alone.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

from enmasse.errors import RemoteError
from enmasse.identity.login import USER_AND_SPACE
from enmasse.identity.permissions import Permissions
from enmasse.identity.users import User
from enmasse.node.errors import TenancyError
from enmasse.node.patterns import matcher_of
from enmasse.node.tenancy import choose_space, how_to_name, named_space, unnamed_space
from enmasse.node.users.authentication import Authentication
from enmasse.wire.peer_header import PeerDevice, PeerToken, PeerUser
from enmasse.wire.sasl.mechanisms import SaslCode, Verdict

if TYPE_CHECKING:
    from enmasse.messaging.space import Space

_LATER: Final = SaslCode.SYS_TEMP


class Admission(Authentication):
    """Authenticates one connection, and finds its space; see ``Authentication`` for what it is made of."""

    __slots__ = ()

    @property
    def is_asserted(self) -> bool:
        """True if another node says who the client is."""
        proxied = self._peer_info.proxied
        return proxied is not None and bool(proxied.front)

    def identity(self) -> tuple[PeerUser | None, PeerDevice | None]:
        """Return who has logged in, for another node."""
        user, device, proof = self.rights.user, self.device, self.proof
        if device is not None and proof is not None:
            tenant = device.tenant.id
            return None, PeerDevice(
                tenant, device.id, proof.kind, proof.auth_id, proof.material, proof.until, proof.authority
            )
        if user is None:
            return None, None
        stated = user.identity
        if stated is not None:
            token = PeerToken(
                stated.issuer, stated.subject, stated.groups, stated.scopes, stated.expires_at, user.is_listed
            )
            return PeerUser(user.name, user.owner, b"", token), None
        return PeerUser(user.name, user.owner, credential_of(user, self._proved_by)), None

    def assert_identity(
        self, space: str, mechanism: str, user: PeerUser | None, device: PeerDevice | None
    ) -> Verdict:
        """Take another node's word for who the client is, in the place of a login.

        Args:
            space: the client's space.
            mechanism: the mechanism by which it has logged in; empty: it has not.
            user: the user.
            device: the device, if it is none.

        Returns:
            True, False, ``SaslCode.SYS_TEMP`` if that cannot be said now, or a ``Pending`` of these.
        """
        self.mechanism = mechanism or None
        if device is not None:
            return self._assert_device(space, device)
        if user is None:
            return self._is_open(space) or self._wrong(f"the space {space!r} is for its users")
        self._proved_by = self.mechanism
        if user.token is not None:
            found = _stated(space, user, user.token)
        else:
            known = self._gate.users.find(space, user.name)
            by_password = mechanism != "EXTERNAL"
            if known is None:
                return self._wrong(f"there is no user {user.name!r} here")
            if by_password and not compare_digest(credential_of(known, self._proved_by), user.credential):
                return self._wrong(f"the password of user {user.name!r} is another one here")
            found = known
        now = self._listed(found)
        if now is None or now.owner != user.owner:
            return self._wrong(f"what user {user.name!r} has proved does not hold here")
        self.rights.user = now
        return True

    def _assert_device(self, space: str, said: PeerDevice) -> Verdict:
        devices = self.devices
        tenant = None if devices is None else devices.directory.tenants.get(said.tenant)
        if devices is None or tenant is None or tenant.space != space:
            is_known = devices is None or devices.are_tenants_known
            return self._wrong(f"there is no tenant {said.tenant!r} of the space here") if is_known else _LATER
        shown = self._peer_info.shown
        if said.authority and (shown is None or not shown.proves(tenant.id)):
            return self._wrong("the tenant does not trust the certificate's authority")
        login = self._login = devices.login(tenant, tenant.id, self)
        login.named = f"{said.auth_id}@{tenant.id}"
        return self._step(lambda: login.asserted(said))

    def _wrong(self, reason: str) -> bool:
        self._excuse = reason
        return False

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
        if self.names_no_space:
            # What is named now comes too late: who has proved nothing does not learn whether there is such a space.
            raise TenancyError("amqp:unauthorized-access", how_to_name(spaces, names=self._names))
        if user is None:
            if spaces and not any(map(self._is_open, spaces)):
                raise self._for_users()  # whatever is named
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
                raise self._for_users()
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
                names = self._names._replace(is_here=self._is_here and not self._has_named_space)
                unnamed_space({space.name: space}, open_host, names=names)
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
    def _has_named_space(self) -> bool:
        """True if the client's login, port or host for TLS has named its space, or another node says which it is."""
        if self.is_asserted or self.device is not None or self._given_user:
            return True
        hosts = (self._peer_info.server_name, self._named_host)
        return named_space(self._spaces(), *hosts, port_of=self._port_of, names=self._names) is not None

    def _for_users(self) -> RemoteError:
        how = f"authenticate, and name the space: {USER_AND_SPACE}, or by {self._words.login}"
        return RemoteError("amqp:unauthorized-access", f"the space is for its users: {how}")

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
        return None if self.device is not None else self.rights.client_problem


def credential_of(user: User, by: str | None) -> bytes:
    """Return a digest of the keys by which a user's password was right, given the mechanism."""
    keys = {by: user.keys[by]} if by is not None and by in user.keys else user.keys
    digest = sha256()
    for name in sorted(keys):
        digest.update(b"%b %d %b" % (name.encode(), keys[name].iterations, keys[name].salt + keys[name].stored))
    return digest.digest()


def _stated(space: str, said: PeerUser, token: PeerToken) -> User:
    """Return a user as its provider has stated it, with the permissions yet to be found."""
    from enmasse.identity.oidc import Identity  # noqa: PLC0415  few nodes have such users

    identity = Identity(token.issuer, token.subject, said.name, token.groups, token.scopes, token.ends_at)
    return User(said.name, space, Permissions((), matcher_of), identity=identity, is_listed=token.is_listed)
