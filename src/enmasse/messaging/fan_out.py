"""Fan-out cut into turns: what one message is for very many receivers goes on from turn to turn.

Rules:
1. A message for few receivers is handed out as it comes. One for many joins a *wave* of its address, as does any that
   comes behind it there: so each receiver has them in order. A wave is of messages for the same receivers: each part
   of these is given all its messages, and so its connections are written to once.
2. The work of waves in one turn is bounded by ``MAX_UNITS``, whatever the messages and their receivers are. It is
   counted, as the core has no clock.
3. The waves of one space wait for each other; spaces have parts of a turn in turn.
4. Receivers are those who were there when the message came, less those who have gone meanwhile. What is to be said of
   the message (accepted, say) is said at the end, when it was given to the last one.
5. Nothing is promised to the sender before that, and who brings such messages is not read until they are handed out
   (``added``, ``after``). So what waits here is bounded by what connections have in hand; and if it is more than
   ``MAX_WAITING_BYTES`` all of it is handed out at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

FEW: Final = 16
"""Receivers that are given a message as it comes. What one read brings, some hundred small messages, is for them the
work of one turn."""

MAX_UNITS: Final = 2_500
"""The work of waves in one turn; a unit takes about a microsecond, two on a slow machine."""

STEP_UNITS: Final = 500
"""The work of one part of a wave, between which spaces take turns."""

RECEIVER_UNITS: Final = 10
"""The cost of a receiver beside its messages: a turn of its own, and a write to its connection."""

STORED_UNITS: Final = 5
"""The cost of one message for one subscription that stores it; for a volatile one, it is the unit."""

MAX_MESSAGES: Final = 512
"""The most messages of one wave."""

MAX_WAITING_BYTES: Final = 64 << 20
"""The most bytes of messages that wait in waves."""


class Wave:
    """Messages of one address that are for the same receivers."""

    __slots__ = ("_calls", "_steps", "is_begun", "is_over", "size", "space", "waiting_bytes")

    def __init__(self, space: object) -> None:
        self.space = space
        """The space whose part of a turn it takes."""
        self.size = 0
        """The number of its messages."""
        self.waiting_bytes = 0
        self.is_begun = False
        """True if no message can join it any more."""
        self.is_over = False
        self._steps: Iterator[int] | None = None
        self._calls: list[Callable[[], None]] = []

    @property
    def is_ready(self) -> bool:
        """True if it may begin, or go on, now."""
        return True

    def steps(self) -> Iterator[int]:
        """Hand out the messages, part by part; each part says the work that it was."""
        raise NotImplementedError

    def go_on(self) -> int:
        """Hand out the next part; return the work that it was."""
        if self._steps is None:
            self.is_begun = True
            self._steps = self.steps()
        units = next(self._steps, -1)
        if units < 0:
            self.end()
            return 1
        return units

    def end(self) -> None:
        """Note that nothing is left to do: go on with what has waited for that."""
        self.is_begun = self.is_over = True
        if self._steps is not None:
            self._steps.close()  # type: ignore[attr-defined]  # it is a generator
            self._steps = None
        calls, self._calls = self._calls, []
        for call in calls:
            call()

    def after(self, call: Callable[[], None]) -> None:
        """Call something when it is over."""
        self._calls.append(call)


class FanOut:
    """The waves of all addresses of a node.

    Args:
        request: asks for a turn.
        report: told the name of what failed, and the error.

    Attributes:
        added: the work that waves were ever given.
    """

    __slots__ = ("_latest", "_report", "_request", "_spaces", "added", "waiting_bytes")

    def __init__(self, request: Callable[[], None], report: Callable[[str, Exception], None]) -> None:
        self.added = 0
        self.waiting_bytes = 0
        """Bytes of the messages that wait."""
        self._request = request
        self._report = report
        self._spaces: dict[object, deque[Wave]] = {}
        self._latest: Wave | None = None

    @property
    def is_busy(self) -> bool:
        """True while a wave is not over."""
        return bool(self._spaces)

    @property
    def is_ready(self) -> bool:
        """True if a wave can go on now; the others wait for a batch."""
        return bool(self._spaces) and any(waves[0].is_over or waves[0].is_ready for waves in self._spaces.values())

    def add(self, wave: Wave) -> None:
        """Have a wave handed out, after those of its space that wait."""
        waves = self._spaces.get(wave.space)
        if waves is None:
            waves = self._spaces[wave.space] = deque()
        waves.append(wave)
        self._request()

    def joined(self, wave: Wave, size: int, receivers: int) -> None:
        """Note that a message of so many bytes, for so many receivers, has joined a wave."""
        wave.size += 1
        wave.waiting_bytes += size
        self.waiting_bytes += size
        self.added += receivers
        self._latest = wave

    def after(self, call: Callable[[], None]) -> None:
        """Call something once the message that has joined a wave last is handed out; at once if it is."""
        if self._latest is None:
            call()
        else:
            self._latest.after(call)

    def on_turn(self) -> None:
        """Hand out as much as one turn bears."""
        left = MAX_UNITS
        spaces = self._spaces
        is_pressed = self.waiting_bytes > MAX_WAITING_BYTES
        tried = 0
        while spaces and (left > 0 or is_pressed) and tried < len(spaces):
            # The space that comes first now is the last one next time.
            space = next(iter(spaces))
            waves = spaces.pop(space)
            spaces[space] = waves
            part = left // len(spaces)
            spent = self._go_on(waves, max(part, 1))
            left -= spent
            tried = 0 if spent else tried + 1
            if not waves:
                del spaces[space]

    def _go_on(self, waves: deque[Wave], most: int) -> int:
        spent = 0
        while waves and spent < most:
            wave = waves[0]
            if not (wave.is_over or wave.is_ready):
                break
            if not wave.is_over:
                try:
                    spent += wave.go_on()
                except Exception as error:  # noqa: BLE001  the others must be handed out
                    self._report("fan-out", error)
                    wave.end()
            if wave.is_over:
                waves.popleft()
                self.waiting_bytes -= wave.waiting_bytes
                if self._latest is wave:
                    self._latest = None
        return spent
