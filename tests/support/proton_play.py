"""Conversations of python-qpid-proton, a foreign client, with a node; needs ``enmasse[proton]``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container

__all__ = ["Exchange", "Play"]

TIMEOUT_S = 60.0

Answer = Callable[[int, Any], None]


class Play(MessagingHandler):
    """Connects, does what a test wants, and fails if that takes too long.

    Args:
        url: the node's.
        options: of proton's ``MessagingHandler``.

    Attributes:
        errors: (condition, description) of each link that was refused or closed.
        ends_on_error: whether such an error is the end.
        connect_options: of proton's ``Container.connect``.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(auto_accept=False, **options)
        self.url = url
        self.connection: Any = None
        self.container: Any = None
        self.errors: list[tuple[str, str]] = []
        self.ends_on_error = False
        self.connect_options: dict[str, Any] = {}

    def play(self) -> None:
        """Run until the end.

        Raises:
            TimeoutError: the end did not come; the message shows how far it got.
        """
        container = Container(self)
        container.schedule(TIMEOUT_S, self)
        container.run()

    def on_timer_task(self, event: Any) -> None:
        """The time is up."""
        shown = {
            name: value for name, value in vars(self).items() if isinstance(value, int | str | list | dict | set)
        }
        raise TimeoutError(f"{type(self).__name__} did not come to its end: {shown}")

    def on_start(self, event: Any) -> None:
        """Connect."""
        self.container = event.container
        self.connection = event.container.connect(self.url, reconnect=False, **self.connect_options)
        self.begin()

    def begin(self) -> None:
        """Open the first links."""
        raise NotImplementedError

    def end(self) -> None:
        """Close the connection, and so end."""
        self.connection.close()

    def on_connection_closed(self, event: Any) -> None:
        """The end."""
        event.container.stop()

    def on_link_error(self, event: Any) -> None:
        """Note why a link was refused or closed."""
        condition = event.link.remote_condition
        self.errors.append((condition.name, condition.description))
        if self.ends_on_error:
            self.end()


class Exchange(Play):
    """Receives from ``source`` and, once that stands, sends messages to ``target``.

    Args:
        url: the node's.
        source: where to receive from.
        target: where to send to; the same without.
        messages: what to send.
        answer: given (number, event) settles a message; accepts without.
        expect: how many to receive before the end; as many as are sent without.
        settled: send settled.
        receivers: how many links receive.
        options: for the receivers' links.
        credit: what each receiver grants and keeps up; with 1, only after each message.
    """

    def __init__(
        self,
        url: str,
        source: str,
        messages: Sequence[Any],
        *,
        target: str | None = None,
        answer: Answer | None = None,
        expect: int | None = None,
        settled: bool = False,
        receivers: int = 1,
        options: Any = None,
        credit: int = 10,
    ) -> None:
        super().__init__(url, prefetch=credit if credit > 1 else 0)
        self.is_stepping = credit == 1
        self.source, self.target = source, target or source
        self.messages = list(messages)
        self.answer = answer
        self.expect = len(messages) * receivers if expect is None else expect
        self.settled = settled
        self.receivers = receivers
        self.options = options
        self.received: list[Any] = []
        self.settled_by_sender: list[bool] = []
        self.sent = 0
        self.told: dict[str, tuple[str, Any]] = {}
        self.sender: Any = None

    def begin(self) -> None:
        """Open the receiving links."""
        for number in range(self.receivers):
            receiver = self.container.create_receiver(
                self.connection, self.source, name=f"r{number}", options=self.options
            )
            if self.is_stepping:
                receiver.flow(1)

    def on_link_opened(self, event: Any) -> None:
        """Open the sending link once every receiving link stands."""
        if event.receiver:
            self.receivers -= 1
            if not self.receivers:
                options = AtMostOnce() if self.settled else None
                self.sender = self.container.create_sender(self.connection, self.target, options=options)

    def on_sendable(self, event: Any) -> None:
        """Send what the credit allows."""
        while event.sender.credit > 0 and self.sent < len(self.messages):
            message = self.messages[self.sent]
            event.sender.send(message if isinstance(message, Message) else Message(body=message))
            self.sent += 1
        self.look()

    def on_message(self, event: Any) -> None:
        """Keep the message and settle it."""
        number = len(self.received)
        self.received.append(event.message)
        self.settled_by_sender.append(event.delivery.settled)
        if not event.delivery.settled:
            if self.answer is not None:
                self.answer(number, event)
            else:
                self.accept(event.delivery)
        if self.is_stepping and len(self.received) < self.expect:
            event.receiver.flow(1)
        self.look()

    def on_accepted(self, event: Any) -> None:
        """Note an outcome."""
        self.note("accepted", event)

    def on_rejected(self, event: Any) -> None:
        """Note an outcome."""
        self.note("rejected", event)

    def on_released(self, event: Any) -> None:
        """Note an outcome, which may be modified as well."""
        modified = event.delivery.remote_state == Delivery.MODIFIED
        self.note("modified" if modified else "released", event)

    def note(self, outcome: str, event: Any) -> None:
        """Keep an outcome and its details."""
        remote = event.delivery.remote
        details = (remote.condition, remote.failed, remote.undeliverable, remote.annotations)
        self.told[event.delivery.tag] = (outcome, details)
        self.look()

    def look(self) -> None:
        """End if everything has come."""
        done = self.sent == len(self.messages) and (self.settled or len(self.told) == len(self.messages))
        if done and len(self.received) >= self.expect:
            self.end()

    @property
    def outcomes(self) -> list[str]:
        """What became of each message, in the order of sending; proton's tags count."""
        return [self.told[tag][0] for tag in sorted(self.told, key=int)]

    @property
    def details(self) -> list[Any]:
        """The details of each outcome: (condition, failed, undeliverable, annotations)."""
        return [self.told[tag][1] for tag in sorted(self.told, key=int)]

    @property
    def bodies(self) -> list[Any]:
        """The bodies that came, in order."""
        return [message.body for message in self.received]
