"""The base of senders and receivers: how they attach, are attached again after a loss, and end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from enmasse.client.carrier import Carrier
from enmasse.client.errors import ClosedError, LinkDetachedError, LinkRefusedError
from enmasse.errors import EnmasseError
from enmasse.message.outcomes import AmqpError
from enmasse.wire.amqp.link import Link as EngineLink

DETACH_TIMEOUT_S = 3.0
"""Seconds to wait for the peer's answer to our detach."""

DETACH_FORCED = "amqp:link:detach-forced"
"""The peer had to let go of the link for reasons of its own; it may be attached again."""

PASSING = frozenset(("amqp:not-found", "amqp:resource-limit-exceeded", DETACH_FORCED))
"""Refusals that may pass, of a link that was attached before: its node is still starting,
learns of the address late, or has not noticed yet that the old connection is closed."""

RETURN_S = 30.0
"""Seconds that a link that was attached before tries to attach again."""

FIRST_RETRY_S = 0.05
MAX_RETRY_S = 2.0


MOVED = "amqp:link:redirect"
MAX_MOVES = 5
"""Redirects that are followed without the link having been up in between; more is a circle."""


L = TypeVar("L", bound="ClientLink")


class Owner(Protocol):
    """The connection that a link belongs to."""

    @property
    def container_id(self) -> str:
        """The name of this client."""

    async def open_link(self, make: Callable[[str], L], timeout_s: float | None) -> L:
        """Make a link, given a name for it, and wait until it is attached."""

    def attach_again(self, link: ClientLink) -> None:
        """Attach the link now if the connection is up, else when it is."""

    def forget(self, link: ClientLink) -> None:
        """The link has ended and is not to be attached again."""

    def redirect(self, link: ClientLink, info: Mapping[Any, Any]) -> None:
        """Attach the link where the peer has sent it to."""


