"""Bringing transfers to their addresses, through lost connections, full queues and absent receivers.

Rules:
1. A transfer is done when its address accepted it. What has no outcome, or the outcome "again", is sent
   again: numbered messages and frames are known by their numbers then, others may arrive twice.
2. What an address will never take as it is comes back as refused, with the reason.
3. While the node is away, attempts go on with growing pauses until nothing has succeeded for the retry
   time-out; while an address has no room, until it took nothing for the send time-out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from enmasse.client import LinkDetachedError, LinkRefusedError, Outcome, TooLargeError
from enmasse.errors import EnmasseError, UnavailableError
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import AddressFullError, NoConsumerError, UnansweredError
from enmasse.pipeline.sink.connection import Result
from enmasse.pipeline.sink.options import SinkOptions
from enmasse.pipeline.sink.packing import AddressInfo, LinkKey, Parcel, Refusal

_log = logging.getLogger(__name__)

FULL = "amqp:resource-limit-exceeded"

_FINAL = frozenset(
    {
        "amqp:not-found",
        "amqp:not-allowed",
        "amqp:unauthorized-access",
        "amqp:not-implemented",
        "amqp:invalid-field",
        "amqp:precondition-failed",
        "amqp:link:message-size-exceeded",
    }
)
"""Conditions under which a link is refused however often it is asked for."""


class Carrier(Protocol):
    """The part of a connection that delivering uses."""

    def ship(self, parcels: Sequence[Parcel], stall_s: float) -> list[Result]:
        """Send, and give what became of each.

        Raises:
            UnavailableError: the connection is not up.
        """

    def ship_direct(self, parcels: Sequence[Parcel], credit_s: float, answer_s: float) -> list[Result]:
        """Return the same where a receiver has to be there; ``None`` for what has no credit.

        Raises:
            UnavailableError: the connection is not up.
        """


def refusal_reason(error: EnmasseError) -> str | None:
    """Return why an address will never take something; ``None`` where it may."""
    if isinstance(error, TooLargeError):
        return f"too large: {error}"
    if isinstance(error, LinkRefusedError | LinkDetachedError) and error.condition in _FINAL:
        return ": ".join(part for part in (error.condition, error.description) if part)
    return None


class Delivering:
    """Delivers what one task of one batch has to send.

    Args:
        options: the options, with the time to wait, and what to do where nobody receives.
        carrier: gives a connection, a new one after the last was lost.
        info: returns the facts about an address.
        make_patience: makes one that says how long failures may go on; another one for each reason.
    """

    def __init__(
        self,
        options: SinkOptions,
        carrier: Callable[[], Carrier],
        info: Callable[[str], AddressInfo],
        make_patience: Callable[[float], Backoff] = Backoff,
    ) -> None:
        self._options = options
        self._carrier = carrier
        self._info = info
        self._make_patience = make_patience
        self.skipped = 0
        """Rows without a receiver."""

    def deliver(self, parcels: Sequence[Parcel]) -> list[Refusal]:
        """Have everything accepted, skipped, or reported as refused.

        Raises:
            AddressFullError: a stored address took nothing for the send time-out.
            NoConsumerError: a direct address had no receiver for so long, and rows are not to be skipped.
            UnansweredError: a receiver did not answer for so long.
            StreamUnavailableError: the node stayed away for the retry time-out.
        """
        direct = [parcel for parcel in parcels if self._info(parcel.link.address).is_direct]
        stored = [parcel for parcel in parcels if not self._info(parcel.link.address).is_direct]
        return self._deliver(stored, self._ship_stored) + self._deliver(direct, self._ship_direct)

    def _ship_stored(self, parcels: Sequence[Parcel]) -> list[Result]:
        return self._carrier().ship(parcels, self._options.send_timeout_s)

    def _ship_direct(self, parcels: Sequence[Parcel]) -> list[Result]:
        options = self._options
        credit_s = options.no_consumer_timeout_s if options.skips_no_consumer else options.send_timeout_s
        return self._carrier().ship_direct(parcels, credit_s, options.send_timeout_s)

    def _deliver(self, parcels: Sequence[Parcel], ship: Callable[[Sequence[Parcel]], list[Result]]) -> list[Refusal]:
        away = self._make_patience(self._options.retry_timeout_s)
        again = self._make_patience(self._options.send_timeout_s)
        refusals: list[Refusal] = []
        left = list(parcels)
        while left:
            try:
                results = ship(left)
            except UnavailableError as error:
                away.wait(error)
                continue
            sorted_ = _sort(left, results)
            refusals += sorted_.refusals
            if sorted_.is_progress:
                away.succeeded()
                again.succeeded()
            if sorted_.lost is not None:
                # In their old order, as numbers have to rise.
                left = sorted_.left
                away.wait(sorted_.lost)
                continue
            left = self._without_stalled(sorted_)
            if left and sorted_.held is not None:
                self._hold(again, sorted_.held, left[0])
        return refusals

    def _without_stalled(self, sorted_: _Sorted) -> list[Parcel]:
        """Return what is to be tried again, once those without a receiver are dealt with."""
        if not sorted_.stalled:
            return sorted_.left
        links = {parcel.link for parcel in sorted_.stalled} - sorted_.moving
        idle = [parcel for parcel in sorted_.stalled if parcel.link in links]
        if idle:
            self._stalled(idle)
        return [parcel for parcel in sorted_.left if parcel.link not in links]

    @staticmethod
    def _hold(backoff: Backoff, held: EnmasseError, parcel: Parcel) -> None:
        try:
            backoff.wait(held)
        except UnavailableError as error:
            raise AddressFullError(f"{parcel.link.address!r} took no message: {error}") from error

    def _stalled(self, parcels: Sequence[Parcel]) -> None:
        """Nothing went on for too long."""
        names = sorted({parcel.link.address for parcel in parcels})
        named = ", ".join(map(repr, names[:5]))
        seconds = self._options.send_timeout_s
        if not self._info(names[0]).is_direct:
            raise AddressFullError(
                f"{named} took nothing for {seconds:g} s: receive from it or raise what it may hold; option "
                "sendTimeout says how long to wait"
            )
        if not self._options.skips_no_consumer:
            raise NoConsumerError(
                f"nobody received from {named} for {seconds:g} s; start a receiver, send to a queue, or set option "
                "onNoConsumer to skip"
            )
        self.skipped += len(parcels)
        _log.warning("nobody receives from %s: %d rows were skipped", named, len(parcels))


class _Sorted:
    """The results of transfers."""

    def __init__(self) -> None:
        self.left: list[Parcel] = []
        """The parcels to send again, in order; those that stalled included."""
        self.stalled: list[Parcel] = []
        self.refusals: list[Refusal] = []
        self.moving: set[LinkKey] = set()
        """Links on which something happened."""
        self.is_progress = False
        self.lost: EnmasseError | None = None
        """The reason why the connection or a link has to be made anew."""
        self.held: EnmasseError | None = None
        """The reason why something is to be sent again."""


def _sort(parcels: Sequence[Parcel], results: Sequence[Result]) -> _Sorted:
    found = _Sorted()
    for parcel, result in zip(parcels, results, strict=True):
        if result is None:
            found.stalled.append(parcel)
            found.left.append(parcel)
            continue
        found.moving.add(parcel.link)
        reason: str | None = None
        if isinstance(result, UnansweredError):
            raise result
        if isinstance(result, EnmasseError):
            reason = refusal_reason(result)
            if reason is None:
                found.lost = result
                found.left.append(parcel)
        elif result == Outcome.REJECTED and result.condition != FULL:
            reason = str(result)
        elif result not in (Outcome.ACCEPTED, Outcome.SETTLED):
            found.held = UnavailableError(f"{parcel.link.address!r} answered {result}")
            found.left.append(parcel)
        else:
            found.is_progress = True
        if reason is not None:
            found.refusals.append(Refusal(parcel.first, reason, parcel.rows))
            found.is_progress = True
    return found
