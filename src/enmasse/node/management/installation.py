"""The installation that a node's journal belongs to: an id, in the journal itself.

A journal gets the id when control first reaches the node, and keeps it wherever it is copied to. So control knows
whether the node's entities were declared in its own resource store or in another one.

The installation leases log numbers to its nodes (``messaging/log/numbers.py``): a node gets them by LEASE.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.messaging.log.numbers import LogRangeError
from enmasse.messaging.storage import Operation, Table
from enmasse.node.errors import EntityError

if TYPE_CHECKING:
    from enmasse.messaging.core import Core


INSTALLATION_TYPE = "io.enmasse.installation"

_KEY = b"i"
_MAX_LETTERS = 64

Done = Callable[[EntityError | None], None]


class Installation:
    """The one entity of type ``io.enmasse.installation``; its name is the id.

    Args:
        core: the messaging core with the journal.
        now: returns the time, RFC 3339 in UTC.
    """

    def __init__(self, core: Core, now: Callable[[], str]) -> None:
        self.id = ""
        """Empty as long as the journal belongs to none."""
        self._core = core
        self._now = now
        self._since = ""

    def load(self) -> None:
        """Read the id from the journal."""
        value = self._core.storage.get(Table.ENTITY, _KEY)
        if value is not None:
            record = json.loads(value)
            self.id, self._since = record["id"], record["since"]

    def create(self, _entity_type: str, name: str, _attributes: dict[str, Any], done: Done) -> None:
        """Assign the journal to an installation; ``done`` is called once that is on disk.

        Raises:
            EntityError: 400 it is no id, 409 the journal belongs to another one.
        """
        if self.id not in ("", name):
            raise EntityError(409, f"the journal belongs to installation {self.id!r}")
        self._store(name, done)

    def update(self, _entity_type: str, name: str, attributes: dict[str, Any], done: Done) -> None:
        """Assign the journal to another installation, which the attribute ``id`` names.

        Raises:
            EntityError: 400 it is no id, 409 the journal does not belong to the one that is named.
        """
        if self.id != name:
            raise EntityError(409, f"the journal belongs to installation {self.id!r}, not to {name!r}")
        self._store(attributes.get("id"), done)

    def delete(self, _entity_type: str, _name: str, _done: Done) -> None:
        """Refuse: a journal never ceases to belong to an installation."""
        raise EntityError(501, "a journal always belongs to an installation; update it to give it to another one")

    def _store(self, given: Any, done: Done) -> None:
        if not isinstance(given, str) or not 0 < len(given) <= _MAX_LETTERS or not given.isprintable():
            raise EntityError(400, f"the id of an installation is a text of 1 to {_MAX_LETTERS} letters")
        since = self._since if given == self.id else self._now()

        def stored(reason: str | None) -> None:
            if reason is None:
                self.id, self._since = given, since
            done(None if reason is None else EntityError(503, f"the installation was not stored: {reason}"))

        value = json.dumps({"id": given, "since": since}).encode()
        self._core.store([Operation(Table.ENTITY, _KEY, value)], stored)

    def lease(self, name: str, body: Any, answer: Callable[[dict[str, Any] | EntityError], None]) -> None:
        """Take ranges of log numbers; they are drawn from once that is on disk.

        Args:
            name: the id of the installation that leases them.
            body: ``ranges``, a list of first numbers and those behind the last, and ``given``, a number beyond all
                that the installation has leased to any node.
            answer: called with what the node has then, or with an error.

        Raises:
            EntityError: 400 they are none, 409 the journal belongs to another installation, or has used some of them.
        """
        if self.id != name:
            raise EntityError(409, f"the journal belongs to installation {self.id!r}, not to {name!r:.100}")
        ranges, given = _ranges(body)
        numbers = self._core.log_numbers
        try:
            numbers.check(ranges)
        except LogRangeError as error:
            raise EntityError(409, str(error)) from None

        def stored(reason: str | None) -> None:
            if reason is None:
                numbers.take(ranges, given)
                answer(self.read(INSTALLATION_TYPE, name))
            else:
                answer(EntityError(503, f"the leased log numbers were not stored: {reason}"))

        self._core.store([numbers.taking(ranges, given)], stored)

    def read(self, entity_type: str, _name: str) -> dict[str, Any]:
        """Return the id, since when the journal has it, and its log numbers; there is but one.

        Raises:
            EntityError: 404 the journal belongs to none.
        """
        if not self.id:
            raise EntityError(404, "the journal belongs to no installation yet")
        numbers = self._core.log_numbers
        return {
            "type": entity_type,
            "identity": self.id,
            "name": self.id,
            "since": self._since,
            "nextLog": numbers.next,
            "logRanges": None if numbers.ranges is None else [list(found) for found in numbers.ranges],
            "logsGiven": numbers.given,
        }

    def read_all(self, entity_type: str, page: slice = slice(None)) -> list[dict[str, Any]]:
        """Return a list with the installation, if there is one."""
        return [self.read(entity_type, self.id)][page] if self.id else []


def _ranges(body: Any) -> tuple[list[tuple[int, int]], int]:
    """Return the ranges of a request, and the number beyond all that was given."""
    asked = body if isinstance(body, dict) else {}
    ranges, given = asked.get("ranges"), asked.get("given")
    if isinstance(ranges, list) and isinstance(given, int) and _is_number(given):
        pairs = [item for item in ranges if isinstance(item, list) and len(item) == 2 and all(map(_is_number, item))]
        if len(pairs) == len(ranges):
            return [(first, end) for first, end in pairs], given
    raise EntityError(400, "ranges is a list of pairs of numbers, and given is a number")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
