"""Retained values of a space: the last message of each name of its topics and multicast addresses that asked for it.

Rules:
1. A name has one value. It belongs to the address that the message was sent to, which writes it (``retained_log``).
2. Values are in memory, bounded in number and in bytes with their names. A value beyond that is refused; one that
   is there can always be made smaller, and cleared.
3. Each value is found by each of the first words of its name, and by the last one. A pattern looks at those values
   alone that have the rarest of its words at the same place, so a search takes time by them and not by all values.
4. A value whose time is over is found no more. It is forgotten some seconds later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from enmasse.messaging.limits import SpaceLimits
from enmasse.messaging.patterns import Pattern, Wild, matches

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.messaging.facts import Facts
    from enmasse.messaging.retained_log import RetainedLog


INDEXED_WORDS = 16
"""Words of a name by which it is found: an index of ten thousand words costs more than the value."""

LOOKED_AT_ONCE = 256
"""Values that a search looks at before it lets others go on: a tenth of a millisecond."""

EXPIRY_STEP_US = 10_000_000
"""Values whose time is over within these microseconds are forgotten together."""

FORGOTTEN_AT_ONCE = 500
"""Values that are forgotten in one go: a millisecond."""

_SYSTEM = "$"


Found = dict[str, "Value | dict[Value, None]"]
"""Values by one word of their names; most words have one value."""


class Value:
    """A retained value.

    Attributes:
        name: the name that has this value.
        payload: the message as its address gave it to its receivers.
        facts: the facts of the message.
        home: the values of the address that it belongs to.
        since_us: the time at which it came, by the core's steady clock.
        version: the space's count of changes when it came.
        ends_us: the time at which its time to live is over, by the same clock; 0 is never.
    """

    __slots__ = ("ends_us", "facts", "home", "name", "payload", "since_us", "step", "version")

    def __init__(self, name: str, home: RetainedLog) -> None:
        self.name = name
        self.home = home
        self.payload = b""
        self.facts: Facts
        self.since_us = 0
        self.version = 0
        self.ends_us = 0
        self.step = 0
        """The step in which it is to be forgotten; 0 is never."""

    @property
    def size(self) -> int:
        """The bytes that it counts for."""
        return len(self.payload) + len(self.name.encode())

    def is_over(self, core: Core) -> bool:
        """Return whether its time is over."""
        return 0 < self.ends_us <= core.steady_us or 0 < self.facts.expires_ms * 1_000 <= core.wall_us


class Retained:
    """The retained values of a space.

    Args:
        core: the core, whose clocks count.
        space: the name of the space.
    """

    def __init__(self, core: Core, space: str) -> None:
        self.core = core
        self.limits = SpaceLimits()
        self.bytes_retained = 0
        """Bytes of the values with their names."""
        self.version = 0
        """Counts the messages that became values."""
        self.name = f"retained values of space {space}"
        self._space = space
        self._values: dict[str, Value] = {}
        self._words: list[Found] = []
        """The values by the word at each place, the first words first."""
        self._last: Found = {}
        """The values by the last word."""
        self._steps: dict[int, dict[Value, None]] = {}
        """The values that are to be forgotten, by the step in which their time is over."""
        self.is_due = False
        self._fresh: list[Value] = []
        """The values that came in this turn."""
        self._first = 0
        """A step before which there is none with values; 0 if there are no values to be forgotten."""
        self._awaited = 0
        """The step at whose end values are forgotten next; 0 if none are."""

    def __len__(self) -> int:
        """Return the number of values, those included whose time was over some seconds ago."""
        return len(self._values)

    # Reading

    def get(self, name: str) -> Value | None:
        """Return the value of a name."""
        value = self._values.get(name)
        return None if value is None or value.is_over(self.core) else value

    def match(self, pattern: Pattern, *, home: RetainedLog | None = None) -> Iterator[Value]:
        """Iterate over the values whose names match a pattern; see ``search``."""
        return (value for value in self.search(pattern, home=home) if value is not None)

    def has(self, value: Value) -> bool:
        """Return true if a value is there still, as it was or changed."""
        return self._values.get(value.name) is value and not value.is_over(self.core)

    def search(self, pattern: Pattern, *, home: RetainedLog | None = None) -> Iterator[Value | None]:
        """Iterate over the values whose names match a pattern, with ``None`` wherever others may go on.

        Values may come, change and go meanwhile: one that is there all the time comes once, as it is then. A wildcard
        in the first place stands for no word that begins with ``$`` [MQTT-4.7.2-1].

        Args:
            pattern: the pattern of names; where only ``+`` and ``#`` are wildcards, ``*`` is a word in it.
            home: the values of one address alone.
        """
        skips_system = isinstance(pattern[0], Wild)
        is_match = matcher(pattern)
        for looked, value in enumerate(self._candidates(pattern, home), 1):
            name = value.name
            if (
                is_match(name)
                and (home is None or value.home is home)
                and not (skips_system and name.startswith(_SYSTEM))
                and self.has(value)
            ):
                yield value
            elif not looked % LOOKED_AT_ONCE:
                yield None

    def page(self, pattern: Pattern, start: int, most: int, looks: int) -> tuple[list[Value], int | None]:
        """Return values whose names match a pattern, from a place on.

        Args:
            pattern: the pattern of names.
            start: 0, or where the page before ended.
            most: the most values of the page.
            looks: the most values that are looked at for that.

        Returns:
            The values, and where the next page starts; ``None`` if this was the last one.
        """
        is_match = matcher(pattern)
        candidates = self._candidates(pattern, None)
        found: list[Value] = []
        end = min(start + looks, len(candidates))
        at = start
        while at < end and len(found) < most:
            value = candidates[at]
            at += 1
            if is_match(value.name) and not value.is_over(self.core):
                found.append(value)
        return found, at if at < len(candidates) else None

    def _candidates(self, pattern: Pattern, home: RetainedLog | None) -> list[Value]:
        """Return the values that a pattern may match: a copy of the fewest that are known to hold them all."""
        if all(isinstance(word, str) for word in pattern):
            value = self._values.get("/".join(pattern))  # type: ignore[arg-type]  # seen one line above
            return [] if value is None else [value]
        fewest: Collection[Value] = (self._values if home is None else home.values).values()
        places: list[tuple[Found, str]] = []
        for place, word in enumerate(pattern[:INDEXED_WORDS]):
            if word is Wild.REST:
                break
            if isinstance(word, str):
                places.append((self._words[place] if place < len(self._words) else {}, word))
        last = pattern[-1]
        if isinstance(last, str):
            places.append((self._last, last))
        for values, word in places:
            found = values.get(word)
            if found is None:
                return []
            if isinstance(found, Value):
                return [found]
            if len(found) < len(fewest):
                fewest = found
        return list(fewest)

    # Changing

    def refusal(self, name: str, size: int) -> str | None:
        """Return why a value cannot be retained, in words for its sender; ``None`` if it can be.

        Args:
            name: its name.
            size: bytes of the message.
        """
        limits, before = self.limits, self._values.get(name)
        if before is None and len(self._values) >= limits.retained:
            problem = f"{limits.retained} retained values"
        else:
            gained = size + len(name.encode()) if before is None else size - len(before.payload)
            if gained <= 0 or self.bytes_retained + gained <= limits.retained_bytes:
                return None
            problem = f"{self.bytes_retained} bytes of retained values"
        return (
            f"space {self._space!r} has {problem}, and its plan allows no more for {name!r:.100}; clear some, or ask "
            "for a larger plan"
        )

    def put(self, home: RetainedLog, name: str, payload: bytes, facts: Facts, since_us: int) -> None:
        """Make a message the value of its name, whatever the bounds are.

        Args:
            home: the home of the address that it belongs to.
            name: its name.
            payload: the message.
            facts: the facts of the message.
            since_us: the time at which it came, by the core's steady clock; 0 is in this turn.
        """
        value = self._values.get(name)
        if value is None:
            value = self._values[name] = Value(name, home)
            self.bytes_retained += value.size
            self._add_words(value)
        elif value.home is not home:
            self.move(value, home)
        home.values[name] = value
        self.bytes_retained += len(payload) - len(value.payload)
        self.version = value.version = self.version + 1
        value.payload, value.facts, value.since_us = payload, facts, since_us
        value.ends_us = 0
        if value.step or not since_us or facts.ttl_ms or facts.expires_ms:
            self._fresh.append(value)
            self._due()

    def move(self, value: Value, home: RetainedLog) -> None:
        """Have a value belong to another address, as it is."""
        value.home.lost(value)
        value.home = home
        home.values[value.name] = value

    def drop(self, value: Value) -> None:
        """Forget a value."""
        if self._values.get(value.name) is not value:
            return
        del self._values[value.name]
        value.home.values.pop(value.name, None)
        self.bytes_retained -= value.size
        self._remove_words(value)
        self._leave_step(value)

    def _add_words(self, value: Value) -> None:
        words = value.name.split("/", INDEXED_WORDS)[:INDEXED_WORDS]
        while len(self._words) < len(words):
            self._words.append({})
        for values, word in (*zip(self._words, words, strict=False), (self._last, value.name.rpartition("/")[2])):
            found = values.get(word)
            if found is None:
                values[word] = value
            elif isinstance(found, Value):
                values[word] = {found: None, value: None}
            else:
                found[value] = None

    def _remove_words(self, value: Value) -> None:
        words = value.name.split("/", INDEXED_WORDS)[:INDEXED_WORDS]
        for values, word in (*zip(self._words, words, strict=False), (self._last, value.name.rpartition("/")[2])):
            found = values[word]
            if isinstance(found, dict):
                del found[value]
            if found is value or not found:
                del values[word]

    # Time

    def _due(self) -> None:
        """Have ``on_turn`` called once."""
        if not self.is_due:
            self.is_due = True
            self.core.due(self)

    def on_turn(self, now: float) -> None:
        """Give the time to what came in this turn, and forget values whose time is over."""
        fresh, self._fresh = self._fresh, []
        for value in fresh:
            self._date(value)
        if self._awaited and (self._awaited + 1) * EXPIRY_STEP_US <= self.core.steady_us:
            self._forget()
        first = self._first
        if first and (not self._awaited or first < self._awaited):
            self._awaited = first
            self.core.schedule(self, now + max(0.0, ((first + 1) * EXPIRY_STEP_US - self.core.steady_us) / 1e6))

    def on_deadline(self, now: float) -> None:
        """Forget values, as the time of some is over or the wall clock was set."""
        self._due()

    def _date(self, value: Value) -> None:
        """Note when a value came, and have it forgotten once its time is over."""
        self._leave_step(value)
        if self._values.get(value.name) is not value:
            return
        facts = value.facts
        value.since_us = value.since_us or self.core.steady_us
        value.ends_us = value.since_us + facts.ttl_ms * 1_000 if facts.ttl_ms else 0
        dated_us = facts.expires_ms and facts.expires_ms * 1_000 - self.core.shift_us
        ends = [end for end in (value.ends_us, dated_us) if end]
        if ends:
            self._enter_step(value, max(min(ends) // EXPIRY_STEP_US, 1))

    def _enter_step(self, value: Value, step: int) -> None:
        value.step = step
        self._steps.setdefault(step, {})[value] = None
        if not self._first or step < self._first:
            self._first = step

    def _leave_step(self, value: Value) -> None:
        step = self._steps.get(value.step)
        if step is not None:
            step.pop(value, None)
            if not step:
                del self._steps[value.step]
        value.step = 0

    def _forget(self) -> None:
        """Forget values of the steps that are over."""
        steady, left = self.core.steady_us, FORGOTTEN_AT_ONCE
        while self._steps and left:
            first = min(self._steps)
            if (first + 1) * EXPIRY_STEP_US > steady:
                break
            for value in list(self._steps[first])[:left]:
                left -= 1
                if value.is_over(self.core):
                    value.home.clear(value.name)
                else:
                    # The wall clock was set back.
                    self._leave_step(value)
                    self._enter_step(value, steady // EXPIRY_STEP_US + 1)
        self._awaited = 0
        self._first = min(self._steps, default=0)


def matcher(pattern: Pattern) -> Callable[[str], bool]:
    """Return a function that says whether a name matches a pattern, as ``patterns.matches`` does."""
    if pattern == (Wild.REST,):
        return lambda _name: True
    rests = [place for place, word in enumerate(pattern) if word is Wild.REST]
    if len(rests) > 1 or not all(isinstance(word, str | Wild) for word in pattern):
        # An expression could take a time that grows with a power of the name's length.
        return lambda name: matches(pattern, name)
    parts = [re.escape(word) if isinstance(word, str) else "[^/]*" for word in pattern]
    if not rests:
        text = "/".join(parts)
    elif rests[0] == 0:
        text = "(?:.*/)?" + "/".join(parts[1:])
    else:
        after = parts[rests[0] + 1 :]
        text = "/".join(parts[: rests[0]]) + ("(?:/.*)?/" + "/".join(after) if after else "(?:/.*)?")
    found = re.compile(text, re.DOTALL).fullmatch
    return lambda name: found(name) is not None
