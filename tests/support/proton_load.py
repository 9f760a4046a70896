"""Load by python-qpid-proton, a foreign client, for as long as its node lives; needs ``enmasse[proton]``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

from proton import Delivery, Endpoint, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, ReceiverOption

from tests.support.ledger import Ledger, Name, name_of

__all__ = ["ProtonConsumer", "ProtonProducer"]

WINDOW = 20
"""Messages that a client has on their way: enough that every commit holds some."""

LOOK_S = 0.01
"""How often a client looks whether it is to stop."""

RELEASED_OF = 9
"""Of so many messages one is given back once."""


class _Client(MessagingHandler):
    """Connects, works until it is stopped or its node dies, and lets others know that it has begun."""

    def __init__(self, url: str, host: str = "", **options: Any) -> None:
        super().__init__(auto_accept=False, **options)
        self.url = url
        self.host = host
        self.has_begun = threading.Event()
        self.is_stopping = threading.Event()
        self.is_closing = threading.Event()
        self.connection: Any = None
        self.container: Any = None

    def run(self) -> None:
        """Work until the end; for a thread of its own."""
        Container(self).run()

    def on_start(self, event: Any) -> None:
        """Connect."""
        self.container = event.container
        named = {"virtual_host": self.host} if self.host else {}
        self.connection = event.container.connect(self.url, reconnect=False, **named)
        self.begin()
        event.container.schedule(LOOK_S, self)

    def begin(self) -> None:
        """Open the links."""
        raise NotImplementedError

    def on_timer_task(self, event: Any) -> None:
        """Look whether to stop."""
        if self.is_stopping.is_set():
            self.finish()
        event.container.schedule(LOOK_S, self)

    def finish(self) -> None:
        """End in order; called again and again."""
        raise NotImplementedError

    def close(self) -> None:
        """Say that this is the end."""
        self.connection.close()
        self.is_closing.set()

    def on_connection_closed(self, event: Any) -> None:
        """The end."""
        event.container.stop()

    def on_transport_error(self, event: Any) -> None:
        """The node has died, as it was meant to."""

    def on_transport_tail_closed(self, event: Any) -> None:
        """The end, without a word.

        Proton's ``on_disconnected`` does not come to a client that has said its own close before.
        """
        event.container.stop()


class ProtonProducer(_Client):
    """Sends numbered durable messages to one address, a few at a time.

    Args:
        url: the node's.
        address: a queue or topic.
        ledgers: what is told of each message.
        name: the producer's.
        first: the first message's number.
        limit: messages to send at most.
        host: what it calls the node, which names the space; as in the URL without.
        window: how many messages it has on their way.

    Attributes:
        next: the number after the last message's.
    """

    def __init__(
        self,
        url: str,
        address: str,
        ledgers: Sequence[Ledger],
        name: str,
        first: int,
        limit: int = sys.maxsize,
        *,
        host: str = "",
        window: int = WINDOW,
    ) -> None:
        super().__init__(url, host)
        self.window = window
        self.address = address
        self.ledgers = ledgers
        self.name = name
        self.next = first
        self._end = first + limit
        self._sender: Any = None
        self._under_way: dict[str, Name] = {}

    def begin(self) -> None:
        """Open the link."""
        self._sender = self.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        """Send what the window allows."""
        while self._may_send():
            name = (self.name, self.next)
            self.next += 1
            for ledger in self.ledgers:
                ledger.offered(name)
            delivery = self._sender.send(Message(body=f"{name[0]}:{name[1]}", durable=True))
            self._under_way[delivery.tag] = name

    def _may_send(self) -> bool:
        return (
            self._sender.credit > 0
            and len(self._under_way) < self.window
            and self.next < self._end
            and not self.is_stopping.is_set()
        )

    def on_accepted(self, event: Any) -> None:
        """A message is stored: send another."""
        name = self._under_way.pop(event.delivery.tag)
        for ledger in self.ledgers:
            ledger.accepted(name)
        self.has_begun.set()
        self.on_sendable(event)

    def on_released(self, event: Any) -> None:
        """A message is not stored."""
        name = self._under_way.pop(event.delivery.tag)
        for ledger in self.ledgers:
            ledger.refused(name)

    def finish(self) -> None:
        """Close when everything is answered."""
        if not self._under_way:
            self.close()


class _SettlesSecond(ReceiverOption):
    """Have the node say that it knows of an outcome [AMQP 2.6.12]."""

    def apply(self, receiver: Any) -> None:
        """Ask for it."""
        receiver.rcv_settle_mode = Link.RCV_SECOND


class ProtonConsumer(_Client):
    """Receives, accepts most and gives some back, and waits for the node's word on what it accepted.

    It settles second, so a settlement that the node has answered is committed.

    Args:
        url: the node's.
        address: a queue or subscription.
        ledger: what is told of each message.
        host: what it calls the node, which names the space; as in the URL without.
    """

    def __init__(self, url: str, address: str, ledger: Ledger, *, host: str = "") -> None:
        super().__init__(url, host, prefetch=WINDOW)
        self.address = address
        self.ledger = ledger
        self._count = 0
        self._taken: set[Name] = set()
        """Accepted without the node's word."""
        self._given_back: set[Name] = set()
        self._receiver: Any = None

    def begin(self) -> None:
        """Open the link."""
        self._receiver = self.container.create_receiver(self.connection, self.address, options=_SettlesSecond())

    def on_message(self, event: Any) -> None:
        """Accept it, or give it back once."""
        name = name_of(event.message.body)
        self.ledger.delivered(name)
        self._count += 1
        if self.is_stopping.is_set() or (not self._count % RELEASED_OF and name not in self._given_back):
            self._given_back.add(name)
            event.delivery.update(Delivery.MODIFIED if self._count % 2 else Delivery.RELEASED)
            return
        self.ledger.taken(name)
        self._taken.add(name)
        # Proton keeps what it is told of a delivery. (Its tag it cannot read, as that is no text.)
        event.delivery.taken = name
        event.delivery.update(Delivery.ACCEPTED)

    def on_settled(self, event: Any) -> None:
        """The node has settled a delivery: nothing takes that back."""
        name = getattr(event.delivery, "taken", None)
        if name is not None:
            self._taken.discard(name)
            self.ledger.sure([name])
            self.has_begun.set()
        event.delivery.settle()

    def finish(self) -> None:
        """Close when everything is sure."""
        if self._receiver.state & Endpoint.LOCAL_CLOSED:
            self.close()
        elif not self._taken:
            self._receiver.close()
