"""MessagingNode: a node of the installation, on which spaces are at home."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from enmasse.model.schema.conditions import Unapplied
from enmasse.model.schema.resource import Resource, ResourceStatus
from enmasse.model.schema.schema import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

NodeRole = Literal["front", "home"]


class MessagingNodeSpec(Model):
    """The operator's wishes for a node; its labels are those of its metadata."""

    unschedulable: bool = False
    """True if no new space is placed on it: it is cordoned. Those that it has stay."""
    roles: tuple[NodeRole, ...] = Field(default=("front", "home"), strict=False)
    """`home`: spaces may be placed on it; `front`: it accepts connections and hands them over, as every node does."""


class MessagingNodeStatus(ResourceStatus):
    """The state of a node, as control found it."""

    spaces: int = 0
    """The number of spaces that are at home on it."""


class MessagingNode(Resource):
    """A node of the installation; control makes one for each node that it is started with."""

    is_namespaced: ClassVar[bool] = False

    api_version: Literal["admin.enmasse.io/v1beta1"] = "admin.enmasse.io/v1beta1"
    kind: Literal["MessagingNode"] = "MessagingNode"
    spec: MessagingNodeSpec = MessagingNodeSpec()
    status: MessagingNodeStatus = MessagingNodeStatus()

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield each field that is kept and shown, but changes nothing."""
        if "front" not in self.spec.roles:
            yield Unapplied("spec.roles", "every node accepts connections, so each is a front")
