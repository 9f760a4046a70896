"""stomp.py against a real node: every address type, with AMQP beside it, users, TLS, and bad input."""

from __future__ import annotations

import queue
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import stomp
from stomp.utils import Frame

from enmasse.client import Message, blocking
from tests.interop.test_interop_users import PASSWORD, run_user
from tests.interop.test_interop_users_tls import Certificates
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

WAIT_S = 60.0
TYPES = ["anycast", "multicast", "queue", "topic", "subscription", "stream"]
VERSIONS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}


class Told(stomp.ConnectionListener):  # type: ignore[misc]  # without types
    """Keeps what a client is told until it is asked for."""

    def __init__(self) -> None:
        self._frames: queue.Queue[tuple[str, Frame | None]] = queue.Queue()

    def on_message(self, frame: Frame) -> None:
        self._frames.put(("message", frame))

    def on_receipt(self, frame: Frame) -> None:
        self._frames.put(("receipt", frame))

    def on_error(self, frame: Frame) -> None:
        self._frames.put(("error", frame))

    def on_disconnected(self) -> None:
        self._frames.put(("disconnected", None))

    def next(self, kind: str) -> Any:
        """The next frame, which is of that kind."""
        found, frame = self._frames.get(timeout=WAIT_S)
        assert found == kind, (found, frame and (frame.headers, frame.body))
        return frame

    def messages(self, count: int) -> list[Any]:
        """So many messages, in order; receipts between them are left out."""
        found: list[Any] = []
        while len(found) < count:
            kind, frame = self._frames.get(timeout=WAIT_S)
            assert kind in ("message", "receipt"), (kind, frame and (frame.headers, frame.body))
            if kind == "message":
                found.append(frame)
        return found


class Client:
    """A connection of stomp.py, and what it is told."""

    def __init__(self, port: int, version: str = "1.2", *, ca: str | None = None, **options: Any) -> None:
        where = [("127.0.0.1", port)]
        self.connection = VERSIONS[version](where, reconnect_attempts_max=1, **options)
        if ca is not None:
            self.connection.set_ssl(for_hosts=where, ca_certs=ca)
        self.told = Told()
        self.connection.set_listener("told", self.told)

    def connect(self, *arguments: str, **headers: str) -> Client:
        self.connection.connect(*arguments, wait=True, headers=headers)
        return self

    def subscribe(self, destination: str, name: str = "0", ack: str = "auto", **headers: str) -> None:
        """Subscribe, and wait until that is done."""
        self.connection.subscribe(destination, name, ack, headers={"receipt": f"sub-{name}", **headers})
        self.told.next("receipt")

    def close(self) -> None:
        """End the connection and its thread, which else spins for ever once the node has closed it over TLS."""
        transport = self.connection.transport
        transport.running = False
        if transport.socket is not None:
            with suppress(OSError):
                transport.socket.shutdown(socket.SHUT_RDWR)
        if transport.io_thread is not None:
            transport.io_thread.join(WAIT_S)
            assert not transport.io_thread.is_alive()

    def send(self, destination: str, body: Any, **headers: str) -> None:
        self.connection.send(
            destination, body, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )


Connect = Callable[..., Client]


@pytest.fixture
def client() -> Iterator[Connect]:
    """Makes clients, and ends them."""
    clients: list[Client] = []

    def made(port: int, version: str = "1.2", **options: Any) -> Client:
        clients.append(Client(port, version, **options))
        return clients[-1]

    yield made
    for client in clients:
        client.close()


@pytest.fixture
def connect(client: Connect) -> Connect:
    """Makes clients that are connected."""

    def made(port: int, *arguments: str, **options: Any) -> Client:
        return client(port, **options).connect(*arguments)

    return made


@pytest.fixture
def stomp_client(node: NodeProcess, connect: Connect) -> Client:
    return connect(node.port)