class ClientLink:
    """A sender or receiver; it stays while the connections under it come and go.

    Args:
        name: the link's name, unique among the connection's links of its role.
        address: the address that it was asked for.
        owner: the connection that attaches it.
    """

    role = "link"

    def __init__(self, name: str, address: str | None, owner: Owner) -> None:
        self.name = name
        self.address = address
        """The address, for a dynamic one as the peer has named it."""
        self.remote_properties: dict[Any, Any] = {}
        """The properties of the peer's end of the link."""
        self.remote_capabilities: tuple[str, ...] = ()
        """The extensions that the peer's end supports."""
        self._asked = address
        self._redirected: str | None = None
        """The address of a redirect, used instead."""
        self._moves = 0
        self._is_away = False
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] | None = None
        self._attaching: EngineLink | None = None
        self._error: EnmasseError | None = None
        self._is_ended = False
        self._retry: asyncio.TimerHandle | None = None
        self._retry_delay_s = FIRST_RETRY_S
        self._returns_until = 0.0

    @property
    def is_attached(self) -> bool:
        """True while the link is up."""
        raise NotImplementedError

    @property
    def is_ended(self) -> bool:
        """True once the link has ended for good, by us or by the peer."""
        return self._is_ended

    @property
    def error(self) -> EnmasseError | None:
        """The reason that the link has ended, if it did not end in order."""
        return self._error

    @property
    def owner(self) -> Owner:
        """The connection that it lives on now: after a redirect another one than it was made with."""
        return self._owner

    def __str__(self) -> str:
        what = "the anonymous terminus" if self._asked is None else repr(self._asked)
        return f"{self.role} {self.name} of {what} at {self._owner}"

    # The connection's side

    @property
    def is_attaching(self) -> bool:
        """True while the link is up, or the peer is yet to answer."""
        return self._attaching is not None

    def attach(self, carrier: Carrier) -> None:
        """Attach over a carrier that is up; ``on_attached`` or ``on_detached`` follows."""
        raise NotImplementedError

    async def wait_attached(self) -> None:
        """Wait until the link is attached, for the first time or after a loss.

        Raises:
            LinkRefusedError: the peer refused.
            UnavailableError: the connection was lost and is not made again.
        """
        await asyncio.shield(self._ready)

    def give_up(self, error: EnmasseError) -> None:
        """Stop attaching."""
        link = self._attaching
        self.end(error)
        if link is not None:
            link.detach()

    def on_attached(self, link: EngineLink) -> None:
        """The peer has answered: without a terminus it refuses, and a detach follows."""
        remote = link.remote_attach
        assert remote is not None
        if (remote.target if link.is_sender else remote.source) is None or self._is_ended:
            return
        self.remote_properties = remote.properties or {}
        self.remote_capabilities = remote.offered_capabilities or ()
        self._moves = 0
        self.on_up(link)
        if not self._ready.done():
            self._ready.set_result(None)

    def on_detached(self, link: EngineLink, error: AmqpError | None) -> None:
        """The link is detached: with its session, by the peer, or as we asked."""
        was_attached = self.is_attached
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        self._attaching = None
        is_forced = error is not None and error.condition == DETACH_FORCED
        is_moved = error is not None and error.condition == MOVED and self._moves < MAX_MOVES
        is_lost = link.session.is_ended or link.session.is_end_sent or is_forced or is_moved
        if is_lost and not is_moved and not self._is_away:
            self._redirected = None
        self.on_down(link, is_lost=is_lost)
        if self._is_ended:
            return
        if was_attached and is_lost:
            self._ready = self._loop.create_future()
            self._returns_until = self._loop.time() + RETURN_S
            self._retry_delay_s = FIRST_RETRY_S
            if is_forced:
                self._try_later()
            elif error is not None and is_moved:
                self._follow(error)
        elif is_moved and error is not None:
            self._follow(error)
        elif was_attached and error is None:
            self.end(self.explain_end())
        elif was_attached and error is not None:
            self.end(LinkDetachedError(error.condition, error.description or "", f"{self} was detached", error.info))
        elif not is_lost or is_forced:
            self._on_refused(error or AmqpError("amqp:internal-error", "the peer gave no reason"))

    def _follow(self, error: AmqpError) -> None:
        info = error.info or {}
        self._moves += 1
        address = info.get("address")
        if isinstance(address, str) and address:
            self._redirected = self.address = address
        self._owner.redirect(self, info)

    def move(self, owner: Owner) -> None:
        """Belong to another connection, at the place that the peer has sent us to."""
        self._is_away = True
        self._owner = owner

    def _on_refused(self, error: AmqpError) -> None:
        if error.condition in PASSING and self._loop.time() < self._returns_until:
            self._try_later()
        else:
            self.end(LinkRefusedError(error.condition, error.description or "", f"{self} was refused", error.info))

    def _try_later(self) -> None:
        self._retry = self._loop.call_later(self._retry_delay_s, self._owner.attach_again, self)
        self._retry_delay_s = min(2 * self._retry_delay_s, MAX_RETRY_S)

    def on_up(self, link: EngineLink) -> None:
        """The link is attached."""
        raise NotImplementedError

    def on_down(self, link: EngineLink, *, is_lost: bool) -> None:
        """The link is not attached any more; one that is lost will be attached again."""
        raise NotImplementedError

    def explain_end(self) -> EnmasseError | None:
        """Return the error, if it is one, that the peer has ended the link in order."""
        raise NotImplementedError

    def on_end(self) -> None:
        """The link has ended: wake everything that waits for it."""
        raise NotImplementedError

    def end(self, error: EnmasseError | None) -> None:
        """Never attach again; ``None`` is an end in order."""
        if self._is_ended:
            return
        self._is_ended = True
        self._error = error
        if self._retry is not None:
            self._retry.cancel()
        self._owner.forget(self)
        if not self._ready.done():
            self._ready.set_exception(error or ClosedError(f"{self} ended before it was attached"))
            self._ready.exception()
        self.on_end()

    def _check(self) -> None:
        """Raise if the link has ended."""
        if self._is_ended:
            raise self._error or ClosedError(f"{self} is closed")

    # The application's side

    async def close(self) -> None:
        """Detach for good; without effect the second time."""
        link = self._attaching
        if not self._is_ended:
            self.before_close()
        self.end(None)
        if link is None or link.is_detached:
            return
        link.detach()
        if self._gone is None:
            self._gone = self._loop.create_future()
        try:
            async with asyncio.timeout(DETACH_TIMEOUT_S):
                await asyncio.shield(self._gone)
        except TimeoutError:
            return

    def before_close(self) -> None:
        """Do what is to be done while the link is still up."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Entered(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


E = TypeVar("E", bound=_Entered)


class Opening(Generic[E]):
    """A connection, link or transaction that is still to be opened.

    ``await`` gives it; ``async with`` also ends it as a block of its own would.

    Args:
        open_it: opens it; called once.
    """

    __slots__ = ("_open", "_opened")

    def __init__(self, open_it: Callable[[], Awaitable[E]]) -> None:
        self._open = open_it
        self._opened: E | None = None

    def __await__(self) -> Generator[object, None, E]:
        return self._open().__await__()

    async def __aenter__(self) -> E:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)
