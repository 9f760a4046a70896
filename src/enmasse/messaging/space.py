"""Spaces: a tenant's addresses, and how a name finds one.

Nothing of one space is ever reached through another: every lookup starts at a space.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.errors import RemoteError
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.anycast import Anycast
from enmasse.messaging.backlog import Backlog
from enmasse.messaging.delivery import ACCEPTED, Consumer, Producer, ProducerPort
from enmasse.messaging.dynamic import DynamicNodes, Wish
from enmasse.messaging.errors import AttachError, RedirectError
from enmasse.messaging.fallback import Direct
from enmasse.messaging.limits import SpaceLimits, Usage
from enmasse.messaging.metered_sink import Guest
from enmasse.messaging.metering import Meter
from enmasse.messaging.multicast import Multicast
from enmasse.messaging.queue import Queue
from enmasse.messaging.stream import Stream
from enmasse.messaging.subscription import Subscription
from enmasse.messaging.topic import Topic
from enmasse.wire.amqp.performatives import AmqpError, Rejected
from enmasse.wire.amqp.sections import to_of
from enmasse.wire.amqp.types import Symbol, UInt

if TYPE_CHECKING:
    from enmasse.messaging.core import Core

__all__ = ["AnonymousTerminus", "Home", "Space"]

ANONYMOUS_CREDIT = 100
"""The window of a sender that names the address in each message; each must find its own credit."""

KNOWN_TARGETS = 256


class Home(NamedTuple):
    """The node that serves an address.

    Attributes:
        host: where clients connect.
        port: the port there.
        is_secure: whether by TLS.
    """

    host: str
    port: int
    is_secure: bool = False


class Space:
    """One tenant's addresses.

    Args:
        core: whose turn its addresses take part in.
        name: ``<namespace>/<space>``.
        new_id: gives unguessable names for dynamic addresses.
        max_bytes: what its addresses may store in all; 0 is without limit.
    """

    def __init__(self, core: Core, name: str, new_id: Callable[[], str], *, max_bytes: int = 0) -> None:
        self.core = core
        self.name = name
        self.max_bytes = max_bytes
        """What addresses may store in all; 0 is without limit."""
        self.bytes_stored = 0
        self.unroutable = 0
        """Settled messages on the anonymous terminus that named no address which takes messages."""
        self.addresses: dict[str, Address] = {}
        """Those that are made; others are when they are asked for (``address``)."""
        self.services: dict[str, Address] = {}
        """Where the node itself answers; their names start with ``$``."""
        self.wake: Callable[[str], Address | None] = lambda _name: None
        """Makes an address that is declared, and adds it."""
        self.version = 0
        """Changes whenever an address comes or goes."""
        self.fallbacks: dict[str, dict[Address, None]] = {}
        """Name of a queue to the direct addresses that fall back to it."""
        self.homes: dict[Address, Home] = {}
        """Addresses that other nodes serve."""
        self.dynamic = DynamicNodes(self, new_id)
        """The addresses that links had made for them."""
        self.usage = Usage(name)
        """What of it is in use, and how much may be."""
        self.meter: Meter | None = None
        """The bucket of its senders, if their rate is limited."""
        self._held: dict[Address, None] = {}
        """Addresses that had their turn while the space was full."""

    def configure(self, *, max_bytes: int) -> None:
        """Change what may be stored in all; 0 is without limit."""
        self.max_bytes = max_bytes
        self.bytes_stored = 0
        for address in self.addresses.values():
            if isinstance(address, Backlog | Stream | Topic):
                address.join(self)
            address.due()

    def limit(self, limits: SpaceLimits) -> None:
        """Change what its connections may have; for those that are there only the rates change."""
        self.usage.limits = limits
        if self.meter is not None:
            self.meter.configure(limits.message_rate, limits.byte_rate)
        elif limits.message_rate or limits.byte_rate:
            self.meter = Meter(self.core, self.name, limits.message_rate, limits.byte_rate)

    def balance(self, address: Address) -> None:
        """An address has its turn: it waits while the space is full, and none waits once there is room again."""
        if self.bytes_stored >= self.max_bytes:
            self._held[address] = None
        elif self._held:
            self._go_on()

    def _go_on(self) -> None:
        held, self._held = self._held, {}
        for address in held:
            address.due()

    def address(self, name: str) -> Address | None:
        """The address of a name, made now if it was not before."""
        return self.addresses.get(name) or self.wake(name)

    def declared(self, name: str) -> None:
        """An address can be woken from now on."""
        self.version += 1
        self._tell_fallbacks(name)

    def add(self, address: Address) -> None:
        """Make an address reachable; a subscription is fed by its topic from now on."""
        self.addresses[address.name] = address
        self.version += 1
        if isinstance(address, Backlog | Stream | Topic | Direct):
            address.join(self)
        self._tell_fallbacks(address.name)
        if isinstance(address, Subscription):
            topic = self.addresses.get(address.topic_name)
            if isinstance(topic, Topic):
                topic.subscribe(address)
        elif isinstance(address, Topic):
            for other in self.addresses.values():
                if isinstance(other, Subscription) and other.topic_name == address.name:
                    address.subscribe(other)

    def remove(self, address: Address) -> None:
        """The address is deleted: its links are detached."""
        if self.addresses.get(address.name) is address:
            del self.addresses[address.name]
        self.version += 1
        if isinstance(address, Subscription) and address.topic is not None:
            address.topic.unsubscribe(address)
        self.dynamic.forget(address)
        self.homes.pop(address, None)
        address.close("amqp:resource-deleted", f"address {address.name!r} was deleted")
        self._tell_fallbacks(address.name)
        self._held.pop(address, None)
        self._go_on()

    def _tell_fallbacks(self, name: str) -> None:
        """A queue has come or gone that direct addresses may fall back to."""
        for direct in self.fallbacks.get(name, ()):
            direct.due()

    def close(self) -> None:
        """The space is deleted, and every address with it."""
        for address in list(self.addresses.values()):
            self.remove(address)
        for service in self.services.values():
            service.close("amqp:resource-deleted", f"space {self.name!r} was deleted")

    def find(self, name: str) -> Address:
        """The address that a link names: itself, a name below a topic, or ``topic::subscription``.

        Raises:
            RedirectError: another node serves the address.
            AttachError: no address of the space has that name.
        """
        found = self._find(name)
        home = self.homes.get(found)
        if home is not None:
            raise self._redirect(name, home)
        return found

    def _find(self, name: str) -> Address:
        found = self.address(name) or self.services.get(name)
        if found is not None:
            return found
        if "::" in name:
            topic, _, subscription = name.partition("::")
            address = self.address(subscription)
            if isinstance(address, Subscription) and address.topic_name == topic:
                return address
        upper = name
        while "/" in upper:
            upper = upper.rpartition("/")[0]
            found = self.address(upper)
            if isinstance(found, Topic):
                return found
        raise AttachError("amqp:not-found", f"space {self.name!r} has no address {name!r}")

    def rehome(self, address: Address, home: Home | None) -> None:
        """Have links to an address redirected to the node that serves it, or serve it here again."""
        if home == self.homes.get(address):
            return
        self.version += 1
        self._tell_fallbacks(address.name)
        if home is None:
            del self.homes[address]
            return
        self.homes[address] = home
        error = self._redirect(address.name, home)
        told = AmqpError(error.condition, error.description, error.info)
        sources = [address, *address.subscriptions] if isinstance(address, Topic) else [address]
        ends: list[Consumer | Producer] = [consumer for source in sources for consumer in source.consumers]
        if isinstance(address, Backlog):
            ends += address.browsers
        for end in [*ends, *address.producers]:
            end.port.detach(told)
            end.gone()

    def _redirect(self, name: str, home: Home) -> RedirectError:
        namespace, _, space = self.name.partition("/")
        scheme = "amqps" if home.is_secure else "amqp"
        info = {
            Symbol("hostname"): f"{space}.{namespace}",
            Symbol("network-host"): home.host,
            Symbol("port"): UInt(home.port),
            Symbol("address"): name,
            Symbol("scheme"): scheme,
        }
        return RedirectError(name, f"{scheme}://{home.host}:{home.port}", info)

    def add_dynamic(self, wish: Wish | None = None) -> Address:
        """A new address with a name of its own, for replies if nothing else is wished.

        Raises:
            AttachError: there are too many already.
        """
        return self.dynamic.make(wish or Wish())


class AnonymousTerminus(Producer):
    """A sender that names the address in each message's ``to`` [AMQP anonterm 2].

    Each delivery must find credit of its own on arrival: a receiver's that nobody was promised, or
    room in a stored address. Otherwise it is released. One that names no address which takes messages is
    rejected with what a link to that address would be told; a settled one is dropped and counted.

    Args:
        space: whose addresses are meant.
        port: the sender's link.
        knows_rejected: whether the sender understands rejections; else its link ends with the first.
        require: raises an ``AttachError`` for an address that the sender may not send to; asked when an
            address is named for the first time, and again after the space's ``version`` has changed.
    """

    __slots__ = ("_knows_rejected", "_require", "_space", "_targets", "_version")

    def __init__(
        self,
        space: Space,
        port: ProducerPort,
        *,
        knows_rejected: bool = True,
        require: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(_Nowhere(space.core, ""), port, "")
        self._knows_rejected = knows_rejected
        self._require = require
        self._space = space
        self._targets: dict[str, Producer] = {}
        self._version = -1
        port.grant(ANONYMOUS_CREDIT)

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """Offer the message to the address that it names."""
        port = self.port
        if 2 * (port.limit - port.received) <= ANONYMOUS_CREDIT:
            port.grant(ANONYMOUS_CREDIT)
        try:
            to = to_of(payload)
            if not to:
                raise AttachError("amqp:precondition-failed", "a message without an address in its field to")
            target = self._target(to)
        except RemoteError as error:
            told = AmqpError(error.condition, error.description, getattr(error, "info", None))
            if settled:
                self._space.unroutable += 1
            elif self._knows_rejected:
                self.settle(delivery_id, Rejected(told))
            else:
                port.detach(told)
            return
        target.on_crossed(payload, delivery_id, settled, message_format)

    on_crossed = on_message

    def _target(self, to: str) -> Producer:
        space = self._space
        if self._version != space.version:
            self._version = space.version
            self._targets.clear()
        target = self._targets.get(to)
        if target is None:
            if len(self._targets) >= KNOWN_TARGETS:
                self._targets.clear()
            target = self._targets[to] = self._make(self.find(to), to)
        return target

    def find(self, to: str) -> Address:
        """The address that a message names.

        Raises:
            AttachError: there is none, or the sender may not send there.
        """
        if self._require is not None:
            self._require(to)
        return self._space.find(to)

    def _make(self, address: Address, to: str) -> Producer:
        if isinstance(address, Subscription):
            raise AttachError("amqp:not-allowed", f"send to topic {address.topic_name!r}, not to {to!r}")
        if isinstance(address, Anycast | Multicast | Queue | Stream | Topic | Service):
            producer = address.make_producer(self.port, to)
            if address.limits is None:
                return producer
            return Guest(producer, address.meter, address.limits.message_bytes)
        raise AttachError("amqp:not-allowed", f"{to!r} takes no messages from senders")

    def gone(self) -> None:
        """The link is detached: outcomes that are still due have nobody to hear them."""
        super().gone()
        for target in self._targets.values():
            target.gone()


class _Nowhere(Address):
    """What an anonymous terminus is attached to before a message names its address."""

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
        if 2 * self.credit <= ANONYMOUS_CREDIT:
            self.port.grant(ANONYMOUS_CREDIT)

    on_crossed = on_message


class Service(Address):
    """An address behind which the node itself answers, such as ``$management``.

    Args:
        core: whose turn it takes part in.
        name: the address.
        serve: called with each request's payload.
    """

    kind = "service"

    def __init__(self, core: Core, name: str, serve: Callable[[bytes], Any]) -> None:
        super().__init__(core, name)
        self.serve = serve

    def attach_producer(self, port: ProducerPort, target: str, options: AttachOptions) -> Producer:
        """A sender of requests joins."""
        producer = self.make_producer(port, target)
        port.grant(ANONYMOUS_CREDIT)
        return self.add_producer(producer)

    def make_producer(self, port: ProducerPort, target: str) -> Producer:
        """A sender's end that is not granted credit."""
        return ServiceProducer(self, port, target)
