"""Headers of load balancers, whole, in crumbs, and wrong."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.wire.proxy_header import MAX_BYTES, BalancerTls, ProxyHeader, ProxyHeaderError, read_header
from tests.support.proxy_headers import LOCAL, SIGNATURE, binary, extension, text, tls_extension

V4, V6 = ("203.0.113.7", 40_000), ("2001:db8::7", 1)
OURS_4, OURS_6 = ("198.51.100.1", 5671), ("2001:db8::1", 65_535)


def crc32c(data: bytes) -> int:
    """By polynomial division, as it is defined."""
    number = 0
    bits = [byte >> at & 1 for byte in data for at in range(8)]
    bits[:32] = [bit ^ 1 for bit in bits[:32]]
    for bit in [*bits, *([0] * 32)]:
        number = number << 1 | bit
        if number >> 32:
            number ^= 0x1_1EDC_6F41
    return int(f"{number:032b}"[::-1], 2) ^ 0xFFFF_FFFF


def with_checksum(*extensions: bytes, by: int = 0) -> bytes:
    empty = binary(*extensions, extension(0x03, bytes(4)))
    return binary(*extensions, extension(0x03, struct.pack("!I", crc32c(empty) ^ by)))


@pytest.mark.parametrize(
    ("header", "meant"),
    [
        (text(), ProxyHeader(True, V4, OURS_4)),
        (text(V6, OURS_6), ProxyHeader(True, V6, OURS_6)),
        (b"PROXY TCP4 1.2.3.4 0.0.0.0 0 65535\r\n", ProxyHeader(True, ("1.2.3.4", 0), ("0.0.0.0", 65_535))),
        (b"PROXY UNKNOWN\r\n", ProxyHeader()),
        (b"PROXY UNKNOWN ffff::1 what ever\r\n", ProxyHeader()),
        (binary(), ProxyHeader(True, V4, OURS_4)),
        (binary(source=V6, destination=OURS_6), ProxyHeader(True, V6, OURS_6)),
        (binary(source=None), ProxyHeader(True)),
        (LOCAL, ProxyHeader()),
        (LOCAL[:14] + b"\0\3abc", ProxyHeader()),
        (SIGNATURE + b"\x21\x00\x00\x00", ProxyHeader()),
        (binary(extension(0x02, "Demo.Default")), ProxyHeader(True, V4, OURS_4, None, "demo.default")),
        (binary(extension(5, b"\0"), extension(4, b""), extension(0xEA, b"x")), ProxyHeader(True, V4, OURS_4)),
        (with_checksum(extension(0x02, "a")), ProxyHeader(True, V4, OURS_4, None, "a")),
    ],
)  # fmt: skip
def test_a_header_is_read_when_it_is_whole_and_what_follows_is_left(header: bytes, meant: ProxyHeader) -> None:
    assert read_header(header) == (meant, len(header))
    assert read_header(header + b"AMQP\0\1\0\0") == (meant, len(header))
    assert all(read_header(header[:size]) is None for size in range(len(header)))


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        (tls_extension(), BalancerTls(True, "TLSv1.3", "TLS_AES_256_GCM_SHA384")),
        (tls_extension(3, 0, "meter-1"), BalancerTls(True, "TLSv1.3", "TLS_AES_256_GCM_SHA384", "meter-1")),
        (tls_extension(5, 0, "meter-1"), BalancerTls(True, "TLSv1.3", "TLS_AES_256_GCM_SHA384", "meter-1")),
        (tls_extension(3, 1, "meter-1"), BalancerTls(True, "TLSv1.3", "TLS_AES_256_GCM_SHA384")),
        (tls_extension(1, 0, "meter-1"), BalancerTls(True, "TLSv1.3", "TLS_AES_256_GCM_SHA384")),
        (tls_extension(0), BalancerTls(False)),
        (tls_extension(2, 0, "meter-1"), BalancerTls(False)),
    ],
    ids=[
        "used",
        "verified",
        "verified before",
        "not verified",
        "no certificate",
        "in the clear",
        "in the clear, named",
    ],
)
def test_a_name_counts_by_tls_with_a_verified_certificate_alone(told: bytes, meant: BalancerTls) -> None:
    found = read_header(binary(told))
    assert found is not None
    assert found[0].tls == meant


@pytest.mark.parametrize(
    "wrong",
    [
        b"AMQP\0\1\0\0",
        b"\x16\x03\x01\0\0",
        b"PROXY\tTCP4",
        b"proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
        b"PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
        b"PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
        b"PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n",
        b"PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 ²  2\r\n".encode("latin-1"),
        b"PROXY TCP4 1.2.3.4 1.2.3.4  2\r\n",
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\nAMQP".ljust(107),
        b"PROXY UNKNOWN ".ljust(107, b"x"),
        SIGNATURE + b"\x11",
        SIGNATURE + b"\x31",
        SIGNATURE + b"\x22\x11\x00\x00",
        SIGNATURE + b"\x21\x12\x00\x0c" + bytes(12),
        SIGNATURE + b"\x21\x41\x00\x0c" + bytes(12),
        SIGNATURE + b"\x21\x11\x00\x0b" + bytes(11),
        SIGNATURE + b"\x21\x21\x00\x0c" + bytes(12),
        SIGNATURE + b"\x21\x11\xff\xff",
        SIGNATURE + b"\x20\x00\x10\x00",
        binary(b"\x02"),
        binary(b"\x02\0\5abc"),
        binary(extension(0x02, "")),
        binary(extension(0x02, "a\nb")),
        binary(extension(0x02, b"\xff")),
        binary(extension(0x02, "a" * 256)),
        binary(extension(0x02, "a"), extension(0x02, "a")),
        binary(extension(0x20, b"\1\0\0\0")),
        binary(extension(0x20, b"\1\0\0\0\0\x22")),
        binary(extension(0x20, b"\1\0\0\0\0" + 2 * extension(0x22, "a"))),
        binary(tls_extension(3, 0, "a\0b")),
        binary(tls_extension(), tls_extension()),
        binary(extension(0x03, b"abc")),
        with_checksum(by=1),
    ],
)  # fmt: skip
def test_what_is_none_is_refused_as_soon_as_it_is_there(wrong: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        read_header(wrong)


def test_the_checksum_is_the_one_of_its_standard() -> None:
    assert crc32c(b"123456789") == 0xE306_9283


ADDRESSES = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.ip_addresses(v=4)), st.tuples(st.ip_addresses(v=6), st.ip_addresses(v=6))
)
PORTS = st.integers(0, 65_535)


@given(ADDRESSES, PORTS, PORTS)
def test_both_versions_say_the_same(pair: tuple[object, object], port: int, other: int) -> None:
    source, destination = (str(pair[0]), port), (str(pair[1]), other)
    meant = ProxyHeader(True, source, destination)
    for header in (text(source, destination), binary(source=source, destination=destination)):
        assert read_header(header) == (meant, len(header))


STARTS = st.sampled_from(
    [b"", b"PROXY TCP4 1.2.3.4 ", b"PROXY UNKNOWN", SIGNATURE, SIGNATURE + b"\x21\x11", binary()]
)


@given(STARTS, st.binary(max_size=64), st.binary(max_size=16))
def test_any_bytes_are_a_header_none_or_the_beginning_of_one_and_more_of_them_change_no_verdict(
    start: bytes, data: bytes, more: bytes
) -> None:
    given_bytes = start + data
    try:
        found = read_header(given_bytes)
    except ProxyHeaderError:
        with pytest.raises(ProxyHeaderError):
            read_header(given_bytes + more)
        return
    if found is None:
        assert len(given_bytes) < MAX_BYTES
    else:
        assert 0 < found[1] <= min(len(given_bytes), MAX_BYTES)
        assert read_header(given_bytes + more) == found
