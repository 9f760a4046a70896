"""Peers that have the node keep things for them: what it keeps is bounded, and others are served meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import StreamReset
from h2.settings import SettingCodes

from enmasse.client import blocking
from enmasse.message.types import Described
from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from tests.interop.conftest import SPACE, Addresses
from tests.interop.hostile import MEGABYTE, Bystander
from tests.support.chance import kills
from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.support.stranger import Stranger, condition_of

pytestmark = pytest.mark.slow

GROWTH_BYTES = 256 * MEGABYTE
"""Generous: what a queue has in memory, on its way to the disk and on its way out, and what copies leave behind."""


@pytest.fixture
def bystander(node: NodeProcess, addresses: Addresses) -> Iterator[Bystander]:
    """Asks and is answered all the time."""
    found = Bystander(node.url, addresses.declare("anycast"))
    found.start()
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def _unharmed(node: NodeProcess, bystander: Bystander) -> Iterator[None]:
    """The bystander's round trips go on in time, and the node never grows by much."""
    before = node.memory_bytes
    bystander.check()
    yield
    grown = node.memory_bytes - before
    bystander.check()
    assert grown < GROWTH_BYTES, f"the node grew by {grown / MEGABYTE:.0f} MiB"


Make = Callable[..., Stranger]


@pytest.fixture
def stranger(node: NodeProcess) -> Iterator[Make]:
    """Makes strangers, with a socket each."""
    made: list[Stranger] = []

    def make(**options: Any) -> Stranger:
        made.append(Stranger(node.port, **options))
        return made[-1]

    yield make
    for peer in made:
        peer.socket.close()


def refusal(peer: Stranger) -> str | None:
    """The condition with which a link, a session or the connection ends."""
    while (frame := peer.hear_frame()) is not None:
        if isinstance(frame[0], Detach | End | Close):
            return condition_of(frame[0])
    return "hung up"


def say_until_refused(peer: Stranger, frames: bytes, times: int) -> str | None:
    """Say the same again and again; the condition with which it is refused."""
    try:
        for _ in range(times):
            peer.say_bytes(frames)
    except (BrokenPipeError, ConnectionResetError, TimeoutError):
        pass
    return refusal(peer)


# Deliveries that never end


def begin_message(peer: Stranger, address: str) -> None:
    """Begin a message that is to have no end, for a receiver that is there and takes it."""
    peer.open()
    peer.begin()
    peer.attach_receiver(address, 1)
    peer.say(Flow(0, 1 << 30, 0, 1 << 30, 1, 0, 10))
    peer.attach_sender(address)
    peer.hear(Flow)
    peer.say(Transfer(0, 0, b"t", 0, more=True), payload=b"begun")


def test_a_message_without_end_is_refused_where_it_is_stored(stranger: Make, addresses: Addresses) -> None:
    peer = stranger()
    begin_message(peer, addresses.declare("queue"))
    more = amqp_frame(0, Transfer(0, more=True), 60_000) + bytes(60_000)
    assert say_until_refused(peer, more, 600) == "amqp:link:message-size-exceeded"


def test_a_message_without_end_passes_where_it_is_not_stored(stranger: Make, addresses: Addresses) -> None:
    """Its receiver reads nothing, so in the end its sender is not read either."""
    peer = stranger(receive_buffer_bytes=4096)
    begin_message(peer, addresses.declare("anycast"))
    more = amqp_frame(0, Transfer(0, more=True), 60_000) + bytes(60_000)
    peer.socket.settimeout(2.0)
    said = 0
    try:
        while said < 4000:
            peer.say_bytes(more)
            said += 1
    except TimeoutError:
        pass
    assert said < 4000


@pytest.mark.parametrize("part_bytes", [1, 64])
@pytest.mark.parametrize("kind", ["anycast", "queue"])
def test_a_message_in_crumbs(stranger: Make, addresses: Addresses, kind: str, part_bytes: int) -> None:
    peer = stranger()
    begin_message(peer, addresses.declare(kind))
    more = (amqp_frame(0, Transfer(0, more=True), part_bytes) + bytes(part_bytes)) * 1000
    ear = threading.Thread(target=peer.is_hung_up)
    ear.start()
    for _ in range(40):
        peer.say_bytes(more)
    peer.say(Close())
    ear.join(30)
    assert not ear.is_alive()


