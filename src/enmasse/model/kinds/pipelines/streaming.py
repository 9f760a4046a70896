"""Checks of what steps ask of streams, which have no end: Spark takes some of it, and the rows stop coming.

Rules:
1. A source is a stream unless it is a table that is joined; a step that reads a stream is one.
2. With ``perBatch`` a step is done with each batch, and so is what reads it: a batch has an end.
3. A table with ``mode: complete`` is written anew each time: what goes there may be ordered, cut and taken back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.model.schema.errors import Problem
from enmasse.model.sql.functions import model_calls
from enmasse.model.sql.sql import SqlError, checked_sql, checked_streaming

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
    from enmasse.model.kinds.pipelines.steps import StepSpec
    from enmasse.model.sql.sql import Columns


def streaming_problems(
    spec: PipelineSpec, relations: Mapping[str, Columns], own: frozenset[str]
) -> Iterator[Problem]:
    """Yield what steps ask of streams that only rows with an end have.

    Args:
        spec: the declaration of the pipeline.
        relations: the columns of its sources and steps, in their order.
        own: the names of its functions for SQL.
    """
    modes = {sink.mode for sink in spec.sinks}
    ends_groups = "update" not in modes and any(source.watermark is not None for source in spec.sources)
    joined = (source.name for source in spec.sources if source.database or (source.table and not source.stream))
    streams = {source.name for source in spec.sources} - set(joined)
    with_watermark = {source.name for source in spec.sources if source.watermark is not None}
    with_windows: set[str] = set()
    known = {source.name: relations[source.name] for source in spec.sources}
    for index, step in enumerate(spec.steps):
        read = set(reads_of(step, known, own))
        known[step.name] = relations[step.name]
        if step.per_batch or not read & streams:
            continue
        streams.add(step.name)
        has_windows = bool(read & with_windows)
        if step.sql is not None:
            asked = frozenset((name, name in with_watermark) for name in read & streams)
            try:
                has_windows |= checked_streaming(
                    step.sql, asked, has_windows=has_windows or ends_groups, is_complete="complete" in modes
                )
            except SqlError as error:
                yield Problem(f"spec.steps[{index}].sql", str(error))
        if has_windows:
            with_windows.add(step.name)
        if read & with_watermark:
            with_watermark.add(step.name)


def reads_of(step: StepSpec, relations: Mapping[str, Columns], own: frozenset[str]) -> Collection[str]:
    """Return the relations that a step reads."""
    if step.inputs:
        return step.inputs
    if step.sql is None:
        return (step.input or next(reversed(list(relations)), ""),)
    try:
        return checked_sql(step.sql, relations, own | model_calls(step.sql)).relations
    except SqlError:
        return ()  # said with the other problems of the step
