"""Rate limits on failed logins.

Rules:
1. Failures are counted by user, space and network, and by space and network: failures in one space, or from one
   network, delay no logins elsewhere.
2. A user who logged in from a network recently is not delayed by failures of other users there: many clients may
   share an address with an attacker.
3. A login that takes time to check counts as failed until its result is known, or any number of guesses could be
   under way before the first has failed.
4. A count never exceeds its limit, and delayed attempts do not count: no client waits longer than the time in which
   one failure is forgotten. The tables are bounded, and names in them are truncated.
"""

from __future__ import annotations

import ipaddress
import struct
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

NETWORK_FAILURES, NETWORK_FORGET_S = 20, 3.0
"""Many clients may share a network; an attacker is left with one guess in three seconds."""

USER_FAILURES, USER_FORGET_S = 5, 6.0
"""The same for one user from one network; the user can still log in from other networks."""

RECENT_S = 86_400.0
"""The time that rule 2 applies after a login: devices reconnect at least once a day."""

KEYS = 8_192

NAMES = 4 * KEYS
"""Recent logins that are kept: a fleet of thousands must not evict those of its neighbours."""

LONGEST_NAME = 256
"""Names of users are not longer."""

_Key = tuple[str, ...]


class Throttle:
    """Counts failures by key; a key with too many has to wait.

    Args:
        most: the number of failures that may come at once.
        forget_s: seconds until one of them is forgotten.
        keys: the number of keys that are kept; beyond that, the one that failed longest ago is evicted.
    """

    __slots__ = ("_failures", "_forget_s", "_keys", "_most")

    def __init__(self, most: int, forget_s: float, keys: int = KEYS) -> None:
        self._most = most
        self._forget_s = forget_s
        self._keys = keys
        self._failures: dict[str | _Key, tuple[float, float]] = {}
        """Key to the count at a moment, and that moment."""

    def must_wait(self, key: str | _Key, now: float) -> bool:
        """Return whether a key has failed too often recently."""
        return self._count(key, now) > self._most - 1

    def failed(self, key: str | _Key, now: float) -> None:
        """Count one more failure."""
        count = min(self._count(key, now) + 1, self._most)
        self._failures.pop(key, None)
        if len(self._failures) >= self._keys:
            del self._failures[next(iter(self._failures))]
        self._failures[key] = (count, now)

    def forgive(self, key: str | _Key, now: float) -> None:
        """Take one failure back."""
        count = self._count(key, now) - 1
        if count > 0:
            self._failures[key] = (count, now)
        else:
            self._failures.pop(key, None)

    def _count(self, key: str | _Key, now: float) -> float:
        count, then = self._failures.get(key, (0.0, now))
        return max(0.0, count - (now - then) / self._forget_s)


class LoginStep(IntEnum):
    """The steps of a login that are counted."""

    FAILED = 1
    STARTED = 2
    FINISHED = 3
    SUCCEEDED = 4


_REPORT = struct.Struct("<BHH")
"""Step, bytes of the network, bytes of the space; the user is the rest."""


class LoginReport(NamedTuple):
    """A step of a login, as nodes that share their counts tell each other.

    Attributes:
        step: the step.
        network: the network of the client.
        space: the space that it wants to enter.
        user: the name that it gives; others are told up to ``LONGEST_NAME`` characters, as of all of these.
    """

    step: LoginStep
    network: str
    space: str
    user: str

    def encode(self) -> bytes:
        """Return the report as bytes."""
        network, space, user = (part[:LONGEST_NAME].encode(errors="replace") for part in self[1:])
        return b"".join((_REPORT.pack(self.step, len(network), len(space)), network, space, user))

    @classmethod
    def decode(cls, data: bytes) -> LoginReport:
        """Read what ``encode`` has written."""
        step, network, space = _REPORT.unpack_from(data)
        at = _REPORT.size
        cut = (data[at : at + network], data[at + network : at + network + space], data[at + network + space :])
        return cls(LoginStep(step), *(part.decode() for part in cut))


class LoginThrottle:
    """Delays logins after too many failures.

    Attributes:
        delayed: attempts that were refused without a check.
    """

    def __init__(self) -> None:
        self.delayed = 0
        self._by_user = Throttle(USER_FAILURES, USER_FORGET_S)
        self._by_network = Throttle(NETWORK_FAILURES, NETWORK_FORGET_S)
        self._succeeded: dict[_Key, float] = {}
        """Times of recent logins by network, space and name, the oldest first."""

    def must_wait(self, host: str, space: str, user: str, now: float) -> bool:
        """Return whether too many logins have failed recently: of the user, or in the space from the same network."""
        key = _key(host, space, user)
        waits = self._by_user.must_wait(key, now) or self._has_failed_nearby(key, now)
        self.delayed += waits
        return waits

    def must_wait_on(self, host: str, space: str, user: str, now: float) -> bool:
        """Return whether a login under way must wait after all, as others from the same network have failed since.

        Those of its own user are no reason: they count from their beginning, and so does this one.
        """
        waits = self._has_failed_nearby(_key(host, space, user), now)
        self.delayed += waits
        return waits

    def _has_failed_nearby(self, key: _Key, now: float) -> bool:
        return self._by_network.must_wait(key[:2], now) and now - self._succeeded.get(key, -RECENT_S) >= RECENT_S

    def count(self, report: LoginReport, now: float) -> None:
        """Count a step of a login."""
        counts = (self.failed, self.started, self.finished, self.succeeded)
        counts[report.step - 1](report.network, report.space, report.user, now)

    def failed(self, host: str, space: str, user: str, now: float) -> None:
        """Count a login that failed."""
        key = _key(host, space, user)
        self._by_user.failed(key, now)
        self._by_network.failed(key[:2], now)

    def started(self, host: str, space: str, user: str, now: float) -> None:
        """Count a login under way as failed for its user, not for its network: a whole fleet may log in at once."""
        self._by_user.failed(_key(host, space, user), now)

    def finished(self, host: str, space: str, user: str, now: float) -> None:
        """Undo the count of ``started``."""
        self._by_user.forgive(_key(host, space, user), now)

    def succeeded(self, host: str, space: str, user: str, now: float) -> None:
        """Record a successful login."""
        key = _key(host, space, user)
        self._succeeded.pop(key, None)
        if len(self._succeeded) >= NAMES:
            del self._succeeded[next(iter(self._succeeded))]
        self._succeeded[key] = now


@lru_cache(4_096)
def network_of(host: str) -> str:
    """Return the network of a host, to count it by: its IPv4 address, or the /64 of its IPv6 address."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


def _key(host: str, space: str, user: str) -> _Key:
    return network_of(host), space, user[:LONGEST_NAME]
