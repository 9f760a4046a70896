"""Runs all pipelines of a space in one Spark session, and ends when Spark is gone."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.pipeline.running.planning.guard import Guard
from enmasse.pipeline.running.planning.plans import AddressFacts, Place
from enmasse.pipeline.running.querying import Queries
from enmasse.pipeline.running.supervision.pipeline_supervisor import PipelineSupervisor
from enmasse.pipeline.running.supervision.query_supervisor import StartLimiter, problem_of_all
from enmasse.pipeline.workers.environment import guard_source_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S: Final = 5.0
"""Java's end is seen at once; that its context was stopped is rare and needs a question."""


class SparkWatch:
    """Checks a session from a thread of its own.

    Args:
        spark: the session.
        problem: why Java is no good though it runs; empty: it is good.
        on_end: called once when it is gone, with a sentence; not after ``close``.
    """

    def __init__(self, spark: SparkSession, problem: Callable[[], str], on_end: Callable[[str], None]) -> None:
        self._context = spark.sparkContext
        self._java: Any = getattr(self._context._gateway, "proc", None)  # PySpark started it
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
        elif ended := self._java_end(LOOK_S):
            return ended
        try:
            is_stopped = self._context._jsc.sc().isStopped()  # Python does not learn of it
        except (Py4JError, OSError, AttributeError):
            # It may have ended since it was waited for.
            return self._java_end(1.0) or "Spark's Java process does not answer"
        if is_stopped:
            return (
                "Spark has stopped, as it does when a row needs more memory than there is, or a cluster ends the "
                "application; the runner's log says more"
            )
        return self._java_problem()

    def _java_end(self, seconds: float) -> str:
        """Wait for the end of Java's process; empty: it runs, or another process started it."""
        if self._java is None:
            return ""
        try:
            code = self._java.wait(seconds)
        except subprocess.TimeoutExpired:
            return ""
        return f"Spark's Java process ended with exit code {code}"


LAST_STOP_S: Final = 12.0
"""Seconds for all queries to stop; the host gives the runner a little more."""

LAST_JAVA_S: Final = 3.0
"""Seconds for Java to remove its temporary files."""


class Runner:
    """The pipelines of one space.

    Args:
        spark: the process's session; stopped by ``close``.
        place: the places of lake, space and folders.
        emit: called with each event.
    """

    def __init__(self, spark: SparkSession, place: Place, emit: Callable[..., None]) -> None:
        self._spark = spark
        self._place = place
        self._emit = emit
        guard_source_environment(spark)
        self._guard = Guard(spark)
        self._limiter = StartLimiter(max(2, spark.sparkContext.defaultParallelism // 2))
        self._queries = Queries(spark, place, self._guard, emit)
        self._supervisors: dict[str, PipelineSupervisor] = {}
        self._leaving: list[PipelineSupervisor] = []

    def dispatch(self, command: Mapping[str, Any]) -> None:
        """Carry out a command; one that cannot be understood makes an event ``refused``."""
        kind = command.get("command")
        try:
            if kind == "put":
                self._put(command)
            elif kind == "delete":
                self._delete(str(command["name"]), purge=bool(command.get("purge")))
            elif kind == "query":
                self._queries.ask(command)
            elif kind == "cancel":
                self._queries.cancel(str(command["id"]))
            else:
                self._emit("refused", command=kind, error="expected put, delete, query or cancel")
        except (KeyError, TypeError, ValueError) as error:
            self._emit("refused", command=kind, error=f"{type(error).__name__}: {error}")

    def _put(self, command: Mapping[str, Any]) -> None:
        pipeline = Pipeline.model_validate(command["pipeline"])
        addresses = {
            name: AddressFacts(facts["type"], facts.get("schema"))
            for name, facts in command.get("addresses", {}).items()
        }
        name = pipeline.metadata.name
        if name not in self._supervisors:
            self._wait_for_former(name)
            self._supervisors[name] = self._supervisor(name)
        self._supervisors[name].put(pipeline, str(command.get("credentials") or ""), addresses)

    def _supervisor(self, name: str) -> PipelineSupervisor:
        return PipelineSupervisor(
            name,
            self._spark,
            self._place,
            guard=self._guard,
            limiter=self._limiter,
            emit=self._emit,
            ended_at=self._ended_at,
        )

    def _ended_at(self, name: str) -> float:
        """Return when a pipeline ended well; 0: it has not, or is not here."""
        found = self._supervisors.get(name)
        return 0.0 if found is None else found.ended_at

    def _wait_for_former(self, name: str) -> None:
        """Wait until a removed pipeline of this name has stopped: one that comes again shares its folders."""
        for supervisor in [item for item in self._leaving if item.name == name]:
            supervisor.join(LAST_STOP_S)
        self._leaving = [item for item in self._leaving if not item.join(0)]

    def _delete(self, name: str, *, purge: bool) -> None:
        supervisor = self._supervisors.pop(name, None)
        if supervisor is None:
            supervisor = self._supervisor(name)
        supervisor.remove(purge=purge)
        self._leaving.append(supervisor)

    def java_problem(self) -> str:
        """Return why this Java is to be ended though it runs; empty: it need not."""
        return problem_of_all([query for item in list(self._supervisors.values()) for query in item.unfinished()])

    def close(self) -> None:
        """Stop all queries, then Spark."""
        deadline = time.monotonic() + LAST_STOP_S
        self._limiter.open()
        supervisors = [*self._supervisors.values(), *self._leaving]
        for supervisor in supervisors:
            supervisor.close()
        for supervisor in supervisors:
            supervisor.join(max(0.0, deadline - time.monotonic()))
        java = getattr(self._spark.sparkContext._gateway, "proc", None)  # or it outlives us
        # Java may have been ended together with us, by a signal to the whole group.
        with suppress(Py4JError, OSError):
            self._spark.stop()
        if java is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                java.stdin.close()
                java.wait(LAST_JAVA_S)
