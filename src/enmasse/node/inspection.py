"""Connections and links of one space, for whoever manages the node; in pages, as there may be many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from enmasse.node.entity_fields import SPACE_TYPE
from enmasse.node.errors import EntityError

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.connections import Connections
    from enmasse.node.entities import Entities

__all__ = ["Inspection"]

MOST_ROWS = 200
"""As many as one answer tells."""

Operation = Callable[[str, Any], dict[str, Any]]


class Inspection:
    """What the node's management knows beyond entities: who is in a space, and how to send somebody out.

    Args:
        entities: the node's spaces.
        connections: the node's connections.
    """

    def __init__(self, entities: Entities, connections: Connections) -> None:
        self._entities = entities
        self._connections = connections

    @property
    def operations(self) -> dict[tuple[str, str], Operation]:
        """What can be asked for, by entity type and operation."""
        return {
            (SPACE_TYPE, "CONNECTIONS"): lambda name, body: self._page(name, body, self._connections.connections_of),
            (SPACE_TYPE, "LINKS"): lambda name, body: self._page(name, body, self._connections.links_of),
            (SPACE_TYPE, "CLOSE"): self._close,
        }

    def _space(self, name: str) -> Space:
        space = self._entities.spaces.get(name)
        if space is None:
            raise EntityError(404, f"there is no space {name!r:.400}")
        return space

    def _page(self, name: str, body: Any, of: Callable[[Space], Iterator[dict[str, Any]]]) -> dict[str, Any]:
        offset = body.get("offset", 0) if isinstance(body, dict) else 0
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise EntityError(400, f"offset is a number from 0 on, not {offset!r:.100}")
        found = list(islice(of(self._space(name)), offset, offset + MOST_ROWS + 1))
        return {"results": found[:MOST_ROWS], "hasMore": len(found) > MOST_ROWS}

    def _close(self, name: str, body: Any) -> dict[str, Any]:
        number = body.get("connection") if isinstance(body, dict) else None
        if not isinstance(number, str):
            raise EntityError(400, f"connection is a connection's number in a string, not {number!r:.100}")
        if not self._connections.close(number, "closed by an operator", self._space(name)):
            raise EntityError(404, f"space {name!r} has no connection {number!r:.100}")
        return {}
