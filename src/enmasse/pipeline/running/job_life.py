"""Work that is done from time to time, in a thread of its own so that queries are not kept waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from enmasse.model.pipelines import QueryState, QueryStatus
from enmasse.pipeline.running.failures import sentence_of
from enmasse.pipeline.running.plans import JobPlan

__all__ = ["JobLife"]

FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 60.0


class JobLife:
    """One job that is to be done every so often, and again sooner when it fails.

    Args:
        plan: the job.
        log: is told what came of it, in lines.
    """

    def __init__(self, plan: JobPlan, log: Callable[[str], None]) -> None:
        self.name = plan.name
        self._plan = plan
        self._log = log
        self._next = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._thread: threading.Thread | None = None
        self._failed = False
        self._runs = 0
        self._ended: str | None = None
        self.state: QueryState = "Starting"
        self.error: str | None = None

    def tend(self, now: float) -> None:
        """Do the job if it is time and it is not being done.

        Args:
            now: seconds that only grow.
        """
        thread = self._thread
        if thread is not None:
            if thread.is_alive():
                return
            self._thread = None
            self._next = now + (self._pause_s if self._failed else self._plan.every_s)
            self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S) if self._failed else FIRST_PAUSE_S
            self.state = "Failed" if self._failed else "Waiting"
        if now >= self._next:
            self.state = "Running"
            self._thread = threading.Thread(target=self._do, name=f"job {self.name}", daemon=True)
            self._thread.start()

    def _do(self) -> None:
        try:
            sentence = self._plan.run()
        except Exception as error:  # noqa: BLE001  # whatever it is, the neighbours go on and it is done again
            self._failed, self.error = True, sentence_of(error)
            self._log(f"job {self.name}: {self.error}")
            return
        self._failed, self.error = False, None
        self._runs += 1
        self._ended = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._log(f"job {self.name}: {sentence}")

    def stop(self) -> None:
        """Have it not done again; what runs ends with the process."""
        self._next = float("inf")

    def status(self) -> QueryStatus:
        """How it is."""
        return QueryStatus(
            name=self.name,
            state=self.state,
            batch=self._runs or None,
            last_progress=self._ended,
            error=self.error,
        )
