"""Targets of SASL: a server with a user who has a password, and a client that proves one."""

from __future__ import annotations

from collections.abc import Sequence

from enmasse.identity.login import Judgement, Login, LoginTarget
from enmasse.identity.passwords import Passwords
from enmasse.identity.permissions import Permissions
from enmasse.identity.users import User, Users, make_keys
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import SASL_HEADER
from enmasse.wire.amqp.performatives import Open, SaslInit, SaslMechanisms, SaslOutcome
from enmasse.wire.amqp.sasl import SaslClient, SaslServer
from enmasse.wire.sasl.mechanisms import Anonymous, ClientMechanism, External, OAuthBearer, Plain, XOAuth2
from enmasse.wire.sasl.scram import Scram
from fuzz.engines import Application, converse, cut, headed
from fuzz.mutation import mutate_sasl
from fuzz.target import Target
from fuzz.vocabulary import SASL, frame_of, hello

__all__ = ["SASL_CLIENT_TARGET", "SASL_SERVER_TARGET"]

SPACE = "fuzz/space"
SECRET = bytes(32)
OFFERED = ("EXTERNAL", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "XOAUTH2", "PLAIN", "ANONYMOUS")

_KEYS = {name: make_keys(name, "password", b"salt of the user", 4096) for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")}
_USERS = Users(
    [User("user", SPACE, Permissions([], lambda _pattern, _user: lambda _address: True), _KEYS)], seed=SECRET
)


class NoTokens:
    """Knows no token, and no password.

    Args:
        is_asked: whether it is the one to know the users of the space.
    """

    def __init__(self, *, is_asked: bool) -> None:
        self._is_asked = is_asked

    def knows(self, space: str) -> bool:
        return self._is_asked

    def takes_passwords(self, space: str) -> bool:
        return self._is_asked

    def judge_token(self, token: str, space: str) -> Judgement:
        return Judgement(reason="unknown")

    def judge_password(self, user: str, password: str, space: str) -> Judgement:
        return Judgement(reason="unknown")

    def judge_again(self, user: User) -> User | None:
        return None


def run_sasl_server(data: bytes) -> None:
    """A server is never in a state where a peer is in that it has not let in."""
    if not data:
        return
    application = Application()
    login = Login(
        _USERS,
        lambda named: LoginTarget(SPACE, named.partition("@")[0], is_open=False),
        Passwords(SECRET),
        new_nonce=lambda: "of-the-server",
        certified=("somebody",) if data[0] & 64 else (),
        is_private=bool(data[0] & 32),
        tokens=NoTokens(is_asked=bool(data[0] & 1)),
    )
    sasl = SaslServer(OFFERED, lambda mechanism, response, _host: login.begin(mechanism, response), is_optional=False)
    engine = Connection(application, container_id="server", is_server=True, now=0.0, sasl=sasl)
    engine.receive(SASL_HEADER, 0.0)
    converse(engine, cut(data[0], data[1:]))
    opened = any(item[0] == "opened" for item in application.heard)
    assert not opened or login.user is not None, "in without a proof"


def _mechanisms(head: int) -> Sequence[ClientMechanism]:
    scram = Scram("SCRAM-SHA-256", "user", "password", lambda: "of-the-client")
    return (
        (scram, Plain("user", "password"), Anonymous()),
        (External(), scram),
        (OAuthBearer("token"), Plain("user", "password")),
        (XOAuth2("user", "token"), Anonymous()),
    )[head >> 3 & 3]


def run_sasl_client(data: bytes) -> None:
    """A client takes whatever a server says in SASL, or hangs up."""
    if not data:
        return
    application = Application()
    sasl = SaslClient(_mechanisms(data[0]))
    engine = Connection(application, container_id="client", is_server=False, now=0.0, sasl=sasl)
    engine.receive(SASL_HEADER, 0.0)
    converse(engine, cut(data[0], data[1:]))


def _seeds() -> Sequence[bytes]:
    frames = [frame_of(item) for item in SASL]
    success = frame_of(SaslInit("PLAIN", b"\0user\0password")) + hello(Open("in"))
    welcome = frame_of(SaslMechanisms(("PLAIN",))) + frame_of(SaslOutcome(0)) + hello(Open("server"))
    return headed([*frames, success, welcome], 0, 1, 32)


SASL_SERVER_TARGET = Target("sasl-server", run_sasl_server, _seeds, 1024, mutate_sasl)
SASL_CLIENT_TARGET = Target("sasl-client", run_sasl_client, _seeds, 1024, mutate_sasl)
