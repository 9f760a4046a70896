"""Permissions: what nothing allows is refused; and patterns of the one grammar."""

from __future__ import annotations

import pytest

from enmasse.identity.permissions import MANAGE, RECV, SEND, VIEW, Grant, Permissions
from enmasse.identity.throttle import Throttle
from enmasse.node.users import matcher_of
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
        ("#", ["orders", "a/b/c", "#", "a/#", "*"], []),
        ("orders/#", ["orders", "orders/eu", "orders/eu/1", "orders/#", "orders/*"], ["stock", "#", "*/eu", "order"]),
        ("orders/*", ["orders/eu", "orders/*"], ["orders", "orders/eu/1", "orders/#", "#"]),
        ("*/eu", ["orders/eu", "*/eu"], ["#/eu", "orders/us", "eu"]),
        ("a/#/z", ["a/z", "a/b/z", "a/b/c/z", "a/#/z", "a/*/z"], ["a", "z", "a/#", "#/z"]),
    ],
)
def test_a_pattern_covers_names_and_what_other_patterns_stand_for(
    pattern: str, inside: list[str], outside: list[str]
) -> None:
    is_within = matcher_of(pattern)
    assert [name for name in inside if not is_within(name)] == []
    assert [name for name in outside if is_within(name)] == []


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
