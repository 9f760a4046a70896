"""An answer that somebody else has to give first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Pending"]

T = TypeVar("T")
U = TypeVar("U")


class Pending(Generic[T]):
    """Something that is not known yet.

    Whoever finds it out calls ``settle``, once; whoever waits for it has said with ``then`` what is to follow.

    Attributes:
        answer: it, once it is known.
    """

    __slots__ = ("_then", "answer")

    def __init__(self) -> None:
        self.answer: tuple[T] | None = None
        self._then: Callable[[T], None] | None = None

    def settle(self, answer: T) -> None:
        """It is known now; what is said after the first time is not heard."""
        if self.answer is None:
            self.answer = (answer,)
            if self._then is not None:
                self._then(answer)

    def then(self, follow: Callable[[T], None]) -> None:
        """Have ``follow`` called with the answer, at once if it is known; one may wait for it."""
        self._then = follow
        if self.answer is not None:
            follow(self.answer[0])

    def map(self, change: Callable[[T], U]) -> Pending[U]:
        """What will be made of the answer."""
        found: Pending[U] = Pending()
        self.then(lambda answer: found.settle(change(answer)))
        return found