def test_unfinished_deliveries_on_many_links(stranger: Make, addresses: Addresses) -> None:
    """Each is well below the largest message, but together they are not."""
    peer = stranger()
    address = addresses.declare("queue")
    peer.open()
    peer.begin()
    part = bytes(1 << 19)
    for handle in range(200):
        peer.attach_sender(address, handle)
        peer.hear(Flow)
    refused = 0
    for handle in range(200):
        peer.say(Transfer(handle, handle, b"t", 0, more=True), payload=part)
        peer.say(Transfer(handle, more=True), payload=part)
    for handle in range(200):
        peer.say(Detach(handle, True))
    for _ in range(200):
        refused += condition_of(peer.hear(Detach)) == "amqp:resource-limit-exceeded"
    assert 100 < refused < 200


def test_unfinished_large_messages_that_are_passed_on(stranger: Make, addresses: Addresses) -> None:
    """Their receivers read nothing, and together they are more than a connection may have begun."""
    deaf, peer = stranger(receive_buffer_bytes=4096), stranger()
    address = addresses.declare("anycast")
    deaf.open()
    deaf.begin()
    deaf.attach_receiver(address)
    deaf.say(Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 1000))
    peer.open()
    peer.begin()
    for handle in range(200):
        peer.attach_sender(address, handle)
        peer.hear(Flow)
    for part in range(8):
        for handle in range(200):
            transfer = Transfer(handle, more=True) if part else Transfer(handle, handle, b"t", more=True)
            peer.say(transfer, payload=bytes(400_000))
    peer.say(Close())
    refused = []
    while (frame := peer.hear_frame()) is not None and not isinstance(frame[0], Close):
        if isinstance(frame[0], Detach):
            refused.append(condition_of(frame[0]))
    assert set(refused) == {"amqp:resource-limit-exceeded"}
    assert len(refused) > 200 - (64 << 20) // 400_000


def test_unfinished_large_messages_that_are_collected(stranger: Make, addresses: Addresses) -> None:
    """Their receivers need them whole, and together they are more than a connection may have begun."""
    address = addresses.declare("anycast")
    count = 8
    for _ in range(count):
        stranger().say_bytes(receive_stomp(address))
    until(lambda: addresses.read(address)["receivers"] == count)
    peer = stranger()
    peer.open()
    peer.begin()
    for handle in range(count):
        peer.attach_sender(address, handle)
        peer.hear(Flow)
    for part in range(30):
        for handle in range(count):
            transfer = Transfer(handle, more=True) if part else Transfer(handle, handle, b"t", more=True)
            peer.say(transfer, payload=bytes(400_000))
    peer.say(Close())
    refused = []
    while (frame := peer.hear_frame()) is not None and not isinstance(frame[0], Close):
        if isinstance(frame[0], Detach):
            refused.append(condition_of(frame[0]))
    assert set(refused) == {"amqp:resource-limit-exceeded"}
    assert len(refused) < count


def test_large_messages_that_are_given_up_while_they_wait(stranger: Make, addresses: Addresses) -> None:
    """Nobody receives anything of those that no receiver had begun to take, and the address goes on."""
    busy, peer = stranger(receive_buffer_bytes=4096), stranger()
    address = addresses.declare("anycast")
    busy.open()
    busy.begin()
    busy.attach_receiver(address)
    busy.say(Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 1000))
    peer.open()
    peer.begin()
    part = bytes(900_000)
    for handle in range(6):
        peer.attach_sender(address, handle)
        peer.hear(Flow)
    for handle in range(6):
        peer.say(Transfer(handle, handle, b"t", more=True), Transfer(handle, more=True), payload=part)
    until(lambda: addresses.read(address)["backlog"] == 5)
    peer.socket.close()
    until(lambda: addresses.read(address)["senders"] == 0)
    heard = [busy.hear(Transfer)]
    while not heard[-1].aborted:
        heard.append(busy.hear(Transfer))
    assert [transfer.more for transfer in heard[:-1]] == [True] * (len(heard) - 1)
    assert len({transfer.delivery_id for transfer in heard} - {None}) == 1
    other = stranger()
    other.open()
    other.begin()
    other.attach_sender(address)
    assert other.hear(Flow).link_credit
    other.say(Transfer(0, 0, b"t", 0, True), payload=b"next")
    while (frame := busy.hear_frame()) is not None:
        if isinstance(frame[0], Transfer):
            assert frame[1] == b"next"
            break


