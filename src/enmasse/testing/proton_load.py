"""Load by python-qpid-proton, a foreign client, for as long as its node lives; needs ``enmasse[proton]``."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from enmasse.testing.ledger import Ledger, Name, name_of

__all__ = ["ProtonConsumer", "ProtonProducer"]

WINDOW = 20
"""Messages that a client has on their way: enough that every commit holds some."""

LOOK_S = 0.01
"""How often a client looks whether it is to stop."""

APPENDS = 3
"""See ``ProtonConsumer``."""

SURE_AFTER = 40
"""Settlements after which a receiver makes sure of them."""

RELEASED_OF = 9
"""Of so many messages one is given back once."""


class _Client(MessagingHandler):
    """Connects, works until it is stopped or its node dies, and lets others know that it has begun."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(auto_accept=False, **options)
        self.url = url
        self.has_begun = threading.Event()
        self.is_stopping = threading.Event()
        self.connection: Any = None
        self.container: Any = None

    def run(self) -> None:
        """Work until the end; for a thread of its own."""
        Container(self).run()

    def on_start(self, event: Any) -> None:
        """Connect."""
        self.container = event.container
        self.connection = event.container.connect(self.url, reconnect=False)
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

    def on_connection_closed(self, event: Any) -> None:
        """The end."""
        event.container.stop()

    def on_transport_error(self, event: Any) -> None:
        """The node has died, as it was meant to."""

    def on_disconnected(self, event: Any) -> None:
        """The end, without a word."""
        event.container.stop()


class ProtonProducer(_Client):
    """Sends numbered durable messages to one address, a few at a time.

    Args:
        url: the node's.
        address: a queue or topic.
        ledgers: what is told of each message.
        name: the producer's.
        first: the first message's number.

    Attributes:
        next: the number after the last message's.
    """

    def __init__(self, url: str, address: str, ledgers: Sequence[Ledger], name: str, first: int) -> None:
        super().__init__(url)
        self.address = address
        self.ledgers = ledgers
        self.name = name
        self.next = first
        self._sender: Any = None
        self._under_way: dict[str, Name] = {}

    def begin(self) -> None:
        """Open the link."""
        self._sender = self.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        """Send what the window allows."""
        while self._sender.credit > 0 and len(self._under_way) < WINDOW and not self.is_stopping.is_set():
            name = (self.name, self.next)
            self.next += 1
            for ledger in self.ledgers:
                ledger.offered(name)
            delivery = self._sender.send(Message(body=f"{name[0]}:{name[1]}", durable=True))
            self._under_way[delivery.tag] = name

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
            self.connection.close()


class ProtonConsumer(_Client):
    """Receives, accepts most and gives some back, and makes sure of what it accepted.

    A settlement is sure when appends to a stream that were sent after it are accepted: the first goes
    out after it, and what a log could not write with one batch it writes before the batch after the next.

    Args:
        url: the node's.
        address: a queue or subscription.
        ledger: what is told of each message.
        barrier: the stream.
    """

    def __init__(self, url: str, address: str, ledger: Ledger, barrier: str) -> None:
        super().__init__(url, prefetch=WINDOW)
        self.address = address
        self.ledger = ledger
        self.barrier = barrier
        self._left = 0
        self._count = 0
        self._recent: list[Name] = []
        self._waiting: list[Name] = []
        self._given_back: set[Name] = set()
        self._receiver: Any = None
        self._sender: Any = None

    def begin(self) -> None:
        """Open both links."""
        self._receiver = self.container.create_receiver(self.connection, self.address)
        self._sender = self.container.create_sender(self.connection, self.barrier)

    def on_message(self, event: Any) -> None:
        """Accept it, or give it back once."""
        name = name_of(event.message.body)
        self.ledger.delivered(name)
        self._count += 1
        if self.is_stopping.is_set() or (not self._count % RELEASED_OF and name not in self._given_back):
            self._given_back.add(name)
            self.release(event.delivery, delivered=bool(self._count % 2))
            return
        self.ledger.taken(name)
        self.accept(event.delivery)
        self._recent.append(name)
        self.has_begun.set()
        if len(self._recent) >= SURE_AFTER:
            self._make_sure()

    def _make_sure(self) -> None:
        if not self._left and self._sender.credit > 0:
            self._waiting, self._recent = self._recent, []
            self._left = APPENDS
            self._sender.send(Message(body="barrier"))

    def on_accepted(self, event: Any) -> None:
        """An append is on disk."""
        self._left -= 1
        if self._left:
            self._sender.send(Message(body="barrier"))
            return
        self.ledger.sure(self._waiting)
        self._waiting = []

    def on_released(self, event: Any) -> None:
        """An append is not on disk: nothing is sure."""
        self._left = 0
        self._recent += self._waiting
        self._waiting = []

    def finish(self) -> None:
        """Close when everything is sure."""
        if self._left:
            return
        if self._recent:
            self._make_sure()
        elif self._receiver.state & self._receiver.LOCAL_ACTIVE:
            self._receiver.close()
        else:
            self.connection.close()
