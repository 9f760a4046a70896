"""The table of protocols that clients may speak with a node, one row each.

A row says how a protocol is recognised, on which port it listens by custom, and which class serves its connections.
The rest of the tree knows a protocol by its row alone:

* ``net/listener.py`` gets the rows: every port accepts all protocols, told apart by the first bytes, in the clear and
  inside TLS, and by the sub-protocol inside WebSocket. A peer that is not recognised gets the port's own protocol.
* ``enmasse node --listen NAME=HOST:PORT`` opens a port of a protocol's own; ``enmasse up`` opens one for each row,
  the customary one or, with ``--ports auto``, a free one, and names it in its summary and in ``endpoints.json``.
* ``io.enmasse.listener``, ``io.enmasse.connection``, logs and traces name the protocol by its ``name``.

To add a protocol X: ``wire/X`` (bytes to frames and back, an engine with the verbs of ``net/transport.py``), a
package ``node/X`` with a class derived from ``ClientConnection`` (see ``node/connections/client_connection.py``), a
module of ``wire/X`` that splits a trace into frames (see ``Frames``), and a row here. Nothing else is touched.

Classes and modules are given by name: a node imports them when it starts; the supervisor and the command line, which
read this table too, do not need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from enmasse.net.first_bytes import PacketStart, ProtocolSignature

if TYPE_CHECKING:
    from enmasse.node.connections.client_connection import ClientConnection


class Splitting(Protocol):
    """Splits the bytes of one direction into frames."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are complete now, in order; ``b""`` if the bytes from here on are no frames."""


class Frames(Protocol):
    """A module that reads traces of a protocol, such as ``wire/amqp/trace.py``."""

    def Splitter(self, begun: bytes = b"") -> Splitting:  # noqa: N802  a class, or what makes one
        """Make a splitter of one direction; ``begun`` is the beginning of a frame that was received before."""

    def mask(self, frame: bytes) -> bytes:
        """Return the frame, of the same length, with credentials overwritten by ``*``."""

    def shorten(self, frame: bytes, payload_bytes: int) -> bytes:
        """Return the frame with at most so many bytes of its message, if it carries one."""

    def describe(self, frame: bytes, payload_bytes: int = 0) -> str:
        """Return the frame as a line of text, with so many bytes of its message."""


@dataclass(frozen=True, slots=True)
class ProtocolRow:
    """A row of the table: one protocol.

    Attributes:
        signature: its name, and how it is recognised.
        port: the port on which it listens by custom.
        schemes: the schemes of its URLs, in the clear and with TLS.
        connection: the class of its connections, as ``module:Class``, a subclass of ``ClientConnection``.
        frames: the module that reads its traces; see ``Frames``.
        header: the first bytes of each direction, if they are always the same. A capture that began in the middle of
            a connection is given them.
    """

    signature: ProtocolSignature
    port: int
    schemes: tuple[str, str]
    connection: str
    frames: str
    header: bytes = b""

    @property
    def name(self) -> str:
        """The protocol's name."""
        return self.signature.name

    def load(self) -> type[ClientConnection]:
        """Import and return the class of its connections."""
        module, _, name = self.connection.partition(":")
        return cast("type[ClientConnection]", getattr(import_module(module), name))

    def load_frames(self) -> Frames:
        """Import and return the module that reads its traces."""
        return cast("Frames", import_module(self.frames))

    def url(self, host: str, port: int, *, is_secure: bool = False) -> str:
        """Return the URL at which clients connect."""
        shown = f"[{host}]" if ":" in host else host
        return f"{self.schemes[is_secure]}://{shown}:{port}"


_ROWS = (
    ProtocolRow(
        ProtocolSignature(
            "amqp", (b"AMQP\x00", b"AMQP\x03"), tls_header=b"AMQP\x02\x01\x00\x00", subprotocols=("amqp",)
        ),
        port=5672,
        schemes=("amqp", "amqps"),
        connection="enmasse.node.amqp.binding:Binding",
        frames="enmasse.wire.amqp.trace",
        header=b"AMQP\x00\x01\x00\x00",
    ),
    ProtocolRow(
        ProtocolSignature(
            "stomp",
            (b"CONNECT\n", b"CONNECT\r\n", b"STOMP\n", b"STOMP\r\n"),
            subprotocols=("v12.stomp", "v11.stomp", "v10.stomp"),
            takes_text=True,
        ),
        port=61613,
        schemes=("stomp", "stomps"),
        connection="enmasse.node.stomp.connection:StompConnection",
        frames="enmasse.wire.stomp.trace",
    ),
    ProtocolRow(
        ProtocolSignature(
            "mqtt",
            (),
            subprotocols=("mqtt", "mqttv3.1"),
            packets=(PacketStart(0x10, b"\x00\x04MQTT"), PacketStart(0x10, b"\x00\x06MQIsdp")),
        ),
        port=1883,
        schemes=("mqtt", "mqtts"),
        connection="enmasse.node.mqtt.connection:MqttConnection",
        frames="enmasse.wire.mqtt.trace",
    ),
    ProtocolRow(
        # Its first bytes are those of WebSocket, too: ``net`` knows them.
        ProtocolSignature("http", (), answers_http=True),
        port=8081,
        schemes=("http", "https"),
        connection="enmasse.node.http.connection:HttpConnection",
        frames="enmasse.wire.http.trace",
    ),
)

PROTOCOLS: Mapping[str, ProtocolRow] = {row.name: row for row in _ROWS}
"""The protocols by name; the first is the one that administrators and the control process speak."""


def further_protocols(protocols: Mapping[str, ProtocolRow] = PROTOCOLS) -> tuple[ProtocolRow, ...]:
    """Return the protocols beside the main one."""
    return tuple(protocols.values())[1:]


def main_protocol(protocols: Mapping[str, ProtocolRow]) -> ProtocolRow:
    """Return the protocol of ports for which none is named."""
    return next(iter(protocols.values()))
