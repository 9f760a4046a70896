"""The use of tenants' devices in periods: bytes of messages, and the time for which they are connected.

Rules:
1. A period begins at ``effective-since`` and comes again after ``no-of-days``, or with each month of UTC; without one
   all counts since then. In a first month of which not all days count, such a part of the limit holds.
2. A node counts what goes through itself since it started, and tells the control process now and then; the answer
   says what all others have told, its own former starts included. So a restart forgets the last seconds at most.
3. Payloads count, rounded up to a multiple of the tenant's ``minimum-message-size``.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

# A tenant and what its devices use know each other.
if TYPE_CHECKING:
    from enmasse.node.devices.tenants import Tenant

DATA, DURATION = "data-volume", "connection-duration"
"""The limits, as tenants name them."""

TELL_S: Final = 5.0
"""So often the control process is told."""

NO_LIMIT: Final = 1 << 62
_MINUTE_MS: Final = 60_000


class Period(NamedTuple):
    """The present period of a limit.

    Attributes:
        since_s: the time at which it began, in seconds since 1970 UTC; it tells one period from another.
        most: the most that may be used in it.
    """

    since_s: int
    most: int


def period_of(limit: Mapping[str, Any] | None, name: str, now_s: float) -> Period | None:
    """Return the present period of a limit; None: there is no limit, or it is not in effect yet.

    Args:
        limit: the limit, as the tenant says it: ``effective-since``, ``max-bytes`` or ``max-minutes``, ``period``.
        name: ``data-volume`` or ``connection-duration``.
        now_s: seconds since 1970 UTC.
    """
    most = int((limit or {}).get("max-bytes" if name == DATA else "max-minutes", -1))
    if limit is None or most < 0:
        return None
    most = most if name == DATA else most * _MINUTE_MS
    since = datetime.fromisoformat(limit["effective-since"]).astimezone(UTC)
    now = datetime.fromtimestamp(now_s, UTC)
    if now < since:
        return None
    period = limit.get("period") or {}
    if period.get("mode") == "days" and period.get("no-of-days"):
        length = timedelta(days=period["no-of-days"])
        since += (now - since) // length * length
    elif period.get("mode") == "monthly":
        if (now.year, now.month) == (since.year, since.month):
            days = calendar.monthrange(since.year, since.month)[1]
            most = -(-most * (days - since.day + 1) // days)
        else:
            since = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return Period(int(since.timestamp()), most)


class Count:
    """One limit of one tenant.

    Attributes:
        used: the use in the present period, at this node since it started.
        most: the most that may be used at this node: what the limit and all others leave.
        since_s: the time at which the period began; 0: nothing is limited now.
        is_news: true if it is to be told.
    """

    __slots__ = ("_others", "is_news", "most", "since_s", "used")

    def __init__(self) -> None:
        self.used = 0
        self.most = NO_LIMIT
        self.since_s = 0
        self.is_news = False
        self._others = 0

    def enter(self, period: Period | None) -> None:
        """Count for a period, from zero if it is another one."""
        since_s, limit = (0, NO_LIMIT) if period is None else period
        if since_s != self.since_s:
            self.used = self._others = 0
            self.since_s = since_s
            self.is_news = period is not None
        self.most = limit - self._others

    def learn(self, others: int) -> None:
        """Take note of what all others have used in this period."""
        self.most += self._others - others
        self._others = others


class Usage:
    """The use that the devices of a tenant have made of its limits.

    Attributes:
        data: bytes.
        duration: milliseconds of connections.
        unit: bytes; payloads are rounded up to a multiple of it.
    """

    __slots__ = ("_changed_at", "_connections", "data", "duration", "unit")

    def __init__(self) -> None:
        self.data = Count()
        self.duration = Count()
        self.unit = 0
        self._connections = 0
        self._changed_at = 0.0

    def take(self, size: int) -> bool:
        """Count a payload; return false, and count nothing, if all that the tenant may use is used up."""
        if not self.may_send:
            return False
        data, unit = self.data, self.unit
        data.used += size if not unit else -(-size // unit) * unit
        data.is_news = True
        return True

    @property
    def may_send(self) -> bool:
        """False once all that the tenant's devices may send and be sent is used up."""
        return self.data.used < self.data.most

    @property
    def may_connect(self) -> bool:
        """False once the tenant's devices were connected for as long as they may be."""
        return self.duration.used < self.duration.most

    def connect(self, change: int, now: float) -> None:
        """Count the time until now, and so many connections more or fewer from now on."""
        if self._connections:
            self.duration.used += int(self._connections * (now - self._changed_at) * 1000)
            self.duration.is_news = True
        self._connections += change
        self._changed_at = now


class UsageTeller:
    """Has the usage of all tenants counted in their periods, and told to the control process.

    Args:
        tenants: returns the tenants.
        ask: asks the control process: takes the question, and what is called with the answer, or with None.
        clock: returns the time in seconds.
        wall: returns seconds since 1970 UTC.
        source: names this start of this node.
    """

    def __init__(
        self,
        tenants: Callable[[], Iterable[Tenant]],
        ask: Callable[[dict[str, Any], Callable[[dict[str, Any] | None], None]], bool],
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        source: str,
    ) -> None:
        self._tenants = tenants
        self._ask = ask
        self._clock = clock
        self._wall = wall
        self._source = source

    @property
    def is_wanted(self) -> bool:
        """True if any tenant has such a limit."""
        return any(tenant.has_usage_limits for tenant in self._tenants())

    def enter_periods(self, tenant: Tenant) -> None:
        """Count for the present periods of a tenant."""
        usage, now_s = tenant.usage, self._wall()
        usage.unit = int(tenant.document.get("minimum-message-size") or 0)
        usage.connect(0, self._clock())
        for name, count in ((DATA, usage.data), (DURATION, usage.duration)):
            count.enter(period_of(tenant.limits.get(name), name, now_s))

    def tell(self, *, everything: bool = False) -> None:
        """Tell what was used since it was last told, or all; what others have used is learnt by the answer."""
        told: dict[tuple[str, str, int], Count] = {}
        for tenant in self._tenants():
            if not tenant.has_usage_limits:
                continue
            self.enter_periods(tenant)
            for name, count in ((DATA, tenant.usage.data), (DURATION, tenant.usage.duration)):
                if count.since_s and (count.is_news or everything):
                    count.is_news = False
                    told[tenant.id, name, count.since_s] = count

        def answered(answer: dict[str, Any] | None) -> None:
            found = (answer or {}).get("found")
            if found is None:
                for count in told.values():
                    count.is_news = True
                return
            for identity, name, since_s, others in found:
                known = told.get((identity, name, since_s))
                if known is not None and known.since_s == since_s:
                    known.learn(int(others))

        rows = [[*key, count.used] for key, count in told.items()]
        if rows and not self._ask({"what": "usage", "source": self._source, "rows": rows}, answered):
            answered(None)
