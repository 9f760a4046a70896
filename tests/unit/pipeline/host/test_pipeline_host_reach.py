from __future__ import annotations

import pytest

from enmasse.pipeline.host.reach import MAX_PLACES, Reach, may_lead_to, parse_hosts, place_of


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", []),
        ("db.example.com:5432", [("db.example.com", 5432)]),
        ("api.example.com", [("api.example.com", 80), ("api.example.com", 443)]),
        ("API.example.com:1, 10.0.0.9:2 ,, 10.1.2.3/16:3", [
            ("api.example.com", 1), ("10.0.0.9/32", 2), ("10.1.0.0/16", 3),
        ]),
        ("localhost:5432", [("127.0.0.1/32", 5432)]),
        ("[2001:db8::1]:443, [fd00::/8]:443", [("2001:db8::1/128", 443), ("fd00::/8", 443)]),
        ("2001:db8::/32", [("2001:db8::/32", 80), ("2001:db8::/32", 443)]),
    ],
)  # fmt: skip
def test_an_operator_lists_names_addresses_and_networks_with_ports_or_without(
    text: str, places: list[tuple[str, int]]
) -> None:
    found, problems = parse_hosts(text)
    assert [(place.host, place.port) for place in found] == places
    assert problems == []


@pytest.mark.parametrize(
    "entry",
    ["a b", "host:0", "host:65536", "host:https", "http://host", "10.0.0.0/33", "*", "*.lan", "1.2.3"],
)
def test_what_is_no_host_is_named_and_the_others_count(entry: str) -> None:
    found, problems = parse_hosts(f"{entry}, db:5432")
    assert [place.host for place in found] == ["db"]
    assert len(problems) == 1
    assert repr(entry) in problems[0]


def test_a_long_list_ends_where_it_is_too_long_and_says_so() -> None:
    found, problems = parse_hosts(",".join(f"h{number}:80" for number in range(MAX_PLACES + 5)))
    assert len(found) == MAX_PLACES
    assert "'h100:80'" in problems[0]


def test_names_have_addresses_of_their_own_inside_and_lead_to_themselves() -> None:
    reach = Reach(parse_hosts("db:5432, web, db:80, 10.0.0.0/8:80")[0])
    assert {name: str(at) for name, at in reach.names.items()} == {"db": "127.1.0.1", "web": "127.1.0.2"}

    def leads_to(inside: str, port: int) -> str | None:
        found = reach.target(inside, port)
        return found and found[1]

    assert leads_to("127.1.0.1", 5432) == leads_to("127.1.0.1", 80) == "db"
    assert leads_to("127.1.0.2", 443) == "web"
    assert leads_to("10.1.2.3", 80) == "10.1.2.3"
    for inside, port in (
        ("127.1.0.1", 443),
        ("127.1.0.3", 80),
        ("127.0.0.1", 80),
        ("10.1.2.3", 443),
        ("11.0.0.1", 80),
    ):
        assert leads_to(inside, port) is None


@pytest.mark.parametrize(
    "outside",
    ["127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "169.254.169.254", "fe80::1%eth0", "::ffff:169.254.169.254",
     "::ffff:127.0.0.1", "fd00:ec2::254", "100.100.100.200", "224.0.0.1"],
)  # fmt: skip
def test_neither_a_name_nor_a_network_leads_to_loopback_or_metadata_but_the_very_address_does(outside: str) -> None:
    for host in ("moved.example.com", "0.0.0.0/0", "::/0"):
        assert not may_lead_to(place_of(host, 80), outside)
    assert may_lead_to(place_of(outside.partition("%")[0], 80), outside)
    assert may_lead_to(place_of("node.example.com", 80, is_ours=True), outside)


@pytest.mark.parametrize(
    ("place", "is_covered"),
    [
        ("db.example:5432", True),
        ("10.1.2.3:5432", True),
        ("10.2.2.3:5432", False),
        ("127.0.0.1:5432", True),
        ("127.1.0.1:5432", False),  # what stands for a name inside
        ("127.1.0.2:5432", False),
    ],
)
def test_an_address_is_covered_by_what_is_listed_and_not_by_what_a_name_has_inside(
    place: str, is_covered: bool
) -> None:
    reach = Reach(parse_hosts("db.example:5432, other.example:5432, 10.1.0.0/16:5432, 127.0.0.1:5432")[0])
    (wanted,) = parse_hosts(place)[0]
    assert reach.covers(wanted) is is_covered
