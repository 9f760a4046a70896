"""``python -m enmasse.pipeline run``: runs the pipelines of one space, by commands on standard input.

Each line of standard input is a command, each line of standard output an event, in JSON;
``docs/reference/pipeline-running.md`` lists them. The process ends in order when its input ends, which it also does
when the process that started it dies.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import UnavailableError
from enmasse.model.kinds.pipelines.pipeline import DEFAULT_MEMORY
from enmasse.pipeline.running.planning.plans import Place
from enmasse.pipeline.running.space_lock import SpaceLock
from enmasse.pipeline.running.spark_ui import UI_SETTINGS, UiKey, UiServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from enmasse.pipeline.running.event_log import EventLogs

LONGEST_COMMAND: Final = 32 * 1024 * 1024
"""A resource is at most 1 MiB in the API, and credentials and code do not come this way."""


class EventWriter:
    """Writes events, whole even when several threads speak.

    Args:
        descriptor: the descriptor of the file that events go to.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def __call__(self, event: str, **fields: Any) -> None:
        """Write one event; a reader that is gone is noticed elsewhere, as the end of the input."""
        line = (json.dumps({"event": event, **fields}, default=str) + "\n").encode()
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:
                return


class Commands:
    """The commands, in order, until the input ends or a signal asks to end.

    Args:
        descriptor: the descriptor of the file that commands come from.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def watch_signals(self) -> None:
        """End on SIGTERM and SIGINT too; call it from the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.end())

    def end(self) -> None:
        """Have the iteration end after the commands that are there."""
        self._queue.put(None)

    def _read(self) -> None:
        with os.fdopen(self._descriptor, "rb", closefd=False) as lines:
            while line := lines.readline(LONGEST_COMMAND):
                try:
                    command = json.loads(line)
                except ValueError:
                    continue
                if isinstance(command, dict):
                    self._queue.put(command)
        self.end()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield commands as they come."""
        while (command := self._queue.get()) is not None:
            yield command


CONNECT_S: Final = 10.0
EXECUTOR_S: Final = 60.0
"""An executor starts in seconds, or in many where its machine is busy."""
_POLL_S: Final = 0.2


def require_master(url: str) -> None:
    """Make sure that one of a cluster's masters is reached.

    Args:
        url: ``spark://HOST:PORT``, with a comma before each further ``HOST:PORT``; other kinds are not asked.

    Raises:
        UnavailableError: none is.
    """
    if not url.startswith("spark://"):
        return
    problem = ""
    for place in url.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except (OSError, ValueError, OverflowError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        else:
            return
    raise UnavailableError(f"cluster {url} cannot be reached: {problem}")


def require_executor(spark: SparkSession, url: str, seconds: float = EXECUTOR_S) -> None:
    """Wait until the cluster has given an executor: without, each batch would wait for ever.

    Args:
        spark: the session.
        url: the url of the cluster, for the error.
        seconds: the seconds to wait.

    Raises:
        UnavailableError: it has given none.
    """
    context = spark.sparkContext._jsc.sc()  # Python does not learn of it
    deadline = time.monotonic() + seconds
    # The driver itself is one of them.
    while context.getExecutorMemoryStatus().size() < 2:
        if time.monotonic() > deadline:
            memory = spark.conf.get("spark.executor.memory", "1g")
            raise UnavailableError(
                f"cluster {url} has given no executor in {seconds:g} s: it needs a living worker with a free core "
                f"and {memory} of free memory"
            )
        time.sleep(_POLL_S)


HEAP = f"{DEFAULT_MEMORY >> 20}m"
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
    # Else Spark reads every file that the operating system's user may read, for everyone who writes SQL.
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
    """Declare the options of the command line."""
    parser.add_argument("--space", required=True, help="NAMESPACE/SPACE, as in default/shop")
    parser.add_argument("--url", required=True, help="where the space is reached, amqp://HOST:PORT")
    parser.add_argument("--space-host", default="", help="host name that chooses the space; default: the URL's")
    parser.add_argument("--folder", required=True, type=Path, help="everything of the space's pipelines")
    parser.add_argument("--cores", type=int, help="tasks at once; default: all cores")
    parser.add_argument("--memory", default=HEAP, help=f"Java's heap; default {HEAP}")
    parser.add_argument("--executor-memory", default="", help="heap of each of a cluster's executors")
    parser.add_argument("--master", default="", help="a cluster, spark://HOST:7077; default: this machine")
    parser.add_argument("--session", default="", help="of one pipeline alone, which gives its name")
    parser.add_argument("--event-log", action="store_true", help="write Spark's event log, below events")
    parser.add_argument("--ui", type=int, metavar="SOCKET", help="serve Spark's pages on this open socket")
    parser.add_argument("--quick", action="store_true", help="start sooner, run slower")


def run(options: argparse.Namespace, _arguments: Sequence[str]) -> int:
    """Run the space's pipelines until the input ends; the exit status.

    Raises:
        SpaceTakenError: another process runs them.
        UnavailableError: Spark is gone.
    """
    faulthandler.enable()  # what crashes in a library tells where, in the log
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with SpaceLock(folder, options.session) as lock:
        emit = EventWriter(_own_output())
        commands = Commands(0)
        os.environ.setdefault("ENMASSE_CREDENTIALS", str(folder / "credentials"))
        lock.mark(os.environ)
        # PySpark writes each error to standard error with Java's whole stack; ours say it in a sentence.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
        logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
        from enmasse.pipeline.running.runner import Runner, SparkWatch  # noqa: PLC0415  # they need PySpark
        from enmasse.pipeline.session import start_session  # noqa: PLC0415

        key = None if options.ui is None else UiKey()
        is_cluster = _is_cluster(options)
        work = folder / "work" / options.session
        try:
            if is_cluster:
                require_master(options.master)
            spark = start_session(
                f"enmasse {options.space} {options.session}".rstrip(),
                work,
                cores=options.cores,
                quick=options.quick,
                settings=_settings(options, folder),
                secret=None if key is None else key.settings(),
            )
            if is_cluster:
                require_executor(spark, options.master)
        except UnavailableError as error:
            emit("failed", error=str(error))
            raise
        commands.watch_signals()
        failures: list[str] = []

        def spark_is_gone(sentence: str) -> None:
            failures.append(sentence)
            emit("failed", error=sentence)
            commands.end()

        shown = _show(spark, folder, options, key)
        runner = Runner(spark, Place(options.url, options.space_host, folder), emit)
        watch = SparkWatch(spark, runner.java_problem, spark_is_gone)
        gc.freeze()
        gc.enable()
        emit("ready")
        try:
            for command in commands:
                runner.dispatch(command)
        finally:
            watch.close()
            for item in shown:
                item.close()
            runner.close()
        if failures:
            raise UnavailableError(failures[0])
    return 0


def _is_cluster(options: argparse.Namespace) -> bool:
    return bool(options.master) and not options.master.startswith("local")


def _settings(options: argparse.Namespace, folder: Path) -> dict[str, str]:
    """Return the settings of the session."""
    settings = {**SETTINGS, "spark.driver.memory": options.memory}
    settings["spark.executor.pyspark.memory"] = f"{WORKER_GIB * (options.cores or os.cpu_count() or 1)}g"
    if options.master:
        settings["spark.master"] = options.master
    if _is_cluster(options):
        settings |= _on_cluster(options)
    else:
        # Java's own ports are open to all of this machine, and take objects from those who know no secret.
        settings["spark.authenticate"] = "true"
    if options.event_log:
        from enmasse.pipeline.running.event_log import FOLDER, event_log_settings  # noqa: PLC0415  # needs Arrow

        settings |= event_log_settings(folder)
        (folder / FOLDER).mkdir(exist_ok=True)
    if options.ui is not None:
        settings |= UI_SETTINGS
    return settings


def _show(
    spark: SparkSession, folder: Path, options: argparse.Namespace, key: UiKey | None
) -> list[EventLogs | UiServer]:
    """Begin to keep and to show what was asked for; what is to be closed."""
    from enmasse.pipeline.running.event_log import EventLogs  # noqa: PLC0415  # Arrow is slow to load

    shown: list[EventLogs | UiServer] = []
    if options.event_log:
        logs = EventLogs(folder, spark.sparkContext.applicationId)
        logs.watch()
        shown.append(logs)
    url = spark.sparkContext.uiWebUrl
    if key is not None and url is not None:
        listener = socket.socket(fileno=options.ui)
        listener.set_inheritable(False)
        shown.append(UiServer(listener, url, key))
    return shown


def _on_cluster(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of a cluster's executors; they have their own folders and start workers their own way."""
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
