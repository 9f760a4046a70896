"""Spaces: a tenant's addresses, and how a name finds one.

Nothing of one space is ever reached through another: every lookup starts at a space.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED, AmqpError, Rejected
from enmasse.message.sections import to_of
from enmasse.messaging.across import AcrossConsumer, joining
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.chores import ENDING_UNITS
from enmasse.messaging.delivery import Producer, ProducerPort
from enmasse.messaging.direct.metered_sink import Guest

# Dynamic addresses know the space in which they are made.
from enmasse.messaging.dynamic import DynamicNodes, DynamicRequest
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import SpaceLimits, Usage
from enmasse.messaging.metering import Meter
from enmasse.messaging.owners import Grants, Holding, Owners
from enmasse.messaging.patterns import is_pattern, words_problem
from enmasse.messaging.relay.senders import RelayGuest
from enmasse.messaging.retained import Retained
from enmasse.messaging.sessions.filters import ROOT

# Sessions know the space that they are of.
from enmasse.messaging.sessions.names import OWNERS, REACHED
from enmasse.messaging.sessions.sessions import Sessions
from enmasse.model.schema.names import MAX_ADDRESS_CHARACTERS, is_own

if TYPE_CHECKING:
    from enmasse.messaging.core import Core


ANONYMOUS_CREDIT = 100
"""The window of a sender that names the address in each message; each must find its own credit."""

KNOWN_TARGETS = 256

MAX_PENDING = 1_000
"""Addresses of a space that wait, and whose reasons are kept."""

MAX_REASON = 500
"""Characters of such a reason."""


class Space:
    """The addresses of one tenant.

    Args:
        core: the core whose turn its addresses take part in.
        name: ``<namespace>/<space>``.
        new_id: gives unguessable names for dynamic addresses.
        uid: tells it from a former space of its name.
        max_bytes: the most bytes that its addresses may store in all; 0 is without limit.
    """

    def __init__(
        self, core: Core, name: str, new_id: Callable[[], str], *, uid: str = "", max_bytes: int = 0
    ) -> None:
        self.core = core
        self.name = name
        self.uid = uid
        self.max_bytes = max_bytes
        """Bytes that addresses may store in all; 0 is no limit."""
        self.bytes_stored = 0
        self.unroutable = 0
        """Settled messages on the anonymous terminus that named no address which takes messages."""
        self.acknowledges_undeliverable = False
        """True if clients of MQTT before version 5 have messages acknowledged that lead nowhere; else they are
        disconnected."""
        self.takes_dollar_names = False
        """True if the topic ``#`` has names that begin with ``$``, too, but for those of the service itself."""
        self.takes_query_properties = False
        """True if messages by HTTP have parameters of a query that nobody knows as application properties."""
        self.copies_overlapping = False
        """True if sessions of MQTT that begin now get a copy for each of their filters that match."""
        self.addresses: dict[str, Address] = {}
        """Addresses that exist; others are made on request (``address``)."""
        self.pending: dict[str, str] = {}
        """Addresses that are declared and not served yet, and what each waits for, as the control plane reports."""
        self.services: dict[str, Address] = {}
        """Addresses at which the node itself answers; their names start with ``$``."""
        self.connectors: dict[str, Address] = {}
        """What leads to other containers; names below theirs are addresses there."""
        self.wake: Callable[[str], Address | None] = lambda _name: None
        """Makes an address that is declared, and adds it."""
        self.declarations: Callable[[], Iterable[tuple[str, str]]] = lambda: ()
        """Returns the names and types of addresses that are declared, those not made yet included."""
        self.version = 0
        """Changes whenever an address comes or goes."""
        self.fallbacks: dict[str, dict[Address, None]] = {}
        """Name of a queue to the direct addresses that fall back to it."""
        self.grants: Callable[[str, str], Grants | None] = lambda _owner, _user: None
        """Returns the grants of an owner of a name; ``None`` if they are not known without the user's token."""
        self.owners = Owners(core, name, self.holdings)
        """Ends what is left of users who are gone."""
        self.protocol_holdings: Callable[[Space], Iterable[Holding]] = lambda _space: ()
        """Returns what protocols keep for clients of a space that come back."""
        self.dynamic = DynamicNodes(self, new_id)
        """The addresses that links had made for them."""
        self.usage = Usage(name)
        """Its usage and limits."""
        self.retained = Retained(core, name)
        """The values of names that are kept for who comes later."""
        self.meter: Meter | None = None
        """The bucket of its senders, if their rate is limited."""
        self.sessions = Sessions(core, self)
        """The sessions of its MQTT clients, and the wills of all."""
        self.crossing: dict[AcrossConsumer, None] = {}
        """The receivers of patterns that stand for names of several addresses."""
        self._held: dict[Address, None] = {}
        """Addresses that had their turn while the space was full."""

    def configure(self, *, max_bytes: int) -> None:
        """Change what may be stored in all; 0 is without limit."""
        self.max_bytes = max_bytes
        self.bytes_stored = 0
        for address in self.addresses.values():
            address.join(self)
            address.due()

    def limit(self, limits: SpaceLimits) -> None:
        """Change what its connections may have; for those that are there only the rates change."""
        self.usage.limits = self.retained.limits = limits
        if self.meter is not None:
            self.meter.configure(limits.message_rate, limits.byte_rate)
        elif limits.message_rate or limits.byte_rate:
            self.meter = Meter(self.core, self.name, limits.message_rate, limits.byte_rate)

    def balance(self, address: Address) -> None:
        """Have an address wait while the space is full; none waits once there is room again."""
        if self.bytes_stored >= self.max_bytes:
            self._held[address] = None
        elif self._held:
            self._go_on()

    def _go_on(self) -> None:
        held, self._held = self._held, {}
        for address in held:
            address.due()

    def holdings(self) -> Iterator[Holding]:
        """Iterate over all that clients have here, or have left behind, and that has an owner."""
        yield from self.sessions
        yield from self.sessions.wills.all
        yield from self.dynamic
        for address in self.addresses.values():
            yield from address.holdings()
        yield from self.protocol_holdings(self)

    def review_grants(self, user: str = "") -> None:
        """Look again at what gathers while clients are away: their grants, or those of one user, have changed."""
        self.sessions.review(user)
        self.core.chores.add(f"grants of {self.name}", self._regrant(user))

    def _regrant(self, user: str) -> Iterator[int]:
        for address in list(self.addresses.values()):
            yield from address.regrant(user)

    def address(self, name: str) -> Address | None:
        """Return the address of a name, made now if it was not before."""
        return self.addresses.get(name) or self.wake(name)

    def knows(self, name: str) -> bool:
        """Return whether an address, or a service of the node, has that very name, also one that is still to come."""
        return name in self.services or name in self.pending or self.address(name) is not None

    def wait_for(self, name: str, reason: str) -> None:
        """Note why an address does not exist yet, for refusals of links; without a reason the note is removed."""
        if not reason:
            self.pending.pop(name, None)
        elif name in self.pending or len(self.pending) < MAX_PENDING:
            self.pending[name] = reason[:MAX_REASON]

    @property
    def max_session_bytes(self) -> int:
        """Bytes that may wait in one session."""
        return self.usage.limits.session_bytes

    def declared(self, name: str, kind: str, done: Callable[[], None] | None = None) -> None:
        """Note that an address of a type is declared, and can be made on request.

        Args:
            name: the address.
            kind: its type.
            done: called once all filters of sessions reach it, which takes turns if they are many.
        """
        self.pending.pop(name, None)
        self.version += 1
        self._update_fallbacks(name)
        self.core.chores.add(f"filters of {name}", self._do_all(name, self.sessions.address_came(name, kind), done))
        self._cross(name, kind)

    def add_connector(self, address: Address) -> None:
        """Have names that begin with a connector's lead to it, filters of sessions that were there included."""
        name = address.name
        self.connectors[name] = address
        self.version += 1
        self.core.chores.add(f"filters of {name}", self.sessions.address_came(name, address.kind))

    def undeclared(self, name: str, done: Callable[[], None]) -> None:
        """Note that an address is not declared any more, which was not made; ``done`` is called after that."""
        self.core.chores.add(f"end of {name}", self._do_all(name, self.sessions.address_went(name), done))

    def add(self, address: Address) -> None:
        """Make an address reachable; a subscription is fed by its topic from now on."""
        self.addresses[address.name] = address
        self.version += 1
        address.join(self)
        self._update_fallbacks(address.name)
        address.on_added(self)
        is_declared = self.sessions.names.knows(address.name)
        self.core.chores.add(f"filters of {address.name}", self.sessions.address_made(address))
        if not is_declared:
            self._cross(address.name, address.kind)

    def _cross(self, name: str, kind: str) -> None:
        """Have receivers of patterns reach an address that came."""
        if self.crossing and kind in REACHED and not name.startswith("$"):
            self.sessions.names.add(name, kind)
            self.core.chores.add(f"patterns of {name}", joining(self, name, owns_subtree=kind in OWNERS))

    def remove(self, address: Address, done: Callable[[], None] | None = None) -> None:
        """Remove an address that is deleted, and detach its links, in turns if they are many.

        Args:
            address: the address, which nobody finds any more from now on.
            done: called once it is closed.
        """
        if self.addresses.get(address.name) is address:
            del self.addresses[address.name]
        self.version += 1
        self.dynamic.forget(address)
        parts = self._remove(address, self.sessions.address_went(address.name))
        self.core.chores.add(f"end of {address.name}", self._do_all(address.name, parts, done))

    def _do_all(self, name: str, parts: Iterator[int], done: Callable[[], None] | None) -> Iterator[int]:
        """Do all parts, and say so whatever becomes of them."""
        try:
            yield from parts
        except Exception as error:  # noqa: BLE001  what is deleted must go, and what is declared is there
            self.core.report(name, error)
        if done is not None:
            done()

    def _remove(self, address: Address, filters: Iterator[int]) -> Iterator[int]:
        condition, description = "amqp:resource-deleted", f"address {address.name!r} was deleted"
        yield from filters
        yield from address.part(AmqpError(condition, description))
        address.on_removed()
        address.close(condition, description)
        self._update_fallbacks(address.name)
        self._held.pop(address, None)
        self._go_on()
        yield from self.sessions.address_gone(address.name)

    def _update_fallbacks(self, name: str) -> None:
        """Run the direct addresses that may fall back to a queue, as it was added or removed."""
        for direct in self.fallbacks.get(name, ()):
            direct.due()

    def close(self) -> None:
        """Close the space, as it is deleted, and every address with it."""
        self.core.chores.add(f"deletion of space {self.name}", self._close())

    def _close(self) -> Iterator[int]:
        yield from self.sessions.close()
        for address in list(self.addresses.values()):
            self.remove(address)
            yield ENDING_UNITS
        for service in self.services.values():
            service.close("amqp:resource-deleted", f"space {self.name!r} was deleted")

    def find(self, name: str) -> Address:
        """Return the address that a link names.

        That is, in this order: the address of that very name, the connector that is its first word,
        ``topic::subscription``, the topic with the longest name above it at a ``/``, and the topic ``#``, which has
        all other names that do not begin with ``$``, or these as well.

        Raises:
            AttachError: no address of the space has that name.
        """
        found = self.address(name) or self.services.get(name)
        if found is not None:
            return found
        if (connector := self.connectors.get(name.partition("/")[0])) is not None:
            return connector
        if "::" in name:
            topic, _, subscription = name.partition("::")
            address = self.address(subscription)
            if address is not None and address.topic_name == topic:
                return address
        if (problem := words_problem(name)) is not None:
            raise AttachError("amqp:not-found", f"space {self.name!r} has no such address: {problem}")
        # No address has a longer name.
        upper = name[: MAX_ADDRESS_CHARACTERS + 1]
        while "/" in upper:
            upper = upper.rpartition("/")[0]
            found = self.address(upper)
            if found is not None and found.owns_subtree:
                return found
        root = self._root(name)
        if root is not None:
            return root
        # Of a connector that waits, or a topic that is pending, it is the first word.
        reason = self.pending.get(name) or self.pending.get(name.partition("/")[0])
        problem = f"has no address {name!r}" if reason is None else f"does not serve address {name!r} yet: {reason}"
        raise AttachError("amqp:not-found", f"space {self.name!r} {problem}")

    def find_source(self, name: str) -> Address:
        """Return the address that a receiver names, in which ``::`` stands before a subscription of a topic.

        Raises:
            AttachError: no address of the space has that name, or the topic has no such subscription.
        """
        found = self.find(name)
        if found.owns_subtree and "::" in _below(found, name):
            # A sender's name below a topic may have it, too; a receiver's means the subscription.
            topic, _, subscription = name.partition("::")
            raise AttachError(
                "amqp:not-found",
                f"space {self.name!r} has no subscription {subscription!r:.200} of a topic {topic!r:.200}",
            )
        return found

    def find_target(self, name: str) -> Address:
        """Return the address that a sender names.

        Raises:
            AttachError: no address of the space has that name, or it is a pattern below a topic.
        """
        found = self.find(name)
        if found.owns_subtree and is_pattern(_below(found, name)):
            raise AttachError(
                "amqp:not-allowed",
                f"{name!r} is a pattern, which receivers have; a sender names one address, such as {found.name!r} or "
                "a name below it",
            )
        return found

    def _root(self, name: str) -> Address | None:
        """Return the topic that owns names which nothing else does, if there is one and the name may be its."""
        if (
            not name
            or not self.may_name(name)
            or ("::" in name and self.address(name.partition("::")[0]) is not None)
        ):
            return None
        root = self.address(ROOT)
        return root if root is not None and root.owns_subtree else None

    def may_name(self, name: str) -> bool:
        """Return true if a name or filter may be one of the space: with a dollar sign only if the space says so."""
        return not name.startswith("$") or (self.takes_dollar_names and not is_own(name))

    def add_dynamic(self, request: DynamicRequest | None = None, owner: str = "", user: str = "") -> Address:
        """Make an address with a name of its own, for replies if nothing else is requested; see ``DynamicNodes``.

        Raises:
            AttachError: there are too many already.
        """
        return self.dynamic.make(request or DynamicRequest(), owner, user)


