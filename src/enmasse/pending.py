"""Answers that come later: of a login, and of the other side of a link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Pending(Generic[T]):
    """An answer that is not known yet.

    The finder calls ``settle``, once; a callback for the answer is given to ``then``.

    Attributes:
        answer: it, once it is known.
    """

    __slots__ = ("_then", "answer")

    def __init__(self) -> None:
        self.answer: tuple[T] | None = None
        self._then: Callable[[T], None] | None = None

    def settle(self, answer: T) -> None:
        """Set the answer; calls after the first have no effect."""
        if self.answer is None:
            self.answer = (answer,)
            if self._then is not None:
                self._then(answer)

    def then(self, follow: Callable[[T], None]) -> None:
        """Have ``follow`` called with the answer, at once if it is known; one may wait for it."""
        self._then = follow
        if self.answer is not None:
            follow(self.answer[0])

    def chain(self, follow: Callable[[T], U | Pending[U]]) -> Pending[U]:
        """Return what follows from the answer, once that is known; it may itself come later."""
        found: Pending[U] = Pending()

        def go_on(answer: T) -> None:
            following = follow(answer)
            if isinstance(following, Pending):
                following.then(found.settle)
            else:
                found.settle(following)

        self.then(go_on)
        return found

    def map(self, change: Callable[[T], U]) -> Pending[U]:
        """Return the changed answer, once the answer is known."""
        found: Pending[U] = Pending()
        self.then(lambda answer: found.settle(change(answer)))
        return found
