"""Receivers of a pattern that stands for names of several addresses: one link with an end at each of them.

A topic looks for the whole pattern, or what grants leave of it: a message comes to one address alone, so nothing
comes twice. Topics and multicast addresses are reached, as receiving takes nothing away there; those declared later
are joined, and those that are deleted left. All ends send on the link's own credit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, cast

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import DETACHED, FAILED, Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import Pattern, Wild, is_pattern, matches, meet, parse, patterns_at, words_problem

if TYPE_CHECKING:
    from enmasse.messaging.space import Space


class SharedPort(ConsumerPort, Protocol):
    """A receiver's link that several ends may send on."""

    def take_from(self, sink: Consumer) -> list[Any]:
        """Remove and return what one end has sent and has no outcome yet."""


def crosses(space: Space, name: str) -> bool:
    """Return whether a receiver's name is a pattern that may stand for names of several addresses of a space."""
    return (
        is_pattern(name)
        and "::" not in name
        and words_problem(name) is None
        and space.may_name(name)
        and name.partition("/")[0] not in space.connectors
        and (name == "#" or space.address(name) is None)
    )


def _is_reached(patterns: Collection[Pattern], name: str, *, owns_subtree: bool) -> bool:
    if name == "#":
        return True
    if not owns_subtree:
        return any(matches(pattern, name) for pattern in patterns)
    below = (*parse(name), Wild.REST)
    return any(meet(pattern, below) != [] for pattern in patterns)


def reached_by(space: Space, source: str) -> list[str]:
    """Return the names of the addresses that a receiver's pattern, or what grants leave of it, reaches."""
    patterns = patterns_at(source)
    return [
        name
        for name, owns_subtree in space.sessions.names.all()
        if not name.startswith("$") and _is_reached(patterns, name, owns_subtree=owns_subtree)
    ]


class _Part:
    """The port of one end, which sends on the receiver's link."""

    is_detach_sent = False

    def __init__(self, whole: AcrossConsumer, name: str) -> None:
        self._whole = whole
        self._name = name
        self.end: Consumer | None = None
        self.send = whole.port.send
        self.admits = whole.port.admits
        self.follow = whole.port.follow

    @property
    def credit(self) -> int:
        """The credit of the link, which all ends use."""
        return self._whole.port.credit

    def drained(self) -> None:
        """Use up the credit once no end has anything for it."""
        self._whole.drained(self._name)

    def take_unsettled(self) -> list[Any]:
        """Remove and return what this end has sent and has no outcome yet."""
        return [] if self.end is None else cast("SharedPort", self._whole.port).take_from(self.end)

    def detach(self, error: Any = None) -> None:
        """Leave an address that is deleted; whatever else ends it ends the link."""
        if str(getattr(error, "condition", "")) == "amqp:resource-deleted":
            self._whole.left(self._name)
        else:
            self._whole.port.detach(error)


def _total(name: str) -> Any:
    """Return a counter of all ends: of those that are gone it is kept, and of the others asked."""
    kept = getattr(Consumer, name)

    def get(consumer: AcrossConsumer) -> int:
        total: int = kept.__get__(consumer) + sum(getattr(end, name) for end in consumer.ends.values())
        return total

    return property(get, kept.__set__)


