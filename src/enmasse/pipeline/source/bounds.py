"""Bounds of a reading, as a user gives them: by name, by offset, or by time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from enmasse.pipeline.errors import OptionError

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True)
class Moment:
    """The first row that was accepted then or later."""

    us: int
    """Microseconds since 1970 UTC."""

    def __str__(self) -> str:
        return datetime.fromtimestamp(self.us / 1e6, UTC).isoformat()


Bound = str | int | Moment
"""The bound of a partition: ``earliest``, ``latest``, an offset or a moment."""

Bounds = Bound | Mapping[int, Bound]
"""The same for all partitions, or by partition."""

LONGEST_NUMBER = 15
"""Digits of milliseconds since 1970: the year 33658."""

_FORMS = (
    'earliest, latest, a moment such as 2026-01-31T12:00:00Z, or JSON by partition such as {"0": 120, "1": "latest"}'
)


def parse_bounds(name: str, text: str) -> Bounds:
    """Parse an option.

    Args:
        name: the name of the option, for the message of an error.
        text: ``earliest``, ``latest``, a moment in ISO 8601, or JSON with these or offsets by partition.

    Raises:
        OptionError: it is none of these.
    """
    text = text.strip()
    if not text.startswith("{"):
        bound = None if text.isdecimal() else _bound(text)
        if bound is None:
            raise OptionError(f"option {name}: expected {_FORMS}, got {text!r:.200}")
        return bound
    try:
        given = json.loads(text)
    except ValueError:
        raise OptionError(f"option {name}: expected {_FORMS}, got {text!r:.200}") from None
    bounds: dict[int, Bound] = {}
    for partition, value in given.items():
        bound = _bound(value)
        if not partition.isdecimal() or bound is None:
            raise OptionError(f"option {name}: expected {_FORMS}; partition {partition!r:.50} has {value!r:.100}")
        bounds[int(partition)] = bound
    return bounds


def _bound(value: object) -> Bound | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 0 else None
    if not isinstance(value, str):
        return None
    lowered = value.strip().lower()
    return lowered if lowered in {EARLIEST, LATEST} else _iso(value.strip())


def parse_moment(name: str, text: str) -> Moment:
    """Parse an option that takes a time.

    Args:
        name: the name of the option, for the message of an error.
        text: milliseconds since 1970, as Spark's Kafka source takes them, or ISO 8601; UTC without an offset.

    Raises:
        OptionError: it is neither.
    """
    text = text.strip()
    moment = _milliseconds(text) if text.isdecimal() else _iso(text)
    if moment is None:
        raise OptionError(
            f"option {name}: expected milliseconds since 1970 or a moment such as 2026-01-31T12:00:00Z, "
            f"got {text!r:.200}"
        )
    return moment


def parse_moments(name: str, text: str) -> Bounds:
    """Parse an option that takes a time for each partition, as ``{"0": 1769860800000}``.

    Raises:
        OptionError: it does not.
    """
    try:
        given = json.loads(text)
        return {int(partition): parse_moment(name, str(at)) for partition, at in given.items()}
    except (ValueError, AttributeError):
        expected = 'JSON by partition such as {"0": 1769860800000}, in milliseconds since 1970'
        raise OptionError(f"option {name}: expected {expected}, got {text!r:.200}") from None


def _milliseconds(text: str) -> Moment | None:
    return Moment(int(text) * 1_000) if len(text) <= LONGEST_NUMBER else None


def _iso(text: str) -> Moment | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment_of(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def moment_of(moment: datetime) -> Moment:
    """Return a moment from one that knows its zone; never before 1970."""
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return Moment(max(0, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds))


def moments_of(bounds: Bounds) -> set[Moment]:
    """Return the moments among bounds, whose offsets only the stream knows."""
    values = bounds.values() if isinstance(bounds, Mapping) else (bounds,)
    return {value for value in values if isinstance(value, Moment)}
