"""SASL: who the peer is, before the first AMQP frame [AMQP 5.3].

Both sides are one object each, fed with decoded frames, that answer with frames to send.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from enmasse.wire.amqp.errors import RemoteError
from enmasse.wire.amqp.framing import sasl_frame
from enmasse.wire.amqp.performatives import Performative, SaslInit, SaslMechanisms, SaslOutcome

__all__ = ["Anonymous", "ClientMechanism", "Plain", "SaslClient", "SaslServer", "plain_credentials"]

OK, AUTH_FAILED = 0, 1


def plain_credentials(response: bytes) -> tuple[str, str] | None:
    """User and password of a PLAIN response, or nothing if it is malformed [RFC 4616]."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        return None
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        return None


class SaslServer:
    """The server's side.

    Args:
        mechanisms: what is offered.
        authenticate: given (mechanism, response, hostname) says whether the peer may come in.
        is_optional: whether a peer may leave SASL out.
    """

    def __init__(
        self,
        mechanisms: Sequence[str],
        authenticate: Callable[[str, bytes, str | None], bool],
        *,
        is_optional: bool,
    ) -> None:
        self.mechanisms = tuple(mechanisms)
        self.is_optional = is_optional
        self.is_done = False
        self.error: str | None = None
        self._authenticate = authenticate

    def begin(self) -> list[bytes]:
        """What to send first."""
        return [sasl_frame(SaslMechanisms(self.mechanisms))]

    def receive(self, frame: Performative) -> list[bytes]:
        """What to send after a frame of the peer.

        Raises:
            RemoteError: the frame does not belong here.
        """
        if not isinstance(frame, SaslInit):
            raise RemoteError("amqp:not-allowed", f"{frame.SYMBOL} where sasl-init was expected")
        self.is_done = True
        admitted = frame.mechanism in self.mechanisms and self._authenticate(
            frame.mechanism, frame.initial_response or b"", frame.hostname
        )
        if not admitted:
            self.error = "authentication failed"
        return [sasl_frame(SaslOutcome(OK if admitted else AUTH_FAILED))]


class ClientMechanism(Protocol):
    """How a client proves who it is."""

    name: str

    def response(self) -> bytes:
        """The initial response."""


class Anonymous:
    """No proof."""

    name = "ANONYMOUS"

    def response(self) -> bytes:
        """A trace that says nothing of the user [RFC 4505]."""
        return b"anonymous"


class Plain:
    """User and password in the clear."""

    name = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def response(self) -> bytes:
        """The credentials [RFC 4616]."""
        return b"\0" + self._user.encode() + b"\0" + self._password.encode()


class SaslClient:
    """The client's side.

    Args:
        mechanisms: what the client can do, the best first.
        hostname: the host, and so the space, that it wants.
    """

    is_optional = False

    def __init__(self, mechanisms: Sequence[ClientMechanism], hostname: str | None = None) -> None:
        self.is_done = False
        self.error: str | None = None
        self._mechanisms = mechanisms
        self._hostname = hostname

    def begin(self) -> list[bytes]:
        """The server speaks first."""
        return []

    def receive(self, frame: Performative) -> list[bytes]:
        """What to send after a frame of the peer.

        Raises:
            RemoteError: the frame does not belong here.
        """
        if isinstance(frame, SaslMechanisms):
            for mechanism in self._mechanisms:
                if mechanism.name in frame.mechanisms:
                    init = SaslInit(mechanism.name, mechanism.response(), self._hostname)
                    return [sasl_frame(init)]
            self.is_done = True
            self.error = f"the server offers {', '.join(frame.mechanisms) or 'no mechanism'}"
            return []
        if isinstance(frame, SaslOutcome):
            self.is_done = True
            if frame.code != OK:
                self.error = "the server refused the credentials"
            return []
        raise RemoteError("amqp:not-allowed", f"{frame.SYMBOL} from a server")
