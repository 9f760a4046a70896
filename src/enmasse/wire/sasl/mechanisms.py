"""SASL mechanisms of a client in their order of preference, and a server's verdicts [RFC 4422].

A verdict is final, one more question, or not known yet. Mechanisms of one message are here, SCRAM is in ``scram``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from enmasse.errors import RemoteError
from enmasse.pending import Pending
from enmasse.wire.sasl.scram import HASHES, Scram


class SaslCode(IntEnum):
    """Outcome of an exchange, in the codes that AMQP gives them [AMQP 5.3.3.6]."""

    OK = 0
    AUTH = 1
    """The credentials are not good."""
    SYS = 2
    SYS_PERM = 3
    SYS_TEMP = 4
    """Nothing is said of the credentials: try again later."""


class Question(Protocol):
    """A challenge that a server sends before it decides."""

    challenge: bytes

    def answer(self, response: bytes) -> Verdict:
        """Decide, or ask once more.

        Raises:
            RemoteError: the response is malformed; the peer does not come in.
        """


@dataclass(frozen=True, slots=True)
class Admitted:
    """The peer may come in, and the outcome carries the mechanism's last message [RFC 4422 3.6]."""

    additional_data: bytes


Verdict = bool | SaslCode | Admitted | Question | Pending["Verdict"]
"""True if the peer may come in, or the next question to it; perhaps known only later."""


def plain_credentials(response: bytes) -> tuple[str, str] | None:
    """User and password of a PLAIN response, or nothing if it is malformed [RFC 4616].

    Who wants to act as somebody else gets nothing too.
    """
    parts = response.split(b"\0")
    if len(parts) != 3 or parts[0] not in (b"", parts[1]):
        return None
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        return None


class ClientMechanism(Protocol):
    """A way for a client to prove its identity; one object serves one connection after another."""

    name: str

    def response(self) -> bytes:
        """The initial response, at the start of each exchange."""

    def answer(self, challenge: bytes) -> bytes:
        """The response to a challenge.

        Raises:
            RemoteError: the server has no business to ask that.
        """

    def finish(self, additional_data: bytes | None) -> None:
        """The server lets us in.

        Raises:
            RemoteError: it has not proved itself, where the mechanism asks for that.
        """


class _OneMessage:
    """A mechanism in which everything is said at once."""

    name: str

    def answer(self, challenge: bytes) -> bytes:
        """Everything has been said."""
        raise RemoteError("amqp:unauthorized-access", f"the server asks a question that {self.name} does not have")

    def finish(self, additional_data: bytes | None) -> None:
        """The server has nothing to prove."""


class Anonymous(_OneMessage):
    """No proof."""

    name = "ANONYMOUS"

    def response(self) -> bytes:
        """A trace that says nothing of the user [RFC 4505]."""
        return b"anonymous"


class Plain(_OneMessage):
    """User and password in the clear."""

    name = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def response(self) -> bytes:
        """The credentials [RFC 4616]."""
        return b"\0" + self._user.encode() + b"\0" + self._password.encode()


class External(_OneMessage):
    """The identity of the TLS certificate [RFC 4422 A].

    Args:
        user: the user to be, where a certificate is good for several; empty: the one whom it names.
    """

    name = "EXTERNAL"

    def __init__(self, user: str = "") -> None:
        self._user = user

    def response(self) -> bytes:
        """The identity that is wanted."""
        return self._user.encode()


class _Bearer:
    """A token instead of a password; a server that refuses it says why and awaits an empty answer."""

    name: str

    def __init__(self) -> None:
        self.reason: str | None = None
        """The server's reason for refusing a token."""

    def answer(self, challenge: bytes) -> bytes:
        """Keep the reason that the token was refused for, and let the server end the exchange."""
        self.reason = challenge[:1000].decode("utf-8", "replace")
        return b"\x01"

    def finish(self, additional_data: bytes | None) -> None:
        """The server has nothing to prove."""


class OAuthBearer(_Bearer):
    """A bearer token [RFC 7628].

    Args:
        token: the token as its issuer gave it.
        user: the user to be; empty: the one whom the token names.
        host: the server's name, if it matters to the server.
        port: the server's port; 0: is not sent.
    """

    name = "OAUTHBEARER"

    def __init__(self, token: str, user: str = "", host: str = "", port: int = 0) -> None:
        super().__init__()
        self._token = token
        self._user = user
        self._host = host
        self._port = port

    def response(self) -> bytes:
        """The token and the place it is for [RFC 7628 3.1]."""
        user = self._user.replace("=", "=3D").replace(",", "=2C")
        parts = [f"n,{f'a={user}' if user else ''},"]
        if self._host:
            parts.append(f"host={self._host}")
        if self._port:
            parts.append(f"port={self._port}")
        parts.append(f"auth=Bearer {self._token}")
        return "\x01".join([*parts, "", ""]).encode()


class XOAuth2(_Bearer):
    """A bearer token, as services sent it before there was a standard.

    Args:
        user: the user to be.
        token: the token as its issuer gave it.
    """

    name = "XOAUTH2"

    def __init__(self, user: str, token: str) -> None:
        super().__init__()
        self._user = user
        self._token = token

    def response(self) -> bytes:
        """User and token."""
        return f"user={self._user}\x01auth=Bearer {self._token}\x01\x01".encode()


def password_mechanisms(
    user: str, password: str, new_nonce: Callable[[], str], *, with_plain: bool = True
) -> list[ClientMechanism]:
    """Return the mechanisms for a user and a password, the best first.

    Args:
        user: the user's name.
        password: its password.
        new_nonce: gives a fresh unguessable word, such as ``secrets.token_urlsafe``.
        with_plain: whether the password may be sent to a server that knows nothing better.
    """
    found: list[ClientMechanism] = [Scram(name, user, password, new_nonce) for name in HASHES]
    if with_plain:
        found.append(Plain(user, password))
    return found
