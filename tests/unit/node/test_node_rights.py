"""What a user may attach to, where it is a matter of the link's kind as well."""

from __future__ import annotations

from itertools import product

import pytest

from enmasse.identity.permissions import RECV, SEND, Grant, Permissions
from enmasse.identity.users import User
from enmasse.message.sections import Sections, data_start
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import matches, parse, parse_permission
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.space import Space
from enmasse.messaging.streams.producers import COMMITS_CAPABILITY, FRAMES_CAPABILITY
from enmasse.messaging.streams.stream import Stream
from enmasse.node.patterns import matcher_of, part_of, reach_of
from enmasse.node.users.rights import KnownGrants, Rights
from enmasse.testing.ports import CoreHarness

COMMITS = (COMMITS_CAPABILITY,)


def rights(*operations: str) -> Rights:
    """Of a user with these operations on ``log`` and ``direct``, in a space with these and ``other``, a stream."""
    core = CoreHarness().core
    found = Rights()
    found.space = Space(core, "default/shop", lambda: "id")
    for log_id, name in enumerate(("log", "other"), 1):
        found.space.add(Stream(core, name, log_id, uid=name))
    found.space.add(Anycast(core, "direct"))
    grants = [Grant(operations, ("log", "direct"))]
    found.user = User("jo", "default/shop", Permissions(grants, lambda pattern, _user: pattern.__eq__))
    return found


def test_who_may_read_a_stream_may_tell_it_how_far_it_has_come() -> None:
    rights(RECV).require_producer("log", COMMITS)
    rights(SEND).require_producer("log", COMMITS)


@pytest.mark.parametrize(
    ("address", "capabilities"),
    [
        ("log", ()),
        ("log", (FRAMES_CAPABILITY,)),
        ("log", (COMMITS_CAPABILITY, FRAMES_CAPABILITY)),
        ("direct", COMMITS),
        ("other", COMMITS),
        ("nowhere", COMMITS),
    ],
)
def test_who_may_only_read_sends_nothing_else(address: str, capabilities: tuple[str, ...]) -> None:
    with pytest.raises(AttachError, match="may not send to"):
        rights(RECV).require_producer(address, capabilities)


@pytest.mark.parametrize(
    ("pattern", "is_covered"),
    [("#", False), ("*/orders", False), ("m*", False), ("mill", False), ("mill/orders", True), ("mill/#", True)],
)
def test_grants_cover_what_is_behind_a_connector_only_where_they_name_it(pattern: str, is_covered: bool) -> None:
    space = Space(CoreHarness().core, "default/shop", lambda: "id")
    user = User("jo", "default/shop", Permissions([Grant((SEND, RECV), (pattern,))], matcher_of))
    found, offline = Rights(), KnownGrants(user, space)
    found.space, found.user = space, user
    was_covered = offline.may_send("mill/orders")
    assert was_covered is offline.may_receive("mill/orders") is (pattern != "mill")
    space.connectors["mill"] = Anycast(space.core, "mill")
    assert offline.may_send("mill/orders") is offline.may_receive("mill/orders") is is_covered
    for require in (found.require_send, found.require_receive):
        if is_covered:
            require("mill/orders")
            continue
        with pytest.raises(AttachError, match="user 'jo' may not") as refused:
            require("mill/orders")
        # Who has a grant that would cover it elsewhere is told what it lacks.
        assert ("such as 'mill/#'" in str(refused.value)) is was_covered


@pytest.mark.parametrize(
    ("pattern", "reached"),
    [
        ("#", ["orders", "orders/new"]),
        ("*", ["orders"]),
        ("orders/#", ["orders", "orders/new"]),
        ("$dynamic/#", ["$dynamic/1"]),
        ("$management", ["$management"]),
    ],
)
def test_a_connector_reaches_names_with_a_dollar_sign_where_its_pattern_has_it(
    pattern: str, reached: list[str]
) -> None:
    is_within = reach_of(pattern)
    names = ("orders", "orders/new", "$dynamic/1", "$management")
    assert [name for name in names if is_within(name)] == reached


@pytest.mark.parametrize(("pattern", "may"), [("#", False), ("mi*", False), ("mill/orders", True), ("mill/#", True)])
def test_who_has_no_grant_that_names_a_connector_has_no_address_made_behind_it(pattern: str, may: bool) -> None:
    found = Rights()
    found.require_dynamic("mill")  # as there are no users, anybody
    found.user = User("jo", "default/shop", Permissions([Grant((SEND,), (pattern,))], matcher_of))
    found.require_dynamic()
    if may:
        found.require_dynamic("mill")
    else:
        with pytest.raises(AttachError, match="user 'jo' may not make 'a dynamic address behind mill'"):
            found.require_dynamic("mill")


NAMES = ["/".join(words) for count in (1, 2, 3, 4) for words in product("ab", repeat=count)]


@pytest.mark.parametrize("wanted", ["#", "a/#", "#/b", "a/#/b", "*/b", "#/a/#", "a/*/#", "#/*/b"])
@pytest.mark.parametrize("granted", ["#", "a/#", "#/b", "b/#/b", "a/*", "#/a/#/b", "a*"])
def test_a_pattern_is_cut_to_the_names_that_grants_cover(wanted: str, granted: str) -> None:
    found = part_of(wanted, [granted], "jo", wanted=parse(wanted))
    both = [name for name in NAMES if matches(parse(wanted), name) and matches(parse_permission(granted, "jo"), name)]
    assert [name for name in NAMES if any(matches(pattern, name) for pattern in found)] == both


def data(body: bytes) -> bytes:
    """Return a message with a body."""
    return data_start(len(body)) + body


def of_user(*granted: str) -> Rights:
    """Return the rights of a user who may receive from these."""
    found = Rights()
    found.user = User("jo", "default/shop", Permissions([Grant((RECV,), granted)], matcher_of))
    return found


def test_a_receiver_of_a_topic_gets_the_part_of_its_pattern_that_grants_cover() -> None:
    harness = CoreHarness()
    topic = Topic(harness.core, "hall", 1)
    topic.load()
    port = harness.receiver(topic, 10, source=of_user("hall/a/#", "$aws/#").granted("#"))
    end = port.sink

    def sent() -> list[bytes]:
        """Return what comes of a message to each of three names."""
        before = len(port.payloads)
        for name in ("hall/a/x", "hall/b", "hall/c"):
            sender = harness.sender(topic, name)
            harness.turn()
            sender.send(data(name.encode()), settled=True)
            harness.turn()
        return [Sections(payload).body for payload in port.payloads[before:]]

    assert sent() == [b"hall/a/x"]
    end.recut(of_user("hall/b", "hall/c").granted("#"))
    assert sent() == [b"hall/b", b"hall/c"]
    end.recut(of_user("#").granted("#"))
    assert sent() == [b"hall/a/x", b"hall/b", b"hall/c"]
    with pytest.raises(AttachError, match="may not receive"):
        of_user("$aws/#").granted("#")
