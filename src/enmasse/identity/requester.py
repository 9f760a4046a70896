"""Who asks the API for something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "ADMINISTRATORS",
    "ANONYMOUS",
    "AUTHENTICATED",
    "LOCAL_OPERATOR",
    "OURSELVES",
    "PIPELINE_HOST",
    "Requester",
]

ADMINISTRATORS: Final = "system:masters"
"""The group whose members may do everything; the name is that of Kubernetes."""

AUTHENTICATED: Final = "system:authenticated"
"""The group of everybody who has proved who they are."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Somebody who has proved who they are, or nobody in particular.

    Attributes:
        name: of the user, as role bindings have it.
        groups: of which the user is a member.
        is_admin: whether no question is asked.
    """

    name: str
    groups: tuple[str, ...] = ()
    is_admin: bool = False

    @classmethod
    def known(cls, name: str, groups: tuple[str, ...] = ()) -> Requester:
        """Return a requester who has proved who they are."""
        every = tuple(dict.fromkeys((*groups, AUTHENTICATED)))
        return cls(name, every, ADMINISTRATORS in every)


LOCAL_OPERATOR: Final = Requester.known("system:operator", (ADMINISTRATORS,))
"""Whoever may read the data directory, or reach an API that is open on loopback."""

OURSELVES: Final = Requester.known("system:enmasse:control", (ADMINISTRATORS,))
"""The control process itself, as its controllers write."""

PIPELINE_HOST: Final = Requester.known("system:enmasse:pipelines")
"""The process that runs pipelines: a client of the API like any other, with a role of its own."""

ANONYMOUS: Final = Requester("system:anonymous", ("system:unauthenticated",))
"""Nobody in particular."""
