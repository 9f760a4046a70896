"""Notices that Spark is gone under a runner: Java ended or is spoilt, or a cluster has put the application out."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkWatch"]

LOOK_S: Final = 5.0
"""Java's end is seen at once; that its context was stopped is rare and needs a question."""


class SparkWatch:
    """Looks after a session from a thread of its own.

    Args:
        spark: the session.
        problem: why Java is no good though it runs; empty: it is good.
        on_end: called once when it is gone, with a sentence; not after ``close``.
    """

    def __init__(self, spark: SparkSession, problem: Callable[[], str], on_end: Callable[[str], None]) -> None:
        self._context = spark.sparkContext
        self._java: Any = getattr(self._context._gateway, "proc", None)  # noqa: SLF001  # PySpark started it
        self._java_problem = problem
        self._on_end = on_end
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="spark watch", daemon=True).start()

    def close(self) -> None:
        """Expect the end from now on."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.is_set():
            problem = self._problem()
            if problem and not self._closed.is_set():
                self._on_end(problem)
                return

    def _problem(self) -> str:
        if self._java is None:
            self._closed.wait(LOOK_S)
        else:
            try:
                code = self._java.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                pass
            else:
                return f"Spark's Java process ended with exit code {code}"
        try:
            is_stopped = self._context._jsc.sc().isStopped()  # noqa: SLF001  # Python is not told
        except (Py4JError, OSError, AttributeError):
            return "Spark's Java process does not answer"
        if is_stopped:
            return "Spark has stopped, as a cluster that ends an application has it do"
        return self._java_problem()
