"""The history keeps samples of many series in memory, for the last hour.

Rules:
1. Only changes are kept: an address where nothing happens takes one point, however long nothing happens.
2. All points together have a bound; beyond it goes what was neither looked at nor changed for longest.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

KEPT_S: Final = 3600.0

_MAX_POINTS: Final = 400_000  # of about a hundred bytes

Values = tuple[float, ...]


class History:
    """Samples of many series in the last hour; of each series only the changes.

    Args:
        width: values of a point.
        most: points of all together.
        kept_s: seconds after which a point is forgotten.
    """

    def __init__(self, width: int, most: int = _MAX_POINTS, kept_s: float = KEPT_S) -> None:
        self._width = width + 1  # the time is the first
        self._most = most
        self._kept_s = kept_s
        self._points: OrderedDict[str, array[float]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of points."""
        return self._count

    def add(self, name: str, at: float, values: Sequence[float]) -> None:
        """Add a point."""
        points = self._points.get(name)
        if points is None:
            points = self._points[name] = array("d")
        self._points.move_to_end(name)
        points.append(at)
        points.extend(values)
        self._count += 1
        self._trim(points, at - self._kept_s)
        while self._count > self._most and len(self._points) > 1:
            self._count -= len(self._points.popitem(last=False)[1]) // self._width

    def forget(self, name: str) -> None:
        """Remove what is there of a name."""
        self._count -= len(self._points.pop(name, ())) // self._width

    def read(self, name: str, times: Sequence[float]) -> list[Values | None]:
        """Return the values at some times, which ascend; None: nothing was known then."""
        points = self._points.get(name)
        if points is None:
            return [None] * len(times)
        self._points.move_to_end(name)
        width = self._width
        began = points[::width]
        found: list[Values | None] = []
        for at in times:
            index = bisect_right(began, at) - 1
            found.append(None if index < 0 else tuple(points[index * width + 1 : (index + 1) * width]))
        return found

    def _trim(self, points: array[float], before: float) -> None:
        """Forget points that a later one had replaced before a time."""
        width, number = self._width, 0
        while (number + 2) * width <= len(points) and points[(number + 1) * width] <= before:
            number += 1
        # Moving the rest for each point would take longer than the point itself.
        if number * 4 * width >= len(points) or number > 100:
            del points[: number * width]
            self._count -= number


class Recorded:
    """The history of things that all have the same counters and gauges.

    Args:
        counters: the names of figures that only grow, as long as what counts it runs.
        gauges: the names of figures that show the present.
    """

    def __init__(self, counters: Sequence[str], gauges: Sequence[str], most: int = _MAX_POINTS) -> None:
        self._counters = counters
        self._gauges = gauges
        self._history = History(len(counters) + len(gauges), most)
        self._latest: dict[str, Values] = {}

    @property
    def names(self) -> AbstractSet[str]:
        """Those that something was read of."""
        return self._latest.keys()

    def add(self, name: str, at: float, values: Values) -> None:
        """Record what was read of one, counters first."""
        if self._latest.get(name) != values:
            self._latest[name] = values
            self._history.add(name, at, values)

    def forget(self, names: Iterable[str]) -> None:
        """Remove what is there of some."""
        for name in list(names):
            self._latest.pop(name, None)
            self._history.forget(name)

    def sparks(self, name: str, times: Sequence[float]) -> tuple[list[float], list[float]]:
        """Return how fast the first two counters grew between some times, the latest at the end."""
        found = self._history.read(name, times)
        return _rates(found, times, 0), _rates(found, times, 1)

    def series(
        self, name: str, times: Sequence[float], after: float
    ) -> tuple[list[float], dict[str, list[float | None]]]:
        """Return the times after one, and the series of one at them: counters as their growth in a second.

        Args:
            name: of one.
            times: the time at which it was read.
            after: only what came later.
        """
        first = bisect_right(times, after)
        start = max(0, first - 1)
        found = self._history.read(name, times[start:])
        series: dict[str, list[float | None]] = {}
        for index, counter in enumerate(self._counters):
            rates: list[float | None] = list(_rates(found, times[start:], index))
            series[shown(counter)] = [None, *rates][: len(times)] if first == start else rates
        for index, gauge in enumerate(self._gauges, len(self._counters)):
            series[shown(gauge)] = [None if values is None else values[index] for values in found[first - start :]]
        return list(times[first:]), series


_SHOWN: Final = {"messagesStored": "stored", "bytesStored": "bytes", "creditGranted": "credit"}


def shown(name: str) -> str:
    """Return what rows and series call a counter or gauge of a node."""
    return _SHOWN.get(name, name)


def _rates(found: Sequence[Values | None], times: Sequence[float], index: int) -> list[float]:
    """Return the growth of a counter in a second, between each two times; none after a restart of its node."""
    rates = []
    for number in range(1, len(times)):
        earlier, later = found[number - 1], found[number]
        grown = later[index] - earlier[index] if later is not None and earlier is not None else 0.0
        passed = times[number] - times[number - 1]
        rates.append(round(max(0.0, grown) / passed, 2) if passed > 0 else 0.0)
    return rates
