"""Starts a local Spark session with the settings that our pipelines need, or says what is missing.

This module imports PySpark only when a session is started. Java maps Spark's classes from an archive where there is
one; ``running.class_archive`` makes it and says why.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from enmasse.extras import install_command
from enmasse.pipeline.errors import SparkMissingError
from enmasse.pipeline.workers.environment import share_workers
from enmasse.pipeline.workers.launcher import DAEMON, Zygote, write_launcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

_QUIET: Final = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
"""An archive that does not fit is nothing to complain about."""


def archive_name(java: Path) -> str:
    """Return the file for this Java and the Spark that is installed."""
    found = java.resolve()
    facts = f"{found} {found.stat().st_size} {found.stat().st_mtime_ns}"
    spark = importlib.metadata.version("pyspark")
    return f"spark-{spark}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}.jsa"


def archive_folders() -> list[Path]:
    """Return the folders of archives: beside the installation, where every user can read; else the user's own."""
    # Path.home() raises for a user without one, as spaces have.
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return [Path(sys.prefix, "share", "enmasse"), Path(cache, "enmasse")]


def sharing_options(java: Path) -> str:
    """Return the options with which this Java uses its archive; empty where none was made."""
    name = archive_name(java)
    found = next((folder / name for folder in archive_folders() if (folder / name).is_file()), None)
    # Java's options are separated by spaces.
    return "" if found is None or " " in str(found) else f"-XX:SharedArchiveFile={found} {_QUIET}"


def recording_options(archive: Path) -> str:
    """Return the options with which Java makes one when it ends."""
    return f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"


LEAST_JAVA = 17
"""Spark 4.3 starts with no older one."""

INSTALL_JAVA = "apt-get install openjdk-17-jre-headless"

LONGEST_SOCKET_FOLDER = 60
"""Spark's sockets are named by a uuid."""

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Starts a second sooner with 80 MB less; slower code for those who run for hours."""

_THRIFTY = "-Xms64m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
"""Begins small, and grows no further than it must."""

_SMALL_HEAP = 2 << 30
_SMALL = "-XX:+UseSerialGC"
"""Up to so many bytes the plainest collector pauses for moments only, and ten busy pipelines take 350 MB less."""
_LARGE = "-XX:G1PeriodicGCInterval=60000"
"""Collects beside the work, and gives back what it does not need once nothing happens."""

_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Plain renames: on a local disk the default's checksum files are only more syncs."""

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
logger.workers.name = org.apache.spark.api.python
logger.workers.level = error
logger.pools.name = org.apache.spark.scheduler.FairSchedulableBuilder
logger.pools.level = error
"""


def find_java() -> Path:
    """Return the Java that Spark will start.

    Raises:
        SparkMissingError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    answer = ""
    if found is not None:
        try:
            answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
        except OSError:
            found = None
    if found is None:
        where = f"in JAVA_HOME={home}" if home else "on the path"
        raise SparkMissingError(f"Spark needs Java {LEAST_JAVA} or newer and found none {where}: {INSTALL_JAVA}")
    version = re.search(r'version "(\d+)', answer)
    if version is None or int(version[1]) < LEAST_JAVA:
        is_version = version[1] if version else "of unknown version"
        raise SparkMissingError(
            f"Spark needs Java {LEAST_JAVA} or newer, but {found} is {is_version}: {INSTALL_JAVA}"
        )
    return Path(found)


def require_spark() -> Path:
    """Make sure that a session can be started; the Java for it.

    Raises:
        SparkMissingError: Java or PySpark is missing; the message holds the install command.
    """
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkMissingError(f"{' and '.join(missing)} cannot be imported: {install_command('spark')}")
    return find_java()


