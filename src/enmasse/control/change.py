"""Changes of the resource store, as those who follow it see them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Action", "Change", "Document", "Key"]

Document = dict[str, Any]
Action = Literal["ADDED", "MODIFIED", "DELETED"]
Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write, as those who watch see it."""

    version: int
    action: Action
    document: Document
    before_text: str | None = None

    @property
    def before(self) -> Document | None:
        """The object before this write; None: there was none."""
        return None if self.before_text is None else json.loads(self.before_text)
