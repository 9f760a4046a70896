"""Receivers of a pattern that stands for names of several addresses: one link with an end at each of them.

Rules:
1. Topics and multicast addresses are reached, as receiving takes nothing away there. Those declared later are joined,
   and those that are deleted left; with the last one the link ends.
2. A topic looks for the whole pattern, or what grants leave of it: a message comes to one address alone, so nothing
   comes twice.
3. All ends send on the link's own credit, and each message with the name that it was sent to.
4. The limits of each address hold for its end. One that is there when the link attaches refuses it for these; one
   that comes later is done without, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from copy import copy
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Protocol, cast

from enmasse.message.errors import DecodeError
from enmasse.message.sections import TOPIC_NAME, Sections, with_message_annotations
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import DETACHED, FAILED, Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import (
    SUBTREE_CAPABILITY,
    Pattern,
    Wild,
    is_pattern,
    matches,
    meet,
    parse,
    patterns_at,
    words_problem,
)
from enmasse.messaging.queues.topic_producer import named
from enmasse.messaging.retaining import RETAINED_FILTER
from enmasse.messaging.sessions.filters import ONE, ROOT
from enmasse.messaging.sessions.names import OWNERS, REACHED

if TYPE_CHECKING:
    from enmasse.messaging.space import Space

_NAMED = b"\xa3" + bytes((len(TOPIC_NAME),)) + TOPIC_NAME.encode()
"""The name of the annotation as it is encoded [AMQP 1.6.21]."""

_NEAR = 64
"""Bytes at the start of a message within which a topic has written the annotation, unless there are others."""


class SharedPort(ConsumerPort, Protocol):
    """A receiver's link that several ends may send on."""

    def take_from(self, sink: Consumer) -> list[Any]:
        """Remove and return what one end has sent and has no outcome yet."""


class Reach(Protocol):
    """The bounds of a receiver of a pattern: the addresses that it may have, and how many."""

    @property
    def is_live(self) -> bool:
        """False once the link is left to its leases, and takes nothing new."""

    def why_closed(self, address: Address) -> AttachError | None:
        """Return why a receiver may have nothing of an address, whatever its grants cover."""

    def enter(self, address: Address) -> None:
        """Count a receiver that joins an address.

        Raises:
            AttachError: the address or the connection has as many as it may.
        """

    def leave(self, address: Address) -> None:
        """Note that it has left the address."""


def crosses(space: Space, name: str) -> bool:
    """Return whether a receiver's name is a pattern that may stand for names of several addresses of a space."""
    return (
        is_pattern(name)
        and "::" not in name
        and words_problem(name) is None
        and space.may_name(name)
        and name.partition("/")[0] not in space.connectors
        and (name == ROOT or space.address(name) is None)
    )


def _is_reached(patterns: Collection[Pattern], name: str, *, owns_subtree: bool) -> bool:
    if name == ROOT:
        return True
    if not owns_subtree:
        return any(matches(pattern, name) for pattern in patterns)
    below = (*parse(name), Wild.REST)
    return any(meet(pattern, below) != [] for pattern in patterns)


def _names(space: Space, source: str) -> Iterator[str]:
    patterns = patterns_at(source)
    words = tuple(ONE if word == Wild.ANY.value else word for word in source.split("/"))
    for name, owns_subtree in space.sessions.names.reached_by(words):
        if not name.startswith("$") and _is_reached(patterns, name, owns_subtree=owns_subtree):
            yield name


def reached_by(space: Space, source: str) -> list[str]:
    """Return the names of the addresses that a receiver's pattern, or what grants leave of it, reaches.

    Of more than a pattern may stand for, these are as many and one more.
    """
    most = space.sessions.limits.filter_addresses
    return list(islice(_names(space, source), most + 1 if most else None))


