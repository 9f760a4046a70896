"""Headers of connections that nodes hand over to each other: written and read, in crumbs, and wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.wire.peer_header import (
    MAX_BYTES,
    PeerDevice,
    PeerHeader,
    PeerToken,
    PeerUser,
    read_peer_header,
    write_peer_header,
)
from enmasse.wire.proxy_header import BalancerTls, ProxyHeader, ProxyHeaderError
from tests.support.proxy_headers import LOCAL, binary, extension, text

CLIENT = ProxyHeader(True, ("203.0.113.7", 40_000), ("198.51.100.1", 5671), BalancerTls(False))
PLAIN = PeerHeader(CLIENT, bytes(32), "id", "node-0", "ns/shop", 1, "amqp")

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=20)
BYTES = st.binary(max_size=40)
TIMES = st.none() | st.floats(allow_nan=False, allow_infinity=False)
PORTS = st.integers(0, 65_535)
PLACES = st.one_of(
    st.none(),
    st.tuples(st.tuples(st.ip_addresses(v=4).map(str), PORTS), st.tuples(st.ip_addresses(v=4).map(str), PORTS)),
    st.tuples(st.ip_addresses(v=6).map(str).map(lambda host: (host, 1)), st.just(("::1", 2))),
)
TLS = st.just(BalancerTls(False)) | st.builds(BalancerTls, st.just(True), WORDS, WORDS, st.none() | WORDS)
CLIENTS = st.builds(
    lambda places, tls, host: ProxyHeader(True, places and places[0], places and places[1], tls, host),
    PLACES,
    TLS,
    st.none() | WORDS.map(str.lower).filter(lambda host: host == host.lower()),
)
MANY = st.lists(TEXTS, max_size=4).map(tuple)
TOKENS = st.builds(PeerToken, TEXTS, TEXTS, MANY, MANY, TIMES, st.booleans())
USERS = st.builds(PeerUser, TEXTS, TEXTS, BYTES, st.none() | TOKENS)
DEVICES = st.builds(PeerDevice, TEXTS, TEXTS, TEXTS, TEXTS, BYTES, TIMES, TEXTS)
HEADERS = st.builds(
    PeerHeader,
    CLIENTS,
    BYTES,
    TEXTS,
    TEXTS,
    TEXTS,
    st.integers(0, 2**64 - 1),
    TEXTS,
    st.booleans(),
    st.booleans(),
    TEXTS,
    TEXTS,
    MANY,
    st.lists(BYTES, max_size=3).map(tuple),
    st.none() | BYTES,
    st.none() | USERS,
    st.none() | DEVICES,
)


@given(HEADERS, st.binary(max_size=10))
def test_what_is_written_is_read_and_what_follows_is_left(header: PeerHeader, more: bytes) -> None:
    data = write_peer_header(header)
    assert read_peer_header(data + more) == (header, len(data))
    assert len(data) <= MAX_BYTES


def test_a_header_is_read_when_it_is_whole() -> None:
    user = PeerUser("jo", "user:1", bytes(16), PeerToken("https://id", "7", ("a",), ("b",), 1.5, True))
    data = write_peer_header(PLAIN._replace(user=user, chain=(b"one", b"two"), names=("jo",), final_data=b""))
    assert all(read_peer_header(data[:size]) is None for size in range(len(data)))


def with_extension(kind: int, value: bytes, header: PeerHeader = PLAIN) -> bytes:
    data = write_peer_header(header) + extension(kind, value)
    return data[:14] + (len(data) - 16).to_bytes(2, "big") + data[16:]


SHORT_NUMBER = write_peer_header(PLAIN).replace(b"\xe5\0\x08" + bytes(7), b"\xe5\0\x01") + extension(4, bytes(4))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (text(), "does not begin"),
        (b"AMQP\0\1\0\0", "does not begin"),
        (LOCAL, "of no client"),
        (binary(), "lacks the extensions 0xe0, 0xe1"),
        (with_extension(0xE0, b"\2"), "0xe0 comes twice"),
        (with_extension(0xE4, b"ns/other"), "0xe4 comes twice"),
        (with_extension(0xEE, b""), "than are known"),
        (with_extension(0xEC, b""), "of the user lacks"),
        (with_extension(0xEC, extension(1, "jo") + extension(2, "") + extension(3, "") + b"\x20\0\0"), "more than"),
        (with_extension(0xEC, extension(1, b"\xff") + extension(2, "") + extension(3, "")), "not UTF-8"),
        (with_extension(0xED, extension(1, "t")), "of the device lacks"),
        (write_peer_header(PLAIN).replace(b"\xe0\0\1\1", b"\xe0\0\1\2"), "version 02"),
        (write_peer_header(PLAIN).replace(b"\xe6\0\5\0", b"\xe6\0\5\4"), "flags"),
        (SHORT_NUMBER, "eight bytes"),
    ],
)  # fmt: skip
def test_what_is_none_is_refused(wrong: bytes, why: str) -> None:
    with pytest.raises(ProxyHeaderError, match=why):
        read_peer_header(wrong)


def test_more_than_fits_is_refused_where_it_is_written() -> None:
    token = PeerToken("https://id", "7", tuple("g" * 200 for _ in range(1000)))
    with pytest.raises(ProxyHeaderError, match="bytes"):
        write_peer_header(PLAIN._replace(user=PeerUser("jo", "", b"", token)))


@given(st.sampled_from([b"", write_peer_header(PLAIN)[:60], write_peer_header(PLAIN)]), BYTES, BYTES)
def test_any_bytes_are_a_header_none_or_the_beginning_of_one_and_more_of_them_change_no_verdict(
    start: bytes, data: bytes, more: bytes
) -> None:
    given_bytes = start + data
    try:
        found = read_peer_header(given_bytes)
    except ProxyHeaderError:
        with pytest.raises(ProxyHeaderError):
            read_peer_header(given_bytes + more)
        return
    if found is not None:
        assert read_peer_header(given_bytes + more) == found