def start_session(
    name: str,
    work: Path,
    *,
    cores: int | None = None,
    quick: bool = False,
    settings: Mapping[str, str] | None = None,
    secret: Mapping[str, str] | None = None,
    record: Path | None = None,
) -> SparkSession:
    """Start Spark in a process of its own that ends with this one.

    Args:
        name: the application's name.
        work: folder for Spark's log (``spark.log``, and ``spark.err`` for what it and its workers write
            to standard error), temporary and warehouse files; made if need be.
        cores: tasks at once; by default all cores.
        quick: start sooner and run slower, for tests and demonstrations.
        settings: more of Spark's own settings; they win.
        secret: settings that must not show among the arguments of Java.
        record: the archive of classes that Java makes when it ends, instead of using one.

    Raises:
        SparkMissingError: Java or PySpark is missing; the message holds the install command.
    """
    java = require_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415  # only now is it known to be there

    _remember_java_names()
    work = work.resolve()
    temporary = work / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    logging = work / "log4j2.properties"
    logging.write_text(_LOGGING.format(log=work / "spark.log"))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_LOCAL_DIRS"] = str(temporary)
    cores = cores or os.cpu_count() or 1
    master = (settings or {}).get("spark.master", f"local[{cores}]")
    is_local = master.startswith("local")
    sockets = _socket_folder(temporary)
    # Else workers take the path's python3 and miss our package. Executors find Python where it is here.
    python = str(write_launcher(work, sockets / "zygote") if is_local else sys.executable)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    java_options = _QUICK if quick else _thrifty((settings or {}).get("spark.driver.memory", "1g"))
    java_options += f" -Dlog4j2.configurationFile={logging.as_uri()} -Djava.io.tmpdir={temporary}"
    java_options += f" {sharing_options(java) if record is None else recording_options(record)}"
    chosen = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java_options,
        "spark.log.level": "WARN",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.python.daemon.module": DAEMON,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(sockets),
        "spark.scheduler.mode": "FAIR",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # Files of CSV may be in windows-1252, which is refused else.
        "spark.sql.legacy.javaCharsets": "true",
        # Moments that pandas and DuckDB read as such; the default is a form of old Hive.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Larger than Spark's own, which is about as quick with small rows and bounds none of large ones.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        # Set in some of Python's processes and not to others, which would have those not share workers.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": _FILES,
        "spark.sql.streaming.numRecentProgressUpdates": "100",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(settings or {}),
    }
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _errors_to(work / "spark.err"):
        if is_local:
            atexit.register(Zygote(sockets / "zygote").close)
        if secret:
            _start_java({**chosen, "spark.app.name": name, "spark.master": master}, secret)
        spark = builder.getOrCreate()
    if is_local:
        share_workers(spark)
    return spark


@functools.cache
def _remember_java_names() -> None:
    """Ask Java once for each name whether it is a package or a class, and not each time that it is used.

    For a package Java looks into every file on its class path, and again for each prefix that PySpark imports.
    """
    from py4j.java_gateway import JavaClass, JavaPackage, JVMView  # noqa: PLC0415  # comes with PySpark

    def remember(kind: Any) -> None:
        ask = kind.__getattr__

        def answer(self: Any, name: str) -> Any:
            found = ask(self, name)
            if isinstance(found, JavaPackage | JavaClass):
                vars(self)[name] = found
            return found

        kind.__getattr__ = answer

    remember(JVMView)
    remember(JavaPackage)


def _start_java(settings: Mapping[str, str], secret: Mapping[str, str]) -> None:
    """Start Java before there is a session, and tell it what it would else be told by its arguments."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    conf = SparkConf().setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001  # the only way to have Java alone
    jvm: Any = SparkContext._jvm
    for key, value in secret.items():
        jvm.java.lang.System.setProperty(key, value)


def _thrifty(heap: str) -> str:
    """Return the options of a Java that is to run for long, by the heap that it may have, such as ``640m``."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", heap.strip().lower())
    # Spark takes a number alone for MiB, and itself complains of what is no size.
    size = int(found[1]) << {"k": 10, "g": 30, "t": 40}.get(found[2], 20) if found else 0
    return f"{_THRIFTY} {_SMALL if size <= _SMALL_HEAP else _LARGE}"


def _socket_folder(preferred: Path) -> Path:
    """Return a folder whose path leaves room for a socket's name; unix sockets have 107 bytes for both."""
    if len(os.fsencode(preferred)) <= LONGEST_SOCKET_FOLDER:
        return preferred
    # Named after the work, so that what a killed driver leaves is taken over and removed by the next.
    name = f"enmasse-{os.getuid()}-{hashlib.sha256(os.fsencode(preferred)).hexdigest()[:12]}"
    short = Path(tempfile.gettempdir(), name)
    if len(os.fsencode(short)) > LONGEST_SOCKET_FOLDER:
        short = Path("/tmp", name)  # noqa: S108  # made for its user alone, as the other is
    short.mkdir(mode=0o700, exist_ok=True)
    if short.is_symlink() or short.stat().st_uid != os.getuid():
        short = Path(tempfile.mkdtemp(prefix="enmasse-", dir=short.parent))
    atexit.register(shutil.rmtree, short, ignore_errors=True)
    return short


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Have processes that start meanwhile complain to a file.

    Java passes its standard error on to the Python workers, which report ``BrokenPipeError`` when they end.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def activate(session: SparkSession) -> None:
    """Make a session the thread's active one: there Spark looks up Python data sources, whatever the frame's is."""
    jvm: Any = session._jvm
    jvm.SparkSession.setActiveSession(session._jsparkSession)
