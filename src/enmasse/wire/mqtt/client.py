"""A client's end of an MQTT connection."""

from __future__ import annotations

from typing import ClassVar

from enmasse.errors import RemoteError
from enmasse.wire.mqtt.engine import UNLIMITED, Engine, Phase
from enmasse.wire.mqtt.fields import Cursor
from enmasse.wire.mqtt.handler import NOBODY, ClientHandler
from enmasse.wire.mqtt.packets import (
    MAX_PACKET_BYTES,
    Auth,
    Connect,
    Disconnect,
    PacketError,
    PacketType,
    Reason,
    Subscribe,
    Unsubscribe,
    Version,
    malformed,
    protocol_error,
)
from enmasse.wire.mqtt.reading import read_auth, read_codes, read_connack, read_disconnect
from enmasse.wire.mqtt.reasons import CLIENTS_GOODBYES
from enmasse.wire.mqtt.writing import (
    PINGREQ,
    encode_auth,
    encode_connect,
    encode_disconnect,
    encode_subscribe,
    encode_unsubscribe,
)

CONNACK_TIMEOUT_S = 60.0
"""Seconds for the server to answer CONNECT, or AUTH before that."""

CHECKS = 2
"""The checks per keep-alive whether the client has been silent, so that it never is for all of it."""

_FROM_SERVERS = frozenset(PacketType) - {
    PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ,
}  # fmt: skip


