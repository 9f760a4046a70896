"""Metadata: the identity of an object, and its book-keeping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import is_label
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator


class OwnerReference(Model):
    """The object that this one belongs to, and goes with."""

    entry_keys: ClassVar[tuple[str, ...]] = ("uid",)

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    """True if the owner is the one that manages this object."""
    block_owner_deletion: bool | None = None


class ManagedFields(Model):
    """The fields that one manager has set; written by the API server."""

    manager: str
    """The manager, as the program called itself."""
    operation: Literal["Apply", "Update"]
    api_version: str
    time: str = ""
    """RFC 3339 in UTC."""
    fields_type: Literal["FieldsV1"] = "FieldsV1"
    fields_v1: dict[str, Any] = Field(default_factory=dict)
    """The set of fields: ``f:<name>`` for a field, ``k:<keys>`` for an entry of a list, ``v:<value>`` of a set."""
    subresource: str = ""
    """``status``, or empty for the object itself."""


class Metadata(Model):
    """Identity and book-keeping; what only the store writes is marked so."""

    name: str = ""
    """Unique in its kind and namespace."""
    generate_name: str = ""
    """Without a name: what the name that the service chooses begins with."""
    namespace: str = ""
    """The namespace; empty for what is of the whole installation."""
    labels: dict[str, str] = Field(default_factory=dict)
    """The labels, by which objects are chosen."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Notes of people and programs."""
    finalizers: tuple[str, ...] = Field(default=(), strict=False, json_schema_extra={"x-kubernetes-list-type": "set"})
    """The names of those who have something to do before the object goes; it goes when the last one is taken off."""
    owner_references: tuple[OwnerReference, ...] = Field(default=(), strict=False)
    """The objects that it belongs to."""
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
    deletion_grace_period_seconds: int | None = None
    """Written by the store: how long the deletion was given."""
    managed_fields: tuple[ManagedFields, ...] = Field(default=(), strict=False)
    """Written by the store: who has set which fields."""

    @property
    def name_to_check(self) -> str:
        """The name, or one of those that may be chosen."""
        return self.name or (f"{self.generate_name}x" if self.generate_name else "")

    def place_problems(self, *, is_namespaced: bool) -> Iterator[Problem]:
        """Yield what is wrong with the namespace."""
        if not is_namespaced:
            if self.namespace:
                yield Problem("metadata.namespace", f"expected none for this kind, got '{self.namespace}'")
        elif self.namespace and not is_label(self.namespace):
            yield Problem(
                "metadata.namespace",
                "expected lower-case letters, digits and '-', beginning and ending with a letter or digit, "
                f"at most 63 characters, got {describe_value(self.namespace)}",
            )
