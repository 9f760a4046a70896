"""What all resources have in common: identity, metadata and a derived status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field

from enmasse.model.conditions import Condition, phase_of, stamp, unmet
from enmasse.model.errors import Problem
from enmasse.model.names import is_label, is_subdomain
from enmasse.model.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Metadata", "Resource", "ResourceStatus"]


class Metadata(Model):
    """Identity and book-keeping; what only the store writes is marked so."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    uid: str = ""
    """Written by the store: tells an object from a later one of the same name."""
    resource_version: str = ""
    """Written by the store: changes with every write, for watches and optimistic locking."""
    generation: int = 0
    """Written by the store: changes with every write to ``spec``."""
    creation_timestamp: str = ""
    """Written by the store: RFC 3339 in UTC."""
    deletion_timestamp: str | None = None
    """Written by the store: when the deletion was asked for, while it is going on."""


class ResourceStatus(Model):
    """What a controller found; written by controllers only."""

    is_ready: bool = False
    phase: str = "Pending"
    messages: tuple[str, ...] = Field(default=(), strict=False)
    conditions: tuple[Condition, ...] = Field(default=(), strict=False)

    def with_conditions(self, found: Sequence[Condition], now: str) -> Self:
        """Return the status with these conditions and all that follows from them."""
        conditions = stamp(found, self.conditions, now)
        if conditions == self.conditions:
            return self
        phase = phase_of(found)
        return self.model_copy(
            update={
                "conditions": conditions,
                "is_ready": phase == "Active",
                "phase": phase,
                "messages": unmet(found),
            }
        )


class Resource(Model):
    """A declared object: what should be (``spec``) and what was found (``status``)."""

    immutable: ClassVar[tuple[str, ...]] = ()
    """Paths below ``spec`` that keep their first value for the object's life."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: Model
    status: ResourceStatus = ResourceStatus()

    @property
    def key(self) -> str:
        """Namespace and name, as in ``default/shop.orders``: unique within the kind."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        name, namespace = self.metadata.name, self.metadata.namespace
        if not is_subdomain(name):
            yield Problem("metadata.name", _name_rule(name))
        if namespace and not is_label(namespace):
            yield Problem(
                "metadata.namespace",
                "expected lower-case letters, digits and '-', beginning and ending with a letter or digit, "
                f"at most 63 characters, got {describe_value(namespace)}",
            )
        yield from self.spec_problems()

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the spec; each kind adds its own rules."""
        yield from ()

    def unapplied(self) -> Iterator[str]:
        """Yield a sentence for each field that is kept and shown, but changes nothing yet."""
        yield from ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, without absent and empty metadata."""
        document = super().to_dict()
        metadata = document["metadata"]
        document["metadata"] = {key: value for key, value in metadata.items() if value not in ("", 0, {})}
        return document


def _name_rule(name: str) -> str:
    return (
        "expected lower-case letters, digits, '-' and '.', each part beginning and ending with a letter "
        f"or digit, at most 253 characters, got {describe_value(name)}"
    )