class _Part:
    """The port of one end, which sends on the receiver's link."""

    __slots__ = ("_name", "_names_itself", "_port", "_section", "_send", "_whole", "admits", "end", "follow")

    def __init__(self, whole: AcrossConsumer, address: Address) -> None:
        self._whole = whole
        self._port: Any = whole.port
        self._send = whole.port.send
        self._name = address.name
        self._names_itself = address.kind in OWNERS
        """True if the address writes a name below its own, which no sender can."""
        self._section = with_message_annotations(b"", {TOPIC_NAME: address.name})
        self.end: Consumer | None = None
        self.admits = whole.port.admits
        self.follow = whole.port.follow

    @property
    def credit(self) -> int:
        """The credit of the link, which all ends use."""
        return self._port.credit  # type: ignore[no-any-return]

    @property
    def sink(self) -> Consumer:
        """The end that the link knows."""
        return self._whole

    @property
    def is_detached(self) -> bool:
        """True once the link is."""
        return self._port.is_detached  # type: ignore[no-any-return]

    @property
    def is_detach_sent(self) -> bool:
        """True once the client was sent the end of the link."""
        return self._port.is_detach_sent  # type: ignore[no-any-return]

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Send one message for one credit, with the name that it was sent to."""
        if not ((self._names_itself and payload.find(_NAMED, 0, _NEAR) >= 0) or message_format):
            payload = self._named(payload)
        self._send(delivery, payload, settled, message_format)

    def _named(self, payload: bytes) -> bytes:
        """Return a message with the name of the address, unless that has written another one."""
        if self._name == ROOT:
            return payload
        try:
            if self._names_itself and _NAMED in payload and TOPIC_NAME in Sections(payload).message_annotations:
                return payload
            return named(payload, self._name, self._section)
        except DecodeError:
            return payload

    def drained(self) -> None:
        """Use up the credit once no end has anything for it."""
        self._whole.drained(self._name)

    def take_unsettled(self) -> list[Any]:
        """Remove and return what this end has sent and has no outcome yet."""
        return [] if self.end is None else self._port.take_from(self.end)

    def detach(self, error: Any = None) -> None:
        """Leave an address that is deleted; whatever else ends it, or the last one, ends the link."""
        if str(getattr(error, "condition", "")) == "amqp:resource-deleted":
            self._whole.lost(self._name, error)
        else:
            self._whole.port.detach(error)


def _total(name: str) -> Any:
    """Return a counter of all ends: of those that are gone it is kept, and of the others asked."""
    kept = getattr(Consumer, name)

    def get(consumer: AcrossConsumer) -> int:
        total: int = kept.__get__(consumer) + sum(getattr(end, name) for end in consumer.ends.values())
        return total

    return property(get, kept.__set__)


def _on_all(name: str) -> Any:
    """Return a state that all ends have once the whole has it."""
    kept = getattr(Consumer, name)

    def put(consumer: AcrossConsumer, value: bool) -> None:
        kept.__set__(consumer, value)
        for end in consumer.ends.values():
            setattr(end, name, value)

    return property(kept.__get__, put)


class AcrossConsumer(Consumer):
    """A receiver of all that a pattern stands for."""

    __slots__ = ("_addresses", "_draining", "_options", "ends")
    address: Across
    unsettled = _total("unsettled")
    deliveries = _total("deliveries")
    rejected = _total("rejected")
    released = _total("released")
    modified = _total("modified")
    is_blocked = _on_all("is_blocked")

    def __init__(self, address: Across, port: ConsumerPort, options: AttachOptions) -> None:
        self.ends: dict[str, Consumer] = {}
        """By the names of addresses."""
        self._addresses: dict[str, Address] = {}
        super().__init__(address, port, options.presettle)
        self._options = copy(options)
        # What keeps links together is for other containers, and keeps the connection.
        self._options.connection = self._options.attach = None
        self._draining: set[str] = set()

    def join(self, name: str) -> None:
        """Have an end at an address from now on, if that is there and is reached by patterns.

        Raises:
            AttachError: the address gives it nothing, or not in the way asked for, or has no room.
        """
        address, reach = self.address.space.address(name), self.address.reach
        if address is None or address.kind not in REACHED or name in self.ends:
            return
        options = copy(self._options)
        options.is_part = any(joined.kind in OWNERS for joined in self._addresses.values())
        _require_fit(self.address.name, address, options)
        if reach is not None:
            reach.enter(address)
        port = _Part(self, address)
        try:
            end = port.end = address.attach_consumer(cast("ConsumerPort", port), options)
        except AttachError:
            if reach is not None:
                reach.leave(address)
            raise
        self.ends[name] = end
        self._addresses[name] = address
        if self.is_blocked:
            end.on_blocked(True)
        if self.port.credit:
            end.on_credit(self.port.credit, False)

    def came(self, name: str, *, owns_subtree: bool) -> None:
        """Reach an address that is declared now, if the pattern does and there is room."""
        space, reach = self.address.space, self.address.reach
        if name in self.ends or not _is_reached(patterns_at(self._options.source), name, owns_subtree=owns_subtree):
            return
        if reach is not None and not reach.is_live:
            return
        # Its values are no news to whoever had them from a topic above.
        self._options.filters = {key: v for key, v in self._options.filters.items() if key != RETAINED_FILTER}
        address = space.address(name)
        if address is not None and (reach is None or reach.why_closed(address) is None):
            self._join_if_it_may(name)

    def _join_if_it_may(self, name: str) -> None:
        sessions = self.address.space.sessions
        most = sessions.limits.filter_addresses
        try:
            if most and len(self.ends) >= most:
                raise self.address.too_many(most)
            self.join(name)
        except AttachError:
            sessions.unreached += 1

    def lost(self, name: str, error: Any) -> None:
        """Leave an address that is deleted, which detaches the end there; with the last one the link ends."""
        if name not in self.ends:
            return
        self._leave(name)
        space = self.address.space
        again = space.address(name)
        if again is not None and again.kind in REACHED:
            # Another one of its name was declared before this one was gone.
            space.core.chores.add(f"patterns of {name}", joining(space, name, owns_subtree=again.kind in OWNERS))
        elif not self.ends:
            self.port.detach(error)
            self.on_detached()

    def _leave(self, name: str) -> Consumer:
        """Forget the end at an address, and keep what it has counted."""
        end = self.ends[name]
        for delivery in cast("SharedPort", self.port).take_from(end):
            end.on_outcome(delivery, FAILED)
        del self.ends[name]
        self._uncount(name, end)
        self.drained(name)
        return end

    def _uncount(self, name: str, end: Consumer) -> None:
        """Keep the counters of an end that is gone."""
        address, reach = self._addresses.pop(name), self.address.reach
        if reach is not None:
            reach.leave(address)
        for counter in ("deliveries", "rejected", "released", "modified"):
            kept = getattr(Consumer, counter)
            kept.__set__(self, kept.__get__(self) + getattr(end, counter))

    def drained(self, name: str) -> None:
        """Note that one end has nothing more for the credit."""
        if name in self._draining:
            self._draining.discard(name)
            if not self._draining:
                self.port.drained()

    def on_credit(self, gained: int, drain: bool) -> None:
        """Have every end use the credit."""
        if drain:
            self._draining = set(self.ends)
        for end in list(self.ends.values()):
            end.on_credit(gained, drain)

    def count_available(self) -> int | None:
        """Return the messages that wait for the receiver's credit at all ends, as far as each of them knows."""
        found = [end.count_available() for end in self.ends.values()]
        return None if None in found else sum(one for one in found if one is not None)

    def on_blocked(self, blocked: bool) -> None:
        """Note that the connection takes no more for now, or again."""
        self.is_blocked = blocked
        for end in list(self.ends.values()):
            end.on_blocked(blocked)

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """Pass an outcome to the end that the delivery is of."""
        delivery.sink.on_outcome(delivery, state)

    def confirm(self, done: Callable[[], None]) -> None:
        """Call ``done`` once the outcomes of all ends are on disk."""
        waits = len(self.ends) + 1

        def confirmed() -> None:
            nonlocal waits
            waits -= 1
            if not waits:
                done()

        for end in list(self.ends.values()):
            end.confirm(confirmed)
        confirmed()

    def recut(self, source: str) -> None:
        """Reach what the user may receive now.

        Raises:
            AttachError: that is nothing, or an address has to have all or nothing.
        """
        names = self.address.reached_by(source)
        self._options.source = source
        for name, end in list(self.ends.items()):
            if name not in names:
                self._leave(name)
                end.on_detached()
            elif self._addresses[name].kind in OWNERS:
                end.recut(source)
        for name in names:
            self._join_if_it_may(name)

    def on_detached(self, *, closed: bool = False) -> None:
        """Leave all addresses."""
        self.address.space.crossing.pop(self, None)
        for delivery in self.port.take_unsettled():
            delivery.sink.on_outcome(delivery, FAILED)
        for name, end in list(self.ends.items()):
            end.on_detached(closed=closed)
            self._uncount(name, end)
        self.ends = {}
        self.address.reach = None
        self.port = DETACHED
        self.send = DETACHED.send


