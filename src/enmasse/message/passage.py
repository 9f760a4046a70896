"""The passage of a message that is too large to be held: it goes on while it comes."""

from __future__ import annotations

from typing import Protocol


class Passage(Protocol):
    """Takes the rest of a message that is passed on while it comes."""

    @property
    def is_kept(self) -> bool:
        """True while what comes is kept until the message is complete."""

    def write(self, part: bytes | memoryview) -> None:
        """A piece, after which others come."""

    def end(self, part: bytes | memoryview, settled: bool) -> None:
        """The last piece, and whether the sender has settled the delivery by now."""

    def abort(self) -> None:
        """The sender gives the message up."""
