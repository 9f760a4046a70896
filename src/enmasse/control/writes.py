"""A write to the registry, as those see it who may refuse or complete it.

An *admission* is asked inside the transaction, before the object is stored:
it may return another object than it was given (defaults filled in, a password
taken out and put aside), or raise, and then nothing is written at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from enmasse.identity.requester import LOCAL_OPERATOR, Requester

if TYPE_CHECKING:
    from enmasse.control.store import ResourceStore
    from enmasse.model.resource import Resource

__all__ = ["LOCAL_OPERATOR", "Admission", "Operation", "Requester", "Write"]

Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class Write:
    """One object about to be written.

    Attributes:
        operation: what is done to it.
        old: as it is stored; None: it is created.
        new: as it is to be, its uid included; None: it is deleted.
        store: where it lies; writes to it belong to the same transaction.
        user: who asks for it.
    """

    operation: Operation
    old: Resource | None
    new: Resource | None
    store: ResourceStore
    user: Requester = LOCAL_OPERATOR

    @property
    def resource(self) -> Resource:
        """The object that this is about, new or about to go."""
        found = self.new or self.old
        assert found is not None
        return found


class Admission(Protocol):
    """Something that must agree with writes.

    Attributes:
        kinds: the kinds of objects that it wants to see.
    """

    kinds: frozenset[str]

    def admit(self, write: Write) -> Resource:
        """Return the object to be stored (for a deletion: the old one, which is not looked at).

        Raises:
            InvalidResourceError: when it breaks a rule.
            ForbiddenError: when the user may not do that.
            ConflictError: when it contradicts what else is stored.
        """
        ...
