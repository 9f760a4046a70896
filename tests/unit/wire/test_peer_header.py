"""Headers of connections that nodes hand over to each other: written and read, in crumbs, and wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.wire.peer_header import (
    MAX_BYTES,
    SIGNATURE,
    PeerDevice,
    PeerHeader,
    PeerToken,
    PeerUser,
    read_peer_header,
    write_peer_header,
)
from enmasse.wire.proxy_header import BalancerTls, ProxyHeader, ProxyHeaderError
from tests.support.proxy_headers import LOCAL, text

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


FIXED = len(SIGNATURE) + 3


def changed(former: bytes, latter: bytes, header: PeerHeader = PLAIN) -> bytes:
    """A header in which some bytes have others in their place, as many or not, and whose length fits."""
    data = write_peer_header(header)
    assert data.count(former) == 1
    fields = data[FIXED:].replace(former, latter)
    return data[: FIXED - 2] + len(fields).to_bytes(2, "big") + fields


def of(count: int, *sizes: int) -> bytes:
    """What stands before so many fields of these sizes."""
    return b"".join(number.to_bytes(2, "big") for number in (count, *sizes))


JO = PLAIN._replace(user=PeerUser("jo", "o", b"", PeerToken("id", "7", ends_at=1.5)), final_data=b"last")
ROWAN = PLAIN._replace(device=PeerDevice("t", "d", "psk", "a", b"m", 1.5))
SIZES = (9, 32, 2, 6, 7, 4, 0, 0, 13, 14, 11, 0, 2, 2, 0, 0)
TABLE = of(17, *SIZES, 0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (text(), "does not begin"),
        (b"AMQP\0\1\0\0", "does not begin"),
        (LOCAL, "does not begin"),
        (SIGNATURE + b"\1\0\0", "version 1"),
        (SIGNATURE + b"\2\0\0", "beyond its end"),
        (SIGNATURE + b"\2\0\2\0\0", "0 fields, and 17"),
        (changed(TABLE, of(18, *SIZES, 0, 0)), "18 fields, and 17"),
        (changed(TABLE, of(16, *SIZES)), "16 fields, and 17"),
        (changed(TABLE, of(17, *SIZES, 1)), "as long as it is"),
        (changed(of(9, 32), of(10, 31)), "nine bytes"),
        (changed(b"ns/shop", b"ns/sho\xff"), "not UTF-8"),
        (changed(bytes(7) + b"\1\0", bytes(7) + b"\1\4"), "flags"),
        (changed(b"jo" + b"o", b"jo", JO), "as long as it is"),
        (changed(b"\1last", b"\2last", JO), "may be missing"),
        (changed(b"\x3f\xf8", b"\x7f\xf0", JO), "time"),
        (changed(b"\x3f\xf8", b"\x7f\xf8", ROWAN), "time"),
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