@pytest.mark.parametrize("kind", TYPES)
def test_messages_pass_through_every_address_type_in_order(
    node: NodeProcess, connect: Connect, addresses: Any, kind: str
) -> None:
    source, target = addresses.pair(kind)
    sender, receiver = connect(node.port), connect(node.port)
    receiver.subscribe(f"/queue/{source}", ack="client")
    for number in range(30):
        sender.send(f"/topic/{target}", f"message {number}", receipt=str(number), priority="7", n=str(number))
    frames = receiver.told.messages(30)
    assert [frame.body for frame in frames] == [f"message {number}" for number in range(30)]
    assert [frame.headers["n"] for frame in frames] == [str(number) for number in range(30)]
    assert {frame.headers["priority"] for frame in frames} == {"7"}
    receiver.connection.ack(frames[-1].headers["ack"])  # all of them
    assert [sender.told.next("receipt").headers["receipt-id"] for _ in range(30)] == [str(n) for n in range(30)]


@pytest.mark.parametrize("kind", TYPES)
def test_messages_go_to_amqp_and_back(node: NodeProcess, stomp_client: Client, addresses: Any, kind: str) -> None:
    source, target = addresses.pair(kind)
    with blocking.connect(node.url, hostname="interop.default") as amqp:
        with amqp.receiver(source) as receiver:
            stomp_client.send(
                target, "to amqp", receipt="1", correlation_id="c:1", content_type="text/plain", colour="red"
            )
            delivery = receiver.receive(timeout=WAIT_S)
            assert delivery is not None
            message = delivery.message
            assert (message.body, message.content_type, message.correlation_id) == (b"to amqp", "text/plain", "c:1")
            assert message.properties == {"colour": "red"}
            delivery.accept()
            assert stomp_client.told.next("receipt").headers["receipt-id"] == "1"
        stomp_client.subscribe(source, ack="client-individual")
        with amqp.sender(target) as sender:
            pending = sender.send_nowait(Message("to stomp", subject="s", properties={"n": 1}))
            (frame,) = stomp_client.told.messages(1)
            assert (frame.body, frame.headers["subject"], frame.headers["n"]) == ("to stomp", "s", "1")
            stomp_client.connection.ack(frame.headers["ack"])
            pending.result(WAIT_S)


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_of_every_version_send_receive_and_acknowledge(
    node: NodeProcess, connect: Connect, addresses: Any, version: str
) -> None:
    client = connect(node.port, version=version)
    address = addresses.declare("queue")
    client.subscribe(address, ack="client")
    client.send(address, "text", receipt="1")
    (frame,) = client.told.messages(1)
    if version == "1.2":
        client.connection.ack(frame.headers["ack"])
    elif version == "1.1":
        client.connection.ack(frame.headers["message-id"], "0")
    else:
        client.connection.ack(frame.headers["message-id"])
    client.connection.disconnect(receipt="bye")
    while addresses.read(address)["messagesStored"]:
        pass


def test_a_transaction_takes_effect_with_its_commit_or_not_at_all(
    node: NodeProcess, connect: Connect, addresses: Any
) -> None:
    client, other = connect(node.port), connect(node.port)
    address = addresses.declare("queue")
    other.subscribe(address)
    for body, ends in (("never", client.connection.abort), ("then", client.connection.commit)):
        transaction = client.connection.begin()
        client.connection.send(address, body, transaction=transaction)
        ends(transaction)
    assert [frame.body for frame in other.told.messages(1)] == ["then"]


def test_binary_and_large_bodies_pass(node: NodeProcess, connect: Connect, addresses: Any) -> None:
    client = connect(node.port, auto_decode=False)
    address = addresses.declare("queue")
    client.subscribe(address)
    bodies = [bytes(range(256)) * 8, b"", bytes(3 << 20)]
    for body in bodies:
        client.send(address, body)
    assert [frame.body or b"" for frame in client.told.messages(3)] == bodies


def test_an_error_is_the_end_of_the_connection(stomp_client: Client) -> None:
    stomp_client.send("nowhere", "x", receipt="r")
    error = stomp_client.told.next("error")
    assert (error.headers["receipt-id"], error.headers["condition"]) == ("r", "amqp:not-found")
    stomp_client.told.next("disconnected")


def test_heart_beats_keep_a_silent_client(node: NodeProcess, connect: Connect, addresses: Any) -> None:
    client = connect(node.port, heartbeats=(1000, 1000))
    assert client.connection.is_connected()
    client.send(addresses.declare("queue"), "still here", receipt="1")
    client.told.next("receipt")


