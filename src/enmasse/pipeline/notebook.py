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
from enmasse.errors import ConfigError, UnavailableError
from enmasse.pipeline.credentials import FOLDER_VARIABLE
from enmasse.pipeline.lake.objects import storage_of
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
    where = {URL_VARIABLE: url}
    if space is not None:
        where[SPACE_VARIABLE] = f"{space}.{namespace}.{endpoints.domain}"
    from pyspark import SparkContext  # noqa: PLC0415  # only now is it known to be there

    if SparkContext._gateway is not None and not where.items() <= os.environ.items():  # is there Java?
        raise ConfigError(
            f"Spark was started in this kernel before it knew of {where.get(SPACE_VARIABLE, url)}, which sources and "
            "sinks would not find: restart the kernel, and call enmasse.notebook() for that first"
        )
    # Python's processes of Spark have it from here: sources and sinks need no further options.
    os.environ.update(where)
    folder = _folder(place, space, namespace)
    storage = None if folder is None else storage_of(folder / "credentials")
    if folder is not None and storage is not None:
        # Where Python's processes look for what opens the storage; who has named a folder keeps it.
        os.environ.setdefault(FOLDER_VARIABLE, str((folder / "credentials").resolve()))
    work = Path(tempfile.mkdtemp(prefix="enmasse-notebook-"))
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    session = start_session("notebook", work, cores=cores, settings=settings)
    from enmasse.pipeline.lake.relation import relation, tables  # noqa: PLC0415  # which need Spark

    if folder is not None:
        lake = folder / "lake" if storage is None else storage.root
        for name in tables(lake):
            relation(session, lake / name).createOrReplaceTempView(name)
    return session


def _folder(data: Path, space: str | None, namespace: str) -> Path | None:
    """Return the folder of a space; of the only one where none is named."""
    name = "*" if space is None else f"{namespace}.{space}"
    found = [lake.parent for lake in (data / "pipelines").glob(f"{name}/lake")]
    return found[0] if len(found) == 1 else None
