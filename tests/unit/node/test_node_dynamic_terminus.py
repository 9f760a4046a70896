"""What a link that asks for a node of its own is given, in the words of AMQP."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.codec import decode, encode
from enmasse.message.types import Array, Described, Symbol, ULong
from enmasse.messaging.dynamic import DynamicRequest, Lifetime
from enmasse.messaging.errors import AttachError
from enmasse.node.amqp.terminus import dynamic_properties, dynamic_request
from enmasse.wire.amqp.performatives import Source, Target

MOVE, COPY = Symbol("move"), Symbol("copy")


def policy(code: Any) -> dict[Any, Any]:
    return {Symbol("lifetime-policy"): Described(code, [])}


def modes(value: Any) -> dict[Any, Any]:
    return {Symbol("supported-dist-modes"): value}


@pytest.mark.parametrize(
    ("code", "lifetime"),
    [
        (ULong(0x2B), Lifetime.CLOSE),
        (ULong(0x2C), Lifetime.NO_LINKS),
        (ULong(0x2D), Lifetime.NO_MESSAGES),
        (ULong(0x2E), Lifetime.NO_LINKS_OR_MESSAGES),
        (Symbol("amqp:delete-on-no-links:list"), Lifetime.NO_LINKS),
    ],
)
def test_the_four_lifetime_policies_are_known_by_code_and_by_name(code: Any, lifetime: Lifetime) -> None:
    wish = dynamic_request(Source(dynamic=True, dynamic_node_properties=policy(code)), ())
    assert wish == DynamicRequest("anycast", lifetime)


@pytest.mark.parametrize(
    ("capabilities", "properties", "kind"),
    [
        ((), None, "anycast"),
        (("temporary-queue",), None, "queue"),
        (("queue",), None, "queue"),
        (("temporary-topic",), None, "topic"),
        (("shared", "topic"), None, "topic"),
        ((), modes(MOVE), "anycast"),
        ((), modes(COPY), "topic"),
        ((), modes(Array(0xA3, [MOVE, COPY])), "queue"),
        (("temporary-queue",), modes(COPY), "queue"),
    ],
)
def test_capabilities_or_distribution_modes_choose_the_kind(
    capabilities: tuple[str, ...], properties: Any, kind: str
) -> None:
    assert dynamic_request(Target(dynamic=True, dynamic_node_properties=properties), capabilities).kind == kind


@pytest.mark.parametrize(
    ("terminus", "capabilities", "told"),
    [
        (Source(dynamic=True, address="mine"), (), "names no address"),
        (Source(dynamic=True, dynamic_node_properties=policy(ULong(0x24))), (), "lifetime-policy"),
        (Source(dynamic=True, dynamic_node_properties={Symbol("lifetime-policy"): 1}), (), "lifetime-policy"),
        (Source(dynamic=True, dynamic_node_properties=modes(Symbol("steal"))), (), "supported-dist-modes"),
        (Source(dynamic=True, dynamic_node_properties=modes(MOVE)), ("temporary-topic",), "copy only"),
    ],
    ids=["named", "code", "number", "mode", "contradiction"],
)
def test_a_wish_that_makes_no_sense_is_refused(terminus: Source, capabilities: tuple[str, ...], told: str) -> None:
    with pytest.raises(AttachError, match=told) as refusal:
        dynamic_request(terminus, capabilities)
    assert refusal.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize("kind", ["anycast", "queue", "topic"])
def test_what_is_told_of_the_node_asks_for_the_same_again(kind: str) -> None:
    wish = DynamicRequest(kind, Lifetime.NO_MESSAGES)
    told, _ = decode(encode(dynamic_properties(wish)))
    assert dynamic_request(Target(dynamic=True, dynamic_node_properties=told), ()) == wish
