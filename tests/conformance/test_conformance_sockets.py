"""What only a real node on a real socket shows."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from cryptography import x509

from enmasse.client import blocking
from enmasse.drivers.authority import Authority
from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Header, encode_message
from enmasse.message.types import Described, Symbol, ULong
from enmasse.wire.amqp.framing import AMQP_HEADER, SASL_HEADER
from enmasse.wire.amqp.performatives import (
    Attach,
    Close,
    Detach,
    Disposition,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from tests.conformance.clause_list import clause
from tests.support.node_process import NodeProcess
from tests.support.stranger import Stranger, condition_of

pytestmark = pytest.mark.slow

SPACE = "default/clauses"
DONE = Described(ULong(0x24), [])

_names = count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with a space, whose only clients are these tests."""
    with NodeProcess(tmp_path_factory.mktemp("node")) as process:
        prepare(process)
        yield process


def prepare(process: NodeProcess) -> None:
    with blocking.connect(process.admin_url, timeout=30, patience=30) as connection:
        management = connection.management()
        management.create("io.enmasse.space", SPACE, {"authentication": "none"})
        management.create(
            "io.enmasse.address", f"{SPACE}.q", {"space": SPACE, "address": "q", "addressType": "queue"}
        )


def stored(process: NodeProcess) -> int:
    with blocking.connect(process.admin_url, timeout=30, patience=30) as connection:
        found: int = connection.management().read("io.enmasse.address", f"{SPACE}.q")["messagesStored"]
        return found


def is_over(peer: Stranger) -> bool:
    """Whether the node has closed the socket, after whatever it had to say."""
    while True:
        try:
            frame = peer.hear_frame()
        except (ConnectionError, TimeoutError):
            return False
        if frame is None:
            return True


@clause("2.2:header-first", "2.2:other-version", "2.2:not-amqp", "2.2:no-frames-on-refusal")
@pytest.mark.parametrize("data", [b"AMQP\x00\x09\x00\x01", b"AMQX\x00\x01\x00\x00", bytes(8)])
def test_what_is_not_spoken_here_closes_the_socket(node: NodeProcess, data: bytes) -> None:
    with Stranger(node.port) as peer:
        peer.say_bytes(data)
        assert is_over(peer)
        assert peer.headers in ([AMQP_HEADER], [SASL_HEADER])


@clause("2.7.1:capabilities")
def test_a_node_offers_to_relay_what_names_its_address_itself(node: NodeProcess) -> None:
    with Stranger(node.port) as peer:
        assert "ANONYMOUS-RELAY" in (peer.open(desired_capabilities=("ANONYMOUS-RELAY",)).offered_capabilities or ())


@clause("2.4.3:close-answered", "2.4.3:nothing-after-close")
def test_after_close_the_socket_is_closed(node: NodeProcess) -> None:
    with Stranger(node.port) as peer:
        peer.open()
        peer.say(Close())
        assert peer.hear(Close).error is None
        assert is_over(peer)


@clause("2.4.3:error-closes", "2.3.1:size")
def test_after_a_breach_the_close_still_arrives(node: NodeProcess) -> None:
    with Stranger(node.port) as peer:
        peer.open()
        peer.say_bytes(b"\x00\x00\x00\x01\x02\x00\x00\x00")
        assert condition_of(peer.hear(Close)) == "amqp:connection:framing-error"
        assert is_over(peer)


@clause("2.4.5:heartbeats")
def test_a_real_node_keeps_its_peer_awake(node: NodeProcess) -> None:
    with Stranger(node.port) as peer:
        peer.open(idle_time_out=900)
        peer.socket.settimeout(30.0)
        assert peer.socket.recv(8, socket.MSG_WAITALL) == b"\x00\x00\x00\x08\x02\x00\x00\x00"


@clause("5.3:header", "5.3:then-amqp", "5.3.2:server-offers", "5.3.3.5:code")
def test_sasl_over_a_socket(node: NodeProcess) -> None:
    from enmasse.wire.amqp.framing import sasl_frame

    with Stranger(node.port) as peer:
        peer.say_bytes(SASL_HEADER)
        assert "ANONYMOUS" in peer.hear(SaslMechanisms).mechanisms
        peer.say_bytes(sasl_frame(SaslInit("ANONYMOUS", b"")))
        assert peer.hear(SaslOutcome).code == 0
        assert peer.open().container_id
        assert peer.headers == [SASL_HEADER, AMQP_HEADER]


