"""Management's operations on the retained values of a space: RETAINED lists them, CLEAR-RETAINED clears them.

Their messages are not shown: who may receive from their addresses reads them there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.messaging.patterns import Pattern, parse
from enmasse.node.errors import EntityError

if TYPE_CHECKING:
    from enmasse.messaging.address import Address
    from enmasse.messaging.retained import Value
    from enmasse.messaging.space import Space

LIST, CLEAR = "RETAINED", "CLEAR-RETAINED"
RETAINED_ACTIONS = {LIST: ("filter", "offset"), CLEAR: ("filter", "offset")}
"""Operations on the retained values of a space, each with the names of its arguments."""

MAX_VALUES = 200
"""The most values of one answer."""

MAX_LOOKS = 5_000
"""The most values that are looked at for one answer: two milliseconds of the node's time."""

Reply = Callable[[int, str, Any], None]


def _of_nobody(_address: Address) -> bool:
    return False


def act_on_retained(
    operation: str, space: Space, body: Any, reply: Reply, is_closed: Callable[[Address], bool] = _of_nobody
) -> None:
    """Carry out one step of an operation on the values whose names match a filter.

    Args:
        operation: one of ``RETAINED_ACTIONS``.
        space: the space.
        body: a map of arguments: ``filter``, a name or pattern; ``offset``, where to go on, from the answer before.
        reply: called with the answer, when the result is stored: ``results`` or ``count``, and the ``offset`` to go
            on from; null at the end.
        is_closed: returns true if who asks may not use an address, whose values stay.

    Raises:
        EntityError: 400 an argument is wrong.
    """
    pattern, offset = _arguments(operation, body)
    found, following = space.retained.page(pattern, offset, MAX_VALUES, MAX_LOOKS)
    if operation == LIST:
        reply(200, "OK", {"results": [_shown(value) for value in found], "offset": following})
        return
    homes = [space.address(value.home.address) for value in found]
    found = [value for value, home in zip(found, homes, strict=True) if home is None or not is_closed(home)]
    problems: list[str] = []
    left = len(found)
    # What is cleared leaves its place to what follows.
    answer = {"count": left, "offset": None if following is None else following - left}

    def done(reason: str | None) -> None:
        nonlocal left
        left -= 1
        if reason is not None:
            problems.append(reason)
        if left <= 0:
            if problems:
                reply(503, f"not all is on disk: {problems[0]}", {})
            else:
                reply(200, "OK", answer)

    for value in found:
        value.home.clear(value.name, done)
    if not found:
        reply(200, "OK", answer)


def _arguments(operation: str, body: Any) -> tuple[Pattern, int]:
    given = body if isinstance(body, dict) else {}
    for key in given:
        if key not in RETAINED_ACTIONS[operation]:
            raise EntityError(400, f"{operation} has no argument {key!r:.100}; it has filter, offset")
    text, offset = given.get("filter"), given.get("offset") or 0
    if not isinstance(text, str) or not text:
        raise EntityError(400, f"filter is a name or pattern, such as # for all, not {text!r:.100}")
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise EntityError(400, f"offset is a number from 0 on, not {offset!r:.100}")
    return parse(text), offset


def _shown(value: Value) -> dict[str, Any]:
    """Return the attributes of a value; times are in milliseconds since 1970."""
    core, facts = value.home.core, value.facts
    came = value.since_us or core.steady_us
    ends = [end for end in (value.ends_us and (value.ends_us + core.shift_us) // 1_000, facts.expires_ms) if end]
    return {
        "name": value.name,
        "address": value.home.address,
        "bytes": len(value.payload),
        "durable": facts.durable,
        "time": (came + core.shift_us) // 1_000,
        "expires": min(ends, default=None),
    }
