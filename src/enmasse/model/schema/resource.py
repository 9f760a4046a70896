"""The base of all resources: identity, metadata and a derived status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field

from enmasse.model.schema.conditions import Condition, phase_of, stamp, unmet
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.metadata import Metadata
from enmasse.model.schema.names import in_space_problem, is_subdomain, space_of
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from enmasse.model.schema.conditions import Unapplied


class ResourceStatus(Model):
    """The state of an object; written by controllers only."""

    is_ready: bool = False
    """True if it can be used."""
    phase: str = "Pending"
    """The phase of the object: Pending, Configuring, Active, Failed or Terminating."""
    messages: tuple[str, ...] = Field(default=(), strict=False)
    """The things that it waits for, in sentences."""
    conditions: tuple[Condition, ...] = Field(default=(), strict=False)
    """The conditions, each with whether it holds, and why."""

    def with_conditions(self, found: Sequence[Condition], now: str, *, deleted: bool = False) -> Self:
        """Return the status with these conditions and the fields derived from them.

        Args:
            found: the conditions that hold now.
            now: the present, RFC 3339 in UTC.
            deleted: whether the object is about to go.
        """
        conditions = stamp(found, self.conditions, now)
        phase = phase_of(found, deleted=deleted)
        if conditions == self.conditions and phase == self.phase:
            return self
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

    is_namespaced: ClassVar[bool] = True
    """True for objects in a namespace, False for those of the whole installation."""

    api_version: str
    """Group and version of the kind."""
    kind: str
    metadata: Metadata = Metadata()
    spec: Model
    status: ResourceStatus = ResourceStatus()

    @property
    def key(self) -> str:
        """Namespace and name, as in ``default/shop.orders``: unique within the kind."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        name = self.metadata.name_to_check
        if not name:
            yield Problem("metadata.name", "required, but it is missing")
        elif problem := self.name_problem(name):
            yield Problem("metadata.name", problem)
        yield from self.metadata.place_problems(is_namespaced=self.is_namespaced)
        yield from self.spec_problems()

    def name_problem(self, name: str) -> str | None:
        """Return what is wrong with a name for an object of this kind, or None."""
        return None if is_subdomain(name) else _name_rule(name)

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the spec; each kind adds its own rules."""
        yield from ()

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing, as far as the object alone shows."""
        yield from ()

    def settled(self) -> Self:
        """Return the stored form: fields that are there for writing alone are moved to their place."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, without absent and empty metadata."""
        document = super().to_dict()
        metadata = document["metadata"]
        document["metadata"] = {
            key: value
            for key, value in metadata.items()
            if value not in ("", 0, {}) or key == "deletionGracePeriodSeconds"
        }
        return document


class SpaceMember(Resource):
    """An object that belongs to a space: the part of its name before the first dot says which."""

    @property
    def space(self) -> str:
        """The name of the space."""
        return space_of(self.metadata.name)

    @property
    def space_key(self) -> str:
        """Namespace and name of the space, as in ``default/shop``."""
        return f"{self.metadata.namespace}/{self.space}"

    def name_problem(self, name: str) -> str | None:
        """Return what is wrong with a name."""
        return super().name_problem(name) or in_space_problem(name)


class _Nothing(Model):
    """No spec."""


class Data(Resource):
    """An object without spec and status: what it holds is what is."""

    spec: Model = Field(default=_Nothing(), exclude=True)
    status: ResourceStatus = Field(default=ResourceStatus(), exclude=True)


def _name_rule(name: str) -> str:
    return (
        "expected lower-case letters, digits, '-' and '.', each part beginning and ending with a letter "
        f"or digit, at most 253 characters, got {describe_value(name)}"
    )
