"""Authenticates the client of a connection of any protocol.

A protocol authenticates by what it has: SASL (``offer`` and ``authenticate``), user and password (``login``), a
bearer token (``token``) or the certificate of TLS (``certificate``). All of them are throttled and counted alike.

Rules:
1. Credentials are valid for one space, to which the user belongs.
2. ``realms`` alone says what a name at login stands for, whatever the protocol and the proof.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from enmasse.errors import RemoteError
from enmasse.identity.login import Login, LoginTarget, offered_mechanisms
from enmasse.identity.passwords import Postponed
from enmasse.identity.rbac import CONTROL_PROCESS
from enmasse.messaging.owners import ADMINISTRATOR
from enmasse.node.devices.login import DeviceLogin, token_names
from enmasse.node.errors import TenancyError
from enmasse.node.tenancy import Names, named_space
from enmasse.node.users.gate import Gate
from enmasse.node.users.peer import PeerInfo
from enmasse.node.users.realms import DeviceMeant, Meaning, NobodyMeant, Realms, UserMeant
from enmasse.node.users.rights import Rights
from enmasse.pending import Pending
from enmasse.wire.sasl.mechanisms import Admitted, Question, SaslCode, Verdict, plain_credentials

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.devices.devices import Devices
    from enmasse.node.devices.proofs import Proof
    from enmasse.node.devices.tenants import Device, Tenant


ADMIN_MECHANISMS = ("ANONYMOUS", "PLAIN")
"""The mechanisms of the administrator's socket: whoever can reach it is the administrator, by whatever name."""


IN_THE_CLEAR = (
    "credentials in the clear are taken from this machine alone: use TLS, or have the node started with "
    "--allow-insecure-plain"
)
"""The reason for clients whose password or token was not looked at, right or wrong, as others could read it."""


class HostWords(NamedTuple):
    """A protocol's terms for the host by which clients name their space, for errors.

    Attributes:
        login: the host that is named at login.
        at_all: a host that is named then or later.
    """

    login: str = "the host"
    at_all: str = "the host"


HOST_WORDS = HostWords()


