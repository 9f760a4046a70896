"""From what a Pipeline declares to the parameters of a built-in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from enmasse.model.builtins import BuiltinParameters
from enmasse.model.durations import milliseconds
from enmasse.model.schema import explain
from enmasse.pipeline.errors import PlanError

__all__ = ["checked", "micros", "seconds"]

P = TypeVar("P", bound=BuiltinParameters)


def checked(kind: type[P], given: P | Mapping[str, Any]) -> P:
    """Return parameters that are right.

    Args:
        kind: the class of the built-in pipeline.
        given: as declared, or checked before.

    Raises:
        PlanError: they are not; the message names each and what was expected.
    """
    try:
        parameters = given if isinstance(given, kind) else kind.model_validate(dict(given))
    except ValidationError as error:
        problems = explain(error, kind)
    else:
        problems = list(parameters.problems())
        if not problems:
            return parameters
    told = "; ".join(f"spec.builtin.parameters.{problem.path}: {problem.message}" for problem in problems)
    raise PlanError(told)


def seconds(duration: str) -> float:
    """The length of a duration that was checked."""
    return milliseconds(duration) / 1000


def micros(duration: str) -> int:
    """The length of a duration that was checked, in microseconds."""
    return milliseconds(duration) * 1000
