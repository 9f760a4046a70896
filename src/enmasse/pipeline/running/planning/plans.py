"""Plans: the queries of a pipeline, each with what it reads, how it is computed and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.model.kinds.pipelines.databases import Database
from enmasse.model.kinds.pipelines.sinks import OutputMode, TableMaintenance
from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.pipeline.credentials import AUTHORITY, needs_tls
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.lake.objects import LakePath, storage_of
from enmasse.pipeline.registry_copy import FILE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from enmasse.pipeline.sink.encoding import Encoding


@dataclass(frozen=True)
class Place:
    """The places where the pipelines of one space find what they need."""

    url: str
    """URL of the space, ``amqp://host:port``."""
    host: str
    """The host name that chooses the space; empty: the URL's own."""
    folder: Path
    """Everything of the space's pipelines."""

    def options(self, credentials: str) -> dict[str, str]:
        """Return the options of every reader and writer of an address.

        Args:
            credentials: the name of whose it is done with; empty: nobody's.

        Raises:
            AccessError: there are no such credentials.
        """
        options = {"url": self.url}
        if self.host:
            options["space"] = self.host
        if credentials:
            options["credentials"] = credentials
            if needs_tls(credentials):
                options["url"] = self.url.replace("amqp://", "amqps://", 1)
                options["caFile"] = str(self.folder / "credentials" / AUTHORITY)
        return options

    @property
    def lake(self) -> LakePath:
        """The folder with a folder for each table."""
        storage = storage_of(self.folder / "credentials")
        return self.files if storage is None else storage.root

    @property
    def files(self) -> Path:
        """The folder of tables on this machine, with the files that sources read."""
        return self.folder / "lake"

    @property
    def registry(self) -> Path:
        """The copy of the schema registry."""
        return self.folder / "schemas" / FILE

    @property
    def models(self) -> Path:
        """The folder with a folder for each model."""
        return self.folder / "models"


@dataclass(frozen=True)
class AddressFacts:
    """Facts about an address of the space."""

    type: str
    """``stream``, ``queue`` ..."""
    schema: Mapping[str, Any] | None = None
    """The Address's ``spec.schema``, in its JSON form."""


@dataclass(frozen=True)
class AddressTarget:
    """Rows become messages."""

    address: str
    """``*``: each row's column ``address`` names it."""
    mode: OutputMode = "append"
    on_no_consumer: str = "fail"
    bad_records: str | None = None
    encoding: Encoding | None = None
    """The encoding of rows as messages; None: as JSON, or as they are."""


@dataclass(frozen=True)
class TableTarget:
    """Rows go into a table of the lake."""

    table: str
    layout: Layout = field(default_factory=Layout)
    maintenance: TableMaintenance | None = None

    @property
    def mode(self) -> OutputMode:
        """The query's output mode."""
        return self.layout.mode


@dataclass(frozen=True)
class DatabaseTarget:
    """Rows go into a table of a database."""

    database: Database
    mode: OutputMode = "append"
    keys: tuple[str, ...] = ()
    order_by: str | None = None
    is_partial: bool = False
    """True if rows change the columns that they set alone."""


Target = AddressTarget | TableTarget | DatabaseTarget


@dataclass(frozen=True)
class SharedTarget:
    """Rows belong to several plans, which one query carries out together."""

    parts: tuple[QueryPlan, ...]
    mode: OutputMode
    is_whole: bool = False
    """True if each part gets every row, and makes its own of them ``per_batch``."""


@dataclass(frozen=True)
class PerBatch:
    """A function over each micro-batch of a query as a whole, before it goes to its target."""

    schema: StructType
    """The columns of the rows that it gives."""
    rows_of: Callable[[DataFrame], DataFrame]
    """Takes a batch."""
    keeps_order: bool = False
    """True if rows stay in their tasks and order, so that they come in the same order when the batch comes again."""


@dataclass(frozen=True)
class QueryPlan:
    """One streaming query, with a checkpoint of its own."""

    name: str
    """Within its pipeline; the same after a restart."""
    frame: DataFrame
    target: Target | SharedTarget
    state: tuple[str, ...] = ()
    """The states that must stay the same for a checkpoint to fit: a line for each stateful step, with its schema."""
    trigger_s: float | None = None
    """Seconds between two batches; None: as the pipeline says."""
    per_batch: PerBatch | None = None
    on_start: Callable[[], None] = field(default=lambda: None)
    """Called before the query starts, each time."""


@dataclass(frozen=True)
class JobPlan:
    """Work that is done from time to time, not by a streaming query: training, compaction."""

    name: str
    run: Callable[[], str]
    """Does the job once and returns a sentence about the outcome."""
    every_s: float


class PlanContext(Protocol):
    """The context in which plans are made."""

    @property
    def spark(self) -> SparkSession:
        """The session, with the settings of this pipeline."""

    @property
    def place(self) -> Place:
        """The places of the space."""

    @property
    def pipeline(self) -> str:
        """The pipeline's name, ``shop.hot``."""

    @property
    def addresses(self) -> Mapping[str, AddressFacts]:
        """Facts about the addresses that the pipeline names."""

    def read(self, source: SourceSpec) -> DataFrame:
        """Return the rows of an address, decoded, those without that cannot be; or of a table.

        The same source gives the same frame. Bad records go where the source says.
        """

    def read_table(self, table: str) -> DataFrame:
        """Return a table of the lake as it is now."""
