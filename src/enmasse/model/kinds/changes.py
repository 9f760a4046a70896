"""Checks of what may change between two versions of an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from enmasse.model.kinds.addresses import Address
from enmasse.model.kinds.core import ConfigMap, Secret
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.schema import describe_value

if TYPE_CHECKING:
    from enmasse.model.schema.resource import Resource


ResourceT = TypeVar("ResourceT", bound="Resource")


def keep_immutable(old: ResourceT, new: ResourceT) -> ResourceT:
    """Return ``new`` with the immutable fields that it does not mention taken from ``old``.

    So a manifest that leaves them to their defaults can be applied again and again.
    """
    spec = new.spec.to_dict()
    former = old.spec.to_dict()
    for path in new.immutable:
        if _at(spec, path) is None and (value := _at(former, path)) is not None:
            _put(spec, path, value)
    return new.model_copy(update={"spec": type(new.spec).model_validate(spec)})


def change_problems(old: Resource, new: Resource) -> list[Problem]:
    """Return the problems of ``new``: changes of fields that are fixed since ``old`` was created."""
    former, latter = old.spec.to_dict(), new.spec.to_dict()
    problems = []
    for path in new.immutable:
        before, after = _at(former, path), _at(latter, path)
        if path == "partitions" and before is None and isinstance(old, Address):
            # The plan decided when the stream was made.
            before = old.status.plan_status.partitions if old.status.plan_status else after
        if path == "subscription.maxConsumers" and isinstance(old, Address) and isinstance(new, Address):
            before, after = old.spec.max_consumers, new.spec.max_consumers
        if path == "storage":
            before = before or "message"
        if before != after and after is not None:
            problems.append(
                Problem(
                    f"spec.{path}",
                    f"cannot change from {describe_value(before)} to {describe_value(after)}; "
                    f"delete {old.kind} {old.metadata.name} and create it anew",
                )
            )
    return problems + _data_problems(old, new)


def _data_problems(old: Resource, new: Resource) -> list[Problem]:
    """Return forbidden changes in objects without spec."""
    anew = f"delete {old.kind} {old.metadata.name} and create it anew"
    match old, new:
        case ConfigMap() | Secret(), ConfigMap() | Secret() if old.is_immutable:
            if not new.is_immutable:
                return [Problem("immutable", f"cannot change once it is true; {anew}")]
            if _content(old) != _content(new):
                return [Problem("data", f"cannot change, because the {old.kind} is immutable; {anew}")]
    return []


def _content(resource: ConfigMap | Secret) -> dict[str, Any]:
    return {key: value for key, value in resource.to_dict().items() if key in ("type", "data", "binaryData")}


def _at(spec: dict[str, Any], path: str) -> Any:
    value: Any = spec
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _put(spec: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for part in parents:
        spec = spec.setdefault(part, {})
    spec[last] = value
