"""Connections, which live on while the sockets under them are lost and made again."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from enmasse.client.carrier import Carrier, Dialler, is_final, jittered, redirected
from enmasse.client.errors import ClosedError, ConnectionDeniedError, DeadlineError, TlsError, UnavailableError
from enmasse.client.internal_links import ControlLink, Requester, declare
from enmasse.client.link import ClientLink, Opening
from enmasse.client.message import Message, Outcome
from enmasse.client.options import Options, Url
from enmasse.client.receiver import CREDIT, PREFETCH_BYTES, Receiver
from enmasse.client.resuming import ResumingSender
from enmasse.client.sender import MAX_PENDING, MAX_PENDING_BYTES, Sender
from enmasse.client.transaction import Transaction
from enmasse.errors import EnmasseError

L = TypeVar("L", bound=ClientLink)

FIRST_DELAY_S = 0.05
MAX_DELAY_S = 5.0
"""Between attempts, doubling from the first: a restarted node has all its clients back within seconds."""

STABLE_S = 1.0
"""A connection that is lost sooner was of no use: the pauses go on growing, or a server that lets everybody in
and then drops them would be stormed."""

ATTACH_TIMEOUT_S = 30.0
"""For attaching: time for a node to be restarted meanwhile."""

_log = logging.getLogger(__name__)


class Connection:
    """A connection; made by ``connect``.

    With ``reconnect``, senders and receivers live on when the connection is lost, and are attached
    again as soon as there is a new one.
    """

    def __init__(self, options: Options, *, reconnect: bool, timeout_s: float) -> None:
        self._options = options
        self._reconnects = reconnect
        self._timeout_s = timeout_s
        self._dialler = Dialler(options, self._on_gone, timeout_s)
        self._elsewhere: dict[Url, Connection] = {}
        self._moves: set[asyncio.Task[None]] = set()
        self._carrier: Carrier | None = None
        self._former: Carrier | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._up_since = 0.0
        self._delay_s = FIRST_DELAY_S
        self._links: dict[ClientLink, None] = {}
        self._numbers = itertools.count(1)
        self._requester = Requester(self)
        self._control: ControlLink | None = None
        self._control_lock = asyncio.Lock()
        self._waiters: list[asyncio.Future[None]] = []
        self._closing: asyncio.Future[None] | None = None
        self._error: EnmasseError | None = None

    # What it is

    @property
    def container_id(self) -> str:
        """The name of this client."""
        return self._options.container_id

    @property
    def remote_container_id(self) -> str | None:
        """The name of the peer, while connected."""
        carrier = self._carrier
        return carrier.remote.container_id if carrier is not None and carrier.remote is not None else None

    @property
    def remote_properties(self) -> dict[Any, Any]:
        """The properties of the peer, while connected."""
        carrier = self._carrier
        return (carrier.remote.properties or {}) if carrier is not None and carrier.remote is not None else {}

    @property
    def address(self) -> str | None:
        """The address that the URL names, if it names one."""
        return self._options.places[0].address

    @property
    def is_connected(self) -> bool:
        """True while the connection is up."""
        return self._carrier is not None

    @property
    def is_closed(self) -> bool:
        """True once the connection is closed, or has failed for good."""
        return self._error is not None

    @property
    def error(self) -> EnmasseError | None:
        """The reason that the connection is closed, once it is."""
        return self._error

    def __str__(self) -> str:
        return str(self._dialler.present)

    # Links

    def sender(
        self,
        address: str | None,
        *,
        name: str | None = None,
        resend: bool = True,
        resume: bool = False,
        max_pending: int = MAX_PENDING,
        max_pending_bytes: int = MAX_PENDING_BYTES,
        capabilities: Sequence[str] = (),
        properties: dict[str, Any] | None = None,
        timeout: float | None = ATTACH_TIMEOUT_S,
    ) -> Opening[Sender]:
        """Attach a sender: ``await`` it, or use it with ``async with``.

        Args:
            address: the address to which its messages go; ``None`` sends each to the address in its ``to``.
            name: the link's name; made up if missing.
            resend: send again, after a reconnect, what had no outcome when the connection was lost;
                otherwise its ``send`` raises ``UnavailableError``.
            resume: have the peer remember outcomes, and after a reconnect send again only what it does not
                know to have; takes more of its time, and a peer without link recovery knows nothing.
            max_pending: the most messages that wait here for credit: then ``send`` waits for room, and
                ``send_nowait`` raises ``FullError``.
            max_pending_bytes: the same in bytes of these messages.
            capabilities: extensions to ask for, such as ``enmasse:frames``.
            properties: properties of the link.
            timeout: seconds to wait for the peer's answer; ``None`` waits for ever.

        Raises:
            LinkRefusedError: the peer refused; its condition says why.
            UnavailableError: the connection is lost, or the peer did not answer in time.
        """

        def make(made_up: str) -> Sender:
            return (ResumingSender if resume and resend else Sender)(
                name or made_up,
                address,
                self,
                resend=resend,
                max_pending=max_pending,
                max_pending_bytes=max_pending_bytes,
                capabilities=capabilities,
                properties=properties,
            )

        return Opening(lambda: self.open_link(make, timeout))

    def receiver(
        self,
        address: str | None = None,
        *,
        name: str | None = None,
        credit: int = CREDIT,
        prefetch_bytes: int = PREFETCH_BYTES,
        dynamic: bool = False,
        settled: bool = False,
        browse: bool = False,
        selector: str | None = None,
        filters: Mapping[str, Any] | None = None,
        capabilities: Sequence[str] = (),
        properties: dict[str, Any] | None = None,
        durable: bool = False,
        default_outcome: Outcome | None = None,
        timeout: float | None = ATTACH_TIMEOUT_S,
    ) -> Opening[Receiver]:
        """Attach a receiver: ``await`` it, or use it with ``async with``.

        Args:
            address: the address from which its messages come; with ``dynamic`` ``None``, or the connector of the
                space behind which the address is made.
            name: the link's name; made up if missing.
            credit: the window (see ``Receiver``); 0 leaves the credit to ``Receiver.grant``.
            prefetch_bytes: the most bytes that wait to be taken; the window shrinks while messages are large.
            dynamic: have the peer make an address, which lives as long as the link; it is then in
                ``Receiver.address``, and another one after each reconnect.
            settled: have messages sent settled, so that there is nothing to accept.
            browse: get copies: what a queue stores stays there, whatever the outcome.
            selector: get only what it selects, as in ``colour = 'red' AND size > 3``.
            filters: the filters to ask of the source, by name.
            capabilities: extensions to ask for, such as ``enmasse:frames``.
            properties: properties of the link.
            durable: of a topic: have a subscription, named by container id and link name, that goes on when
                the connection ends, and ends when the receiver is closed.
            default_outcome: the outcome of deliveries that are left without one, also when the connection is lost:
                released, modified, or (if settled without a state) accepted, rejected.
            timeout: seconds to wait for the peer's answer; ``None`` waits for ever.

        Raises:
            LinkRefusedError: the peer refused; its condition says why.
            UnavailableError: the connection is lost, or the peer did not answer in time.
        """

        def make(made_up: str) -> Receiver:
            return Receiver(
                name or made_up,
                address,
                self,
                credit=credit,
                prefetch_bytes=prefetch_bytes,
                dynamic=dynamic,
                settled=settled,
                browse=browse,
                selector=selector,
                filters=filters,
                capabilities=capabilities,
                properties=properties,
                durable=durable,
                default_outcome=default_outcome,
            )

        return Opening(lambda: self.open_link(make, timeout))

    def transaction(self) -> Opening[Transaction]:
        """Begin a transaction: ``await`` it, or use it with ``async with``, which commits or rolls back.

        The peer rolls it back if it is not ended in time (60 s with an EnMasse node as it comes).

        Raises:
            TransactionError: the peer has refused, or all was rolled back at the end of the block.
            LinkRefusedError: the peer knows no transactions.
            UnavailableError: the connection is lost.
        """

        async def begin() -> Transaction:
            async with self._control_lock:
                control = self._control
                if control is None or control.is_ended:
                    control = self._control = await self.open_link(
                        lambda name: ControlLink(name, self), ATTACH_TIMEOUT_S
                    )
            return await declare(control)

        return Opening(begin)

    async def request(
        self,
        address: str,
        message: Message,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  as of others
        connector: str | None = None,
    ) -> Message:
        """Send a request, and wait for the reply.

        The request carries an address for replies and, unless it has one, a message id; the reply is
        the message whose correlation id is the request's own correlation id or else its message id.
        One that is released, as its credit was called in while it was on its way, is sent again.

        Args:
            address: the address to which the request goes.
            message: the request; it is not changed.
            timeout: seconds to wait, all included.
            connector: the connector of the space behind which the address is, and who answers; the address for
                replies is made there then.

        Raises:
            DeadlineError: no reply came in time.
            UnavailableError: nobody took the request, or the connection was lost before the reply came.
            RemoteError: the request was rejected, or no link to the address could be attached.
        """
        return await self._requester.request(address, message, timeout, connector)

    async def open_link(self, make: Callable[[str], L], timeout_s: float | None) -> L:
        """Make a link, attach it and wait for the peer's answer."""
        if self._error is not None:
            raise self._error
        link = make(f"{self.container_id}-{next(self._numbers)}")
        self._links[link] = None
        self.attach_again(link)
        try:
            async with asyncio.timeout(timeout_s):
                await link.wait_attached()
        except TimeoutError:
            link.give_up(DeadlineError(f"{link} was not attached within {timeout_s:g} s"))
        except asyncio.CancelledError:
            link.give_up(ClosedError(f"{link} was given up while attaching"))
            raise
        if link.error is not None:
            raise link.error
        return link

    def attach_again(self, link: ClientLink) -> None:
        """Attach a link of ours now if the connection is up, else when it is."""
        if self._carrier is None or link.is_attaching or link.is_ended:
            return
        try:
            if self._carrier.has_room():
                link.attach(self._carrier)
        except EnmasseError as error:
            link.end(error)

    def forget(self, link: ClientLink) -> None:
        """A link of ours has ended, or belongs to another connection now."""
        self._links.pop(link, None)

    def redirect(self, link: ClientLink, info: Mapping[Any, Any]) -> None:
        """The peer sends a link of ours to another address, or to another place."""
        present = self._dialler.present
        place = redirected(present, info)
        if place is None or (place.host, place.port) == (present.host, present.port):
            self.attach_again(link)
            return
        move = asyncio.get_running_loop().create_task(self._move(link, place))
        self._moves.add(move)
        move.add_done_callback(self._moves.discard)

    async def _move(self, link: ClientLink, place: Url) -> None:
        """Have a link live on a connection to another place, opened with the first such link."""
        other = self._elsewhere.get(place)
        if other is None or other.is_closed:
            options = replace(self._options, places=(place,))
            other = self._elsewhere[place] = Connection(
                options, reconnect=self._reconnects, timeout_s=self._timeout_s
            )
            try:
                await other.open(0.0)
            except EnmasseError as error:
                other.fail(error)
        if other.is_closed:
            link.end(other.error)
        elif not link.is_ended:
            self.forget(link)
            other.adopt(link)

    def adopt(self, link: ClientLink) -> None:
        """Take over a link of another connection, which was sent here."""
        self._links[link] = None
        link.move(self)
        self.attach_again(link)

    # Up and down

    async def open(self, patience_s: float) -> None:
        """Connect for the first time; ``connect`` does it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        delay = FIRST_DELAY_S
        while True:
            try:
                await self._dial()
            except UnavailableError:
                if loop.time() + delay >= until:
                    raise
                await asyncio.sleep(jittered(delay))
                delay = min(2 * delay, MAX_DELAY_S)
            else:
                return

    async def wait_connected(self) -> None:
        """Wait until the connection is up.

        Raises:
            EnmasseError: it will not come up any more.
        """
        while self._carrier is None:
            if self._error is not None:
                raise self._error
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    async def _dial(self) -> None:
        carrier = self._carrier = await self._dialler.dial()
        carrier.on_room = self._attach_all
        self._up_since = asyncio.get_running_loop().time()
        self._attach_all()
        self._wake()

    def _attach_all(self) -> None:
        for link in list(self._links):
            self.attach_again(link)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def _on_gone(self, carrier: Carrier, error: EnmasseError) -> None:
        if carrier is not self._carrier:
            return
        self._carrier, self._former = None, carrier
        self._dialler.next_delivery_id = carrier.next_delivery_id
        if self._error is not None:
            return
        if not self._reconnects:
            self.fail(error)
            return
        _log.info("The connection to %s is lost, connecting again: %s", self, error)
        self._dialler.leave(error)
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        if asyncio.get_running_loop().time() - self._up_since > STABLE_S:
            self._delay_s = FIRST_DELAY_S
        while True:
            await asyncio.sleep(jittered(self._delay_s))
            self._delay_s = min(2 * self._delay_s, MAX_DELAY_S)
            try:
                await self._dial()
            except (ConnectionDeniedError, UnavailableError, TlsError) as error:
                if is_final(error):
                    self.fail(error)
                    return
                _log.info("Connecting to %s again failed: %s", self, error)
            else:
                return

    def fail(self, error: EnmasseError) -> None:
        """End for good, without another attempt."""
        self._error = error
        for link in list(self._links):
            link.end(error)
        self._wake()

    async def close(self) -> None:
        """Close the connection and all its links; without effect the second time."""
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        self._closing = asyncio.get_running_loop().create_future()
        try:
            await self._close()
        finally:
            self._closing.set_result(None)

    async def _close(self) -> None:
        task = self._reconnecting
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._error is None:
            self._error = ClosedError(f"the connection to {self} is closed")
        for link in list(self._links):
            link.before_close()
            link.end(None)
        self._wake()
        for move in self._moves:
            move.cancel()
        if self._moves:
            await asyncio.wait(self._moves)
        for other in self._elsewhere.values():
            await other.close()
        if self._carrier is not None:
            await self._carrier.close()
        if self._former is not None:
            await self._former.wait_gone()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
