"""What the API serves: each kind in each of its versions, with its verbs and what lies below it.

Discovery and OpenAPI are made from this, so that both say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from enmasse.api.actions import ACTIONS
from enmasse.model.kinds import KINDS

if TYPE_CHECKING:
    from enmasse.model.kinds import Kind

__all__ = ["SERVED", "Served", "Subresource", "group_prefix"]

_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A path below an object.

    Attributes:
        name: its last part.
        verbs: what can be done there, in Kubernetes' words.
        kind: of what is answered; empty: the object itself.
        answer: what is answered.
    """

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    answer: Literal["object", "status", "rows", "text"] = "object"


@dataclass(frozen=True, slots=True)
class Served:
    """One kind in one version."""

    kind: Kind
    version: str

    @property
    def group(self) -> str:
        """The API group; empty for Kubernetes' core."""
        return self.kind.group

    @property
    def api_version(self) -> str:
        """Group and version, as ``apiVersion:`` has it."""
        return self.kind.api_version_of(self.version)

    @property
    def prefix(self) -> str:
        """What all its paths begin with."""
        return self.kind.base_path(self.version)

    @property
    def is_namespaced(self) -> bool:
        """Whether its objects lie in namespaces."""
        return self.kind.scope == "Namespaced"

    @property
    def is_read_only(self) -> bool:
        """Whether only the service itself writes its objects."""
        return self.kind.is_read_only

    @property
    def verbs(self) -> tuple[str, ...]:
        """What can be done with its objects, in Kubernetes' words."""
        return _READ if self.is_read_only else tuple(sorted((*_READ, *_WRITE)))

    @property
    def subresources(self) -> tuple[Subresource, ...]:
        """What lies below each of its objects."""
        found = []
        if self.kind.is_ours and not self.is_read_only:
            found.append(Subresource("status", ("get", "patch", "update")))
        if self.kind.name == "Address":
            found += [Subresource(action, ("create",), "Status", "status") for action in ACTIONS]
        if self.kind.name == "AddressSpace":
            found.append(Subresource("query", ("create",), "QueryResult", "rows"))
        if self.kind.name == "Pipeline":
            found.append(Subresource("log", ("get",), answer="text"))
        return tuple(found)


def group_prefix(group: str) -> str:
    """Return the path of a group."""
    return f"/apis/{group}" if group else "/api"


SERVED: tuple[Served, ...] = tuple(Served(kind, version) for kind in KINDS for version in kind.versions)
"""In the order of the kinds; of each kind, the version that is stored comes first."""
