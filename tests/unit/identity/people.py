"""Users for tests: everything about them is fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enmasse.errors import RemoteError
from enmasse.identity.login import Login, LoginTarget, TokenAuthority
from enmasse.identity.passwords import Passwords
from enmasse.identity.permissions import Grant, Permissions
from enmasse.identity.users import User, Users, make_keys
from enmasse.message.composites import decode_composite
from enmasse.wire.amqp.performatives import SaslMechanisms
from enmasse.wire.amqp.sasl import SaslClient, SaslServer
from enmasse.wire.sasl.mechanisms import ClientMechanism, Verdict

FEW = 4_096
"""Iterations; a test need not be slow on purpose."""

SEED = b"seed of the tests"


def exactly(pattern: str, user: str) -> Callable[[str], bool]:
    """A grammar of patterns without wildcards, in which ``me`` is the user."""
    return lambda address: address == (user if pattern == "me" else pattern)


def person(
    name: str,
    space: str = "ns/shop",
    password: str | None = "secret",
    *,
    mechanisms: Sequence[str] = ("SCRAM-SHA-512", "SCRAM-SHA-256"),
    certificates: Sequence[str] = (),
    grants: Sequence[Grant] = (),
) -> User:
    """A user, whose salts are its name."""
    keys = {}
    if password is not None:
        keys = {mechanism: make_keys(mechanism, password, name.encode(), FEW) for mechanism in mechanisms}
    return User(name, space, Permissions(grants, exactly), keys, tuple(certificates))


def answered(ask: Callable[[], Verdict]) -> Verdict:
    """What a server makes of an answer: one that it does not understand does not come in."""
    try:
        return ask()
    except RemoteError:
        return False


class Door:
    """Logs clients in; a realm names a space, without one it is ``ns/shop``."""

    def __init__(self, *users: User, open_spaces: Sequence[str] = ("ns/open",)) -> None:
        self.users = Users(users, SEED)
        self.passwords = Passwords(b"secret of the tests")
        self.open_spaces = open_spaces
        self.certified: tuple[str, ...] = ()
        self.is_private = True
        self.tokens: TokenAuthority | None = None
        self.login: Login

    def target_of(self, named: str) -> LoginTarget:
        user, _, realm = named.rpartition("@")
        if realm in ("nowhere", "unsaid"):
            return LoginTarget(None, user, is_open=False, reason=realm.replace("unsaid", ""))
        if realm == "wrong":
            raise RemoteError("amqp:not-found", "there is no such space")
        space = f"ns/{realm}" if user else "ns/shop"
        return LoginTarget(space, user or named, is_open=space in self.open_spaces)

    def begin(self) -> Login:
        self.login = Login(
            self.users,
            self.target_of,
            self.passwords,
            new_nonce=lambda: "server",
            certified=self.certified,
            is_private=self.is_private,
            tokens=self.tokens,
        )
        return self.login

    def admits(self, mechanism: ClientMechanism) -> str | None:
        """The user that a client becomes, an empty text for anybody, or nothing if it does not come in."""
        login = self.begin()
        server = SaslServer(
            [mechanism.name], lambda name, response, _host: login.begin(name, response), is_optional=False
        )
        client = SaslClient([mechanism])
        frames = client.receive(SaslMechanisms((mechanism.name,)))
        speaker: SaslServer | SaslClient = server
        while frames:
            (frame,) = frames
            found, _ = decode_composite(frame, 8, len(frame))
            frames = speaker.receive(found)
            speaker = client if speaker is server else server
        assert server.is_done
        assert client.is_done
        if server.error is not None or client.error is not None:
            assert login.user is None
            return None
        return "" if login.user is None else login.user.name


__all__ = ["FEW", "SEED", "Door", "answered", "exactly", "person"]
