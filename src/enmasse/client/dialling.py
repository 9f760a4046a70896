"""Getting through: several places, one after the other, wherever they send us.

Rules:
1. A round tries every place once. The first round begins with the first place; after a loss the next
   place comes first, and the lost one last.
2. A redirect is followed within the round; the next round begins with the places that were given.
3. A redirect never leads from TLS to a connection without.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from enmasse.client.carrier import UNAUTHORIZED, Carrier
from enmasse.client.errors import ConnectionDeniedError, DeadlineError, TlsError, UnavailableError
from enmasse.client.options import Options
from enmasse.client.url import Url
from enmasse.errors import EnmasseError

__all__ = ["MAX_REDIRECTS", "Dialler", "is_final", "jittered", "redirected"]

REDIRECT = "amqp:connection:redirect"

MAX_REDIRECTS = 5
"""From one place; more is a circle."""


class Dialler:
    """Knows where to connect next.

    Args:
        options: how to connect, and where to.
        on_gone: told by a carrier when it can carry no more.
        timeout_s: for one attempt.

    Attributes:
        present: the place that was connected to last, or is tried now.
        next_delivery_id: where to go on counting deliveries, which are known by these numbers for longer
            than a connection lasts.
    """

    def __init__(self, options: Options, on_gone: Callable[[Carrier, EnmasseError], None], timeout_s: float) -> None:
        self._options = options
        self._on_gone = on_gone
        self._timeout_s = timeout_s
        self._places = list(options.places)
        if options.shuffle:
            random.shuffle(self._places)
        self._hint: Url | None = None
        self.present = self._places[0]
        self.next_delivery_id = 0

    def leave(self, error: EnmasseError) -> None:
        """The carrier was lost: the next round begins elsewhere, if there is elsewhere."""
        self._hint = _target(error, self.present)
        self._places.append(self._places.pop(0))

    async def dial(self) -> Carrier:
        """Try every place once.

        Raises:
            UnavailableError: no place can be reached.
            ConnectionDeniedError: the place refused; of several, all did.
            TlsError: the place is not to be trusted; of several, none can be used.
        """
        failures: list[EnmasseError] = []
        hint, self._hint = self._hint, None
        if hint is not None:
            try:
                return await self._follow(hint)
            except (UnavailableError, ConnectionDeniedError, TlsError) as error:
                failures.append(error)
        for _ in range(len(self._places)):
            try:
                return await self._follow(self._places[0])
            except (UnavailableError, ConnectionDeniedError, TlsError) as error:
                failures.append(error)
                self._places.append(self._places.pop(0))
        raise _sum_up(failures)

    async def _follow(self, place: Url) -> Carrier:
        """Connect to a place, or to where it sends us.

        Raises:
            EnmasseError: as for ``dial``.
        """
        for _ in range(MAX_REDIRECTS + 1):
            self.present = place
            carrier = Carrier(self._options, place, self._on_gone, self.next_delivery_id)
            try:
                await carrier.dial(self._timeout_s)
            except ConnectionDeniedError as error:
                target = _target(error, place)
                if target is None:
                    raise
                place = target
            else:
                if carrier.error is not None:
                    raise UnavailableError(f"the connection to {place} was lost at once") from carrier.error
                return carrier
        raise UnavailableError(f"{place} sends us on once more after {MAX_REDIRECTS} redirects: a circle")


def _target(error: EnmasseError, place: Url) -> Url | None:
    if not isinstance(error, ConnectionDeniedError) or error.condition != REDIRECT:
        return None
    return redirected(place, error.info)


def redirected(place: Url, info: Mapping[Any, Any]) -> Url | None:
    """Where a redirect leads to [AMQP 2.8.16, 2.8.18]; nothing if it names no host."""
    host, port, hostname = info.get("network-host"), info.get("port"), info.get("hostname")
    if host is None:
        host = hostname
    if not isinstance(host, str) or not host or not place.host:
        return None
    return replace(
        place,
        scheme="amqps" if place.scheme == "amqp" and info.get("scheme") == "amqps" else place.scheme,
        host=host,
        port=port if isinstance(port, int) else place.port,
        hostname=hostname if isinstance(hostname, str) else None,
        address=None,
    )


def is_final(error: EnmasseError) -> bool:
    """Whether it is no use to try again: who we are is not known there."""
    return isinstance(error, ConnectionDeniedError) and error.condition == UNAUTHORIZED


def jittered(delay_s: float) -> float:
    """Somewhere between half the delay and all of it, so that clients do not come back in step."""
    return delay_s * (0.5 + random.random() / 2)  # noqa: S311  no secret


def _sum_up(failures: list[EnmasseError]) -> EnmasseError:
    """One error for a round; it is final only if every one was."""
    if len({str(failure) for failure in failures}) == 1:
        return failures[-1]
    told = "; ".join(str(failure) for failure in failures)
    if all(isinstance(failure, DeadlineError) for failure in failures):
        return DeadlineError(told)
    for kind in (UnavailableError, TlsError):
        for failure in failures:
            if isinstance(failure, kind):
                return UnavailableError(f"no place can be reached: {told}")
    passing = [failure for failure in failures if not is_final(failure)]
    return (passing or failures)[-1]
