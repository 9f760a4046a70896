"""Permissions: what nothing allows is refused; and patterns of the one grammar."""

from __future__ import annotations

import pytest

from enmasse.identity.permissions import MANAGE, RECV, SEND, VIEW, Grant, Permissions, pattern_problem
from enmasse.identity.throttle import RECENT_S, LoginThrottle, Throttle, network_of
from enmasse.node.patterns import matcher_of
from tests.unit.identity.people import exactly


def test_nothing_is_allowed_without_a_grant() -> None:
    nothing = Permissions([], exactly)
    assert not any(nothing.allow(operation, "orders") for operation in (SEND, RECV))
    assert not any(nothing.allow_any(operation) for operation in (SEND, RECV, VIEW, MANAGE))


def test_a_grant_is_for_its_operations_and_addresses() -> None:
    some = Permissions([Grant(("send",), ("orders",)), Grant(("recv",), ("stock", "news"))], exactly)
    assert [(o, a) for o in (SEND, RECV) for a in ("orders", "stock", "news") if some.allow(o, a)] == [
        ("send", "orders"), ("recv", "stock"), ("recv", "news"),
    ]  # fmt: skip
    assert some.allow_any(SEND)
    assert not some.allow_any(MANAGE)


def test_all_is_every_operation() -> None:
    everything = Permissions([Grant(("all",), ("orders",))], exactly)
    assert everything.allow(SEND, "orders")
    assert everything.allow(RECV, "orders")
    assert not everything.allow(SEND, "stock")
    assert all(everything.allow_any(operation) for operation in (SEND, RECV, VIEW, MANAGE))


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("orders", ["orders"], ["order", "orders/eu", "*", "#", "orders/#"]),
        ("#", ["orders", "a/b/c", "#", "a/#", "*"], ["$management", "$addresses", "$dynamic/1"]),
        ("orders/#", ["orders", "orders/eu", "orders/eu/1", "orders/#", "orders/*"], ["stock", "#", "*/eu", "order"]),
        ("orders/*", ["orders/eu", "orders/*", "orders/+"], ["orders", "orders/eu/1", "orders/#", "#"]),
        ("orders/+", ["orders/eu", "orders/*", "orders/+"], ["orders", "orders/eu/1", "orders/#", "#"]),
        ("a/+/z", ["a/b/z", "a/+/z"], ["a/z", "a/b/c/z", "a/+/+", "+/b/z"]),
        ("c++*", ["c++", "c++/x"], ["c+", "+", "+/x"]),
        ("+*", ["+1", "+x/y"], ["+", "*", "#", "+/x", "a"]),
        ("*/eu", ["orders/eu", "*/eu"], ["#/eu", "orders/us", "eu"]),
        ("order*", ["order", "orders", "orders/eu/1", "order-1/#"], ["orde", "*", "#", "an/order"]),
        ("in/order*", ["in/order", "in/orders/eu"], ["in", "order", "in/*", "in/#", "out/orders"]),
        ("$aws/#", ["$aws/x", "$aws", "$aws/#"], ["aws/x", "$management", "$SYS/x", "#"]),
        ("$*", ["$aws/x"], ["aws", "#", "$management", "$SYS/x", "$dynamic/1", "$addresses", "$share/g/x"]),
        ("$dynamic/#", [], ["$dynamic/1"]),
        ("a/#/z", ["a/z", "a/b/z", "a/b/c/z", "a/#/z", "a/*/z"], ["a", "z", "a/#", "#/z"]),
    ],
)
def test_a_pattern_covers_names_and_what_other_patterns_stand_for(
    pattern: str, inside: list[str], outside: list[str]
) -> None:
    is_within = matcher_of(pattern)
    assert [name for name in inside if not is_within(name)] == []
    assert [name for name in outside if is_within(name)] == []


@pytest.mark.parametrize(
    ("user", "pattern", "inside", "outside"),
    [
        ("jo", "in/${username}/#", ["in/jo", "in/jo/1", "in/jo/#"], ["in", "in/bo", "in/#", "in/*", "in/*/1"]),
        ("jo", "in/dev-${username}", ["in/dev-jo"], ["in/dev-jo2", "in/dev-*", "in/dev-${username}"]),
        ("j*", "in/${username}", [], ["in/jo", "in/*", "in/#"]),
        ("*", "in/${username}/#", [], ["in/jo", "in/*", "in/#", "in/*/#", "in/jo/1"]),
        ("#", "in/${username}", [], ["in", "in/jo", "in/#", "in/*", "in/jo/1"]),
        ("#", "${username}", [], ["in", "#", "*", "in/jo"]),
        ("+", "in/${username}", [], ["in/jo", "in/*", "in/#", "in/+"]),
        ("jo/1", "in/${username}/#", [], ["in/jo/1", "in/jo", "in/jo/1/x"]),
        ("a/#", "in/${username}", [], ["in/a", "in/a/#", "in/a/x", "in/#"]),
        ("$management", "${username}", [], ["$management", "management"]),
        ("$dynamic", "${username}/#", [], ["$dynamic/1", "$dynamic"]),
        ("${username}", "in/${username}", ["in/${username}"], ["in/jo", "in/#"]),
        ("", "in/${username}/#", [], ["in/", "in", "in//1", "in/jo"]),
    ],
)
def test_a_users_name_in_a_pattern_reaches_what_is_called_so_and_no_more(
    user: str, pattern: str, inside: list[str], outside: list[str]
) -> None:
    is_within = matcher_of(pattern, user)
    assert [name for name in inside if not is_within(name)] == []
    assert [name for name in outside if is_within(name)] == []


