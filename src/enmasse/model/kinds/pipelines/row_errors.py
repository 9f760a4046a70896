"""The verdict on a row for which an expression fails, by the steps' own words, their sources' and the pipeline's.

Rules:
1. A step's own ``onError`` counts; else that of the sources that its rows come from; else the pipeline's; else
   ``dead-letter`` where there is an address for bad records, and ``drop`` where there is none.
2. That address is the step's own; else that of the sources, if it is one.
3. A step whose rows are not computed one by one fails with its query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from enmasse.model.kinds.pipelines.relations import OnError
from enmasse.model.kinds.pipelines.streaming import reads_of
from enmasse.model.schema.errors import Problem

# A pipeline and the rules for it know each other: the rules are a subject of their own.
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
    from enmasse.model.kinds.pipelines.sources import SourceSpec
    from enmasse.model.kinds.pipelines.steps import StepSpec
    from enmasse.model.sql.sql import Columns

DEGRADED_ABOVE: Final = 0.05
"""The share of rows that may not fit, or fail, where a source does not say."""


@dataclass(frozen=True)
class RowErrors:
    """The verdict on rows of a relation that an expression fails for."""

    action: OnError
    bad_records: str | None
    """The address of dead letters."""
    degraded_above: float
    """The share of rows that may fail before the pipeline is said to be degraded."""


def row_errors(spec: PipelineSpec) -> dict[str, RowErrors]:
    """Return what becomes of failing rows, by the relation that they are computed in."""
    found = {}
    for one in _relations(spec):
        letters = {source.bad_records for source in one.sources if source.bad_records is not None}
        address = letters.pop() if len(letters) == 1 else None
        said = {source.on_error for source in one.sources if source.on_error is not None}
        own = None
        if one.step is not None:
            address, own = one.step.bad_records or address, one.step.on_error
        default: OnError = "drop" if address is None else "dead-letter"
        if one.whole or (one.step is not None and one.step.drop_duplicates):
            default = "fail"
            said = set()
        action = own or (said.pop() if len(said) == 1 else None) or (None if one.whole else spec.on_error) or default
        shares = [source.degraded_above for source in one.sources if source.degraded_above is not None]
        found[one.name] = RowErrors(action, address, min(shares, default=DEGRADED_ABOVE))
    return found


def row_error_problems(spec: PipelineSpec) -> Iterator[Problem]:
    """Yield what is wrong with what is to become of failing rows."""
    relations = _relations(spec)
    actions = row_errors(spec)
    steps = [one for one in relations if one.step is not None]
    computing = [one for one in steps if not one.whole and one.step is not None and not one.step.drop_duplicates]
    deleting = any(sink.delete_when is not None for sink in spec.sinks)
    if spec.on_error is not None and not computing and not deleting:
        yield Problem("spec.onError", "nothing computes rows one by one: no step does, and no deleteWhen")
    for index, source in enumerate(spec.sources):
        path = f"spec.sources[{index}]"
        if source.on_drift == "fail" and not gets_letters(spec, source):
            yield Problem(f"{path}.badRecords", "nothing goes there with onDrift fail, and no step sends rows there")
        if source.on_error is None:
            continue
        if not deleting and not any(source in one.sources for one in computing):
            yield Problem(f"{path}.onError", "no step computes its rows one by one; onDrift is of what does not fit")
        if source.on_error == "dead-letter" and source.bad_records is None:
            yield Problem(f"{path}.badRecords", "required with onError dead-letter: the address that rows go to")
    for one in steps:
        yield from _step_problems(spec, one, actions[one.name])


def gets_letters(spec: PipelineSpec, source: SourceSpec) -> bool:
    """Return whether rows can come to the address for bad records of a source that were decoded."""
    if source.bad_records is None or any(one.action == "dead-letter" for one in source.expectations):
        return True
    computed = {step.name for step in spec.steps if step.sql or step.function}
    last = spec.steps[-1].name if spec.steps else source.name
    computed |= {sink.input or last for sink in spec.sinks if sink.delete_when is not None}
    sending = (one for name, one in row_errors(spec).items() if name in computed and one.action == "dead-letter")
    return any(one.bad_records == source.bad_records for one in sending)


def _step_problems(spec: PipelineSpec, one: _Relation, found: RowErrors) -> Iterator[Problem]:
    step = one.step
    assert step is not None
    path = f"spec.steps[{one.index}]"
    if step.drop_duplicates:
        if step.on_error is not None:
            yield Problem(f"{path}.onError", "leaving out duplicates computes nothing that could fail")
        return
    said = {source.on_error for source in one.sources if source.on_error is not None}
    if one.whole:
        wanted = {step.on_error} if step.on_error is not None else {*said, spec.on_error}
        if wanted - {None, "fail"}:
            whose = "" if step.on_error is not None else "required: fail, for "
            yield Problem(f"{path}.onError", f"{whose}{one.whole}: an error in it fails the query, not a row")
        return
    if step.on_error is None and len(said) > 1:
        yield Problem(f"{path}.onError", f"required: its sources say {' and '.join(sorted(said))}")
    if found.action == "null" and step.function is not None:
        said_there = "" if step.on_error is not None else "required: "
        yield Problem(f"{path}.onError", f"{said_there}drop, dead-letter or fail: a function gives rows, not values")
    if found.action == "dead-letter" and found.bad_records is None:
        yield Problem(f"{path}.badRecords", "required with onError dead-letter: the address that rows go to")
    has_letters = any(expected.action == "dead-letter" for expected in step.expectations)
    if step.bad_records is not None and found.action != "dead-letter" and not has_letters:
        yield Problem(
            f"{path}.badRecords",
            f"nothing goes there with onError {found.action} and without an expectation with action dead-letter",
        )


@dataclass(frozen=True)
class _Relation:
    name: str
    sources: tuple[SourceSpec, ...]
    """The relations that its rows come from."""
    step: StepSpec | None = None
    index: int = 0
    whole: str = ""
    """Why its rows are not computed one by one; empty: they are."""


def _relations(spec: PipelineSpec) -> list[_Relation]:
    own = frozenset(one.name for one in spec.code.functions) if spec.code is not None else frozenset[str]()
    made = {source.name: _Relation(source.name, (source,)) for source in spec.sources}
    for index, step in enumerate(spec.steps):
        known: Mapping[str, Columns] = dict.fromkeys(made)
        read = [made[name] for name in reads_of(step, known, own) if name in made]
        # Once each: a source may be read in several ways.
        sources = {source.name: source for one in read for source in one.sources}
        of_batch = step.per_batch or any(one.whole == _OF_BATCH for one in read)
        whole = _OF_BATCH if of_batch else _OF_KEYS if step.state_by else _OF_ALL if step.inputs else ""
        made[step.name] = _Relation(step.name, tuple(sources.values()), step, index, whole)
    return list(made.values())


_OF_BATCH: Final = "it is done with each batch as a whole (perBatch)"
_OF_KEYS: Final = "its function is called with all rows of a key, and keeps a state"
_OF_ALL: Final = "its function is called with whole relations (inputs)"
