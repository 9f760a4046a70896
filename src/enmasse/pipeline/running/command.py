"""``python -m enmasse.pipeline run``: the pipelines of one space, told what to do on standard input.

A line of JSON is a command or an event; ``docs/reference/pipeline-running.md`` lists them. The process
ends in order when its input ends, which it also does when whoever started it dies.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from enmasse.errors import UnavailableError
from enmasse.pipeline.running.cluster import require_executor, require_master
from enmasse.pipeline.running.conversation import Commands, Voice
from enmasse.pipeline.running.plans import Place
from enmasse.pipeline.running.space_lock import SpaceLock

__all__ = ["add_arguments", "run"]

HEAP = "640m"
"""Java's heap for ten small pipelines; with what Java needs besides and their workers below 1.5 GB."""

WORKER_GIB = 4
"""Address space of one Python worker. Python, Arrow and pandas take 1.4 GiB of it and touch a tenth of that."""

SETTINGS = {
    # A class of state that keeps many devices, and the only one that knows timers.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch writes what changed of the state; all of it now and then, beside the batches.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Else Spark reads every file that the operating system's user may read, for whoever writes SQL.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # A task that was cancelled and does not end is ended with its worker.
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.pollingInterval": "2s",
    # Charts of the last minutes; each entry holds some kilobytes of heap.
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # Batches that are done are needed for one step back after a failure, and no further.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.cleaner.periodicGC.interval": "10min",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command line may say."""
    parser.add_argument("--space", required=True, help="NAMESPACE/SPACE, as in default/shop")
    parser.add_argument("--url", required=True, help="where the space is reached, amqp://HOST:PORT")
    parser.add_argument("--space-host", default="", help="host name that chooses the space; default: the URL's")
    parser.add_argument("--folder", required=True, type=Path, help="everything of the space's pipelines")
    parser.add_argument("--cores", type=int, help="tasks at once; default: all cores")
    parser.add_argument("--memory", default=HEAP, help=f"Java's heap; default {HEAP}")
    parser.add_argument("--executor-memory", default="", help="heap of each of a cluster's executors")
    parser.add_argument("--master", default="", help="a cluster, spark://HOST:7077; default: this machine")
    parser.add_argument("--session", default="", help="of one pipeline alone, which gives its name")
    parser.add_argument("--quick", action="store_true", help="start sooner, run slower")


def run(options: argparse.Namespace, _arguments: Sequence[str]) -> int:
    """Run the space's pipelines until the input ends; the exit status.

    Raises:
        SpaceTakenError: another process runs them.
        UnavailableError: Spark is gone.
    """
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with SpaceLock(folder, options.session) as lock:
        voice = Voice(_own_output())
        commands = Commands(0)
        os.environ.setdefault("ENMASSE_CREDENTIALS", str(folder / "credentials"))
        lock.mark(os.environ)
        # PySpark writes each error to standard error with Java's whole stack; ours say it in a sentence.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
        logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
        from enmasse.pipeline.running.runner import Runner  # noqa: PLC0415  # needs PySpark
        from enmasse.pipeline.running.spark_watch import SparkWatch  # noqa: PLC0415
        from enmasse.pipeline.session import start_session  # noqa: PLC0415

        settings = {**SETTINGS, "spark.driver.memory": options.memory}
        settings["spark.executor.pyspark.memory"] = f"{WORKER_GIB * (options.cores or os.cpu_count() or 1)}g"
        is_cluster = bool(options.master) and not options.master.startswith("local")
        if options.master:
            settings["spark.master"] = options.master
        if is_cluster:
            settings |= _on_cluster(options)
        else:
            # Java's own ports are open to all of this machine, and take objects of whoever knows no secret.
            settings["spark.authenticate"] = "true"
        work = folder / "work" / options.session
        try:
            if is_cluster:
                require_master(options.master)
            spark = start_session(
                f"enmasse {options.space}", work, cores=options.cores, quick=options.quick, settings=settings
            )
            if is_cluster:
                require_executor(spark, options.master)
        except UnavailableError as error:
            voice("failed", error=str(error))
            raise
        commands.watch_signals()
        failures: list[str] = []

        def spark_is_gone(sentence: str) -> None:
            failures.append(sentence)
            voice("failed", error=sentence)
            commands.end()

        runner = Runner(spark, Place(options.url, options.space_host, folder), voice)
        watch = SparkWatch(spark, runner.java_problem, spark_is_gone)
        voice("ready")
        try:
            for command in commands:
                runner.obey(command)
        finally:
            watch.close()
            runner.close()
        if failures:
            raise UnavailableError(failures[0])
    return 0


def _on_cluster(options: argparse.Namespace) -> dict[str, str]:
    """What a cluster's executors are told; they have their own folders and start workers their own way."""
    settings = {
        "spark.executorEnv.ENMASSE_CREDENTIALS": os.environ["ENMASSE_CREDENTIALS"],
        "spark.python.unix.domain.socket.enabled": "false",
    }
    if options.executor_memory:
        settings["spark.executor.memory"] = options.executor_memory
    if options.cores:
        settings["spark.cores.max"] = str(options.cores)
    return settings


def _own_output() -> int:
    """Take standard output for events alone; what else writes to it goes to standard error."""
    mine = os.dup(1)
    os.dup2(2, 1)
    return mine