# Answers that nobody takes

AT_LENGTH = kills(1) > 1
"""True in ``make soak``."""

HOSTILE = 100
"""Connections of strangers, with ``ASKED`` requests each."""

DEAF = HOSTILE if AT_LENGTH else 40
"""Connections of strangers that read nothing; each is owed more than 1 MiB."""

MAX_GROWTH_BYTES = 64 * MEGABYTE
"""What a node grows by with all of them, at most."""

MAX_LEFT_BYTES = 32 * MEGABYTE
"""What of that it keeps, at most, a minute after they have left."""

ASKED = 10
"""Requests of a connection at a time."""

SHORT_S = 1.5
"""The seconds after which a node for these tests gives up an answer that nobody takes."""

SHORTER = f"""
from enmasse.net import transport
from enmasse.wire.amqp import session_output
from enmasse.wire.http import exchange, http2
transport.STALL_S = session_output.STALL_S = 1.0
exchange.STALL_S, http2.CHECK_S = {SHORT_S}, 0.5
"""


@pytest.fixture(scope="module")
def fresh_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, str]]:
    """A node that has done nothing yet, and a stream of it with 5 MB."""
    # A busy node takes longer than its usual patience to come to what the last of many has asked.
    with NodeProcess(tmp_path_factory.mktemp("fresh"), "--handshake-timeout", "60", before=SHORTER) as process:
        found = Addresses(process)
        found.make_space()
        stream = found.declare("stream")
        send_for(process, stream, 30, 100_000, times=50)
        yield process, stream
        found.close()


@pytest.fixture(scope=lambda fixture_name, config: "function" if AT_LENGTH else "module")
def untouched_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, Addresses]]:
    """A node with 5 MB in ``stream`` and 5 MB retained below ``values``; how to manage it."""
    with NodeProcess(tmp_path_factory.mktemp("untouched")) as process:
        found = Addresses(process)
        found.make_space()
        found.declare("stream", "stream")
        found.declare("topic", "values")
        with blocking.connect(process.url, timeout=30, reconnect=False) as connection:
            sender = connection.sender(None)
            for number in range(50):
                body = "x" * 100_000
                sender.send(blocking.Message(body, to="stream"), timeout=30)
                value = blocking.Message(body, to=f"values/{number}", annotations={"x-opt-retain": True})
                sender.send(value, timeout=30)
        yield process, found
        found.close()


def ask_http2(address: str, count: int = 40) -> bytes:
    """A client of HTTP/2 that asks for everything, and takes nothing."""
    client = H2Connection(H2Configuration(client_side=True))
    client.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = 0
    client.initiate_connection()
    path = f"/v1/spaces/interop.default/addresses/{address}/messages?max=1000&offset=first"
    for number in range(count):
        fields = [(":method", "GET"), (":scheme", "http"), (":authority", "127.0.0.1"), (":path", path)]
        client.send_headers(1 + 2 * number, fields, end_stream=True)
    return client.data_to_send()


