"""The output of an end of an MQTT connection: packets, acknowledgements, and the last words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enmasse.wire.mqtt.handler import PeerHandler
from enmasse.wire.mqtt.packets import DEFAULT_RECEIVE_MAXIMUM, PacketType, Reason, Version
from enmasse.wire.mqtt.reasons import permitted
from enmasse.wire.mqtt.writing import encode_acknowledgement, encode_short_ack

TURN_BYTES = 1 << 20
"""The most output of a connection between two writes; beyond that its output is blocked."""

MAX_ALIASES = 64
"""The most topic aliases that are used towards a peer: each keeps a topic in memory."""

MAX_ALIASED_BYTES = 1 << 10
"""The longest topic that gets an alias."""

PUBACK = PacketType.PUBACK << 4
PUBREC = PacketType.PUBREC << 4
PUBREL = PacketType.PUBREL << 4 | 2
PUBCOMP = PacketType.PUBCOMP << 4


class Output:
    """The output of one end of a connection.

    Args:
        handler: is told when output is written or blocked.

    Attributes:
        version: the version that the client speaks.
        out: the output to be written, in order.
        trace: called with true for output or false for input, and the bytes, if the connection is traced.
        wake: called with the engine when there is something to write, or the connection has ended.
        peer_receive_maximum: the number of messages of QoS 1 and 2 that the peer takes without having answered.
        peer_maximum_packet_size: the size of the largest packet that the peer takes; 0 if any.
        peer_topic_alias_maximum: the number of topic aliases that the peer takes.
    """

    __slots__ = (
        "_final", "_handler", "_out_aliases", "_unanswered", "_wants_problems", "admits", "is_blocked",
        "is_paused", "more_out", "out", "out_bytes", "out_room", "peer_maximum_packet_size",
        "peer_receive_maximum", "peer_topic_alias_maximum", "trace", "version", "wake",
    )  # fmt: skip

    def __init__(self, handler: PeerHandler) -> None:
        self._handler = handler
        self.version = Version.V3_1_1
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.wake: Callable[[Any], None] = _ignore
        self.trace: Callable[[bool, bytes], None] | None = None
        self.out_room = TURN_BYTES
        self.more_out: Callable[[int], bool] = _no_more
        self.admits: Callable[[int], bool] = _any
        self.is_paused = False
        self.is_blocked = False
        self.peer_receive_maximum = DEFAULT_RECEIVE_MAXIMUM
        self.peer_maximum_packet_size = 0
        self.peer_topic_alias_maximum = 0
        self._out_aliases: dict[bytes, int] = {}
        self._wants_problems = True
        """True if the peer takes reason strings in any packet [MQTT-3.1.2-29]."""
        self._unanswered = 0
        """The peer's messages of QoS 1 and 2 without their last answer [MQTT 5.0, 4.9]."""
        self._final: list[bytes] | None = None
        """The output up to the last words, once these are said."""

    def put(self, packet: bytes) -> None:
        """Write a packet at the end of the turn."""
        out = self.out
        if not out:
            self.wake(self)
        out.append(packet)
        self.out_bytes += len(packet)
        if self.out_bytes > self.out_room and not self.more_out(self.out_bytes):
            self.block_output()

    def alias(self, topic: bytes) -> tuple[bytes, int]:
        """Return the topic and the topic alias for a PUBLISH to the peer, which must then be sent.

        Returns:
            An alias that the peer knows and no topic; both where the alias is new; or the topic and 0.
        """
        known = self._out_aliases.get(topic)
        if known is not None:
            return b"", known
        number = len(self._out_aliases) + 1
        most = min(self.peer_topic_alias_maximum, MAX_ALIASES)  # [MQTT-3.1.2-26], [MQTT-3.1.2-27]
        if number > most or len(topic) > MAX_ALIASED_BYTES:
            return topic, 0
        self._out_aliases[topic] = number
        return topic, number

    def pending_output(self) -> list[bytes | memoryview]:
        """Return the output to be written now, and clear it."""
        out = self.out
        is_over = self._final is not None
        if self._final is not None:
            out, self._final = self._final, []
        self.out = []
        self.out_bytes = 0
        if out:
            if self.trace is not None:
                self.trace(True, b"".join(out))
            if not is_over:
                self._handler.on_written()
        return out  # type: ignore[return-value]  # bytes are what it asks for

    def block_output(self) -> None:
        """Stop messages until ``resume_output``."""
        if not self.is_blocked:
            self.is_blocked = True
            self._handler.on_blocked(True)

    def resume_output(self) -> None:
        """Let messages go on, as the socket takes more."""
        if self.is_blocked:
            self.is_blocked = False
            self._handler.on_blocked(False)

    # Acknowledgements

    def put_puback(self, packet_id: int, reason: int = 0, text: str = "") -> None:
        """Answer a message of QoS 1."""
        if self._unanswered:
            self._unanswered -= 1
        self._put_ack(PUBACK, packet_id, reason, text)

    def put_pubrec(self, packet_id: int, reason: int = 0, text: str = "") -> None:
        """Answer a message of QoS 2; with an error, that is its last answer."""
        if reason >= Reason.UNSPECIFIED_ERROR and self._unanswered:
            self._unanswered -= 1
        self._put_ack(PUBREC, packet_id, reason, text)

    def put_pubrel(self, packet_id: int, reason: int = 0, text: str = "") -> None:
        """Release a message of QoS 2 that was sent."""
        self._put_ack(PUBREL, packet_id, reason, text)

    def put_pubcomp(self, packet_id: int, reason: int = 0, text: str = "") -> None:
        """Answer the release of a message of QoS 2."""
        # A PUBREL that is sent again on another connection has no message there [MQTT 5.0, 4.9].
        if self._unanswered:
            self._unanswered -= 1
        self._put_ack(PUBCOMP, packet_id, reason, text)

    def _put_ack(self, first: int, packet_id: int, reason: int, text: str) -> None:
        if (reason or text) and self.version is Version.V5:
            text = text if self._wants_problems else ""  # [MQTT-3.1.2-29]
            reason = permitted(first >> 4, reason)
            self.put(self._fit(lambda said: encode_acknowledgement(first, packet_id, reason, said), text))
            return
        out = self.out
        if not out:
            self.wake(self)
        out.append(encode_short_ack(first, 2, packet_id))
        self.out_bytes += 4

    def _fit(self, encode: Callable[[str], bytes], text: str) -> bytes:
        """Return a packet with a reason string, or without if the peer does not take so large a packet."""
        packet = encode(text)
        if text and 0 < self.peer_maximum_packet_size < len(packet):  # [MQTT-3.2.2-19], [MQTT-3.4.2-2] ...
            return encode("")
        return packet

    # The end

    def _put_last(self, words: bytes) -> None:
        """Have nothing written after the last words, which may be none."""
        if words and not 0 < self.peer_maximum_packet_size < len(words):
            self.out.append(words)
        self._final = self.out
        self.out = []
        self.out_bytes = 0


def _ignore(_engine: Any) -> None:
    """Do nothing."""


def _any(_size: int) -> bool:
    """Return true: there is room for any message."""
    return True


def _no_more(_size: int) -> bool:
    """Return false: there is no more room in this turn."""
    return False