class Across(Address):
    """All addresses that the pattern of one receiver reaches.

    Args:
        space: the space.
        name: the pattern.
        reach: the receiver's bounds; ``None``: it has none.
    """

    kind = "topic"
    owns_subtree = True
    __slots__ = ("reach", "space")

    def __init__(self, space: Space, name: str, reach: Reach | None = None) -> None:
        super().__init__(space.core, name)
        self.space = space
        self.reach = reach

    def reached_by(self, source: str) -> list[str]:
        """Return the names of the addresses that are reached by what grants leave of the pattern; see ``reached_by``.

        Raises:
            AttachError: there are none, or none that the receiver may have.
        """
        names: list[str] = []
        most = self.space.sessions.limits.filter_addresses
        problem: AttachError | None = None
        for name in _names(self.space, source):
            address = self.space.address(name)
            if address is None:
                continue
            closed = None if self.reach is None else self.reach.why_closed(address)
            problem = problem or closed
            if closed is None:
                names.append(name)
                if most and len(names) > most:
                    break
        if names:
            return names
        raise problem or AttachError(
            "amqp:not-found", f"space {self.space.name!r} has no address that {self.name!r:.200} matches"
        )

    def too_many(self, most: int) -> AttachError:
        """Return the error for a pattern that stands for too much."""
        return AttachError(
            "amqp:resource-limit-exceeded",
            f"{self.name!r:.200} stands for more than {most} addresses, as many as a pattern may: use several that "
            "are narrower, or ask for a larger plan",
        )

    def known_filters(self, options: AttachOptions) -> Collection[str]:
        """Return all filters that some address knows; each that is reached is asked itself."""
        names = reached_by(self.space, options.source or self.name)
        found = [address for name in names if (address := self.space.address(name)) is not None]
        return sorted({known for address in found for known in address.known_filters(options)})

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """Attach a receiver at each address.

        Raises:
            AttachError: it stands for none or too many, or one of them gives it nothing.
        """
        names = self.reached_by(options.source)
        most = self.space.sessions.limits.filter_addresses
        if most and len(names) > most:
            raise self.too_many(most)
        consumer = AcrossConsumer(self, port, options)
        try:
            for name in names:
                consumer.join(name)
        except AttachError:
            consumer.on_detached()
            raise
        self.space.crossing[consumer] = None
        return consumer


