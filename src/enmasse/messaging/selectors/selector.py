"""Selectors: which messages a receiver wants [JMS 2.0 3.8.1], as AMQP filters carry them.

Rules:
1. A selector is read once, at attach, into functions that call each other; nothing of it is ever
   executed as code.
2. A condition is true, false or unknown (``None``); only what is true is selected.
3. Values of unlike types are neither equal nor unequal, less nor greater: comparing them is false. What
   lacks a value, or cannot be computed, is unknown.
4. A message that would be more work than a selector may be is not selected, and counted; see ``work``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from enmasse.message.errors import DecodeError
from enmasse.messaging.errors import SelectorError
from enmasse.messaging.selectors.evaluation import condition
from enmasse.messaging.selectors.fields import MessageFields
from enmasse.messaging.selectors.grammar import parse
from enmasse.messaging.selectors.work import Work

SELECTOR_FILTER = "apache.org:selector-filter:string"
"""The descriptor of the filter."""


MAX_UNITS = 1_000
"""The most units of work that a message can be for a selector; see ``MAX_WORK``."""

_SMALL_BYTES: Final = 1 << 10
"""Of a message so small it costs more to find where its body begins than that is worth."""


class _Recent:
    """The latest message: the selectors of an address are applied to each one after the other."""

    fields = MessageFields(b"")


class Tally(Protocol):
    """The address at which a selector is applied."""

    selectors_exceeded: int
    """The times that a message was too much work for a selector."""


class Selector:
    """A selector, ready to be applied.

    Attributes:
        text: the text as the receiver wrote it.
        tally: the address that counts the messages which were too much work.
    """

    __slots__ = ("_condition", "_free_bytes", "_work", "tally", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        tree = parse(text)
        self._condition: Callable[[MessageFields], Any] = condition(tree)
        self._work = Work(tree)
        self._free_bytes = self._work.free_bytes
        self.tally: Tally | None = None

    def matches(self, payload: bytes, attempts: int = 0) -> bool:
        """Return whether a message is selected; one that cannot be read is not.

        Args:
            payload: the message, in AMQP's own format (0).
            attempts: its deliveries that failed at this address.
        """
        fields = _Recent.fields
        if fields.payload is not payload or fields.attempts != attempts:
            fields = _Recent.fields = MessageFields(payload, attempts)
        return self.selects(fields)

    def selects(self, fields: MessageFields) -> bool:
        """Return whether a message is selected that several selectors are applied to."""
        if len(fields.payload) > self._free_bytes and self._work.is_too_much(fields):
            if self.tally is not None:
                self.tally.selectors_exceeded += 1
            return False
        try:
            return self._condition(fields) is True
        except DecodeError:
            return False

    def units(self, size: int) -> int:
        """Return the most work that a message of so many bytes can be, in units of about a microsecond."""
        return 2 + MAX_UNITS * min(size, self._free_bytes) // (self._free_bytes + 1)

    def cost(self, payload: bytes) -> int:
        """Return the most work that the message was to which this was applied last."""
        size = len(payload)
        if size > _SMALL_BYTES and (fields := _Recent.fields).payload is payload:
            size = fields.head
        return self.units(size)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def compile_selector(text: str) -> Selector:
    """Read a selector.

    Raises:
        SelectorError: it is not understood; says where, and what was expected.
    """
    return Selector(text)


def selector_of(filters: dict[str, Any]) -> Selector | None:
    """Return the selector among the filters of a source; an empty one selects everything, as none does.

    Args:
        filters: by descriptor; the value is the text.

    Raises:
        SelectorError: there is one, but it is not understood.
    """
    value = filters.get(SELECTOR_FILTER)
    if value is None:
        return None
    if not isinstance(value, str):
        raise SelectorError(f"it is a string, not {value!r:.60}")
    text = str(value)
    return Selector(text) if text.strip() else None
