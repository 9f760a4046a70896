"""A node's port as its options make it: limits, TLS by foreign clients, certificates that change."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.client import TlsOptions, blocking
from enmasse.drivers.authority import Authority
from enmasse.errors import EnmasseError
from tests.interop.conftest import Addresses
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess
from tests.support.polling import until

pytestmark = pytest.mark.slow

AMQP_TLS_HEADER = b"AMQP\x02\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


def make_node(directory: Path, *arguments: str) -> NodeProcess:
    process = NodeProcess(directory / "node", *arguments).start()
    addresses = Addresses(process)
    addresses.make_space()
    addresses.declare("queue", "q")
    addresses.close()
    return process


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, Path]]:
    """A node with TLS, and its directory of certificates."""
    directory = tmp_path_factory.mktemp("secure")
    tls = directory / "tls"
    Authority(tls).keep_server_certificate("default", ("127.0.0.1", "localhost"))
    process = make_node(directory, "--tls", str(tls))
    try:
        yield process, tls
    finally:
        process.stop()
    assert "Traceback" not in process.log, process.log


def trust(tls: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(tls / "authority" / "ca.crt"))


def test_one_connection_too_many_is_told_so(tmp_path: Path) -> None:
    process = make_node(tmp_path, "--max-connections", "2")
    try:
        with blocking.connect(process.url, timeout=30), blocking.connect(process.url, timeout=30) as second:
            with pytest.raises(EnmasseError, match="2 connections, as many as it may"):
                blocking.connect(process.url, timeout=30, reconnect=False).sender("q")
            second.sender("q").send(blocking.Message("still served"))
    finally:
        process.stop()


def test_who_never_opens_is_dropped(tmp_path: Path) -> None:
    process = make_node(tmp_path, "--handshake-timeout", "1")
    try:
        with blocking.connect(process.url, timeout=30) as served:
            for said in (b"", b"AMQP", SASL_HEADER, b"GET /healthz HTTP/1.1\r\n"):
                with socket.create_connection(("127.0.0.1", process.port), 10) as sock:
                    sock.sendall(said)
                    try:
                        while sock.recv(4096):
                            pass
                    except ConnectionResetError:
                        pass
            served.sender("q").send(blocking.Message("still served"))
    finally:
        process.stop()


def test_openssl_finds_the_versions_that_are_spoken(secure: tuple[NodeProcess, Path]) -> None:
    node, tls = secure
    require("openssl")
    found = {}
    for version in ("-tls1_1", "-tls1_2", "-tls1_3"):
        done = subprocess.run(
            [
                "openssl", "s_client", "-connect", f"127.0.0.1:{node.port}", version, "-cipher", "DEFAULT@SECLEVEL=0",
                "-CAfile", str(tls / "authority" / "ca.crt"), "-verify_return_error", "-verify_ip", "127.0.0.1",
            ],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        found[version] = done.returncode == 0 and "Verification: OK" in done.stdout
    assert found == {"-tls1_1": False, "-tls1_2": True, "-tls1_3": True}


def test_our_client_sends_and_receives_much_through_tls(secure: tuple[NodeProcess, Path]) -> None:
    node, tls = secure
    options = TlsOptions(ca_file=tls / "authority" / "ca.crt")
    body = os.urandom(3 << 20)
    with blocking.connect(f"amqps://localhost:{node.port}", tls=options, timeout=30) as connection:
        sender = connection.sender("q")
        receiver = connection.receiver("q")
        for _ in range(5):
            sender.send(blocking.Message(body))
            delivery = receiver.receive(timeout=30)
            assert delivery is not None
            assert delivery.message.body == body
            delivery.accept()


def test_amqps_own_header_for_tls_leads_to_sasl_inside(secure: tuple[NodeProcess, Path]) -> None:
    node, tls = secure
    with socket.create_connection(("127.0.0.1", node.port), 10) as sock:
        sock.sendall(AMQP_TLS_HEADER)
        assert sock.recv(8, socket.MSG_WAITALL) == AMQP_TLS_HEADER
        with trust(tls).wrap_socket(sock, server_hostname="localhost") as inside:
            inside.sendall(SASL_HEADER)
            assert inside.recv(8) == SASL_HEADER


def test_without_certificates_amqps_own_header_is_refused(tmp_path: Path) -> None:
    process = make_node(tmp_path)
    try:
        with socket.create_connection(("127.0.0.1", process.port), 10) as sock:
            sock.sendall(AMQP_TLS_HEADER)
            assert sock.recv(100) == SASL_HEADER
            assert sock.recv(100) == b""
    finally:
        process.stop()


def test_a_new_certificate_is_shown_while_connections_stay(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    Authority(tls).keep_server_certificate("default", ("localhost",))
    process = make_node(tmp_path, "--tls", str(tls))

    def shown() -> bytes | None:
        with (
            socket.create_connection(("127.0.0.1", process.port), 10) as sock,
            trust(tls).wrap_socket(sock, server_hostname="localhost") as inside,
        ):
            return inside.getpeercert(binary_form=True)

    try:
        before = shown()
        options = TlsOptions(ca_file=tls / "authority" / "ca.crt")
        with blocking.connect(f"amqps://localhost:{process.port}", tls=options, timeout=30) as connection:
            assert Authority(tls).keep_server_certificate("default", ("localhost", "new.example.org"))
            until(lambda: shown() != before)
            connection.sender("q").send(blocking.Message("the old connection goes on"))
    finally:
        process.stop()


def test_certificates_are_read_again_at_a_signal(secure: tuple[NodeProcess, Path]) -> None:
    node, _ = secure
    before = node.log.count("read anew")
    os.kill(node.pid, signal.SIGHUP)
    until(lambda: node.log.count("read anew") == before + 1)


def test_a_node_without_a_certificate_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"put default\.crt and default\.key"):
        NodeProcess(tmp_path / "node", "--tls", str(tmp_path)).start()