BAD = {
    "a NUL in a header": b"SEND\ndestination:a\0b\n\nx\0",
    "headers without end": b"SEND\n" + b"a:b\n" * 40_000,
    "a length that is too small": b"SEND\ndestination:a\ncontent-length:1\n\nlonger\0",
    "a frame that is too large": b"SEND\ndestination:a\ncontent-length:99999999999\n\n",
    "an unknown command": b"FETCH\n\n\0",
    "a bad escape": b"SEND\ndestination:a\\x\n\nx\0",
    "no UTF-8": b"SEND\ndestination:\xff\n\nx\0",
    "an unknown acknowledgement": b"ACK\nid:999\n\n\0",
}


def test_bad_input_is_answered_with_its_reason_and_harms_nobody_else(
    node: NodeProcess, stomp_client: Client, addresses: Any
) -> None:
    for name, data in BAD.items():
        with socket.create_connection(("127.0.0.1", node.port), timeout=WAIT_S) as peer:
            peer.sendall(b"CONNECT\naccept-version:1.2\nhost:interop.default\n\n\0" + data)
            said = b""
            while not (b"ERROR\n" in said and said.endswith(b"\0")):
                chunk = peer.recv(65536)
                assert chunk, (name, said)
                said += chunk
        assert said.startswith(b"CONNECTED\n"), name
        assert b"message:" in said.partition(b"ERROR\n")[2], (name, said)
    address = addresses.declare("queue")
    stomp_client.subscribe(address)
    stomp_client.send(address, "unharmed")
    assert [frame.body for frame in stomp_client.told.messages(1)] == ["unharmed"]


def test_whoever_never_acknowledges_has_no_more_than_his_window(
    node: NodeProcess, connect: Connect, addresses: Any
) -> None:
    silent, other = connect(node.port), connect(node.port)
    address = addresses.declare("queue")
    silent.subscribe(address, ack="client", **{"prefetch-count": "10"})
    for number in range(50):
        other.send(address, str(number), receipt=str(number))
    for _ in range(50):
        other.told.next("receipt")
    assert len(silent.told.messages(10)) == 10
    other.subscribe(address, "1")
    assert [frame.body for frame in other.told.messages(40)] == [str(number) for number in range(10, 50)]


# Users, and TLS


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, str]]:
    """A node with TLS whose space is for a user who may send to one address and receive from it."""
    directory = tmp_path_factory.mktemp("guarded")
    certificates = Certificates(directory)
    users = directory / "users.yaml"
    run_user("add", "jo", "--space", "shop", "--users", str(users), "--send", "stock", "--recv", "stock")
    arguments = ("--users", str(users), "--tls", str(certificates.directory))
    with NodeProcess(directory / "node", *arguments) as node:
        with blocking.connect(node.admin_url) as connection:
            management = connection.management()
            management.create(
                "io.enmasse.space", "default/shop", {"spaceType": "standard", "authentication": "standard"}
            )
            for name in ("stock", "other"):
                management.create(
                    "io.enmasse.address",
                    f"default/shop.{name}",
                    {"space": "default/shop", "address": name, "addressType": "queue"},
                )
        yield node, certificates.ca


def test_a_user_comes_in_over_tls_and_does_what_he_may(guarded: tuple[NodeProcess, str], connect: Connect) -> None:
    node, ca = guarded
    client = connect(node.port, "jo", PASSWORD, ca=ca)
    client.subscribe("stock")
    client.send("stock", "in")
    assert [frame.body for frame in client.told.messages(1)] == ["in"]
    client.send("other", "out", receipt="1")
    error = client.told.next("error")
    assert (error.headers["condition"], error.headers["receipt-id"]) == ("amqp:unauthorized-access", "1")


@pytest.mark.parametrize("proof", [("jo", "wrong"), ("nobody", PASSWORD), ()])
def test_nobody_comes_in_without_his_proof(
    guarded: tuple[NodeProcess, str], proof: tuple[str, ...], client: Connect
) -> None:
    node, ca = guarded
    stranger = client(node.port, ca=ca)
    with pytest.raises(stomp.exception.ConnectFailedException):
        stranger.connect(*proof)
    assert stranger.told.next("error").headers["condition"] == "amqp:unauthorized-access"


def test_a_password_in_the_clear_is_taken_from_this_machine(
    guarded: tuple[NodeProcess, str], client: Connect
) -> None:
    node, _ = guarded
    client(node.port).connect("jo", PASSWORD)  # which fails where it is refused
