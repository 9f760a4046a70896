"""The work that a selector may be for one message, told before it is applied.

Everybody's messages go through one thread, and a selector is anybody's: what it costs is bounded for each message.

Rules:
1. The work is reckoned from the message and the selector alone, as the most that it could be, and nothing is
   timed: so the verdict is the same for every receiver, at any load, in a browser, an operation, after a restart.
2. What costs is to go through properties and annotations for a name, and to look through texts. All else is
   bounded by the length of a selector.
3. Most messages are so small that they cannot be too much for their selector, and this takes one comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields as fields_of

from enmasse.message.errors import DecodeError
from enmasse.messaging.selectors.evaluation import STEP, likening
from enmasse.messaging.selectors.fields import (
    LEAST_ENTRY_BYTES,
    Field,
    MessageFields,
    entries_of,
    field_of,
    section_searched,
)
from enmasse.messaging.selectors.nodes import Identifier, Like, Node

MAX_WORK = 10_000 * STEP
"""The work of one selector for one message: some 1 ms."""

_PER_CHARACTER = 4
"""The work for a character of a text that is read and compared."""

_PER_ENTRY = 600
"""The work for a property or annotation that is passed by on the way to another."""


class Work:
    """The work that a selector is for messages.

    Args:
        tree: the selector's.

    Attributes:
        free_bytes: a message of so many bytes is never too much.
    """

    __slots__ = ("_sought", "_texts", "free_bytes")

    def __init__(self, tree: Node) -> None:
        costs: Counter[tuple[str, bool]] = Counter()
        for mention, cost in _mentions(tree):
            costs[mention.name, mention.is_quoted] += cost
        sections = (section_searched(name, is_quoted=is_quoted) for name, is_quoted in costs)
        self._sought = Counter(section for section in sections if section)
        self._texts: list[tuple[Field, int]] = [
            (field_of(name, is_quoted=is_quoted), cost) for (name, is_quoted), cost in costs.items()
        ]
        per_byte = sum(costs.values()) + self._sought.total() * _PER_ENTRY // LEAST_ENTRY_BYTES
        self.free_bytes = MAX_WORK // max(per_byte, 1)

    def of(self, fields: MessageFields) -> int:
        """Return the work for a message; no more is reckoned once it is more than ``MAX_WORK``."""
        work = sum(
            names * _PER_ENTRY * entries_of(fields.payload, section) for section, names in self._sought.items()
        )
        for find, cost in self._texts:
            if work > MAX_WORK:
                break
            try:
                value = find(fields)
            except DecodeError:
                continue
            if isinstance(value, str):
                work += len(value) * cost
        return work

    def is_too_much(self, fields: MessageFields) -> bool:
        """Return whether a message, larger than ``free_bytes``, is more work than a selector may be."""
        return fields.head > self.free_bytes and self.of(fields) > MAX_WORK


def _mentions(tree: Node) -> Iterator[tuple[Identifier, int]]:
    """Names as often as they are mentioned, and the work for each character of what they stand for."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, Identifier):
            yield node, _PER_CHARACTER
        elif isinstance(node, Like) and isinstance(node.value, Identifier):
            yield node.value, _PER_CHARACTER + likening(node.pattern, node.escape)
        else:
            for part in (getattr(node, field.name) for field in fields_of(node)):
                if isinstance(part, Node):
                    left.append(part)
                elif isinstance(part, tuple):
                    # Operands, or operators with theirs.
                    inner = (item[1] if isinstance(item, tuple) else item for item in part)
                    left.extend(item for item in inner if isinstance(item, Node))