def _below(topic: Address, name: str) -> str:
    """Return the part of a name that is the topic's to understand."""
    return name if topic.name == ROOT else name.removeprefix(topic.name)


class AnonymousTerminus(Producer):
    """A sender that names the address in each message's ``to`` [AMQP anonterm 2].

    Each delivery must find credit of its own on arrival: a receiver's that is not promised, or
    room in a stored address. Otherwise it is released. One that names no address which takes messages is
    rejected with the error that a link to that address would get; a settled one is dropped and counted.

    Args:
        space: the space of the addresses.
        port: the sender's link.
        knows_rejected: whether the sender understands rejections; else its link ends with the first.
        require: raises an ``AttachError`` for an address that the sender may not send to; asked when an
            address is named for the first time, and again after the space's ``version`` has changed.
        client: the client's connection, for whoever keeps its links together.
    """

    __slots__ = ("_client", "_knows_rejected", "_require", "_space", "_targets", "_version")

    def __init__(
        self,
        space: Space,
        port: ProducerPort,
        *,
        knows_rejected: bool = True,
        require: Callable[[str], None] | None = None,
        client: object = None,
    ) -> None:
        super().__init__(_Nowhere(space.core, ""), port, "")
        self._client = client
        self._knows_rejected = knows_rejected
        self._require = require
        self._space = space
        self._targets: dict[str, Producer] = {}
        self._version = -1
        port.grant(ANONYMOUS_CREDIT)

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Offer the message to the address that it names."""
        port = self.port
        self._renew()
        try:
            to = to_of(payload)
            if not to:
                raise AttachError("amqp:precondition-failed", "a message without an address in its field to")
            target = self.end_of(to)
        except RemoteError as error:
            amqp_error = AmqpError(error.condition, error.description)
            if settled:
                self._space.unroutable += 1
            elif self._knows_rejected:
                self.settle(delivery_id, Rejected(amqp_error))
            else:
                port.detach(amqp_error)
            return
        target.on_crossed(payload, delivery_id, settled, message_format)

    on_crossed = on_message

    def on_refused(self) -> None:
        """Grant credit in place of what a refused message has used."""
        self._renew()

    def _renew(self) -> None:
        port = self.port
        if 2 * (port.limit - port.received) <= ANONYMOUS_CREDIT:
            port.grant(ANONYMOUS_CREDIT)

    def end_of(self, to: str, address: Address | None = None) -> Producer:
        """Return the sender's end at an address that a message names, made now if it was not before.

        Args:
            to: the name.
            address: the address; None: it is to be found.

        Raises:
            AttachError: there is none, or the sender may not send there.
        """
        space = self._space
        if self._version != space.version:
            self._version = space.version
            self._targets.clear()
        target = self._targets.get(to)
        if target is None:
            if len(self._targets) >= KNOWN_TARGETS:
                self._targets.clear()
            target = self._targets[to] = self._make(address or self.find(to), to)
        return target

    def find(self, to: str) -> Address:
        """Return the address that a message names.

        Raises:
            AttachError: there is none, or the sender may not send there.
        """
        if self._require is not None:
            self._require(to)
        return self._space.find_target(to)

    @property
    def ends(self) -> Collection[object]:
        """The ends at the addresses that messages have named."""
        return self._targets.values()

    def _make(self, address: Address, to: str) -> Producer:
        producer = address.make_producer(self.port, to)
        if isinstance(producer, RelayGuest):
            producer.client = self._client
        if address.limits is None:
            return producer
        return Guest(producer, address.meter, address.limits.max_message_size)

    def on_detached(self) -> None:
        """Note that the link is detached: outcomes that are still due are not sent."""
        super().on_detached()
        self._client = None
        for target in self._targets.values():
            target.on_detached()


class _Nowhere(Address):
    """The address of an anonymous terminus before a message names one."""

    kind = "anonymous"


class ServiceProducer(Producer):
    """A sender of requests to a service of the node itself."""

    __slots__ = ()
    address: Service

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Hand the request over; it is accepted, its answer comes by message."""
        self.address.serve(payload)
        if not settled:
            self.settle(delivery_id, ACCEPTED)
        self.on_refused()

    on_crossed = on_message

    def on_refused(self) -> None:
        """Grant credit in place of what a message has used, whether it was taken or not."""
        if 2 * self.credit <= ANONYMOUS_CREDIT:
            self.port.grant(ANONYMOUS_CREDIT)


class Service(Address):
    """An address behind which the node itself answers, such as ``$management``.

    Args:
        core: the core whose turn it takes part in.
        name: the address.
        serve: called with each request's payload.
    """

    kind = "service"

    def __init__(self, core: Core, name: str, serve: Callable[[bytes], Any]) -> None:
        super().__init__(core, name)
        self.serve = serve

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """Attach a sender of requests."""
        producer = self.make_producer(port, target)
        port.grant(ANONYMOUS_CREDIT)
        return self.add_producer(producer)

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """Return a sender's end that is not granted credit."""
        return ServiceProducer(self, port, target)
