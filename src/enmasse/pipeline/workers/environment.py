"""The environment that Spark gives its Python processes: one for functions and sources, safe to begin queries in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["complete_source_environment", "share_workers"]

SOURCE: Final = "enmasse"

ADDED: Final = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_LOCAL_DIRS", "SPARK_PYTHON_RUNTIME")
"""What Spark 4.3 puts into a source's environment when a query begins."""


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


def complete_source_environment(spark: SparkSession) -> None:
    """Let queries of our source begin at the same time; to be called before the first.

    Spark has one hash map of environment variables for all queries of a source, and puts some into it when a query
    begins, without a lock. Two at once can lose an entry and leave the map's size wrong, and then no batch of any
    query can be sent to a task until Java ends. Putting what is there already only replaces a value.
    """
    variables = source_environment(spark)
    for name in ADDED:
        variables.putIfAbsent(name, "")


def source_environment(spark: SparkSession) -> Any:
    """Java's map of the variables that our source's processes are given."""
    state: Any = spark._jsparkSession.sessionState()  # noqa: SLF001  # sources of data are known there alone
    return state.dataSourceManager().lookupDataSource(SOURCE).dataSourceCls().envVars()
