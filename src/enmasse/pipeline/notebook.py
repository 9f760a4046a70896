"""``enmasse.notebook()``: a session of Spark in which the addresses and tables of a space are there by name."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.endpoints import read_endpoints
from enmasse.errors import UnavailableError
from enmasse.pipeline.session import require_spark, start_session
from enmasse.pipeline.source.options import SPACE_VARIABLE, URL_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def start(
    space: str | None, namespace: str, data: str | Path | None, cores: int | None, settings: Mapping[str, str]
) -> SparkSession:
    """Start a session, or return the one there is with its tables as they are now; see ``enmasse.notebook``."""
    require_spark()
    place = Path(data or os.environ.get("ENMASSE_DATA") or ".enmasse")
    endpoints = read_endpoints(Layout(place).endpoints)
    url = None if endpoints is None else endpoints.url("amqp")
    if endpoints is None or url is None:
        raise UnavailableError(
            f"nothing that speaks AMQP runs in {place}: start it with `enmasse up --data {place}`, or name another "
            "directory with data"
        )
    # Python's processes of Spark have them from here: sources and sinks need no further options.
    os.environ[URL_VARIABLE] = url
    if space is not None:
        os.environ[SPACE_VARIABLE] = f"{space}.{namespace}.{endpoints.domain}"
    work = Path(tempfile.mkdtemp(prefix="enmasse-notebook-"))
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    session = start_session("notebook", work, cores=cores, settings=settings)
    from enmasse.pipeline.lake.relation import relation, tables  # noqa: PLC0415  # which need Spark

    for lake in _lakes(place, space, namespace):
        for name in tables(lake):
            relation(session, lake / name).createOrReplaceTempView(name)
    return session


def _lakes(data: Path, space: str | None, namespace: str) -> list[Path]:
    """Return the lake of a space; of the only one where none is named."""
    folders = sorted((data / "pipelines").glob("*/lake"))
    if space is not None:
        return [folder for folder in folders if folder.parent.name == f"{namespace}.{space}"]
    return folders if len(folders) == 1 else []
