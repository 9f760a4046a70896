"""What management does to the messages that an address stores: PURGE, MOVE, REPLAY."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address
from enmasse.messaging.backlog import Backlog
from enmasse.messaging.errors import AttachError, SelectorError
from enmasse.messaging.operations import move, purge, replay
from enmasse.messaging.selector import Selector, compile_selector
from enmasse.node.errors import EntityError

if TYPE_CHECKING:
    from enmasse.messaging.space import Space

__all__ = ["ACTIONS", "act"]

ACTIONS = {"PURGE": ("selector",), "MOVE": ("to", "selector"), "REPLAY": ("selector",)}
"""Each with its arguments."""

Done = Callable[[int, EntityError | None], None]


def act(action: str, name: str, space: Space, address: Address, arguments: Any, done: Done) -> None:
    """Do something to the messages of an address.

    Args:
        action: one of ``ACTIONS``.
        name: the entity's, for messages.
        space: that the address belongs to.
        address: whose messages.
        arguments: a map.
        done: called once, with the number of messages, when what became of them is stored.

    Raises:
        EntityError: 400 the arguments make no sense or the address stores no messages for receivers,
            404 there is no address to move to.
    """
    given = _arguments(action, arguments)
    selector = _selector(given.get("selector"))
    if not isinstance(address, Backlog):
        raise EntityError(
            400, f"{name!r} is of type {address.kind}; {action} is for what queues and subscriptions store"
        )

    def answer(count: int, problem: str | None) -> None:
        if problem is None:
            done(count, None)
        else:
            done(count, EntityError(409, f"{problem}; {count} messages were dealt with"))

    if action == "PURGE":
        purge(address, selector, answer)
    elif action == "REPLAY":
        replay(address, lambda origin: _find(space, origin), selector, answer)
    else:
        move(address, _target(space, address, given.get("to")), selector, answer)


def _arguments(action: str, arguments: Any) -> dict[str, Any]:
    known = ACTIONS[action]
    given = arguments if isinstance(arguments, dict) else {}
    for key, value in given.items():
        if key not in known:
            raise EntityError(400, f"{action} has no argument {key!r:.100}; it has {', '.join(known)}")
        if value is not None and not isinstance(value, str):
            raise EntityError(400, f"argument {key} takes a string, not {value!r:.100}")
    return given


def _selector(text: str | None) -> Selector | None:
    if text is None or not text.strip():
        return None
    try:
        return compile_selector(text)
    except SelectorError as error:
        raise EntityError(400, error.description) from None


def _find(space: Space, name: str) -> Address | None:
    try:
        return space.find(name)
    except AttachError:
        return None


def _target(space: Space, address: Backlog, to: str | None) -> Backlog:
    if not to:
        raise EntityError(400, "MOVE lacks its argument to: the address that the messages go to")
    target = _find(space, to)
    if target is None:
        raise EntityError(404, f"space {space.name!r} has no address {to!r} to move to")
    if target is address:
        raise EntityError(400, f"{to!r} is where the messages are already; name another address")
    if not isinstance(target, Backlog):
        raise EntityError(
            400, f"{to!r} is of type {target.kind}; messages are moved to queues and subscriptions only"
        )
    return target
