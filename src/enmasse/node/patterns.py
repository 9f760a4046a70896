"""The grammar of patterns of addresses, as permissions of a node's users and connectors have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import (
    MAX_PARTS,
    MAX_WORDS,
    USER,
    Pattern,
    Start,
    covers,
    meet,
    parse_filter,
    parse_permission,
)
from enmasse.model.schema.names import is_own


def matcher_of(text: str, user: str = "", client: str = "") -> Callable[[str], bool]:
    """Return a function that tests if an address, or all that a pattern covers, is within a permission's pattern."""
    pattern = parse_permission(text, user, client)
    if not text.startswith("$") or text.startswith(USER):
        return lambda name: not name.startswith("$") and name.count("/") < MAX_WORDS and covers(pattern, name)
    # Only a pattern that begins so stands for names with a dollar sign; the node's own have rules of their own.
    return lambda name: (
        name.startswith("$") and not is_own(name) and name.count("/") < MAX_WORDS and covers(pattern, name)
    )


def part_of(
    filter_: str, granted: Iterable[str], user: str, client: str = "", wanted: Pattern | None = None
) -> list[Pattern]:
    """Return the patterns of the names that a filter and one of a user's grants stand for.

    One that begins with a wildcard stands for no name that begins with a dollar sign, whatever is granted.

    Args:
        filter_: the filter.
        granted: the patterns of the grants.
        user: the user's name.
        client: the client's name for itself.
        wanted: the filter as it is parsed; None: it is a topic filter of MQTT.

    Raises:
        AttachError: there are more than ``MAX_PARTS``.
    """
    wanted = parse_filter(filter_) if wanted is None else wanted
    found: dict[Pattern, None] = {}
    for text in granted:
        if filter_.startswith("$") != (text.startswith("$") and not text.startswith(USER)):
            continue
        parts = meet(wanted, parse_permission(text, user, client))
        for part in parts or ():
            first = part[0] if part else ""
            word = first.text if isinstance(first, Start) else first
            # The name of a user or client may begin with a dollar sign, too.
            if filter_.startswith("$") or not (isinstance(word, str) and word.startswith("$")):
                found[part] = None
        if parts is None or len(found) > MAX_PARTS:
            raise AttachError(
                "amqp:resource-limit-exceeded",
                f"of {filter_!r:.200} the grants cover more than {MAX_PARTS} parts: use filters that are narrower",
            )
    return list(found)


def reach_of(text: str) -> Callable[[str], bool]:
    """Return a function that tests if an address of another container is within a connector's pattern."""
    pattern = parse_permission(text, "")
    # Addresses with a dollar sign are the other container's own: only a pattern that begins so stands for any.
    is_own = text.startswith("$")
    return lambda name: name.startswith("$") == is_own and name.count("/") < MAX_WORDS and covers(pattern, name)
