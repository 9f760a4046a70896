"""All pipelines of a space in one Spark session: who gets which command, and the order of the end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from enmasse.model.pipelines import Pipeline
from enmasse.pipeline.running.guard import Guard
from enmasse.pipeline.running.pipeline_life import PipelineLife
from enmasse.pipeline.running.plans import AddressFacts, Place
from enmasse.pipeline.running.query_life import problem_of_all
from enmasse.pipeline.running.querying import Queries
from enmasse.pipeline.running.start_gate import StartGate
from enmasse.pipeline.workers.environment import guard_source_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Runner"]

LAST_STOP_S: Final = 12.0
"""For all queries to stop; whoever ends the runner gives it a little more."""

LAST_JAVA_S: Final = 3.0
"""For Java to remove its temporary files."""


class Runner:
    """The pipelines of one space.

    Args:
        spark: the process's session; stopped by ``close``.
        place: where things are.
        voice: is told events.
    """

    def __init__(self, spark: SparkSession, place: Place, voice: Callable[..., None]) -> None:
        self._spark = spark
        self._place = place
        self._voice = voice
        guard_source_environment(spark)
        self._guard = Guard(spark)
        self._gate = StartGate(max(2, spark.sparkContext.defaultParallelism // 2))
        self._queries = Queries(spark, place, self._guard, voice)
        self._lives: dict[str, PipelineLife] = {}
        self._leaving: list[PipelineLife] = []

    def obey(self, command: Mapping[str, Any]) -> None:
        """Do what a command says; what cannot be understood is told as an event ``refused``."""
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
                self._voice("refused", command=kind, error="expected put, delete, query or cancel")
        except (KeyError, TypeError, ValueError) as error:
            self._voice("refused", command=kind, error=f"{type(error).__name__}: {error}")

    def _put(self, command: Mapping[str, Any]) -> None:
        pipeline = Pipeline.model_validate(command["pipeline"])
        addresses = {
            name: AddressFacts(facts["type"], facts.get("schema"))
            for name, facts in command.get("addresses", {}).items()
        }
        name = pipeline.metadata.name
        if name not in self._lives:
            self._wait_for_former(name)
            self._lives[name] = self._life(name)
        self._lives[name].put(pipeline, str(command.get("credentials") or ""), addresses)

    def _life(self, name: str) -> PipelineLife:
        return PipelineLife(name, self._spark, self._place, guard=self._guard, gate=self._gate, voice=self._voice)

    def _wait_for_former(self, name: str) -> None:
        """A pipeline that was removed and comes again shares its folders with the former one."""
        for life in [life for life in self._leaving if life.name == name]:
            life.join(LAST_STOP_S)
        self._leaving = [life for life in self._leaving if not life.join(0)]

    def _delete(self, name: str, *, purge: bool) -> None:
        life = self._lives.pop(name, None)
        if life is None:
            life = self._life(name)
        life.remove(purge=purge)
        self._leaving.append(life)

    def java_problem(self) -> str:
        """Why this Java is to be ended though it runs; empty: it need not."""
        return problem_of_all([query for life in list(self._lives.values()) for query in life.unfinished()])

    def close(self) -> None:
        """Stop all queries, then Spark."""
        deadline = time.monotonic() + LAST_STOP_S
        self._gate.open()
        lives = [*self._lives.values(), *self._leaving]
        for life in lives:
            life.close()
        for life in lives:
            life.join(max(0.0, deadline - time.monotonic()))
        java = getattr(self._spark.sparkContext._gateway, "proc", None)  # noqa: SLF001  # or it outlives us
        # Java may have been ended together with us, by a signal to the whole group.
        with suppress(Py4JError, OSError):
            self._spark.stop()
        if java is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                java.stdin.close()
                java.wait(LAST_JAVA_S)
