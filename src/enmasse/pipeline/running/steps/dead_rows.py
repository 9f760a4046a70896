"""The stage that sends the rows that an expression fails for to dead letters, within the query that computes it.

Rules:
1. A task has its letters accepted before it ends, numbered: a batch that is repeated has the same, and adds none. So
   a row is in what the query writes or in its dead letters, whatever is killed.
2. Of the queries of a pipeline one sends the letters of a relation, through one such stage.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from enmasse.pipeline.sink.identity import Identity, of_streaming_task
from enmasse.pipeline.sink.options import SinkOptions
from enmasse.pipeline.sink.writers import sink_task
from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from pyspark.sql import Column

DEAD: Final = "dead letters of "
"""The beginning of the name of the function that is the stage; the relation's name follows."""


@dataclass(frozen=True)
class DeadRows:
    """The stage of one relation.

    Attributes:
        relation: its name.
        options: the options of the sink that letters go to.
    """

    relation: str
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name under which it numbers letters."""
        return f"{DEAD}{self.relation}"

    def sent(self, place: str, letters: Column) -> Column:
        """Return where there is no letter; those that there are will have been sent.

        Args:
            place: the stage of the relation.
            letters: structures of the columns of a message, or NULL.
        """
        from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415  # loaded when the session was made

        stage = self

        def send(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            settle()
            task = of_streaming_task()
            producer = str(uuid.uuid5(uuid.UUID(task.query), f"{stage.name}#{place}"))
            identity = Identity(producer, task.batch, task.task)
            with sink_task(SinkOptions.parse(stage.options), identity) as sink:
                for batch in batches:
                    if batch.null_count < len(batch):
                        sink.take(pa.RecordBatch.from_struct_array(batch.drop_null()))
                    yield batch.is_null()
                sink.finish()

        send.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}  # as Spark reads them
        # So that Spark neither moves it nor computes it twice.
        made: Any = arrow_udf  # its stubs have no iterators
        found: Column = made(send, "boolean").asNondeterministic()(letters)
        return found
