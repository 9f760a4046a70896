"""Which runner a pipeline belongs to. Pure."""

from __future__ import annotations

from enmasse.model.pipelines import Pipeline
from enmasse.model.quantities import amount_of
from enmasse.pipeline.host.space_runner import RunnerKey

__all__ = ["arguments_of", "runner_key"]


def runner_key(pipeline: Pipeline) -> RunnerKey:
    """Return the runner that a pipeline belongs to."""
    resources = pipeline.spec.resources
    is_own = resources is not None and (resources.session == "own" or bool(resources.master))
    return RunnerKey(pipeline.space_key, pipeline.metadata.name if is_own else "")


def arguments_of(pipeline: Pipeline) -> list[str]:
    """Return the arguments of a runner that is of one pipeline alone."""
    resources = pipeline.spec.resources
    assert resources is not None
    found = ["--session", pipeline.metadata.name]
    if resources.cores is not None:
        found += ["--cores", str(resources.cores)]
    if resources.memory is not None:
        found += ["--memory", f"{max(1, int(amount_of(resources.memory)) >> 20)}m"]
    if resources.master:
        found += ["--master", resources.master]
    return found
