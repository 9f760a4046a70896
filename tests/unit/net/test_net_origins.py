"""Hosts that a server is called by, on which address it answers to others, and which addresses are public."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from enmasse.net.origins import host_refusal, plain_name
from enmasse.net.special_addresses import is_own, is_public, parse_address

SERVED = (
    None, "localhost", "LOCALHOST:8081", "127.0.0.1", "127.8.8.8:1", "0.0.0.0", "192.168.1.7:8081", "8.8.8.8",
    "[::1]", "[0:0::1]:65535", "[::ffff:127.0.0.1]", "[2606:4700::1]:8081", "own.example", "OWN.Example:8081",
)  # fmt: skip
OTHERS = (
    "evil.example", "evil.example:8081", "own.example.evil.example", "localhost.evil.example", "xown.example",
    "x.localhost", "localhost.localdomain",
    # Spellings of addresses that browsers put right before they send them.
    "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.01", "127.0.0.256",
)  # fmt: skip
NONE = (
    "", "localhost.", "own.example.", "localhost..", "localhost:", "localhost:0", "localhost:80800",
    "localhost:80:80", "localhost, evil.example", "localhost evil.example", "localhost@evil.example",
    "evil@localhost", "localhost/",
    "http://localhost", "::1", "[::1", "[127.0.0.1]", "[localhost]", "[::1%25lo]", "loc\u0430lhost", "local\u212aost",
    "local%68ost", "*",
)  # fmt: skip
NEAR = (
    "127.0.0.1", "10.1.2.3", "172.20.0.1", "192.168.1.7", "169.254.1.1", "100.64.0.9", "::1", "fd00::1",
    "fe80::1%eth0", "::ffff:127.0.0.1", "::ffff:192.168.1.7",
)  # fmt: skip
FAR = ("8.8.8.8", "2606:4700::1", "::ffff:8.8.8.8")


def refusal(host: str | None, at: object, *, is_open: bool) -> str:
    return host_refusal(host, at, lambda name: name == "own.example", is_open=is_open) or ""


@pytest.mark.parametrize("is_open", [False, True], ids=["login", "open"])
def test_a_server_is_called_by_its_names_and_by_addresses(is_open: bool) -> None:
    for at in [*((address, 8081) for address in (*NEAR, *FAR)), "/run/socket", None]:
        for host in SERVED:
            assert refusal(host, at, is_open=is_open) == "", (host, at)
        for host in NONE:
            assert "expected one name or address" in refusal(host, at, is_open=is_open), (host, at)
        is_far = isinstance(at, tuple) and at[0] in FAR
        for host in OTHERS:
            found = refusal(host, at, is_open=is_open)
            if is_far and not is_open:
                assert found == "", (host, at)
            else:
                assert f"--http-name {host.partition(':')[0]}" in found, (host, at)


def test_an_operator_lists_names_alone() -> None:
    assert plain_name("Shop.Example.org") == "shop.example.org"
    for text in (
        "",
        "127.0.0.1",
        "[::1]",
        "::1",
        "shop.example:443",
        "https://shop.example",
        "shop.example.",
        "*.a.b",
    ):
        with pytest.raises(ValueError, match="expected one such as"):
            plain_name(text)


# The first and the last address of each block, those of the registries beside ours.
BLOCKS = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4", "240.0.0.0/4",
    "::/128", "::1/128", "::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001:2::/48",
    "2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7",
    "fe80::/10", "fec0::/10", "ff00::/8", "::ffff:0:0:0/96", "4000::/3", "e000::/4",
)  # fmt: skip
PUBLIC = (
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255",
    "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.167.255.255", "198.17.255.255", "198.20.0.0",
    "223.255.255.255",
    "2001:200::1", "2606:4700::1", "2a00::1", "3ffe::1",
)  # fmt: skip
CARRIERS = (
    "::ffff:{low}", "64:ff9b::{low}", "2002:{high}::1", "2001:0:{high}::{client}", "2606:4700::5efe:{low}",
    "2606:4700::200:5efe:{low}",
)  # fmt: skip


def carrying(carrier: str, address: str) -> str:
    number = int(parse_address(address))
    halves = f"{number >> 16:x}:{number & 0xFFFF:x}"
    client = f"{~number >> 16 & 0xFFFF:x}:{~number & 0xFFFF:x}"
    return carrier.format(low=halves, high=halves, client=client)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_registries_is_not_public(block: str) -> None:
    network = ip_network(block)
    for address in (network[0], network[-1], network[network.num_addresses // 2]):
        assert not is_public(address), address
        assert is_public(address, [network])


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_beside_them_is_public(address: str) -> None:
    assert is_public(parse_address(address))
    assert not is_own(parse_address(address))


@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_address_is_what_it_carries(carrier: str) -> None:
    assert is_public(parse_address(carrying(carrier, "8.8.8.8")))
    for inner in ("127.0.0.1", "10.1.2.3", "169.254.169.254", "192.0.0.1", "0.0.0.0"):
        found = parse_address(carrying(carrier, inner))
        assert not is_public(found), found
        assert is_public(found, [ip_network(inner)]), found
    for inner in ("127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1"):
        assert is_own(parse_address(carrying(carrier, inner)))
    assert not is_own(parse_address(carrying(carrier, "10.1.2.3")))


OWN = (
    "127.0.0.1", "::1", "::", "0.0.0.0", "fe80::1%eth0", "ff02::1", "168.63.129.16", "169.254.169.254",
    "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "::127.0.0.1", "::ffff:0:127.0.0.1",
)  # fmt: skip


@pytest.mark.parametrize("address", OWN)
def test_a_machine_has_addresses_that_are_never_anybody_elses(address: str) -> None:
    assert is_own(parse_address(address))
    assert not is_public(parse_address(address))
