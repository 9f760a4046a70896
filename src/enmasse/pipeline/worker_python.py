"""How Spark starts Python: with PySpark as it is installed, and one set of workers for all that runs in Python.

Spark puts a zip of PySpark before the one that is installed. Python compiles what it reads from a zip at each
start, and keeps the list of all that is in it: a second and 10 MB for each process, of which there are dozens.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DAEMON", "share_workers", "write_launcher"]

DAEMON: Final = "enmasse.pipeline.worker_daemon"
"""The module whose process is forked for each worker (``spark.python.daemon.module``)."""


def write_launcher(folder: Path) -> Path:
    """Write what Spark is to start as Python: this very Python, which finds modules where this process does."""
    path = os.environ.get("PYTHONPATH")
    setting = "unset PYTHONPATH" if path is None else f"export PYTHONPATH={shlex.quote(path)}"
    launcher = folder / "python"
    launcher.write_text(f'#!/bin/sh\n{setting}\nexec {shlex.quote(sys.executable)} "$@"\n')
    launcher.chmod(0o755)
    return launcher


def share_workers(spark: SparkSession) -> None:
    """Let functions of Python's run in the workers that read and write addresses.

    Spark keeps a daemon and workers for each environment that it was told of, and tells functions another one than
    sources of data, though both come to the same.
    """
    environment = spark.sparkContext.environment
    environment.pop("PYTHONHASHSEED", None)  # Java has it from its start script and hands it on.
    java: Any = spark._jvm  # noqa: SLF001  # what Spark prefixes, it tells nobody else
    installed = java.org.apache.spark.api.python.PythonUtils.sparkPythonPath()
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (installed, os.environ.get("PYTHONPATH"))))
