"""What an AMQP link asks of a node made for it, and what it is told of the node it got [AMQP 3.5.9 - 3.5.13]."""

from __future__ import annotations

from typing import Any

from enmasse.messaging.dynamic import Lifetime, Wish
from enmasse.messaging.errors import AttachError
from enmasse.wire.amqp.performatives import Source, Target
from enmasse.wire.amqp.types import Array, Described, Symbol, ULong

__all__ = ["dynamic_properties", "dynamic_wish"]

LIFETIME_POLICY = Symbol("lifetime-policy")
DIST_MODES = Symbol("supported-dist-modes")

_LIFETIMES: dict[Any, Lifetime] = {
    **{lifetime.value: lifetime for lifetime in Lifetime},
    "amqp:delete-on-close:list": Lifetime.CLOSE,
    "amqp:delete-on-no-links:list": Lifetime.NO_LINKS,
    "amqp:delete-on-no-messages:list": Lifetime.NO_MESSAGES,
    "amqp:delete-on-no-links-or-messages:list": Lifetime.NO_LINKS_OR_MESSAGES,
}

_KINDS = {"temporary-queue": "queue", "queue": "queue", "temporary-topic": "topic", "topic": "topic"}
"""Capability to the kind of node that has it."""

_MODES = {"anycast": ("move",), "queue": ("move", "copy"), "topic": ("copy",)}
_SYMBOLS = 0xA3


def dynamic_wish(terminus: Source | Target, capabilities: tuple[str, ...]) -> Wish:
    """What a link asks of the node that is to be made for it.

    A capability says which kind of node it is; without one, the distribution modes that it is to support.

    Args:
        terminus: the dynamic one.
        capabilities: the link's and the terminus's.

    Raises:
        AttachError: the wish is not understood, or contradicts itself.
    """
    if terminus.address:
        raise AttachError("amqp:invalid-field", "a dynamic terminus names no address: the node names it")
    properties = terminus.dynamic_node_properties or {}
    lifetime = _lifetime(properties.get(LIFETIME_POLICY))
    modes = _modes(properties.get(DIST_MODES))
    kind = next((_KINDS[capability] for capability in capabilities if capability in _KINDS), None)
    if kind is None:
        kind = "anycast" if "copy" not in modes else "queue" if "move" in modes else "topic"
    elif not modes <= set(_MODES[kind]):
        raise AttachError("amqp:invalid-field", f"a temporary {kind} supports {' and '.join(_MODES[kind])} only")
    return Wish(kind, lifetime)


def dynamic_properties(wish: Wish) -> dict[Any, Any]:
    """What the link is told of its node."""
    modes = [Symbol(mode) for mode in _MODES[wish.kind]]
    return {
        LIFETIME_POLICY: Described(ULong(wish.lifetime.value), []),
        DIST_MODES: modes[0] if len(modes) == 1 else Array(_SYMBOLS, modes),
    }


def _lifetime(policy: Any) -> Lifetime:
    if policy is None:
        return Lifetime.CLOSE
    descriptor = policy.descriptor if isinstance(policy, Described) else None
    lifetime = _LIFETIMES.get(descriptor) if isinstance(descriptor, int | str) else None
    if lifetime is None:
        raise AttachError("amqp:invalid-field", f"lifetime-policy is one of the four of AMQP 1.0, not {policy!r:.60}")
    return lifetime


def _modes(told: Any) -> set[str]:
    values = told.values if isinstance(told, Array) else [] if told is None else [told]
    modes = {str(value) for value in values}
    if not modes <= {"move", "copy"}:
        raise AttachError("amqp:invalid-field", f"supported-dist-modes takes move and copy, not {told!r:.60}")
    return modes
