"""The network side of the source: offsets, frames, and connections that are made when needed.

Everything that the node's absence can cause comes out as ``UnavailableError``, so callers know what
to wait for; what waiting cannot mend comes out as ``OptionError``.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress

from enmasse.client import ConnectionDeniedError, LinkDetachedError, LinkRefusedError, UrlError
from enmasse.client.blocking import Connection, Receiver, connect
from enmasse.errors import EnmasseError, LocalError, UnavailableError
from enmasse.pipeline.credentials import credentials
from enmasse.pipeline.errors import OptionError
from enmasse.pipeline.offsets import StreamState
from enmasse.pipeline.options import SourceOptions

__all__ = ["Connections", "StreamConnection"]

FRAMES = "enmasse:frames"
OFFSETS = "enmasse:offsets"
FRAME_FORMAT = 0x454D4601

FRAMES_AHEAD = 16
"""Frames on their way while the last ones are turned into columns; up to 1 MiB each."""

ANSWER_S = 10.0
"""For what a node answers at once; a longer silence means that it is gone."""

STALE_S = 0.5
"""Credit that lay unused for so long may have brought offsets that were passed since."""

_FOREVER = frozenset(
    (
        "amqp:not-found",
        "amqp:not-allowed",
        "amqp:unauthorized-access",
        "amqp:not-implemented",
        "amqp:invalid-field",
    )
)
"""Refusals that say what is wrong with the options."""


class StreamConnection:
    """One stream, seen through one connection that is given up when it is lost.

    Args:
        url: where to connect.
        options: which stream, in which space.

    Raises:
        UnavailableError: the node cannot be reached.
        OptionError: the node refuses what the options ask for.
    """

    def __init__(self, url: str, options: SourceOptions) -> None:
        self._place = url
        self._address = options.address
        self._watch: Receiver | None = None
        self._last: StreamState | None = None
        self._granted_at: float | None = None
        with self._translated():
            self._connection: Connection = connect(
                url, hostname=options.space or None, reconnect=False, timeout=ANSWER_S, **credentials()
            )

    @property
    def is_usable(self) -> bool:
        """Whether the connection is up."""
        return self._connection.is_connected

    def state(self) -> StreamState:
        """What is stored now.

        Raises:
            UnavailableError: the node cannot be reached.
        """
        with self._translated():
            self._end_watch()
            # Not settled: should this be a queue by mistake, no message of it is to be lost.
            self._watch = self._connection.receiver(
                self._address, credit=0, capabilities=(OFFSETS,), timeout=ANSWER_S
            )
            self._watch.grant(1)
            state = self._receive(self._watch, ANSWER_S)
        if state is None:
            raise UnavailableError(
                f"{self._place} did not tell the offsets of {self._address!r}, which only a stream has"
            )
        return state

    def wait(self, timeout_s: float) -> StreamState | None:
        """The next state that differs from the last one given; ``None`` when time is up.

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
        with self._translated():
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

    def frames(self, partition: int, start: int, end: int) -> Generator[bytes, None, None]:
        """Frames that overlap ``start <= offset < end``, in order; ends when there are no more.

        Raises:
            UnavailableError: the node cannot be reached, went away, or fell silent.
        """
        with self._translated():
            receiver = self._connection.receiver(
                self._address,
                credit=FRAMES_AHEAD,
                settled=True,
                capabilities=(FRAMES,),
                filters={"enmasse:partition": partition, "enmasse:from": start, "enmasse:to": end},
                timeout=ANSWER_S,
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

    def _end_watch(self) -> None:
        watch, self._watch, self._granted_at = self._watch, None, None
        if watch is not None:
            watch.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (LinkRefusedError, ConnectionDeniedError) as error:
            if error.condition in _FOREVER:
                raise OptionError(
                    f"cannot read the stream {self._address!r} at {self._place}: "
                    f"{error.condition}: {error.description}"
                ) from error
            raise UnavailableError(str(error)) from error
        except UrlError as error:
            raise OptionError(str(error)) from error
        except (LinkDetachedError, LocalError) as error:
            # The link went with its connection, or the node ended it; a new one tells what is the matter.
            raise UnavailableError(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        with suppress(EnmasseError):
            self._connection.close()


class Connections:
    """The connections of one process, kept while they are up."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], StreamConnection] = {}

    def get(self, url: str, options: SourceOptions) -> StreamConnection:
        """A connection to the options' stream at this place.

        Raises:
            UnavailableError: the node cannot be reached.
            OptionError: the node refuses what the options ask for.
        """
        key = (url, options.space, options.address)
        kept = self._kept.get(key)
        if kept is not None and kept.is_usable:
            return kept
        if kept is not None:
            del self._kept[key]
            kept.close()
        self._kept[key] = made = StreamConnection(url, options)
        return made

    def close(self) -> None:
        """Close them all."""
        for connection in self._kept.values():
            connection.close()
        self._kept.clear()
