"""EnMasse: messaging as a service.

Rooms and the direction in which they may lean on each other are described in
ARCHITECTURE.md and enforced by the import contracts in pyproject.toml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["__version__", "notebook"]


def notebook(
    space: str | None = None,
    *,
    namespace: str = "default",
    data: str | Path | None = None,
    cores: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session of Spark for a notebook, in which a running installation is there by name.

    ``spark.read.format("enmasse").load("telemetry")`` reads an address, ``readStream`` and the sink know the place,
    too, and every table of the space's lake is a view: ``spark.sql("SELECT * FROM readings")``. Called again it shows
    tables as they are then.

    Args:
        space: the space of the addresses and tables; left out: the only one there is.
        namespace: the namespace of the space.
        data: the installation's directory; left out: ``ENMASSE_DATA``, or ``.enmasse``.
        cores: tasks at once; left out: all cores.
        settings: more of Spark's own settings.

    Raises:
        SparkMissingError: Java or PySpark is missing; the message holds the install command.
        UnavailableError: nothing runs there.
        ConfigError: Spark was started for another space, or for none: a kernel has one.
    """
    from enmasse.pipeline.notebook import start  # noqa: PLC0415  # only who asks for it needs Spark

    return start(space, namespace, data, cores, settings or {})
