"""The network side of the source: offsets, frames, and connections that are made when needed.

Everything that the node's absence can cause is raised as ``UnavailableError``, so callers know what to wait for; what
waiting cannot mend is raised as ``OptionError`` or ``AccessError``.

The first row of a moment or later is found in the frames around it: the node's index knows frames, and a frame's own
timestamps give the row. Times never go back within a partition, so the first frame that holds such a row decides.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from typing import Any

from enmasse.client import ConnectionDeniedError, LinkDetachedError, LinkRefusedError, TlsError, UrlError
from enmasse.client.blocking import Connection, Message, Outcome, Receiver, Sender, connect
from enmasse.errors import EnmasseError, LocalError, RemoteError, UnavailableError
from enmasse.message.types import Timestamp, ULong
from enmasse.messaging.log.frame import Frame
from enmasse.pipeline.credentials import Login
from enmasse.pipeline.errors import AccessError, OptionError
from enmasse.pipeline.source.offsets import StreamState
from enmasse.pipeline.source.options import SourceOptions


def first_row_since(frames: Iterable[bytes], since_us: int, end: int) -> int:
    """Return the offset of the first row of that time or later.

    Args:
        frames: in order; not more of them are taken than it needs.
        since_us: microseconds since 1970 UTC.
        end: the answer when no row is that young.

    Raises:
        FrameError: a frame is damaged.
    """
    for data in frames:
        frame = Frame(data)
        row = bisect_left(frame.timestamps(), since_us)
        if row < frame.rows:
            return min(frame.first_offset + row, end)
    return end


ADDRESS_TYPE = "enmasse:address-type"
COMMITS = "enmasse:commits"
FRAMES = "enmasse:frames"
OFFSETS = "enmasse:offsets"
FRAME_FORMAT = 0x454D4601

FRAMES_AHEAD = 16
"""Frames on their way while the last ones are turned into columns; up to 1 MiB each."""

FRAMES_AHEAD_SEARCHING = 2
"""The row that is searched is in the first frame, or in the second."""

ANSWER_S = 10.0
"""Seconds to wait for what a node answers at once; a longer silence means that it is gone."""

STALE_S = 0.5
"""Credit that lay unused for so long may have brought offsets that were passed since."""

KEPT_CONNECTIONS = 16
"""A worker reads for one query after the other, and for ever; queries end."""

MAX_UNANSWERED = 16
"""Progress that a node has not confirmed; beyond it, no more is sent until it has."""

_REDIRECT = "amqp:link:redirect"
_UNAUTHORIZED = "amqp:unauthorized-access"
_FOREVER = frozenset(
    (
        "amqp:not-found",
        "amqp:not-allowed",
        "amqp:not-implemented",
        "amqp:invalid-field",
    )
)
"""Refusals whose text names what is wrong with the options."""

_TLS_SCHEMES = ("amqps", "amqpwss")


class StreamConnection:
    """One stream, seen through one connection that is given up when it is lost.

    Args:
        url: the URL to connect to.
        options: the options, with the stream and its space.

    Raises:
        UnavailableError: the node cannot be reached.
        AccessError: the node does not let us in.
        OptionError: the node refuses what the options ask for.
    """

    def __init__(self, url: str, options: SourceOptions) -> None:
        self._place = url
        self._options = options
        self._address = options.address
        self._user: str | None = None
        self._watch: Receiver | None = None
        self._last: StreamState | None = None
        self._granted_at: float | None = None
        self._progress_sender: Sender | None = None
        self._reporting: Future[Outcome] | None = None
        self._is_redirected = False
        self._connection = self._connect(url, options.space)

    def _connect(self, url: str, host: str) -> Connection:
        who = self._options.login.arguments()
        self._user = who["user"]
        with self._translated():
            try:
                return connect(url, hostname=host or None, reconnect=False, timeout=ANSWER_S, **who)
            except ConnectionDeniedError as error:
                raise self._refusal(error) from error

    @property
    def is_usable(self) -> bool:
        """True if the connection is up."""
        return self._connection.is_connected

    def state(self) -> StreamState:
        """Return what is stored now.

        Raises:
            UnavailableError: the node cannot be reached.
        """
        with self._translated():
            self._end_watch()
            self._watch = self._offsets({})
            return self._state_from(self._watch)

    def _offsets(self, filters: Mapping[str, Any]) -> Receiver:
        # Not settled, and without credit: should this be a queue by mistake, no message of it is to be lost.
        receiver = self._receiver(credit=0, capabilities=(OFFSETS, ADDRESS_TYPE), filters=filters)
        kind = receiver.remote_properties.get(ADDRESS_TYPE, "stream")
        if kind != "stream":
            receiver.close()
            raise OptionError(
                f"{self._address!r} at {self._place} is not a stream but of the type {kind}, which has no offsets"
            )
        return receiver

    def _state_from(self, receiver: Receiver) -> StreamState:
        receiver.grant(1)
        state = self._receive(receiver, ANSWER_S)
        if state is None:
            raise UnavailableError(
                f"{self._place} did not report the offsets of {self._address!r}, which only a stream has"
            )
        return state

    def rows_since(self, since_us: int) -> dict[int, int]:
        """By partition the first row that was accepted at that time or later, else where the next one will be.

        Args:
            since_us: microseconds since 1970 UTC.

        Raises:
            UnavailableError: the node cannot be reached, or went away.
            FrameError: a frame is damaged.
        """
        with self._translated(), closing(self._offsets({"enmasse:start": Timestamp(since_us // 1_000)})) as receiver:
            state = self._state_from(receiver)
        if state.starts is None:
            raise OptionError(f"the node at {self._place} finds no times in streams: it is of an older version")
        found = {}
        for number, partition in state.partitions.items():
            start = max(state.starts[number], partition.low)
            found[number] = partition.next
            if start < partition.next:
                with closing(self.frames(number, start, partition.next, ahead=FRAMES_AHEAD_SEARCHING)) as frames:
                    found[number] = first_row_since(frames, since_us, partition.next)
        return found

    def tell_progress(self, consumer: str, following: Mapping[int, int]) -> None:
        """Have the stream keep how far a consumer has come, without waiting for it.

        Args:
            consumer: its name.
            following: by partition the next offset that it will read.

        Raises:
            RemoteError: the node does not take it.
            UnavailableError: it cannot be reached, or does not answer.
        """
        reporting = self._reporting
        if reporting is not None and reporting.done() and reporting.exception() is None:
            outcome = reporting.result()
            if str(outcome) == "rejected":
                self._reporting = None
                raise RemoteError(_UNAUTHORIZED, str(getattr(outcome, "description", outcome)))
        if self._progress_sender is None:
            self._progress_sender = self._connection.sender(self._address, capabilities=(COMMITS,), timeout=ANSWER_S)
        if self._progress_sender.pending >= MAX_UNANSWERED:
            raise UnavailableError(f"{self._place} confirms no progress")
        offsets = {ULong(number): ULong(at) for number, at in following.items()}
        self._reporting = self._progress_sender.send_nowait(Message({"consumer": consumer, "offsets": offsets}))

    def wait(self, timeout_s: float) -> StreamState | None:
        """Return the next state that differs from the last one given; ``None`` when time is up.

        Raises:
            UnavailableError: the node cannot be reached, or went away.
        """
        left_over = self._granted_at is not None and time.monotonic() - self._granted_at > STALE_S
        if self._watch is None or left_over:
            before = self._last
            state = self.state()
            if state != before:
                return state
        assert self._watch is not None
        with self._translated(), self._watching():
            if self._granted_at is None:
                self._watch.grant(1)
            state_or_none = self._receive(self._watch, timeout_s)
            if state_or_none is None:
                # Still granted: the node answers as soon as something changes.
                self._granted_at = time.monotonic()
            return state_or_none

    def _receive(self, watch: Receiver, timeout_s: float) -> StreamState | None:
        delivery = watch.receive(timeout=timeout_s)
        if delivery is None:
            if watch.is_ended:
                raise UnavailableError(f"the offsets of {self._address!r} ended") from watch.error
            return None
        self._granted_at = None
        try:
            self._last = StreamState.parse(delivery.message.body)
        except (ValueError, EnmasseError) as error:
            raise OptionError(f"{self._address!r} at {self._place} is not a stream") from error
        return self._last

    def frames(
        self, partition: int, start: int, end: int, *, ahead: int = FRAMES_AHEAD
    ) -> Generator[bytes, None, None]:
        """Frames that overlap ``start <= offset < end``, in order; ends when there are no more.

        Args:
            partition: the stream's.
            start: the first offset wanted.
            end: one above the last.
            ahead: frames to have sent before they are asked for.

        Raises:
            UnavailableError: the node cannot be reached, went away, or fell silent.
        """
        with self._translated():
            receiver = self._receiver(
                credit=ahead,
                settled=True,
                capabilities=(FRAMES,),
                filters={"enmasse:partition": partition, "enmasse:from": start, "enmasse:to": end},
            )
        try:
            while True:
                with self._translated():
                    delivery = receiver.receive(timeout=ANSWER_S)
                    if delivery is None:
                        if not receiver.is_ended:
                            raise UnavailableError(f"{self._place} sent no frame of {self._address!r} in time")
                        if receiver.error is not None:
                            raise receiver.error
                        return
                    if delivery.message_format != FRAME_FORMAT:
                        raise OptionError(f"{self._address!r} at {self._place} is not a stream")
                yield delivery.payload
        finally:
            with suppress(EnmasseError):
                receiver.close()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Give up a watch that has failed: a new one fails with the reason, such as that the address was deleted."""
        try:
            yield
        except EnmasseError:
            self._watch = self._granted_at = None
            raise

    def _end_watch(self) -> None:
        watch, self._watch, self._granted_at = self._watch, None, None
        if watch is not None:
            watch.close()

    def _receiver(self, **asked: Any) -> Receiver:
        """Return a receiver of the stream, at the node that is its home."""
        try:
            return self._connection.receiver(self._address, timeout=ANSWER_S, **asked)
        except LinkRefusedError as error:
            if error.condition != _REDIRECT or self._is_redirected:
                raise
            info = {str(key): value for key, value in error.info.items()}
        scheme, host = info.get("scheme", "amqp"), info.get("network-host", "")
        if self._place.startswith(_TLS_SCHEMES) and scheme not in _TLS_SCHEMES:
            raise OptionError(f"{self._place} sends us to {scheme}://{host}, which would leave TLS")
        self._is_redirected = True
        self.close()
        self._place = f"{scheme}://[{host}]" if ":" in host else f"{scheme}://{host}"
        if info.get("port"):
            self._place += f":{info['port']}"
        self._connection = self._connect(self._place, self._options.space or info.get("hostname", ""))
        return self._connection.receiver(self._address, timeout=ANSWER_S, **asked)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except LinkRefusedError as error:
            raise self._refusal(error) from error
        except (UrlError, TlsError) as error:
            raise OptionError(str(error)) from error
        except (ConnectionDeniedError, LinkDetachedError, LocalError) as error:
            # The link went with its connection, as that does with its token, or the node ended it; a new one fails
            # with the reason.
            raise UnavailableError(str(error)) from error

    def _refusal(self, error: LinkRefusedError | ConnectionDeniedError) -> EnmasseError:
        refusal = f"{error.condition}: {error.description}"
        what = f"the stream {self._address!r} at {self._place}"
        if error.condition == _UNAUTHORIZED:
            who = self._options.login.describe(self._user)
            return AccessError(f"{who} may not read {what}, or not any more: {refusal}")
        if error.condition in _FOREVER:
            return OptionError(f"cannot read {what}: {refusal}")
        return UnavailableError(str(error))

    def close(self) -> None:
        """Close the connection."""
        with suppress(EnmasseError):
            self._connection.close()


class Connections:
    """The connections of one process, kept while they are up and used."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, str, Login], StreamConnection] = OrderedDict()

    def get(self, url: str, options: SourceOptions) -> StreamConnection:
        """Return a connection to the options' stream at this place, with the options' credentials.

        Raises:
            UnavailableError: the node cannot be reached.
            AccessError: the node does not let us in.
            OptionError: the node refuses what the options ask for.
        """
        # Queries of one session share workers, but never a login.
        key = (url, options.space, options.address, options.login)
        kept = self._kept.get(key)
        if kept is not None and kept.is_usable:
            self._kept.move_to_end(key)
            return kept
        if kept is not None:
            del self._kept[key]
            kept.close()
        while len(self._kept) >= KEPT_CONNECTIONS:
            self._kept.popitem(last=False)[1].close()
        self._kept[key] = made = StreamConnection(url, options)
        return made

    def close(self) -> None:
        """Close them all."""
        for connection in self._kept.values():
            connection.close()
        self._kept.clear()
