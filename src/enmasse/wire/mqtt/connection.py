"""The server's end of an MQTT connection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from enmasse.errors import RemoteError
from enmasse.wire.mqtt.engine import UNLIMITED, Engine, Phase
from enmasse.wire.mqtt.fields import Cursor
from enmasse.wire.mqtt.handler import NOBODY, Handler
from enmasse.wire.mqtt.packets import (
    MAX_PACKET_BYTES,
    Auth,
    Connack,
    ConnackProperties,
    Connect,
    Disconnect,
    PacketError,
    PacketType,
    Reason,
    Version,
    malformed,
    protocol_error,
)
from enmasse.wire.mqtt.reading import (
    UnsupportedVersionError,
    read_auth,
    read_connect,
    read_disconnect,
    read_subscribe,
    read_unsubscribe,
    read_version,
)
from enmasse.wire.mqtt.reasons import FAILED, permitted, return_code
from enmasse.wire.mqtt.writing import (
    PINGRESP,
    encode_auth,
    encode_codes,
    encode_connack,
    encode_disconnect,
    encode_packet,
)

CONNECT_TIMEOUT_S = 30.0
"""Seconds for CONNECT to come, and then for each AUTH that is asked for before CONNECT is answered."""

ANSWER_TIMEOUT_S = 120.0
"""Seconds for the handler to answer CONNECT: many clients whose passwords are checked may come at once."""

KEEP_ALIVES = 1.5
"""The keep-alives after which a client that is silent is taken to be gone [MQTT-3.1.2-22]."""

_FROM_CLIENTS = frozenset(PacketType) - {
    PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP,
}  # fmt: skip


class Connection(Engine):
    """A server's MQTT connection.

    Args:
        handler: acts on the client's packets.
        now: the time in seconds.

    Attributes:
        connect: the client's CONNECT, once it has come; once it is answered, without its will and secrets.
        keeps_login: true if the bytes of CONNECT are kept until it is answered, as another may be to have them.
    """

    __slots__ = (
        "_asked", "_handler_of_clients", "_is_reauthenticating", "_is_version_known", "_login", "connect",
        "keeps_login",
    )  # fmt: skip

    is_server: ClassVar[bool] = True

    def __init__(self, handler: Handler, *, now: float) -> None:
        super().__init__(handler, now=now)
        self.connect: Connect | None = None
        self._handler_of_clients = handler
        self._asked = now
        """The time since which the client, or the handler, owes what comes next, before CONNECT is answered."""
        self._is_version_known = False
        self._is_reauthenticating = False
        self.keeps_login = False
        self._login = b""

    # Packets

    def _require_allowed(self, kind: int) -> None:
        phase = self._phase
        if phase is Phase.CONNECT:
            if kind != PacketType.CONNECT:  # [MQTT-3.1.0-1]
                raise protocol_error("the first packet is CONNECT")
        elif kind == PacketType.CONNECT:  # [MQTT-3.1.0-2]
            raise protocol_error("CONNECT comes again")
        elif phase is Phase.AUTHENTICATING and kind not in (PacketType.AUTH, PacketType.DISCONNECT):
            raise protocol_error("until CONNECT is answered, AUTH comes, or DISCONNECT")  # [MQTT-3.1.2-30]
        if kind not in _FROM_CLIENTS:
            raise protocol_error(f"{PacketType(kind).name} is a server's packet")
        if kind == PacketType.AUTH and self.version is not Version.V5:
            raise malformed(f"there is no AUTH in version {self.version.text}")

    def _read_packet(self, first: int, data: bytes, begin: int, stop: int) -> None:
        cursor = Cursor(data, begin, stop)
        kind = first >> 4
        if kind == PacketType.PINGREQ:
            cursor.end()
            self.put(PINGRESP)  # [MQTT-3.12.4-1]
        elif kind == PacketType.SUBSCRIBE:
            self._handler_of_clients.on_subscribe(read_subscribe(cursor, self.version))
        elif kind == PacketType.UNSUBSCRIBE:
            self._handler_of_clients.on_unsubscribe(read_unsubscribe(cursor, self.version))
        elif kind == PacketType.DISCONNECT:
            self._read_disconnect(cursor)
        elif kind == PacketType.AUTH:
            self._read_auth(read_auth(cursor))
        else:
            if self.keeps_login:
                self._login = encode_packet(first, data[begin:stop])
            self._read_connect(cursor)

    # CONNECT

    def _read_connect(self, cursor: Cursor) -> None:
        is_padded = not cursor.data[cursor.at - 1] and cursor.at < cursor.stop
        self.version = read_version(cursor)
        self._is_version_known = True
        if is_padded and self.version is Version.V5:  # [MQTT-1.5.5-1]
            raise malformed("the remaining length has more bytes than it takes")
        connect = read_connect(cursor, self.version)
        self.connect = connect
        self._wants_problems = connect.wants_problem_information
        self.peer_receive_maximum = connect.receive_maximum
        self.peer_maximum_packet_size = connect.maximum_packet_size
        self.peer_topic_alias_maximum = connect.topic_alias_maximum
        self._ask()
        self._handler_of_clients.on_connect(connect)

    def _ask(self) -> None:
        """Hold the input until the handler has answered."""
        self._phase = Phase.ASKED
        self._asked = self._last_received
        self.hold_input(True)

    def accept(self, is_session_present: bool, properties: ConnackProperties | None = None) -> None:
        """Admit the client: send CONNACK.

        Args:
            is_session_present: whether the server has the client's session [MQTT-3.2.2-2].
            properties: the properties that a client of version 5 is told. Its maximum packet size holds for all
                versions; receive maximum, topic aliases and keep-alive for version 5.
        """
        connect = self.connect
        if self._phase not in (Phase.ASKED, Phase.AUTHENTICATING) or connect is None:
            return
        told = properties or ConnackProperties()
        self.keep_alive_s = connect.keep_alive_s
        if told.maximum_packet_size:
            self._maximum_bytes = min(told.maximum_packet_size, MAX_PACKET_BYTES)
        if self.version is Version.V5:
            self._receive_maximum = told.receive_maximum
            self._alias_maximum = told.topic_alias_maximum
            if told.server_keep_alive_s is not None:
                self.keep_alive_s = told.server_keep_alive_s
            if connect.authentication_method is not None:  # [MQTT-4.12.0-5]
                told = replace(told, authentication_method=connect.authentication_method)
        else:
            self._receive_maximum = UNLIMITED
        packet = encode_connack(self.version, Connack(is_session_present, 0, told))
        if 0 < connect.maximum_packet_size < len(packet):  # [MQTT-3.2.2-19], [MQTT-3.2.2-20]
            told = replace(told, reason_string=None, user_properties=[])
            packet = encode_connack(self.version, Connack(is_session_present, 0, told))
        if 0 < connect.maximum_packet_size < len(packet):
            self.fail(PacketError(Reason.PACKET_TOO_LARGE, "CONNACK is larger than the client takes"))
            return
        # They are the handler's now, and may be large.
        self.connect = replace(connect, will=None, password=None, authentication_data=None, user_properties=[])
        self._phase = Phase.OPEN
        self._login = b""
        self.put(packet)
        self.hold_input(False)

    @property
    def from_login(self) -> bytes:
        """What the client has said and is not answered: CONNECT, and what came behind it."""
        return self._login + self.unread

    def refuse(self, reason: Reason, text: str = "", *, server_reference: str = "") -> None:
        """Send CONNACK with an error, and close the connection."""
        if not self.is_open:
            self.disconnect(reason, text, server_reference)

    def _connack(self, error: RemoteError, reason: Reason, server_reference: str) -> bytes:
        """Return the CONNACK for an error; empty if nothing is to be said."""
        if isinstance(error, UnsupportedVersionError):
            version = Version.V5 if error.is_late else Version.V3_1_1
        elif not self._is_version_known:
            return b""
        else:
            version = self.version
        if version is Version.V5:
            code = permitted(PacketType.CONNACK, reason)
            reference = server_reference or None

            def encode(said: str) -> bytes:
                told = ConnackProperties(reason_string=said, server_reference=reference)
                return encode_connack(version, Connack(False, code, told))

            return self._fit(encode, error.description)
        returned = return_code(reason)
        return b"" if returned is None else encode_connack(version, Connack(False, returned))

    # AUTH

    def _read_auth(self, auth: Auth) -> None:
        connect = self.connect
        if connect is None or connect.authentication_method is None:  # [MQTT-4.12.0-7]
            raise protocol_error("AUTH comes, and CONNECT named no authentication method")
        if auth.method != connect.authentication_method:  # [MQTT-4.12.0-5]
            raise protocol_error("the authentication method is that of CONNECT")
        is_connecting = self._phase is Phase.AUTHENTICATING
        is_new = auth.reason == Reason.REAUTHENTICATE
        if auth.reason == Reason.SUCCESS or is_new is (is_connecting or self._is_reauthenticating):
            raise protocol_error(f"AUTH may not have the reason code {auth.reason:#04x} now")
        if is_connecting:
            self._ask()
        else:
            self._is_reauthenticating = True
        self._handler_of_clients.on_auth(auth)

    def put_auth(self, reason: Reason, data: bytes | None = None, text: str = "") -> None:
        """Send AUTH: go on with the exchange, or end a re-authentication with success."""
        connect = self.connect
        method = None if connect is None else connect.authentication_method
        if method is None or self._phase not in (Phase.ASKED, Phase.OPEN):
            return
        if reason == Reason.SUCCESS:
            self._is_reauthenticating = False
        said = text if self._wants_problems else ""
        self.put(self._fit(lambda shown: encode_auth(reason, method, data, shown), said))
        if self._phase is Phase.ASKED:
            self._phase = Phase.AUTHENTICATING
            self._asked = self._last_received
            self.hold_input(False)

    # Answers to SUBSCRIBE and UNSUBSCRIBE

    def put_suback(self, packet_id: int, reasons: Iterable[int], text: str = "") -> None:
        """Answer SUBSCRIBE, with a reason code for each of its filters in order."""
        if self.version is Version.V5:
            codes = bytes(permitted(PacketType.SUBACK, reason) for reason in reasons)
        else:
            codes = bytes(min(reason, FAILED) for reason in reasons)
        self._put_codes(PacketType.SUBACK, packet_id, codes, text)

    def put_unsuback(self, packet_id: int, reasons: Iterable[int], text: str = "") -> None:
        """Answer UNSUBSCRIBE, with a reason code for each of its filters in order."""
        codes = b""
        if self.version is Version.V5:
            codes = bytes(permitted(PacketType.UNSUBACK, reason) for reason in reasons)
        self._put_codes(PacketType.UNSUBACK, packet_id, codes, text)

    def _put_codes(self, kind: PacketType, packet_id: int, codes: bytes, text: str) -> None:
        said = text if self._wants_problems else ""
        packet = self._fit(lambda shown: encode_codes(kind << 4, self.version, packet_id, codes, shown), said)
        if 0 < self.peer_maximum_packet_size < len(packet):  # [MQTT-3.1.2-24]
            self.fail(PacketError(Reason.PACKET_TOO_LARGE, f"{kind.name} is larger than the client takes"))
        else:
            self.put(packet)

    # Time

    def next_deadline(self) -> float | None:
        """Return the time of the next call of ``handle_deadline``, by the clock given to ``receive``."""
        phase = self._phase
        if phase is Phase.OPEN:
            return self._last_received + KEEP_ALIVES * self.keep_alive_s if self.keep_alive_s else None
        if phase is Phase.DONE:
            return None
        if phase is Phase.LINGER:
            return self._linger_until
        return self._asked + (ANSWER_TIMEOUT_S if phase is Phase.ASKED else CONNECT_TIMEOUT_S)

    def handle_deadline(self, now: float) -> None:
        """Close the connection of a client that is late, as is due."""
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return
        phase = self._phase
        if phase is Phase.LINGER:
            self._end()
            return
        self._last_received = now
        if phase is Phase.OPEN:
            patience = f"{KEEP_ALIVES * self.keep_alive_s:g} s, one and a half times the keep-alive"
            self.fail(PacketError(Reason.KEEP_ALIVE_TIMEOUT, f"no packet within {patience}"))
        elif phase is Phase.ASKED:
            self.fail(PacketError(Reason.SERVER_BUSY, f"the login has not ended within {ANSWER_TIMEOUT_S:.0f} s"))
        else:
            awaited = "CONNECT" if phase is Phase.CONNECT else "AUTH"
            self.fail(PacketError(Reason.NOT_AUTHORIZED, f"no {awaited} within {CONNECT_TIMEOUT_S:.0f} s"))

    # The end

    def _read_disconnect(self, cursor: Cursor) -> None:
        disconnect = read_disconnect(cursor, self.version, is_from_client=True)
        expiry_s = disconnect.session_expiry_s
        if expiry_s and self.connect is not None and not self.connect.session_expiry_s:  # [MQTT 5.0, 3.14.2.2.2]
            raise protocol_error("a session that ends with its connection gets no other expiry from DISCONNECT")
        if self._handler_of_clients.on_disconnect(disconnect.reason, expiry_s):
            self.close()
        else:
            self.hold_input(True)

    def disconnect(self, reason: Reason, text: str = "", server_reference: str = "") -> None:
        """End the connection: DISCONNECT in version 5, or CONNACK if the client is not admitted yet."""
        self.fail(
            PacketError(reason, text or reason.name.lower().replace("_", " ")), server_reference=server_reference
        )

    def _forget_handler(self) -> None:
        super()._forget_handler()
        self._login = b""
        self._handler_of_clients = NOBODY

    def _last_words(self, error: RemoteError, reason: Reason, server_reference: str) -> bytes:
        if not self.is_open:  # [MQTT-3.14.0-1]
            return self._connack(error, reason, server_reference)
        if self.version is not Version.V5:
            return b""
        code = permitted(PacketType.DISCONNECT, reason)
        reference = server_reference or None
        return self._fit(
            lambda said: encode_disconnect(self.version, Disconnect(code, None, said, reference)), error.description
        )
