"""Bounds the incomplete messages and frames of one connection, of any protocol.

A connection has ``FREE_BYTES`` of its own for them; beyond, it takes room of a budget of the node, or is not read
until there is room. What does not become complete in time is ended with ``amqp:resource-limit-exceeded``: for a
message the link, for a frame the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from enmasse.errors import RemoteError
from enmasse.message.outcomes import AmqpError
from enmasse.messaging.budget import Budget, Holder

if TYPE_CHECKING:
    from enmasse.messaging.core import Core


EXCEEDED: Final = "amqp:resource-limit-exceeded"

FREE_BYTES: Final = 4 << 10
"""The bytes that every connection may have: mostly it is a frame whose rest comes with the next read."""

UNOPENED_BYTES: Final = 64 << 10
"""The bytes of a connection that is not open yet: room for an open with many properties."""

GRAIN_BYTES: Final = 64 << 10

NODE_BYTES: Final = 128 << 20
"""The budget of a node: eight of the largest messages that are held whole."""

CHECK_S: Final = 60.0
"""Seconds between two checks of incomplete messages; one that was there at the last check has to have grown."""

HURRY_S: Final = 10.0
"""Seconds for which a message that exceeds the budget may make others wait."""

GROWTH_BYTES: Final = 1 << 20
"""The growth that is expected between two checks: 140 kbit/s are enough."""

GROWING: Final = f"by {GROWTH_BYTES >> 20} MiB in {CHECK_S:.0f} s at least"


class Begun(Protocol):
    """A link with an incomplete message."""

    delivery_id: int
    """The message's number."""

    partial_bytes: int
    """The bytes that have been received of it."""

    def give_up(self, error: AmqpError) -> None:
        """Drop the incomplete message, and end the link."""


class Collects(Protocol):
    """An engine, as far as it collects incomplete messages and frames."""

    partial_bytes: int
    """The bytes that have come of messages and of the frame under way."""

    partial_room: int
    """The most of them before ``more_room`` is asked."""

    partial_kept: int
    """The number below which they fall before ``less_room`` is called."""

    more_room: Callable[[], bool]
    less_room: Callable[[], None]
    cut_bytes: int
    """The bytes of the frame under way alone."""

    cut_frames: int
    """The number of that frame."""

    def hold_input(self, is_held: bool) -> None:
        """Stop reading the peer's bytes, or read on."""

    def fail(self, error: RemoteError) -> None:
        """End the connection."""


def unfinished_budget(max_bytes: int = NODE_BYTES) -> Budget:
    """Return the budget that the connections of a node share."""
    return Budget(max_bytes, GRAIN_BYTES)


class Unfinished:
    """The incomplete messages of one connection.

    Args:
        connection: the connection's engine.
        begun: returns the links with an incomplete message.
        budget: the node's budget.
        core: the messaging core, for timers.
        path: the owner of the connection: space, user, network.
        most_bytes: the most bytes of one connection, whatever is free.
    """

    __slots__ = (
        "__weakref__",
        "_begun",
        "_connection",
        "_core",
        "_holder",
        "_hurried",
        "_is_checking",
        "_is_waiting",
        "_most_bytes",
        "_seen",
    )

    def __init__(
        self,
        connection: Collects,
        begun: Callable[[], Iterable[Begun]],
        budget: Budget,
        core: Core,
        path: tuple[Hashable, ...],
        most_bytes: int,
    ) -> None:
        self._most_bytes = most_bytes
        self._connection = connection
        self._begun = begun
        self._core = core
        self._holder = Holder(budget, path, self._give_up)
        self._hurried = 0
        self._is_checking = False
        self._is_waiting = False
        self._seen: dict[Begun | None, tuple[int, int]] = {}
        """The number and bytes, at the last check, of each link's message and of the incomplete frame."""
        connection.more_room = self._more
        connection.less_room = self._less

    def leave(self) -> None:
        """Give back all room, as the connection is closed."""
        connection = self._connection
        connection.partial_kept = 0
        connection.partial_room = FREE_BYTES
        self._is_waiting = False
        self._holder.leave()

    @property
    def _wanted(self) -> int:
        return max(0, self._connection.partial_bytes - FREE_BYTES)

    def _more(self) -> bool:
        if self._is_waiting:
            return True
        # A frame under way goes beyond that: its link is refused once it is known, not the connection.
        if self._connection.partial_bytes > self._most_bytes and not self._connection.cut_bytes:
            return False
        self._check_later()
        if self._holder.resize(self._wanted):
            self._fit()
            return True
        self._is_waiting = True
        self._connection.hold_input(True)
        if not self._holder.wait(self._wanted, self._go_on):
            self._go_on()
            return False
        return True

    def _go_on(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._connection.hold_input(False)
        if self._holder.is_finishing:
            self._hurry_later()
        self._less()

    def _hurry_later(self) -> None:
        self._hurried += 1
        number = self._hurried
        self._core.call_later(HURRY_S, lambda: self._hurry(number))

    def _hurry(self, number: int) -> None:
        """Give up if others still wait for what this connection takes beyond the budget."""
        if self._holder.is_finishing and number == self._hurried:
            if self._holder.has_rivals:
                self._give_up()
            self._hurry_later()

    def _less(self) -> None:
        """Give back the room that is not needed any more."""
        holder = self._holder
        wanted = self._wanted
        if wanted <= holder.held:
            holder.resize(wanted)
            if self._is_waiting:
                holder.stop_waiting()
                self._go_on()
        self._fit()

    def _fit(self) -> None:
        held = self._holder.held
        self._connection.partial_room = min(held + FREE_BYTES, self._most_bytes)
        self._connection.partial_kept = held // 2

    # Giving up

    def _links(self) -> list[Begun]:
        """Return the links with an incomplete message, the largest first."""
        return sorted(self._begun(), key=lambda link: -link.partial_bytes)

    def _give_up(self) -> None:
        links = self._links()
        if links:
            problem = "others, who have less, need the room that this unfinished message takes: send it again"
            links[0].give_up(AmqpError(EXCEEDED, problem))
        else:
            problem = "others, who have less, need the room that this unfinished frame takes: connect again"
            self._connection.fail(RemoteError(EXCEEDED, problem))
        self._less()

    def _check_later(self) -> None:
        if not self._is_checking:
            self._is_checking = True
            self._core.call_later(CHECK_S, self._check)

    def _check(self) -> None:
        self._is_checking = False
        if not self._holder.held:
            self._seen = {}
            return
        seen: dict[Begun | None, tuple[int, int]] = {}
        for link in self._links():
            seen[link] = now = link.delivery_id, link.partial_bytes
            if self._is_late(self._seen.get(link), now):
                link.give_up(AmqpError(EXCEEDED, f"a message that has begun must go on: {GROWING}"))
        connection = self._connection
        if connection.cut_bytes:
            seen[None] = now = connection.cut_frames, connection.cut_bytes
            if self._is_late(self._seen.get(None), now):
                connection.fail(RemoteError(EXCEEDED, f"a frame that has begun must go on: {GROWING}"))
        self._seen = seen
        self._check_later()

    def _is_late(self, before: tuple[int, int] | None, now: tuple[int, int]) -> bool:
        if before is None or self._is_waiting:
            return False
        return before[0] == now[0] and now[1] - before[1] < GROWTH_BYTES