class AcrossConsumer(Consumer):
    """A receiver of all that a pattern stands for."""

    __slots__ = ("_draining", "_options", "ends")
    address: Across
    unsettled = _total("unsettled")
    deliveries = _total("deliveries")
    rejected = _total("rejected")
    released = _total("released")
    modified = _total("modified")

    def __init__(self, address: Across, port: ConsumerPort, options: AttachOptions) -> None:
        super().__init__(address, port, options.presettle)
        self.ends: dict[str, Consumer] = {}
        self._options = options
        self._draining: set[str] = set()

    def join(self, name: str) -> None:
        """Have an end at an address from now on."""
        address = self.address.space.address(name)
        if address is None or name in self.ends:
            return
        options = copy(self._options)
        for wanted in options.filters:
            if wanted not in address.known_filters(options):
                raise AttachError(
                    "amqp:not-implemented",
                    f"{self.address.name!r:.200} reaches {address.kind} {name!r:.100}, which does not know "
                    f"the filter {wanted!r:.100}",
                )
        port = _Part(self, name)
        self.ends[name] = port.end = address.attach_consumer(cast("ConsumerPort", port), options)
        if self.port.credit:
            port.end.on_credit(self.port.credit, False)

    def came(self, name: str, *, owns_subtree: bool) -> None:
        """Reach an address that is declared now, if the pattern does."""
        if _is_reached(patterns_at(self._options.source), name, owns_subtree=owns_subtree):
            try:
                self.join(name)
            except AttachError:
                self.address.space.sessions.unreached += 1

    def left(self, name: str) -> None:
        """Note that an address is deleted; its end is detached by that."""
        end = self.ends.pop(name, None)
        if end is not None:
            self._add(end)
        if name in self._draining:
            self._draining.discard(name)
            self._end_drain()

    def _add(self, end: Consumer) -> None:
        """Keep the counters of an end that is gone."""
        for name in ("deliveries", "rejected", "released", "modified"):
            kept = getattr(Consumer, name)
            kept.__set__(self, kept.__get__(self) + getattr(end, name))

    def drained(self, name: str) -> None:
        """Note that one end has nothing more for the credit."""
        if name in self._draining:
            self._draining.discard(name)
            self._end_drain()

    def _end_drain(self) -> None:
        if not self._draining:
            self.port.drained()

    def on_credit(self, gained: int, drain: bool) -> None:
        """Have every end use the credit."""
        if drain:
            self._draining = set(self.ends)
            if not self.ends:
                self.port.drained()
        for end in list(self.ends.values()):
            end.on_credit(gained, drain)

    def on_blocked(self, blocked: bool) -> None:
        """Note that the connection takes no more for now, or again."""
        for end in list(self.ends.values()):
            end.on_blocked(blocked)

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """Pass an outcome to the end that the delivery is of."""
        delivery.sink.on_outcome(delivery, state)

    def confirm(self, done: Callable[[], None]) -> None:
        """Call ``done`` at once: nothing here is on disk."""
        done()

    def recut(self, source: str) -> None:
        """Reach what the user may receive now."""
        names = reached_by(self.address.space, source)
        self._options.source = source
        for name, end in list(self.ends.items()):
            if name in names:
                end.recut(source)
            else:
                self.left(name)
                end.on_detached()
        for name in names:
            self.join(name)

    def on_detached(self, *, closed: bool = False) -> None:
        """Leave all addresses."""
        self.address.space.crossing.pop(self, None)
        for delivery in self.port.take_unsettled():
            delivery.sink.on_outcome(delivery, FAILED)
        ends, self.ends = self.ends, {}
        for end in ends.values():
            end.on_detached(closed=closed)
            self._add(end)
        self.port = DETACHED
        self.send = DETACHED.send


class Across(Address):
    """All addresses that a receiver's pattern reaches."""

    kind = "topic"
    owns_subtree = True
    __slots__ = ("space",)

    def __init__(self, space: Space, name: str) -> None:
        super().__init__(space.core, name)
        self.space = space

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """Return the filters that all addresses know which it reaches."""
        found = [
            set(address.known_filters(options))
            for name in reached_by(self.space, options.source or self.name)
            if (address := self.space.address(name)) is not None
        ]
        return sorted(set.intersection(*found)) if found else ()

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a receiver at each address.

        Raises:
            AttachError: it stands for none or too many, or is durable or shared and stands for several.
        """
        names = reached_by(self.space, options.source)
        if options.is_durable or "shared" in options.capabilities:
            return alone(self.space, self.name, names).attach_consumer(port, options)
        if not names:
            raise AttachError(
                "amqp:not-found", f"space {self.space.name!r} has no address that {self.name!r} matches"
            )
        most = self.space.sessions.limits.filter_addresses
        if most and len(names) > most:
            raise AttachError(
                "amqp:resource-limit-exceeded",
                f"{self.name!r:.200} stands for more than {most} addresses, as many as a pattern may: use several",
            )
        consumer = AcrossConsumer(self, port, options)
        try:
            for name in names:
                consumer.join(name)
        except AttachError:
            consumer.on_detached()
            raise
        self.space.crossing[consumer] = None
        return consumer


def alone(space: Space, name: str, names: Collection[str]) -> Address:
    """Return the only address that the pattern of a durable or shared subscription stands for.

    Raises:
        AttachError: there is none, or there are several.
    """
    if len(names) > 1:
        raise AttachError(
            "amqp:not-implemented",
            f"{name!r:.200} stands for {len(names)} addresses, and a durable or shared subscription has one: "
            f"subscribe to each of them, such as {', '.join(sorted(names)[:3])}",
        )
    return space.find_source(name)


def joining(space: Space, name: str, *, owns_subtree: bool) -> Iterator[int]:
    """Return the parts in which receivers of patterns reach an address that is declared now."""
    for consumer in list(space.crossing):
        if consumer in space.crossing:
            consumer.came(name, owns_subtree=owns_subtree)
            yield 1