def _require_fit(pattern: str, address: Address, options: AttachOptions) -> None:
    """Check that an address can give what a receiver of a pattern asks for.

    Raises:
        AttachError: it knows no such filter, or no receivers who share.
    """
    for wanted in options.filters:
        if wanted not in address.known_filters(options):
            raise AttachError(
                "amqp:not-implemented",
                f"{pattern!r:.200} reaches {address.kind} {address.name!r:.200}, which does not know the filter "
                f"{wanted!r:.100}",
            )
    if "shared" in options.capabilities and address.kind not in OWNERS:
        raise AttachError(
            "amqp:not-implemented",
            f"{pattern!r:.200} reaches {address.kind} {address.name!r:.200}, whose messages receivers do not share: "
            "name the topics",
        )


def _home(space: Space, pattern: Pattern) -> str:
    """Return the name of the topic below which all names lie that a pattern stands for; empty: none that is known."""
    words = takewhile(lambda word: isinstance(word, str), pattern)
    upper = "/".join(map(str, words))
    while upper:
        found = space.address(upper)
        if found is not None and found.owns_subtree:
            return upper
        upper = upper.rpartition("/")[0]
    return ""


def _leads_to(space: Space, source: str, names: Collection[str]) -> list[str]:
    """Return the addresses to which names lead that a pattern, or what grants leave of it, stands for.

    Topics above one that has them all have none of them, as long as it is there.
    """
    homes = [(pattern, _home(space, pattern)) for pattern in patterns_at(source)]
    found = []
    for name in names:
        address = space.address(name)
        left = [pattern for pattern, home in homes if not (home and (name == ROOT or home.startswith(f"{name}/")))]
        if address is not None and left and _is_reached(left, name, owns_subtree=address.owns_subtree):
            found.append(name)
    return found


def lasting_at(space: Space, name: str, source: str, options: AttachOptions) -> Address:
    """Return the one address at which the pattern of a durable subscription has it.

    Args:
        space: the space.
        name: the pattern.
        source: what grants leave of it.
        options: the receiver's wishes; a subscription that they name goes on where it is.

    Raises:
        AttachError: there is none, or there are several.
    """
    if SUBTREE_CAPABILITY in options.capabilities:
        # The receiver has named the topic, and asks for the names of that.
        return space.find_source(name)
    wanted = options.container, options.name, options.owner, options.user
    with suppress(AttachError):
        found = space.find_source(name)
        if found.lasting(*wanted, may_manage=options.may_manage) is not None:
            return found
    names = _leads_to(space, source, reached_by(space, source))
    for address in filter(None, map(space.address, names)):
        # Grants may have covered less of the pattern as it was made, and so one of its addresses.
        before = address.lasting(*wanted, may_manage=options.may_manage)
        if before is not None and before.source == name:
            return address
    if len(names) > 1:
        raise AttachError(
            "amqp:not-implemented",
            f"{name!r:.200} stands for {len(names)} addresses, and a durable subscription has one topic: "
            f"subscribe to each of them, such as {', '.join(sorted(names)[:3])}, or use a session of MQTT",
        )
    only = next((space.address(one) for one in names), None)
    return space.find_source(name) if only is None else only


def joining(space: Space, name: str, *, owns_subtree: bool) -> Iterator[int]:
    """Return the parts in which receivers of patterns reach an address that is declared now."""
    for consumer in list(space.crossing):
        if consumer in space.crossing:
            consumer.came(name, owns_subtree=owns_subtree)
            yield 1