@pytest.mark.parametrize(
    ("user", "client", "pattern", "inside", "outside"),
    [
        ("jo", "g7", "own/%u/%c/#", ["own/jo/g7", "own/jo/g7/x"], ["own/jo", "own/jo/g8", "own/jo/+", "own/#"]),
        ("jo", "g7", "own-%c", ["own-g7"], ["own-%c", "own-g8"]),
        ("jo", "#", "own/%c", [], ["own", "own/a", "own/#"]),
        ("jo", "+", "own/%c/#", [], ["own/a", "own/+", "own/+/x"]),
        ("jo", "a/b", "own/%c", [], ["own/a/b", "own/a"]),
        ("%c", "x", "own/%u", ["own/%c"], ["own/x"]),
        ("jo", "%u", "own/%c", ["own/%u"], ["own/jo"]),
        ("jo", "", "own/%c/#", [], ["own/", "own", "own/%c"]),
        ("jo", "$SYS", "%c/#", [], ["$SYS/x", "$SYS"]),
    ],
)
def test_the_names_of_user_and_client_in_a_pattern_reach_what_is_called_so_and_no_more(
    user: str, client: str, pattern: str, inside: list[str], outside: list[str]
) -> None:
    permissions = Permissions([Grant(("send",), (pattern,))], matcher_of, user).of_client(client)
    assert [name for name in inside if not permissions.allow(SEND, name)] == []
    assert [name for name in outside if permissions.allow(SEND, name)] == []


def test_permissions_know_their_users_name() -> None:
    own = Permissions([Grant(("send",), ("me",))], exactly, "jo")
    assert own.allow(SEND, "jo")
    assert not own.allow(SEND, "me")


@pytest.mark.parametrize(
    "pattern", ["#", "*", "a/*/#", "+/a/+", "c++", "order*", "a/order*", "in/${username}/#", "a//b"]
)
def test_patterns_that_are_understood(pattern: str) -> None:
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize(
    "pattern", ["a*b", "a*/b", "a/#b", "#*", "**", "a/**", "*#", "${username}*", "in/${username}-*", "a" * 1025]
)
def test_patterns_that_would_be_misunderstood_are_refused(pattern: str) -> None:
    assert pattern_problem(pattern) is not None


def test_failures_close_the_door_for_a_while() -> None:
    throttle = Throttle(3, 10.0)
    for _ in range(3):
        assert not throttle.must_wait("host", 100.0)
        throttle.failed("host", 100.0)
    assert throttle.must_wait("host", 100.0)
    assert not throttle.must_wait("other", 100.0)
    assert throttle.must_wait("host", 109.0)
    assert not throttle.must_wait("host", 110.0)
    throttle.failed("host", 110.0)
    assert throttle.must_wait("host", 110.0)
    assert not throttle.must_wait("host", 1000.0)


def test_only_so_many_keys_are_remembered() -> None:
    throttle = Throttle(1, 1000.0, keys=2)
    for key in ("a", "b", "a", "c"):
        throttle.failed(key, 0.0)
    assert [key for key in "abc" if throttle.must_wait(key, 0.0)] == ["a", "c"]


def test_nobody_waits_longer_however_many_failures_there_were() -> None:
    throttle = Throttle(3, 10.0)
    for _ in range(1_000):
        throttle.failed("host", 0.0)
    assert throttle.must_wait("host", 9.0)
    assert not throttle.must_wait("host", 10.0)


def test_a_name_that_came_in_lately_is_spared_and_one_that_came_in_long_ago_is_not() -> None:
    logins = LoginThrottle()
    logins.succeeded("10.0.0.1", "ns/shop", "jo", 0.0)
    for now in (1.0, RECENT_S):
        for number in range(20):
            logins.failed("10.0.0.1", "ns/shop", f"nobody{number}", now)
        assert logins.must_wait("10.0.0.1", "ns/shop", "bo", now)
        assert not logins.must_wait("10.0.0.1", "ns/factory", "bo", now)
    assert not logins.must_wait("10.0.0.1", "ns/shop", "jo", RECENT_S - 1)
    assert logins.must_wait("10.0.0.1", "ns/shop", "jo", RECENT_S)
    for _ in range(5):
        logins.failed("10.0.0.2", "ns/shop", "jo", 0.0)
    assert logins.must_wait("10.0.0.2", "ns/shop", "jo", 0.0), "its own password may be guessed"


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("[::ffff:192.0.2.7]", "192.0.2.7"),
        ("[2001:db8:1:2:a:b:c:d]", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("unix", "unix"),
    ],
)
def test_a_client_has_an_address_or_a_network_of_ipv6(host: str, network: str) -> None:
    assert network_of(host) == network