class ClientConnection(Engine):
    """A client's MQTT connection; CONNECT is the first thing in its output.

    Messages are sent by ``put`` of what ``encode_publish`` returns.

    Args:
        handler: acts on the server's packets.
        connect: the CONNECT that is sent. Its receive maximum, maximum packet size and topic alias maximum hold for
            what the server sends.
        now: the time in seconds.
    """

    __slots__ = ("_checked", "_connect", "_handler_of_server", "_has_sent", "_pinged")

    is_server: ClassVar[bool] = False

    def __init__(self, handler: ClientHandler, connect: Connect, *, now: float) -> None:
        super().__init__(handler, now=now)
        self.version = connect.version
        self.keep_alive_s = connect.keep_alive_s
        self._connect = connect
        self._handler_of_server = handler
        self._checked = now
        """The time of the latest check of the client's silence; until CONNACK, of the latest sign of the server."""
        self._has_sent = False
        self._pinged: float | None = None
        """The time of a PINGREQ without an answer."""
        if connect.version is Version.V5:
            self._receive_maximum = connect.receive_maximum
            self._alias_maximum = connect.topic_alias_maximum
            self._wants_problems = True
            if connect.maximum_packet_size:
                self._maximum_bytes = min(connect.maximum_packet_size, MAX_PACKET_BYTES)
        else:
            self._receive_maximum = UNLIMITED
        self.put(encode_connect(connect))

    # Packets

    def _require_allowed(self, kind: int) -> None:
        if kind not in _FROM_SERVERS:
            raise protocol_error(f"{PacketType(kind).name} is a client's packet")
        if self._phase is Phase.CONNECT:
            if kind not in (PacketType.CONNACK, PacketType.AUTH):  # [MQTT-3.2.0-1]
                raise protocol_error("the server's first packet is CONNACK")
        elif kind == PacketType.CONNACK:  # [MQTT-3.2.0-2]
            raise protocol_error("CONNACK comes again")
        if kind in (PacketType.AUTH, PacketType.DISCONNECT) and self.version is not Version.V5:
            raise malformed(f"a server has no {PacketType(kind).name} in version {self.version.text}")

    def _read_packet(self, first: int, data: bytes, begin: int, stop: int) -> None:
        cursor = Cursor(data, begin, stop)
        kind = first >> 4
        handler = self._handler_of_server
        if kind == PacketType.SUBACK:
            handler.on_suback(*read_codes(cursor, self.version))
        elif kind == PacketType.UNSUBACK:
            handler.on_unsuback(*read_codes(cursor, self.version, has_codes=self.version is Version.V5))
        elif kind == PacketType.PINGRESP:
            cursor.end()
            self._pinged = None
            handler.on_pingresp()
        elif kind == PacketType.CONNACK:
            self._read_connack(cursor)
        elif kind == PacketType.AUTH:
            self._read_auth(read_auth(cursor))
        else:
            handler.on_disconnect(read_disconnect(cursor, self.version, is_from_client=False))
            self.close()

    def _read_connack(self, cursor: Cursor) -> None:
        connack = read_connack(cursor, self.version)
        told = connack.properties
        if not connack.reason:
            if connack.is_session_present and self._connect.is_clean:  # [MQTT-3.2.2-4]
                raise protocol_error("the server has a session, and a clean one was asked for")
            if told.authentication_method != self._connect.authentication_method:  # [MQTT-4.12.0-5]
                raise protocol_error("the authentication method is that of CONNECT")
            self._phase = Phase.OPEN
            self._checked = self._last_received
            self.peer_receive_maximum = told.receive_maximum
            self.peer_maximum_packet_size = told.maximum_packet_size
            self.peer_topic_alias_maximum = told.topic_alias_maximum
            if told.server_keep_alive_s is not None:  # [MQTT-3.2.2-21]
                self.keep_alive_s = told.server_keep_alive_s
        self._handler_of_server.on_connack(connack)
        if connack.reason:
            self.close()
        else:
            # The deadline is another one now.
            self.wake(self)

    # What a client says

    def put_subscribe(self, subscribe: Subscribe) -> None:
        """Send SUBSCRIBE."""
        self.put(encode_subscribe(self.version, subscribe))

    def put_unsubscribe(self, unsubscribe: Unsubscribe) -> None:
        """Send UNSUBSCRIBE."""
        self.put(encode_unsubscribe(self.version, unsubscribe))

    def _forget_handler(self) -> None:
        super()._forget_handler()
        self._handler_of_server = NOBODY

    def put_ping(self) -> None:
        """Send PINGREQ."""
        self.put(PINGREQ)

    def _read_auth(self, auth: Auth) -> None:
        if auth.method != self._connect.authentication_method:  # [MQTT-4.12.0-5], [MQTT-4.12.0-6]
            raise protocol_error("the authentication method is that of CONNECT")
        may_end = self._phase is Phase.OPEN
        if auth.reason != Reason.CONTINUE_AUTHENTICATION and not (may_end and auth.reason == Reason.SUCCESS):
            raise protocol_error(f"AUTH may not have the reason code {auth.reason:#04x} now")
        self._checked = self._last_received
        self._handler_of_server.on_auth(auth)

    def put_auth(self, reason: Reason, data: bytes | None = None) -> None:
        """Send AUTH: go on with the exchange, or begin a re-authentication."""
        method = self._connect.authentication_method
        if method is not None:
            self.put(encode_auth(reason, method, data))

    def pending_output(self) -> list[bytes | memoryview]:
        """Return the output to be written now, and clear it."""
        out = super().pending_output()
        if out:
            self._has_sent = True
        return out

    # Time

    def next_deadline(self) -> float | None:
        """Return the time of the next call of ``handle_deadline``, by the clock given to ``receive``."""
        phase = self._phase
        if phase is Phase.CONNECT:
            return self._checked + CONNACK_TIMEOUT_S
        if phase is Phase.LINGER:
            return self._linger_until
        if phase is Phase.DONE or not self.keep_alive_s:
            return None
        return self._checked + self.keep_alive_s / CHECKS

    def handle_deadline(self, now: float) -> None:
        """Send PINGREQ, or close the connection of a server that is late, as is due."""
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return
        phase = self._phase
        if phase is Phase.LINGER:
            self._end()
        elif phase is Phase.CONNECT:
            self._last_received = now
            self.fail(PacketError(Reason.UNSPECIFIED_ERROR, f"no CONNACK within {CONNACK_TIMEOUT_S:.0f} s"))
        else:
            self._checked = now
            self._require_answer(now)

    def _require_answer(self, now: float) -> None:
        """Send PINGREQ if nothing was sent since the last check; close if one has no answer for a keep-alive."""
        if self._pinged is not None and now >= self._pinged + self.keep_alive_s:
            if self._last_received <= self._pinged:
                self._last_received = now
                self.fail(PacketError(Reason.UNSPECIFIED_ERROR, f"no PINGRESP within {self.keep_alive_s} s"))
                return
            self._pinged = now
        if not self._has_sent:  # [MQTT-3.1.2-20]
            self.put_ping()
            if self._pinged is None:
                self._pinged = now
        self._has_sent = False

    # The end

    def disconnect(
        self, reason: Reason = Reason.SUCCESS, text: str = "", *, session_expiry_s: int | None = None
    ) -> None:
        """Say goodbye with DISCONNECT, and close the connection.

        Args:
            reason: ``DISCONNECT_WITH_WILL`` has the server send the will in version 5.
            text: why, in words.
            session_expiry_s: the session's new expiry.
        """
        if self._phase not in (Phase.LINGER, Phase.DONE):
            self._leave(self._goodbye(Disconnect(reason, session_expiry_s, text or None)), lingers=False)

    def _goodbye(self, disconnect: Disconnect) -> bytes:
        def encode(text: str) -> bytes:
            disconnect.reason_string = text
            return encode_disconnect(self.version, disconnect)

        return self._fit(encode, disconnect.reason_string or "")

    def _last_words(self, error: RemoteError, reason: Reason, server_reference: str) -> bytes:
        if not self.is_open or self.version is not Version.V5:
            return b""
        said = reason if reason in CLIENTS_GOODBYES else Reason.UNSPECIFIED_ERROR  # [MQTT-3.14.2-1]
        return self._goodbye(Disconnect(said, None, error.description))