class Authentication:
    """Authenticates the client of one connection.

    Args:
        gate: the state that all logins of the node share.
        spaces: returns the spaces of the node by name.
        default: the name of the space for clients that name none.
        port_of: the name of the space that the port belongs to, if it is one space's own.
        peer_info: the facts that are known of the client.
        fixed: the space of every connection of the listener, whose peers are all administrators.
        words: the protocol's terms for hosts.
        waiting: called with true when the client begins to wait for the verdict, and with false when it is known.

    Attributes:
        rights: the user, once it is authenticated, and its permissions.
        device: the device that has logged in, if it was one.
        proof: by which it has proved that it is the one.
    """

    __slots__ = (
        "_attempt",
        "_default",
        "_excuse",
        "_fixed",
        "_gate",
        "_given_user",
        "_is_counted",
        "_is_gone",
        "_is_here",
        "_login",
        "_may_be_device",
        "_named_host",
        "_peer_info",
        "_port_of",
        "_proved_by",
        "_spaces",
        "_waiting",
        "_words",
        "device",
        "mechanism",
        "proof",
        "rights",
    )  # fmt: skip

    def __init__(
        self,
        gate: Gate,
        *,
        spaces: Callable[[], Mapping[str, Space]],
        default: str | None,
        peer_info: PeerInfo,
        fixed: Space | None = None,
        port_of: str | None = None,
        words: HostWords = HOST_WORDS,
        waiting: Callable[[bool], object] = bool,
    ) -> None:
        self._words = words
        self._waiting = waiting
        self.rights = Rights()
        if fixed is not None:
            self.rights.nobody = ADMINISTRATOR
        self._gate = gate
        self._spaces = spaces
        self._default = default
        self._port_of = port_of
        self._peer_info = peer_info
        self._fixed = fixed
        self._is_here = peer_info.is_here
        self.device: Device | None = None
        """The device that has logged in; None: it was a user, or nobody yet."""
        self.proof: Proof | None = None
        self._proved_by: str | None = None
        """The mechanism by which the client has logged in, while it may authenticate again by another one."""
        self._attempt: tuple[str, str, str] | None = None
        """The host, space and name for which failures are counted."""
        self._named_host: str | None = None
        self._given_user: str | None = None
        self.mechanism: str | None = None
        """The mechanism by which the client authenticates."""
        self._login: Login | DeviceLogin | None = None
        self._excuse = ""
        self._is_counted = False
        """True while the connection is one of those that its user may have."""
        self._is_gone = False
        self._may_be_device = False
        """True if the name may turn out to be a device's, and so a refusal does not count for ever."""

    @property
    def named(self) -> str:
        """The name that the client has given."""
        return "" if self._login is None else self._login.named

    @property
    def peer_info(self) -> PeerInfo:
        """The facts that are known of the client."""
        return self._peer_info

    @property
    def has_certificate(self) -> bool:
        """True if the client has a certificate that TLS has verified."""
        return bool(self._peer_info.certified) or self._peer_info.shown is not None

    @property
    def refusal(self) -> str:
        """The reason why the login failed, for the log and never for the client."""
        return self._excuse if self._login is None else self._login.reason

    @property
    def names_no_space(self) -> bool:
        """True if the client has logged in without a space, where it has to name one. It may be told so."""
        return isinstance(self._login, Login) and self._login.names_no_space

    @property
    def _names(self) -> Names:
        """The meaning of host names as this client says them, and their name in errors."""
        return self._gate.names._replace(said=self._words.at_all, is_here=self._is_here)

    @property
    def domain(self) -> str:
        """The domain of hosts that mean a space."""
        return self._gate.names.domain

    @property
    def is_everything_open(self) -> bool:
        """True if this client may enter every space that there is, so that none is to be hidden from it."""
        return all(map(self._is_open, self._spaces()))

    def _is_open(self, space: str) -> bool:
        """Return true if this client may enter a space without authentication."""
        return self._gate.is_open(space, is_here=self._is_here)

    # Logging in

    def offer(self) -> tuple[tuple[str, ...], bool]:
        """Return the mechanisms of SASL, the best first, and true if the client may leave SASL out."""
        if self._fixed is not None:
            # From another machine only the control process comes.
            return (ADMIN_MECHANISMS, True) if self._peer_info.peer == "unix" else (("EXTERNAL",), False)
        gate = self._gate
        names = self._candidates()
        guarded = [name for name in names if not self._is_open(name)]
        has_open = len(guarded) < len(names) or not names
        offered = offered_mechanisms(
            gate.users,
            guarded=guarded,
            has_open=has_open,
            is_private=self.is_private,
            has_certificate=self.has_certificate,
            tokens=gate.tokens,
        )
        if "PLAIN" not in offered and self.is_private and self._may_have_devices(names):
            offered += ("PLAIN",)
        return offered, has_open

    def _may_have_devices(self, spaces: Sequence[str]) -> bool:
        """Return true if a client that names one of some spaces may be a device, whose password is not for SCRAM."""
        devices = self._gate.devices
        return devices is not None and (
            not devices.are_tenants_known or any(each.space in spaces for each in devices.directory.tenants.values())
        )

    def authenticate(self, mechanism: str, response: bytes, hostname: str | None) -> Verdict:
        """Take the first message of a mechanism that was offered.

        Args:
            mechanism: its name.
            response: the client's initial response; it may be empty.
            hostname: the host, and so the space, that the client names.

        Returns:
            True, False, the next challenge, or a ``Pending`` if the answer is known later.
        """
        if self._fixed is not None:
            return self._peer_info.peer == "unix" or self._is_control(mechanism)
        if mechanism == "EXTERNAL" and self._peer_info.shown is not None:
            return self.certificate(response.decode("utf-8", "replace"), hostname)
        if mechanism == "PLAIN" and (credentials := plain_credentials(response)) is not None:
            return self.login(*credentials, hostname)
        return self._begin(mechanism, hostname, lambda login: login.begin(mechanism, response))

    def login(self, user: str, password: str, host: str | None = None) -> Verdict:
        """Take a user's name and password, as the mechanism PLAIN does.

        In the clear a password is refused, however right it is, unless the client is on this machine, the operator
        allows that, or the space is open.

        Args:
            user: its name, perhaps with a realm that names the space.
            password: the password, as it was sent.
            host: the host, and so the space, that the client names.

        Returns:
            True, False, ``SaslCode.SYS_TEMP`` if the client should try again later, or a ``Pending`` of these.
        """
        return self._authenticate(
            "PLAIN",
            user,
            host,
            lambda login: login.password(user, password),
            lambda login, auth_id: login.password(auth_id, password),
        )

    def token(self, user: str, token: str, host: str | None = None) -> Verdict:
        """Take a bearer token, as the mechanism XOAUTH2 does; the user may be left empty. See ``login``."""
        claimed = None if "@" in user else token_names(token)
        return self._authenticate(
            "XOAUTH2",
            user if claimed is None else "@".join(reversed(claimed)),
            host,
            lambda login: login.token(user, token),
            lambda login, auth_id: login.token(auth_id, token),
            is_device=claimed is not None,
        )

    def _authenticate(
        self,
        mechanism: str,
        named: str,
        host: str | None,
        ask_user: Callable[[Login], Verdict],
        ask_device: Callable[[DeviceLogin, str], Verdict],
        *,
        is_device: bool = False,
    ) -> Verdict:
        """Begin the login of whom a name means."""
        self._named_host = host
        try:
            meaning = self._meaning(named, is_device=is_device)
        except TenancyError:
            return self._begin(mechanism, host, ask_user)  # which refuses it as far as may be told
        if isinstance(meaning, UserMeant):
            return self._begin(mechanism, host, ask_user)
        return self._begin_device(mechanism, meaning, lambda login: ask_device(login, meaning.auth_id))

    def certificate(self, user: str = "", host: str | None = None) -> Verdict:
        """Take the certificate that TLS has verified, as the mechanism EXTERNAL does. See ``login``."""
        proof, devices = self._peer_info.shown, self._gate.devices
        if proof is not None and devices is not None:
            try:
                shown = proof.presented()
            except ValueError as error:
                self._excuse = str(error)
                return False
            _, at, realm = user.rpartition("@")
            if at and devices.directory.tenant(realm) is not shown.tenant:
                self._excuse = f"the certificate is of tenant {shown.tenant.id}, and the name of another one"
                self._gate.refused += 1
                return False
            if (problem := self._problem_of_place(shown.tenant, host)) is not None:
                self._excuse = problem
                self._gate.refused += 1
                return False
            self._named_host = host
            meant = DeviceMeant(shown.auth_id, shown.tenant)
            return self._begin_device("EXTERNAL", meant, lambda login: login.certificate(shown))
        return self._begin("EXTERNAL", host, lambda login: login.certificate(user))

    def _problem_of_place(self, tenant: Tenant, host: str | None) -> str | None:
        """Return the reason why a device of a tenant cannot be at the place that port and hosts name."""
        hosts = (self._peer_info.server_name, host)
        try:
            place = named_space(self._spaces(), *hosts, port_of=self._port_of, names=self._names)
        except TenancyError as error:
            return error.description
        if place is not None and place.name != tenant.space:
            return f"the tenant's space is {tenant.space}, not {place.name}"
        return None

    def _meaning(self, named: str, *, is_device: bool = False) -> Meaning:
        """Return the meaning of a name that was given at login.

        Raises:
            TenancyError: the client names two spaces, or misspells one.
        """
        devices = self._gate.devices
        realms = Realms(
            self._spaces(),
            None if devices is None else devices.directory,
            devices is None or devices.are_tenants_known,
            self._is_open,
            self._default,
            self._names,
        )
        hosts = (self._peer_info.server_name, self._named_host)
        return realms.meaning(named, *hosts, port_of=self._port_of, is_device=is_device)

    def _is_control(self, mechanism: str) -> bool:
        """Return true if the client has the control process's own certificate, not just one of its authority."""
        return mechanism == "EXTERNAL" and CONTROL_PROCESS.name in self._peer_info.certified

    @property
    def is_private(self) -> bool:
        """True if credentials may be sent as they are: nobody else reads them, or the operator allows it."""
        # What does not leave this machine nobody else reads.
        return self._peer_info.is_private or self._is_here or self._gate.options.allow_insecure_plain

    def _candidates(self) -> list[str]:
        """Return the spaces that the client may name, as far as that is known before it sends anything."""
        spaces = self._spaces()
        try:
            named = named_space(spaces, self._peer_info.server_name, port_of=self._port_of, names=self._names)
        except TenancyError:
            # It is refused whatever it proves, and learns nothing before that from what is offered.
            named = None
        return list(spaces) if named is None else [named.name]

    def _begin(self, mechanism: str, host: str | None, ask: Callable[[Login], Verdict]) -> Verdict:
        gate = self._gate
        self._named_host = host
        self.mechanism = mechanism
        login = self._login = Login(
            gate.users,
            self._place_of,
            gate.passwords,
            new_nonce=lambda: secrets.token_urlsafe(18),
            certified=self._peer_info.certified,
            is_private=self.is_private,
            tokens=gate.tokens,
            client=self,
            is_foreign=lambda token: token_names(token) is not None,  # a device's
        )
        return self._step(lambda: ask(login))

    # Devices

    @property
    def devices(self) -> Devices | None:
        """The devices of the node."""
        return self._gate.devices

    def _begin_device(
        self, mechanism: str, meant: DeviceMeant | NobodyMeant, ask: Callable[[DeviceLogin], Verdict]
    ) -> Verdict:
        """Begin the login of a device, which is throttled and counted as that of a user is; nobody's fails alike."""
        devices = self._gate.devices
        self.mechanism = mechanism
        if isinstance(meant, DeviceMeant):
            tenant, realm, key = meant.tenant, meant.tenant.id, f"{meant.tenant.space} {meant.tenant.id}"
        else:
            tenant, realm, key = None, meant.realm, f" {meant.realm}"
        self._attempt = (self.host, key, meant.auth_id)
        if devices is None:
            self._excuse = f"there are no devices here, and no {realm!r:.255}"
            self._gate.failed(*self._attempt)
            return False
        login = self._login = devices.login(tenant, realm, self)
        login.named = f"{meant.auth_id}@{realm}"
        if isinstance(meant, NobodyMeant):
            login.reason = meant.reason
            if not meant.is_known:
                return SaslCode.SYS_TEMP
        if not self.is_private:
            login.reason = "a proof was sent without encryption; use TLS"
            return False
        for each in (self._peer_info.server_name, self._named_host):
            if tenant is not None and not devices.agrees(each, tenant):
                login.reason = f"the host {each!r:.255} names another tenant than {tenant.id}"
                return False
        return self._step(lambda: ask(login))

    @property
    def host(self) -> str:
        """The host for which failures are counted."""
        host, colon, _ = self._peer_info.peer.rpartition(":")
        return host if colon else self._peer_info.peer

    def postponed(self) -> Postponed | None:
        """Return the reason why a password that waits to be checked is not to be looked at, if there is one."""
        if self._is_gone:
            return Postponed.GONE
        # Any number can be begun at once, and those before it may have failed.
        if self._attempt is not None and self._gate.must_wait_on(*self._attempt):
            return Postponed.GUESSES
        return None

    def _step(self, ask: Callable[[], Verdict]) -> Verdict:
        """Carry out one step of a login, and count its end."""
        login = self._login
        assert login is not None
        try:
            # Others may have failed since this one began: any number can be begun at once.
            self._wait_for_turn()
            verdict = ask()
        except _MustWaitError as error:
            login.reason = error.description
            return SaslCode.SYS_TEMP
        except RemoteError as error:
            login.reason = error.description
            verdict = False
        return self._account(login, verdict)

    def _account(self, login: Login | DeviceLogin, verdict: Verdict) -> Verdict:
        attempt, gate = self._attempt, self._gate
        if isinstance(verdict, Pending):
            self._waiting(True)
            # Tokens cannot be guessed, so any number of them may be asked about at once.
            is_guess = self.mechanism == "PLAIN"
            forgive = gate.begun(*attempt, login.guess) if attempt is not None and is_guess else None

            def decided(later: Verdict) -> Verdict:
                self._waiting(False)
                if forgive is not None:
                    forgive()
                return self._account(login, later)

            return verdict.map(decided)
        if not isinstance(verdict, int | Admitted):
            return _Step(verdict, lambda question, response: self._step(lambda: question.answer(response)))
        if verdict is True or isinstance(verdict, Admitted):
            self.rights.user = login.user
            self.device, self.proof = (login.device, login.proof) if isinstance(login, DeviceLogin) else (None, None)
            self._proved_by = self.mechanism
            if attempt is not None and login.user is not None:
                gate.came_in(*attempt)
        elif verdict is False and attempt is not None and not (isinstance(login, Login) and login.is_unread):
            # Another answer says nothing of the credentials.
            gate.failed(*attempt)
            if self._may_be_device:
                return SaslCode.SYS_TEMP
        elif verdict is False:
            gate.refused += 1
        return verdict

    def _wait_for_turn(self) -> None:
        if self._attempt is not None and self._gate.must_wait(*self._attempt):
            raise _MustWaitError("amqp:resource-limit-exceeded", "too many logins have failed")

    def _place_of(self, named: str) -> LoginTarget:
        """Return the space and user that a name stands for, unless the login must wait."""
        if not named:  # nothing is guessed
            self._attempt = None
            return self._find_place(named)
        self._attempt = (self.host, "", named)
        place = self._find_place(named)
        if place.is_unnamed:  # nothing is checked that could be guessed
            self._attempt = None
            return place
        # With the space: equal names in two spaces are two users, and neither locks the other out.
        self._attempt = (self.host, place.space or "", place.user)
        self._wait_for_turn()
        return place

    def _find_place(self, named: str) -> LoginTarget:
        """Return the space and user that a name stands for, as far as the connection has named a space.

        Raises:
            RemoteError: it is too early to say.
        """
        spaces = self._spaces()
        self._given_user, self._may_be_device = None, False
        is_anywhere_open = not spaces or any(map(self._is_open, spaces))
        try:
            meaning = self._meaning(named)
        except TenancyError as error:
            if self.mechanism == "EXTERNAL":
                raise  # a certificate would name a user of another space
            # If there are open spaces, the client gets the error when it opens. Otherwise it has to authenticate as
            # in a space that exists, and is refused: so nobody finds out which spaces there are.
            self._given_user = named
            return LoginTarget(None, named, is_open=is_anywhere_open, reason=error.description)
        match meaning:
            case DeviceMeant(_, tenant):
                reason = f"devices of tenant {tenant.id!r} do not log in by {self.mechanism}"
                return LoginTarget(None, named, is_open=False, reason=reason)
            case NobodyMeant(_, _, reason, is_known):
                if not is_known:
                    raise _MustWaitError("amqp:internal-error", reason)
                return LoginTarget(None, named, is_open=False, reason=reason)
        self._given_user, self._may_be_device = meaning.realm and named, meaning.may_be_device
        space = meaning.space
        if space is None or not (meaning.is_named or named or self._peer_info.certified):
            # The open may name a space without users.
            return LoginTarget(None if space is None else space.name, meaning.name, is_open=is_anywhere_open)
        return LoginTarget(space.name, meaning.name, is_open=self._is_open(space.name))

    def forget_login(self) -> None:
        """Let go of a login that came to no end, and of the connection, as that is closed and logged."""
        self._login = None
        self._waiting = bool


class _MustWaitError(RemoteError):
    """Raised when too many recent logins have failed."""


class _Step:
    """A challenge of a login, whose answer is handled like the first message."""

    def __init__(self, question: Question, judge: Callable[[Question, bytes], Verdict]) -> None:
        self.challenge = question.challenge
        self._question = question
        self._step = judge

    def answer(self, response: bytes) -> Verdict:
        """Handle the answer."""
        return self._step(self._question, response)
