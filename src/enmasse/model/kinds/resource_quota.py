"""ResourceQuota: the most that one namespace may have of the installation, as Kubernetes has it.

Names of Kubernetes count objects and bound what runs; what Kubernetes has no name for begins with ``enmasse.io/``.
"""

from __future__ import annotations

from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from enmasse.model.schema.errors import Problem
from enmasse.model.schema.quantities import Quantity, amount_of, in_short
from enmasse.model.schema.resource import Resource, ResourceStatus
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


OBJECTS: Final = "enmasse.io/objects"
"""All objects of the namespace together."""

OBJECT_BYTES: Final = "enmasse.io/object-bytes"
"""The bytes that they take in the resource store."""

RUNNERS: Final[Mapping[str, Literal["memory", "cpu", "sessions"]]] = {
    "requests.memory": "memory",
    "limits.memory": "memory",
    "memory": "memory",
    "requests.cpu": "cpu",
    "limits.cpu": "cpu",
    "cpu": "cpu",
    "enmasse.io/sessions": "sessions",
}
"""Resources that the Spark sessions of a namespace's pipelines have together, by the name in a quota.

A session gets what it asks for and no more, so what it requests is its limit, too.
"""

NOT_COUNTED: Final = frozenset({"Event", "ResourceQuota"})
"""Kinds that count towards no quota: events have a bound of their own, quotas are the operator's."""

_BARE = ("configmaps", "secrets", "services")
"""Resources that Kubernetes counts without ``count/``, too."""


@cache
def counted_kinds() -> dict[str, str]:
    """Return the kinds that can be counted, by the name in a quota."""
    from enmasse.model.schema.kinds import KINDS  # noqa: PLC0415  # which names this kind among the others

    found = {}
    for kind in KINDS:
        if kind.scope == "Namespaced" and kind.name not in NOT_COUNTED:
            found[f"count/{kind.plural}.{kind.group}" if kind.group else f"count/{kind.plural}"] = kind.name
            if kind.plural in _BARE:
                found[kind.plural] = kind.name
    return found


def in_words(name: str, amount: Decimal) -> str:
    """Return an amount as a status shows it: bytes and cores in short."""
    return in_short(amount, is_bytes=name == OBJECT_BYTES or RUNNERS.get(name) == "memory")


class ResourceQuotaSpec(Model):
    """The most that the namespace may have."""

    hard: dict[str, Quantity] = Field(default_factory=dict)
    """The most, by name: `count/<resource>.<group>` of any kind, `requests.memory` and `requests.cpu` of what runs
    pipelines, `enmasse.io/sessions`, `enmasse.io/objects` and `enmasse.io/object-bytes`."""


class ResourceQuotaStatus(ResourceStatus):
    """The usage of a namespace."""

    is_ready: bool = Field(default=True, exclude=True)
    phase: str = Field(default="Active", exclude=True)
    messages: tuple[str, ...] = Field(default=(), strict=False, exclude=True)
    hard: dict[str, Quantity] = Field(default_factory=dict)
    """The most, as it is in force."""
    used: dict[str, Quantity] = Field(default_factory=dict)
    """The amounts in use now."""


class ResourceQuota(Resource):
    """The most that one namespace may have; of several, each counts."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["ResourceQuota"] = "ResourceQuota"
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()

    @property
    def hard(self) -> dict[str, Decimal]:
        """The most, by name, as numbers."""
        return {name: amount_of(quantity) for name, quantity in self.spec.hard.items()}

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        known = (*counted_kinds(), *RUNNERS, OBJECTS, OBJECT_BYTES)
        for name, amount in self.hard.items():
            if name not in known:
                yield Problem(f"spec.hard.{name}", _unknown(name, known))
            elif RUNNERS.get(name) != "cpu" and amount % 1:
                quantity = describe_value(self.spec.hard[name])
                yield Problem(f"spec.hard.{name}", f"expected a whole number, got {quantity}")


def _unknown(name: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    return f"nothing here is counted by this name, so it would bound nothing; {hint}"
