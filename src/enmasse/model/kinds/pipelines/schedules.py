"""Schedules in the words of cron, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError


def schedule_problem(text: str) -> str | None:
    """Return what is wrong with a schedule, or None."""
    try:
        next_run(text, datetime(2026, 1, 1, tzinfo=UTC))
    except (CronSimError, StopIteration) as error:
        expected = (
            "expected minute, hour, day of month, month and day of week, as in '0 3 * * *' for each day at 3 UTC"
        )
        return f"{expected}, got '{text}'{f': {error}' if str(error) else ''}"
    return None


def next_run(text: str, after: datetime) -> datetime:
    """Return the first moment of a schedule after another one.

    Raises:
        CronSimError: it is none.
        StopIteration: there is none in fifty years.
    """
    return next(CronSim(text, after.astimezone(UTC)))
