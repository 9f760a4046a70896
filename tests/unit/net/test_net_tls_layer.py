"""What TLS carries arrives as it was sent, however the network cuts it: with the TLS library's own client.

The transport below is memory, as only there a test decides where each read ends.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.drivers.authority import Authority
from enmasse.net.tls_layer import READ_BYTES, RECORD_BYTES, SEALED_RECORD_BYTES, TlsLayer
from tests.support.chance import examples

SIZES = st.integers(1, 3 * RECORD_BYTES) | st.sampled_from((1, RECORD_BYTES, 5 * RECORD_BYTES, READ_BYTES))


class Memory:
    """A transport whose bytes lie in a list."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def writelines(self, chunks: list[bytes]) -> None:
        self.sent += chunks

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        raise AssertionError("TLS failed")


class Reader(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        self.received += data


class Connection:
    """A client of the TLS library, and the layer that it speaks with."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        self.reader, self.memory = Reader(), Memory()
        self.layer = TlsLayer(self.reader, server)
        self.layer.connection_made(self.memory)  # type: ignore[arg-type]  # it has what a layer needs of one
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        while not self.is_agreed():
            self.pass_on((READ_BYTES,))

    def is_agreed(self) -> bool:
        try:
            self.client.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.pass_on((READ_BYTES,))
        return True

    def pass_on(self, cuts: tuple[int, ...]) -> None:
        """Have the layer read what the client sealed, in parts of these sizes in turn, and the client its answers."""
        sealed = memoryview(self.outgoing.read())
        turn = 0
        while sealed:
            place = self.layer.get_buffer(-1)
            size = min(len(place), len(sealed), cuts[turn % len(cuts)])
            place[:size] = sealed[:size]
            self.layer.buffer_updated(size)
            sealed = sealed[size:]
            turn += 1
        for chunk in self.memory.sent:
            self.incoming.write(chunk)
        self.memory.sent.clear()

    def read_all(self) -> bytes:
        parts = []
        while True:
            try:
                parts.append(self.client.read(RECORD_BYTES))
            except ssl.SSLWantReadError:
                return b"".join(parts)


@pytest.fixture(scope="module", params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def contexts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    directory: Path = tmp_path_factory.mktemp("tls")
    authority = Authority(directory)
    authority.keep_server_certificate("default", ("localhost",))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(directory / "default.crt", directory / "default.key")
    client = ssl.create_default_context(cadata=authority.certificate().decode())
    client.maximum_version = request.param
    return server, client


def content(size: int, number: int) -> bytes:
    """Bytes that differ wherever they are from those around them."""
    pattern = b"".join(index.to_bytes(4, "big") for index in range(number << 20, (number << 20) + size // 4 + 1))
    return pattern[:size]


@settings(max_examples=examples(40))
@given(st.lists(SIZES, min_size=1, max_size=5), st.lists(st.integers(1, READ_BYTES), min_size=1, max_size=4))
def test_reads_what_was_sent_wherever_it_is_cut(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], sizes: list[int], cuts: list[int]
) -> None:
    connection = Connection(*contexts)
    sent = [content(size, number) for number, size in enumerate(sizes)]
    for part in sent:
        connection.client.write(part)
    connection.pass_on(tuple(max(cut, 1000) for cut in cuts))
    assert connection.reader.received == b"".join(sent)


@pytest.mark.parametrize("first", [1, 5, 6, 1000, RECORD_BYTES, SEALED_RECORD_BYTES - 1])
def test_reads_a_full_buffer_after_most_of_a_record(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], first: int
) -> None:
    # Then more is decrypted than was read, and it lies in the same buffer.
    connection = Connection(*contexts)
    sent = [content(size, number) for number, size in enumerate((RECORD_BYTES, 5000, 2 * READ_BYTES))]
    for part in sent:
        connection.client.write(part)
    connection.pass_on((first, READ_BYTES, READ_BYTES, READ_BYTES))
    assert connection.reader.received == b"".join(sent)


def test_connections_share_a_buffer_and_nothing_else(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    connections = [Connection(*contexts) for _ in range(3)]
    sent = [content(3 * RECORD_BYTES, number) for number in range(3)]
    for connection, part in zip(connections, sent, strict=True):
        connection.client.write(part)
    sealed = [connection.outgoing.read() for connection in connections]
    for at in range(0, max(map(len, sealed)), 1000):
        for connection, part in zip(connections, sealed, strict=True):
            connection.outgoing.write(part[at : at + 1000])
            connection.pass_on((1000,))
    assert [bytes(connection.reader.received) for connection in connections] == sent


@pytest.mark.parametrize("size", [1, RECORD_BYTES, 5 * RECORD_BYTES + 1, READ_BYTES])
def test_writes_what_it_is_given(contexts: tuple[ssl.SSLContext, ssl.SSLContext], size: int) -> None:
    connection = Connection(*contexts)
    sent = content(size, 1)
    connection.layer.write(sent)
    connection.layer.writelines((sent, memoryview(sent)))
    connection.pass_on((READ_BYTES,))
    assert connection.read_all() == 3 * sent
