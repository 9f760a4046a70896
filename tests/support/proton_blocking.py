"""A client of python-qpid-proton that does one thing after the other; needs ``enmasse[proton]``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from types import TracebackType
from typing import Any, Self

from proton import Data, Delivery, Message, Terminus
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver

__all__ = ["ProtonClient", "ProtonReceiver", "Subscriber"]

TIMEOUT_S = 30.0

LOTS = 1_000
"""Credit for everything that a test stores."""

_EXPIRIES = {
    "link-detach": Terminus.EXPIRE_WITH_LINK,
    "session-end": Terminus.EXPIRE_WITH_SESSION,
    "connection-close": Terminus.EXPIRE_WITH_CONNECTION,
    "never": Terminus.EXPIRE_NEVER,
}


class Subscriber(LinkOption):
    """How a receiver subscribes.

    Args:
        durability: of the source: 0 none, 1 its configuration, 2 its deliveries too.
        expiry: when it ends: ``never``, ``link-detach``, ``session-end`` or ``connection-close``.
        timeout: seconds that it outlives that.
        capabilities: of the source.
    """

    def __init__(
        self, durability: int = 0, expiry: str = "session-end", timeout: int = 0, capabilities: Sequence[str] = ()
    ) -> None:
        self.durability = durability
        self.expiry = expiry
        self.timeout = timeout
        self.capabilities = capabilities

    def apply(self, link: Any) -> None:
        """Write it on the link's source."""
        source = link.source
        source.durability = self.durability
        source.expiry_policy = _EXPIRIES[self.expiry]
        source.timeout = self.timeout
        if self.capabilities:
            source.capabilities.put_array(False, Data.SYMBOL)
            source.capabilities.enter()
            for name in self.capabilities:
                source.capabilities.put_symbol(name)
            source.capabilities.exit()


class ProtonReceiver:
    """A receiver that is given credit only for what is asked of it.

    Args:
        receiver: proton's.
        connection: proton's.
    """

    def __init__(self, receiver: BlockingReceiver, connection: Any) -> None:
        self.receiver: Any = receiver
        self.connection = connection
        fetcher: Any = receiver.fetcher
        self.incoming = fetcher.incoming

    def take(self, number: int, *, settle: bool = True) -> list[Any]:
        """Wait for so many messages and take them.

        Args:
            number: how many.
            settle: whether to accept them; they stay unsettled otherwise.

        Raises:
            Timeout: they did not come.
        """
        missing = number - len(self.incoming) - self.receiver.link.credit
        if missing > 0:
            self.receiver.link.flow(missing)
        self.connection.wait(lambda: len(self.incoming) >= number, msg=f"{number} messages")
        return self._pop(number, settle=settle)

    def _pop(self, number: int, *, settle: bool) -> list[Any]:
        found = []
        for _ in range(number):
            found.append(self.receiver.fetcher.pop())
            if settle and self.receiver.fetcher.unsettled:
                self.receiver.accept()
        self.flush()
        return found

    def rest(self, *, settle: bool = True) -> list[Any]:
        """All that the node has for this receiver now, by a drain."""
        link = self.receiver.link
        link.drain(LOTS)
        self.connection.wait(lambda: not link.draining() and not link.queued, msg="to be drained")
        link.drain_mode = False
        return self._pop(len(self.incoming), settle=settle)

    def settle(self, outcome: Any = Delivery.ACCEPTED, *, failed: bool = False, undeliverable: bool = False) -> None:
        """Settle the oldest message that was taken without; ``failed`` and ``undeliverable`` belong to modified."""
        delivery = self.receiver.fetcher.unsettled[0]
        delivery.local.failed = failed
        delivery.local.undeliverable = undeliverable
        self.receiver.fetcher.settle(outcome)
        self.flush()

    def fail(self) -> None:
        """Settle the oldest message that was taken without as a failed attempt."""
        self.settle(Delivery.MODIFIED, failed=True)

    def flush(self) -> None:
        """Send what waits to be sent."""
        self.connection.wait(lambda: self.connection.conn.transport.pending() <= 0, msg="to send")

    def close(self) -> None:
        """Close the link, and with it what it subscribed to."""
        self.receiver.close()

    def detach(self) -> None:
        """Detach the link without closing it."""
        self.receiver.link.detach()
        self.flush()


class ProtonClient:
    """A connection; a context manager.

    Args:
        url: the node's.
        container: how the client names itself.
        options: of proton's ``BlockingConnection``, such as ``user`` and ``password``.
    """

    def __init__(self, url: str, container: str | None = None, **options: Any) -> None:
        self._numbers = count(1)
        self.connection: Any = BlockingConnection(url, timeout=TIMEOUT_S, container_id=container, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def _name(self) -> str:
        """A name for a link; proton would give all links of an address the same, and a name has one link."""
        return f"link-{next(self._numbers)}"

    def send(self, address: str, *messages: Any) -> None:
        """Send messages one by one, each of which must be accepted.

        Raises:
            SendException: one was not.
            Timeout: there was no credit.
        """
        sender = self.connection.create_sender(address, name=self._name())
        for message in messages:
            sender.send(message if isinstance(message, Message) else Message(body=message))
        sender.close()

    def receiver(self, address: str, *options: Any, name: str | None = None) -> ProtonReceiver:
        """Attach a receiver.

        Raises:
            LinkDetached: it was refused; ``condition`` says why.
        """
        receiver = self.connection.create_receiver(address, name=name or self._name(), options=list(options))
        return ProtonReceiver(receiver, self.connection)
