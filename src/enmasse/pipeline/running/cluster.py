"""Whether a standalone cluster is there, asked before Spark waits for it without a word."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Final

from enmasse.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["require_executor", "require_master"]

CONNECT_S: Final = 10.0
EXECUTOR_S: Final = 60.0
"""An executor starts in seconds, or in many where its machine is busy."""
_LOOK_S: Final = 0.2


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
        url: of the cluster, for the error.
        seconds: how long to wait.

    Raises:
        UnavailableError: it has given none.
    """
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001  # Python is not told
    deadline = time.monotonic() + seconds
    # The driver itself is one of them.
    while context.getExecutorMemoryStatus().size() < 2:
        if time.monotonic() > deadline:
            memory = spark.conf.get("spark.executor.memory", "1g")
            raise UnavailableError(
                f"cluster {url} has given no executor in {seconds:g} s: it needs a living worker with a free core "
                f"and {memory} of free memory"
            )
        time.sleep(_LOOK_S)