def test_windows_that_stay_shut(fresh_node: tuple[NodeProcess, str]) -> None:
    """Each request is for 5 MB; all that was answered is given up in time."""
    node, address = fresh_node
    before = node.memory_bytes
    asked = ask_http2(address, ASKED)
    peers = [socket.create_connection(("127.0.0.1", node.port), timeout=30) for _ in range(HOSTILE)]
    heard: list[set[tuple[int, int]]] = [set() for _ in peers]
    clients = [H2Connection(H2Configuration(client_side=True)) for _ in peers]
    for client in clients:
        client.initiate_connection()
        for number in range(ASKED):
            client.send_headers(
                1 + 2 * number,
                [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")],
                end_stream=True,
            )
    most = 0
    try:
        for peer in peers:
            peer.sendall(asked)
        for peer, client, resets in zip(peers, clients, heard, strict=True):
            while len(resets) < ASKED:
                data = peer.recv(65_536)
                most = max(most, node.memory_bytes)
                assert data, "the connection has ended"
                resets |= {
                    (event.stream_id or 0, int(event.error_code or 0))
                    for event in client.receive_data(data)
                    if isinstance(event, StreamReset)
                }
    finally:
        for peer in peers:
            peer.close()
    told = {code for resets in heard for _, code in resets}
    assert told <= {ErrorCodes.CANCEL, ErrorCodes.ENHANCE_YOUR_CALM}
    assert ErrorCodes.CANCEL in told
    assert most - before < MAX_GROWTH_BYTES, f"the node grew by {(most - before) / MEGABYTE:.0f} MiB"


def ask_http(address: str) -> bytes:
    """Requests of HTTP/1.1, one behind the other, for more than any socket holds."""
    path = f"/v1/spaces/interop.default/addresses/{address}/messages?max=1000&offset=first"
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() * 40


def ask_events(address: str) -> bytes:
    """A request for all that a stream has, as Server-Sent Events."""
    path = f"/v1/spaces/interop.default/addresses/{address}/events?max=1000&offset=first"
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode()


def ask_stomp(address: str) -> bytes:
    """A client of STOMP that subscribes to all that a stream has, twice."""
    frames = ["CONNECT\naccept-version:1.2\nhost:interop.default\n\n\0"]
    frames += [f"SUBSCRIBE\nid:{number}\ndestination:{address}\nstart:first\n\n\0" for number in (1, 2)]
    return "".join(frames).encode()


def ask_receipts(_address: str) -> bytes:
    """A client of STOMP that has each of many frames confirmed at length."""
    pair = f"BEGIN\ntransaction:t\nreceipt:{'r' * 4000}\n\n\0ABORT\ntransaction:t\nreceipt:{'r' * 4000}\n\n\0"
    return ("CONNECT\naccept-version:1.2\nhost:interop.default\n\n\0" + pair * 800).encode()


def ask_mqtt(_address: str) -> bytes:
    """A client of MQTT that subscribes to all values again and again, with QoS 0."""
    subscriptions = [b"\x82\x0e\x00%c\x00\x00\x08values/#\x00" % number for number in range(1, 100)]
    return b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00" + b"".join(subscriptions)


def ask_amqp(address: str) -> bytes:
    """A client of AMQP with credit without end for all that a stream has, settled, twice."""
    whole = Source(address, filter={"enmasse:start": Described("enmasse:start", "first")})
    frames: list[Composite] = [Open("deaf", "interop.default"), Begin(None, 0, 1 << 30, 1 << 30, 10)]
    for handle in (0, 1):
        frames.append(Attach(f"deaf-{handle}", handle, True, 1, 0, whole, Target("deaf")))
        frames.append(Flow(0, 1 << 30, 0, 1 << 30, handle, 0, 1 << 30))
    return AMQP_HEADER + b"".join(amqp_frame(0, frame) for frame in frames)


def in_websocket(protocol: str, ask: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """The same, over WebSocket."""

    def asked(address: str) -> bytes:
        data = ask(address)
        head = (
            "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
        )
        parts = [data[at : at + 60_000] for at in range(0, len(data), 60_000)]
        return head.encode() + b"".join(b"\x82\xfe%b\0\0\0\0%b" % (len(p).to_bytes(2, "big"), p) for p in parts)

    return asked


@pytest.mark.parametrize("ask", [ask_http, ask_events, ask_stomp])
def test_who_reads_nothing_is_disconnected(fresh_node: tuple[NodeProcess, str], ask: Callable[[str], bytes]) -> None:
    """What waits for it beyond its socket's buffers is dropped in time."""
    node, address = fresh_node
    told = node.log.count("has read nothing for")
    with deaf_peer(node) as peer:
        peer.sendall(ask(address))
        until(lambda: node.log.count("has read nothing for") == told + 1)


def deaf_peer(node: NodeProcess) -> socket.socket:
    """A socket for which the system keeps little."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", node.port))
    peer.settimeout(30)
    return peer


WAYS = {
    "HTTP/1.1": ask_http,
    "HTTP/2": ask_http2,
    "Server-Sent Events": ask_events,
    "STOMP": ask_stomp,
    "STOMP's receipts": ask_receipts,
    "MQTT": ask_mqtt,
    "AMQP": ask_amqp,
    "MQTT over WebSocket": in_websocket("mqtt", ask_mqtt),
    "AMQP over WebSocket": in_websocket("amqp", ask_amqp),
}
"""The ways to have a node make bytes for a peer that reads none of them."""


@pytest.mark.chance
@pytest.mark.parametrize("way", list(WAYS))
def test_what_waits_for_peers_that_read_nothing(untouched_node: tuple[NodeProcess, Addresses], way: str) -> None:
    """All together have a share each, and one budget; who reads is served beside them."""
    node, addresses = untouched_node
    # What those before have left goes back to the system by and by.
    before = node.memory_bytes

    def told() -> dict[str, Any]:
        (found,) = addresses.query("io.enmasse.statistics")
        return found

    def gave_way() -> int:
        return node.log.count("others need the room: it is disconnected")

    asked = WAYS[way]("stream")
    gave_way_before = gave_way()
    peers = [deaf_peer(node) for _ in range(DEAF)]
    talk = threading.Thread(target=say_all, args=(peers, asked))
    talk.start()
    most, put_out = 0, -1

    def is_at_rest() -> bool:
        nonlocal most, put_out
        most = max(most, node.memory_bytes)
        connections = [each for each in addresses.query("io.enmasse.connection") if each["space"] == SPACE]
        last, put_out = put_out, sum(each["bytesOut"] for each in connections)
        found = told()
        if way == "HTTP/2":
            # Nobody makes do with less: what waits for windows is given up.
            return last == put_out and found["unreadBytes"] > found["unreadLimit"] // 2
        # Those that make do with less may be none any more where a look at all of them took seconds.
        return last == put_out and (bool(found["unreadWaiting"]) or gave_way() > gave_way_before)

    try:
        until(is_at_rest, lambda: f"{told()}, and {gave_way() - gave_way_before} gave way")
        found = told()
        assert found["unreadBytes"] <= found["unreadLimit"] + DEAF * (256 << 10)
    finally:
        for peer in peers:
            peer.close()
        talk.join(30)
    assert not talk.is_alive()
    until(lambda: not told()["unreadBytes"])
    assert not told()["unreadWaiting"]
    assert most - before < MAX_GROWTH_BYTES, f"the node grew by {(most - before) / MEGABYTE:.0f} MiB"
    if AT_LENGTH:
        until(lambda: node.memory_bytes - before < MAX_LEFT_BYTES, seconds=60, step=1)


def receive_stomp(address: str) -> bytes:
    """A client of STOMP that receives from an address."""
    frames = "CONNECT\naccept-version:1.2\nhost:interop.default\n\n\0"
    return (frames + f"SUBSCRIBE\nid:1\ndestination:{address}\n\n\0").encode()


def receive_mqtt(address: str, qos: int = 0) -> bytes:
    """A client of MQTT that receives from an address, or what is retained there."""
    name = address.encode()
    subscribe = b"\0\1\0\0%c%b%c" % (len(name), name, qos)
    return b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00\x82%c%b" % (len(subscribe), subscribe)


def receive_amqp(address: str, links: int = 1, **wanted: Any) -> bytes:
    """A client of AMQP with credit without end on so many links.

    Args:
        address: from where it receives.
        links: their number.
        wanted: fields of the source, and ``capabilities`` of the links.
    """
    capabilities = wanted.pop("capabilities", None)
    source = Source(address, **wanted)
    frames: list[Composite] = [Open("deaf", "interop.default"), Begin(None, 0, 1 << 30, 1 << 30, links)]
    for handle in range(links):
        frames.append(
            Attach(f"deaf-{handle}", handle, True, 1, 0, source, Target("deaf"), desired_capabilities=capabilities)
        )
        frames.append(Flow(0, 1 << 30, 0, 1 << 30, handle, 0, 1 << 30))
    return AMQP_HEADER + b"".join(amqp_frame(0, frame) for frame in frames)


def receive_in_sessions(address: str) -> bytes:
    """A client of AMQP with ten sessions, each of which takes one frame of all that a stream has."""
    source = Source(address, filter=FROM_FIRST)
    said = AMQP_HEADER + amqp_frame(0, Open("deaf", "interop.default", max_frame_size=65_536))
    for channel in range(10):
        for frame in (
            Begin(None, 0, 1, 1 << 30, 1),
            Attach(f"deaf-{channel}", 0, True, 1, 0, source, Target("deaf")),
            Flow(0, 1, 0, 1 << 30, 0, 0, 1 << 30),
        ):
            said += amqp_frame(channel, frame)
    return said


FROM_FIRST = {"enmasse:start": Described("enmasse:start", "first")}
FROM_OFFSET_0 = {"enmasse:from": Described("enmasse:from", 0)}


def receive_events(address: str) -> bytes:
    """A client of Server-Sent Events that receives from an address."""
    path = f"/v1/spaces/interop.default/addresses/{address}/events"
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode()


LARGE: dict[tuple[str, str], Callable[[str], bytes]] = {
    ("stream", "AMQP"): lambda address: receive_amqp(address, links=10, filter=FROM_FIRST),
    ("stream", "AMQP, frames"): lambda address: receive_amqp(
        address, filter=FROM_OFFSET_0, capabilities=("enmasse:frames",)
    ),
    ("stream", "AMQP, sessions"): receive_in_sessions,
    ("stream", "STOMP"): ask_stomp,
    ("stream", "HTTP/1.1"): ask_http,
    ("stream", "Server-Sent Events"): ask_events,
    ("queue", "AMQP"): receive_amqp,
    ("queue", "AMQP, copies"): lambda address: receive_amqp(address, links=10, distribution_mode="copy"),
    ("queue", "STOMP"): receive_stomp,
    ("queue", "MQTT"): receive_mqtt,
    ("queue", "Server-Sent Events"): receive_events,
    ("topic", "AMQP"): receive_amqp,
    ("topic", "STOMP"): receive_stomp,
    ("topic", "MQTT"): receive_mqtt,
    ("topic", "MQTT, QoS 1"): lambda address: receive_mqtt(address, 1),
    ("topic", "MQTT over WebSocket"): in_websocket("mqtt", receive_mqtt),
    ("retained", "MQTT"): lambda address: receive_mqtt(f"{address}/#"),
    ("multicast", "AMQP"): receive_amqp,
    ("multicast", "STOMP"): receive_stomp,
    ("multicast", "MQTT"): receive_mqtt,
    ("anycast", "AMQP"): receive_amqp,
    ("anycast", "STOMP"): receive_stomp,
    ("anycast", "MQTT"): receive_mqtt,
    ("anycast", "Server-Sent Events"): receive_events,
}
"""How a peer is to receive large messages, by the type of the address and its protocol."""

FEW_LARGE = [("stream", "AMQP"), ("queue", "STOMP"), ("topic", "MQTT"), ("anycast", "STOMP")]


@pytest.mark.chance
@pytest.mark.parametrize(("kind", "protocol"), list(LARGE) if AT_LENGTH else FEW_LARGE)
def test_large_messages_for_peers_that_read_nothing(
    untouched_node: tuple[NodeProcess, Addresses], kind: str, protocol: str
) -> None:
    """Each is handed one only where there is room for it; who reads has it once they have left."""
    node, addresses = untouched_node
    address = addresses.declare("topic" if kind == "retained" else kind)
    # Sockets on the loopback interface take much less.
    body = bytes(4 * MEGABYTE)
    peers: list[socket.socket] = []
    with blocking.connect(node.url, timeout=30, reconnect=False) as connection:
        sender = connection.sender(None)
        for number in range({"queue": DEAF, "stream": 6, "retained": 4}.get(kind, 0)):
            message = blocking.Message(body, to=address)
            if kind == "retained":
                message = blocking.Message(body, to=f"{address}/{number}", annotations={"x-opt-retain": True})
            sender.send(message, timeout=30)
        before = most = node.memory_bytes
        put_out = -1

        def is_at_rest() -> bool:
            nonlocal most, put_out
            most = max(most, node.memory_bytes)
            found = addresses.query("io.enmasse.connection")
            last, put_out = put_out, sum(each["bytesOut"] for each in found if each["space"] == SPACE)
            return last == put_out and bool(addresses.query("io.enmasse.statistics")[0]["unreadWaiting"])

        publisher = deaf_peer(node)
        talk = threading.Thread(target=say_all, args=([publisher], send_stomp(address, body, DEAF), 30.0))
        try:
            peers += [deaf_peer(node) for _ in range(DEAF)]
            say_all(peers, LARGE[kind, protocol](address))
            if kind in ("topic", "multicast", "anycast"):
                until(lambda: addresses.read(address)["receivers"] >= DEAF)
                talk.start()
            until(is_at_rest)
        finally:
            for peer in (*peers, publisher):
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
                peer.close()
            if talk.ident:
                talk.join(30)
        until(lambda: not addresses.query("io.enmasse.statistics")[0]["unreadBytes"])
        if kind in ("stream", "queue"):
            filters = {"enmasse:start": "first"} if kind == "stream" else None
            delivery = connection.receiver(address, credit=1, filters=filters).receive(timeout=60)
            assert delivery is not None
            assert delivery.message.body == body
            delivery.accept()
    addresses.delete(address)
    assert most - before < MAX_GROWTH_BYTES, f"the node grew by {(most - before) / MEGABYTE:.0f} MiB"
    if AT_LENGTH:
        until(lambda: node.memory_bytes - before < MAX_LEFT_BYTES, seconds=60, step=1)


SERVED = [
    ("stream", "AMQP"),
    ("stream", "STOMP"),
    ("stream", "HTTP/1.1"),
    ("stream", "Server-Sent Events"),
    ("queue", "AMQP"),
    ("queue", "AMQP, copies"),
    ("queue", "STOMP"),
    ("queue", "MQTT"),
    ("retained", "MQTT"),
]

FEW_SERVED = [("stream", "AMQP"), ("queue", "STOMP"), ("retained", "MQTT")]


@pytest.mark.chance
@pytest.mark.parametrize(("kind", "protocol"), SERVED if AT_LENGTH else FEW_SERVED)
def test_who_reads_is_served_beside_its_like_that_do_not(
    untouched_node: tuple[NodeProcess, Addresses], kind: str, protocol: str
) -> None:
    """Those who read nothing have all the room there is, and more of them wait; all are of one user."""
    node, addresses = untouched_node
    address = addresses.declare("topic" if kind == "retained" else kind)
    # As long in JSON.
    body = "x" * (4 * MEGABYTE)
    count = DEAF if AT_LENGTH else 12
    with blocking.connect(node.url, timeout=30, reconnect=False) as connection:
        sender = connection.sender(None)
        for number in range({"queue": count + 4, "stream": 6, "retained": 4}[kind]):
            message = blocking.Message(body, to=address)
            if kind == "retained":
                message = blocking.Message(body, to=f"{address}/{number}", annotations={"x-opt-retain": True})
            sender.send(message, timeout=30)
    asked = LARGE[kind, protocol](address)
    peers: list[socket.socket] = []
    try:
        peers += [deaf_peer(node) for _ in range(count)]
        say_all(peers, asked)
        until(lambda: addresses.query("io.enmasse.statistics")[0]["unreadWaiting"])
        with socket.create_connection(("127.0.0.1", node.port), timeout=120) as reader:
            reader.sendall(asked)
            heard = 0
            while heard < 3 * len(body):
                data = reader.recv(1 << 20)
                assert data, "the reader was disconnected"
                heard += len(data)
    finally:
        for peer in peers:
            peer.close()
    until(lambda: not addresses.query("io.enmasse.statistics")[0]["unreadBytes"])
    addresses.delete(address)


ONE_LARGE = [
    ("stream", "AMQP, frames"),
    ("stream", "STOMP"),
    ("stream", "HTTP/1.1"),
    ("stream", "Server-Sent Events"),
    ("queue", "AMQP"),
    ("queue", "AMQP, copies"),
    ("queue", "STOMP"),
    ("queue", "MQTT"),
    ("queue", "Server-Sent Events"),
]


@pytest.fixture
def large_message(fresh_node: tuple[NodeProcess, str], kind: str) -> Iterator[tuple[NodeProcess, str]]:
    """A node that gives up in a second, and an address with one message of 4 MiB."""
    node, _ = fresh_node
    addresses = Addresses(node)
    address = addresses.declare(kind)
    assert send_for(node, address, 30, 4 * MEGABYTE, times=1) == 1
    yield node, address
    addresses.delete(address)
    addresses.close()


@pytest.mark.parametrize(("kind", "protocol"), ONE_LARGE if AT_LENGTH else ONE_LARGE[::4])
def test_who_takes_nothing_of_one_large_message_is_disconnected(
    large_message: tuple[NodeProcess, str], kind: str, protocol: str
) -> None:
    """There is room for it, and nothing else comes."""
    node, address = large_message
    told = node.log.count("has read nothing for")
    with deaf_peer(node) as peer:
        peer.sendall(LARGE[kind, protocol](address))
        until(lambda: node.log.count("has read nothing for") == told + 1)


@pytest.mark.parametrize("kind", ["stream"])
def test_a_session_that_takes_nothing_of_one_large_message_is_ended(large_message: tuple[NodeProcess, str]) -> None:
    """Its connection is read, and goes on."""
    node, address = large_message
    with Stranger(node.port) as peer:
        peer.say_bytes(receive_in_sessions(address))
        assert condition_of(peer.hear(End)) == "amqp:resource-limit-exceeded"
        peer.say(Begin(None, 0, 1 << 30, 1 << 30, 1), channel=10)
        peer.hear(Begin)


def send_stomp(address: str, body: bytes, times: int) -> bytes:
    """A client of STOMP that sends the same again and again."""
    frame = f"SEND\ndestination:{address}\ncontent-length:{len(body)}\n\n".encode() + body + b"\0"
    return b"CONNECT\naccept-version:1.2\nhost:interop.default\n\n\0" + frame * times


def say_all(peers: list[socket.socket], data: bytes, seconds: float = 1.0) -> None:
    """Have each say it as far as it is read."""
    for peer in peers:
        peer.settimeout(seconds)
        with contextlib.suppress(OSError):
            peer.sendall(data)


# Peers that take and never answer


def send_for(
    node: NodeProcess, address: str, seconds: float, size: int, *, settled: bool = False, times: int = 1 << 30
) -> int:
    """Send messages as long as they are taken; how many were."""
    sent = 0
    body = bytes(size)
    with blocking.connect(node.url, timeout=30, reconnect=False) as connection:
        sender = connection.sender(address)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and sent < times:
            try:
                sender.send(blocking.Message(body=body), timeout=0.5, settled=settled)
            except TimeoutError:
                break
            sent += 1
    return sent


def test_a_receiver_on_a_queue_that_never_reads(stranger: Make, node: NodeProcess, addresses: Addresses) -> None:
    address = addresses.declare("queue")
    peer = stranger(receive_buffer_bytes=4096)
    peer.open()
    peer.begin()
    peer.attach_receiver(address)
    peer.say(Flow(0, 1 << 30, 0, 1000, 0, 0, 1_000_000))
    assert send_for(node, address, 1.5, MEGABYTE) >= 5


@pytest.mark.parametrize("kind", ["anycast", "queue", "topic", "stream"])
def test_a_receiver_that_never_settles(stranger: Make, node: NodeProcess, addresses: Addresses, kind: str) -> None:
    """It reads all that comes and never says what became of it; neither does the sender wait for that."""
    address = addresses.declare(kind)
    mute, eager = stranger(), stranger()
    for peer in (mute, eager):
        peer.open()
        peer.begin()
    mute.attach_receiver(address)
    mute.say(Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 0x7FFFFFFF))
    ear = threading.Thread(target=mute.is_hung_up)
    ear.start()
    eager.attach_sender(address)
    flow = eager.hear(Flow)
    payload = b"\x00\x53\x75\xb0" + (MEGABYTE).to_bytes(4, "big") + bytes(MEGABYTE)
    cut = payload[:500_000], payload[500_000:1_000_000], payload[1_000_000:]
    sent = 0
    try:
        eager.socket.settimeout(3.0)
        while sent < 400:
            if sent == (flow.delivery_count or 0) + (flow.link_credit or 0):
                flow = eager.hear(Flow)
                continue
            for number, part in enumerate(cut):
                eager.say(Transfer(0, sent, b"t", 0, False, number < 2), payload=part)
            sent += 1
    except TimeoutError:
        pass
    finally:
        mute.socket.shutdown(socket.SHUT_RDWR)
        ear.join(30)
    assert sent >= 10
