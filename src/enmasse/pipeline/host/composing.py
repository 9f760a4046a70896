"""The status of a pipeline, made of what the host finds and what the runner says. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from enmasse.model.conditions import READY, Condition, find, stamp, unmet
from enmasse.model.pipelines import Pipeline, PipelineStatus
from enmasse.pipeline.host.verdict import Verdict

__all__ = ["compose"]

_CANNOT = frozenset({"ClusterAllowed", "PythonAllowed", "SparkAvailable"})
"""What does not come by waiting."""
_PHASE_OF_REASON = {"Running": "Running", "Finished": "Finished", "Starting": "Starting", "Paused": "Starting"}
"""What a runner's condition Ready means; every other reason is a failure. Who was paused and is not, is to start."""
_READY_PHASES = frozenset({"Running", "Finished"})


def compose(
    pipeline: Pipeline,
    former: PipelineStatus,
    verdict: Verdict,
    said: PipelineStatus | None,
    now: str,
    *,
    ending: str = "",
) -> PipelineStatus:
    """Return what is to be published of a pipeline.

    Args:
        pipeline: as declared.
        former: what was published last.
        verdict: what the host found.
        said: what the runner said of the present generation; None: nothing yet.
        now: the present, RFC 3339 in UTC.
        ending: how the runner ended, if it has and is not ready again.
    """
    phase, reason, message = _phase(pipeline, verdict, said, ending)
    conditions = [*verdict.conditions, *_more(verdict.conditions, said)]
    ready = Condition(
        type=READY,
        status="True" if phase in _READY_PHASES else "False",
        reason=reason,
        message=message,
        observed_generation=pipeline.metadata.generation,
    )
    conditions.append(ready)
    fields: dict[str, Any] = {
        "conditions": stamp(conditions, former.conditions, now),
        "is_ready": phase in _READY_PHASES,
        "phase": phase,
        "messages": unmet(conditions),
        "observed_generation": pipeline.metadata.generation,
    }
    if said is not None and verdict.is_wanted:
        for name in ("queries", "rows", "rate", "lag", "last_error", "restarted_at", "warnings"):
            fields[name] = getattr(said, name)
        if said.restarted_at is None:
            fields["restarted_at"] = former.restarted_at
    elif phase != "Starting":
        state = "Paused" if phase == "Paused" else "Finished" if phase == "Finished" else "Waiting"
        fields["queries"] = tuple(
            query.model_copy(
                update={"state": state, "input_rows_per_second": None, "processed_rows_per_second": None}
            )
            for query in former.queries
        )
        fields["rate"] = None
    return former.model_copy(update=fields)


def _phase(pipeline: Pipeline, verdict: Verdict, said: PipelineStatus | None, ending: str) -> tuple[str, str, str]:
    """Phase, reason and message of a pipeline."""
    if pipeline.metadata.deletion_timestamp:
        return "Terminating", "Deleted", "it is stopped, and its place is removed"
    wrong = next((item for item in verdict.conditions if item.status != "True"), None)
    if verdict.rest == "Paused":
        return "Paused", "Paused", "spec.paused is true"
    if verdict.rest == "Finished":
        return "Finished", "Finished", ""
    if not verdict.is_wanted and wrong is not None:
        return ("Failed" if wrong.type in _CANNOT else "Pending"), wrong.reason, wrong.message
    told = None if said is None else find(said.conditions, READY)
    if told is None:
        if ending:
            return "Starting", "RunnerEnded", f"the runner {ending} and is started again"
        return "Starting", "Starting", "Spark starts"
    phase = _PHASE_OF_REASON.get(told.reason, "Failed")
    return phase, told.reason, told.message


def _more(ours: Sequence[Condition], said: PipelineStatus | None) -> list[Condition]:
    """What the runner says that the host does not."""
    if said is None:
        return []
    known = {item.type for item in ours} | {READY}
    return [item for item in said.conditions if item.type not in known]
