"""The environment that Spark gives its Python processes: one for functions and sources, safe to begin queries in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE: Final = "enmasse"
MANAGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager"
"""Keeps the sources that every new session knows."""


def share_workers(spark: SparkSession) -> None:
    """Let functions of Python's run in the workers that read and write addresses.

    Spark keeps a daemon and workers for each environment that it was given, and gives functions another one than
    sources of data, though both come to the same.
    """
    environment = spark.sparkContext.environment
    environment.pop("PYTHONHASHSEED", None)  # Java has it from its start script and hands it on.
    java: Any = spark._jvm  # what Spark prefixes is in no public method
    installed = java.org.apache.spark.api.python.PythonUtils.sparkPythonPath()
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (installed, os.environ.get("PYTHONPATH"))))


def guard_source_environment(spark: SparkSession) -> None:
    """Let queries of our source begin at the same time; to be called before the first, for all sessions of this Java.

    Spark 4.3 has one hash map of environment variables for all queries of a source, and each that begins puts some
    into it, without a lock. Two at once lose entries and leave the map's size wrong, and then no batch of any query
    can be sent to a task until Java ends (``Illegal size 5 of collection, expected 8``). Having all names there
    before does not prevent it: Scala's map makes room when it is nearly full, even to replace a value, and moves its
    entries for that. So the source gets a map that several may write.
    """
    java: Any = spark._jvm  # what Spark prefixes is in no public method
    # A session keeps what it looked up first: not this one, which may be the caller's.
    former = _source(spark.newSession())
    guarded = java.org.apache.spark.api.python.SimplePythonFunction(
        former.command(),
        java.java.util.concurrent.ConcurrentHashMap(former.envVars()),
        former.pythonIncludes(),
        former.pythonExec(),
        former.pythonVer(),
        former.broadcastVars(),
        former.accumulator(),
    )
    kind = java.org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource
    manager = getattr(getattr(java, f"{MANAGER}$"), "MODULE$")
    known = manager.dataSourceBuilders().get().updated(SOURCE, kind(guarded))
    getattr(manager, "dataSourceBuilders_$eq")(java.scala.Some(known))


def source_environment(spark: SparkSession) -> Any:
    """Java's map of the variables that our source's processes are given."""
    return _source(spark).envVars()


def _source(spark: SparkSession) -> Any:
    state: Any = spark._jsparkSession.sessionState()  # sources of data are known there alone
    return state.dataSourceManager().lookupDataSource(SOURCE).dataSourceCls()
