"""The interfaces that the engines call with a peer's packets."""

from __future__ import annotations

from typing import Any, Protocol

from enmasse.wire.mqtt.packets import Auth, Connack, Connect, Disconnect, PublishProperties, Subscribe, Unsubscribe


class PublishSink(Protocol):
    """Takes the messages of PUBLISH packets with the same topic and properties.

    Attributes:
        is_lasting: true if later packets with the same topic and properties may use this sink, until the connection's
            ``forget_sinks``.
    """

    is_lasting: bool

    def on_publish(self, payload: bytes, flags: int, packet_id: int) -> None:
        """Take a message; one of QoS 1 or 2 is answered once it is safe.

        Args:
            payload: the payload.
            flags: the low four bits of the packet's first byte: DUP 8, QoS 2 or 4, RETAIN 1.
            packet_id: 0 for QoS 0.

        Raises:
            RemoteError: the message cannot be taken, which ends the connection.
        """


class PeerHandler(Protocol):
    """Handles what either end of a connection may send; a ``RemoteError`` that it raises ends the connection.

    Acknowledgements are for the packets that were sent to the peer; reasons of versions before 5 are 0.
    """

    def make_sink(self, topic: str, properties: PublishProperties | None) -> PublishSink:
        """Return the sink for messages with this topic, and these properties if there are any.

        Topic aliases are resolved. The properties may be kept.
        """

    def on_puback(self, packet_id: int, reason: int) -> None:
        """Handle the answer to a PUBLISH of QoS 1."""

    def on_pubrec(self, packet_id: int, reason: int) -> None:
        """Handle the first answer to a PUBLISH of QoS 2: below 0x80, a PUBREL is due; else it is the last."""

    def on_pubrel(self, packet_id: int, reason: int) -> None:
        """Handle the peer's release of a message of QoS 2: a PUBCOMP is due."""

    def on_pubcomp(self, packet_id: int, reason: int) -> None:
        """Handle the last answer to a PUBLISH of QoS 2."""

    def on_auth(self, auth: Auth) -> None:
        """Go on with an exchange of authentication, or begin another."""

    def on_blocked(self, is_blocked: bool) -> None:
        """Stop or resume sending messages."""

    def on_written(self) -> None:
        """Called when the output is being written."""

    def on_closed(self, error: Exception | None) -> None:
        """Called once when the connection ends; ``error`` is the reason if this end closed it."""


class _Nobody(PeerHandler):
    """Takes the place of the handler of a connection that has ended, which knows its engine, and hears no more."""


NOBODY: Any = _Nobody()  # type: ignore[abstract]  # nothing is read any more, and so no sink is asked for


class Handler(PeerHandler, Protocol):
    """Handles a client's packets, on a server."""

    def on_connect(self, connect: Connect) -> None:
        """Log the client in and call ``accept``, ``refuse`` or ``put_auth``, now or later; input is held until then.

        The answers to AUTH that comes before ``accept`` are the same.
        """

    def on_subscribe(self, subscribe: Subscribe) -> None:
        """Subscribe, and call ``put_suback``, now or later."""

    def on_unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        """Unsubscribe, and call ``put_unsuback``, now or later."""

    def on_disconnect(self, reason: int, session_expiry_s: int | None) -> bool:
        """Called when the client says goodbye, before ``on_closed``.

        Args:
            reason: ``DISCONNECT_WITH_WILL`` or an error if the will is to be sent.
            session_expiry_s: the session's new expiry; None if it stays.

        Returns:
            True if the connection ends now; else the handler calls ``close`` later, and nothing is read until then.
        """


class ClientHandler(PeerHandler, Protocol):
    """Handles a server's packets, on a client."""

    def on_connack(self, connack: Connack) -> None:
        """Called with the server's answer to CONNECT; after an error the connection ends."""

    def on_suback(self, packet_id: int, reasons: bytes) -> None:
        """Handle the answer to SUBSCRIBE: a code for each filter."""

    def on_unsuback(self, packet_id: int, reasons: bytes) -> None:
        """Handle the answer to UNSUBSCRIBE: a code for each filter, or none before version 5."""

    def on_pingresp(self) -> None:
        """Called when the server has answered a PINGREQ."""

    def on_disconnect(self, disconnect: Disconnect) -> None:
        """Called when the server says why it ends the connection, before ``on_closed``."""