def attach(peer: Stranger, name: str, unsettled: dict[bytes, None] | None = None) -> Attach:
    peer.begin()
    peer.say(
        Attach(
            name,
            0,
            False,
            source=Source(),
            target=Target("q", expiry_policy=Symbol("never")),
            unsettled=unsettled,
            initial_delivery_count=0,
        )
    )
    answer = peer.hear(Attach)
    assert peer.hear(Flow).link_credit
    return answer


@clause("2.6.13:known-outcome", "2.6.13:maps-exchanged", "2.6.4:reattach")
def test_a_sender_whose_connection_is_cut_stores_its_message_once(node: NodeProcess) -> None:
    name = f"link-{next(_names)}"
    payload = encode_message("once", header=Header(durable=True))
    before = stored(node)
    with Stranger(node.port) as peer:
        peer.open()
        attach(peer, name)
        peer.say(Transfer(0, 0, b"A"), payload=payload)
        assert peer.hear(Disposition).state == ACCEPTED
    # As far as this sender knows, the answer was lost with the connection.
    with Stranger(node.port) as peer:
        peer.open()
        assert attach(peer, name, {b"A": None}).unsettled == {b"A": DONE}
        peer.say(Transfer(0, 0, b"A", resume=True), payload=payload)
        told = peer.hear(Disposition)
        assert (told.first, told.settled, told.state) == (0, True, ACCEPTED)
        peer.say(Detach(0, closed=True))
        peer.hear(Detach)
    assert stored(node) == before + 1


# TLS

TLS_HEADER = b"AMQP\x02\x01\x00\x00"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, ssl.SSLContext]]:
    """A node with a certificate for each of two hosts, and what a client needs to trust it."""
    authority = Authority(tmp_path_factory.mktemp("authority") / "tls")
    authority.keep_server_certificate("default", ["127.0.0.1", "localhost"])
    authority.keep_server_certificate("shop", ["shop.example"])
    with NodeProcess(tmp_path_factory.mktemp("secure"), "--tls", str(authority.directory)) as process:
        prepare(process)
        yield process, ssl.create_default_context(cafile=str(authority.path))


def names_of(peer: Stranger) -> set[str]:
    """The hosts in the certificate that was shown."""
    assert isinstance(peer.socket, ssl.SSLSocket)
    shown = peer.socket.getpeercert(binary_form=True)
    assert shown is not None
    extension = x509.load_der_x509_certificate(shown).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return set(extension.value.get_values_for_type(x509.DNSName))


@clause("5.2:header", "5.1:stacked")
def test_the_tls_header_is_answered_and_tls_begins(secure: tuple[NodeProcess, ssl.SSLContext]) -> None:
    process, context = secure
    with Stranger(process.port) as peer:
        peer.say_bytes(TLS_HEADER)
        assert peer.socket.recv(8, socket.MSG_WAITALL) == TLS_HEADER
        peer.socket = context.wrap_socket(peer.socket, server_hostname="localhost")
        assert peer.open().container_id
        assert peer.headers == [AMQP_HEADER]


@clause("5.2.1:direct", "5.2.1:sni")
@pytest.mark.parametrize(("host", "other"), [("localhost", "shop.example"), ("shop.example", "localhost")])
def test_tls_starts_with_the_first_octet_and_the_host_chooses_the_certificate(
    secure: tuple[NodeProcess, ssl.SSLContext], host: str, other: str
) -> None:
    process, context = secure
    with Stranger(process.port) as peer:
        peer.socket = context.wrap_socket(peer.socket, server_hostname=host)
        assert host in names_of(peer)
        assert other not in names_of(peer)
        assert peer.open().container_id


@clause("2.8.16:forced", "2.4.3:error-closes")
def test_a_node_that_stops_closes_its_connections_as_forced(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as process:
        prepare(process)
        with Stranger(process.port) as peer:
            opened = peer.open()
            assert isinstance(opened, Open)
            assert process.stop() == 0
            assert condition_of(peer.hear(Close)) == "amqp:connection:forced"
            assert is_over(peer)
