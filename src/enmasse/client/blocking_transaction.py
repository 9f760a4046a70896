"""Transactions of the blocking client."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from enmasse.client.background import Background
from enmasse.client.transaction import Transaction as AsyncTransaction

__all__ = ["Transaction", "inner"]


class Transaction:
    """See ``enmasse.client.Transaction``; a ``with`` block commits at its end, and rolls back if it raises."""

    def __init__(self, background: Background, transaction: AsyncTransaction) -> None:
        self._background = background
        self.inner = transaction
        """The transaction of the client beneath."""

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        return self.inner.is_open

    @property
    def is_ended(self) -> bool:
        """Whether it was committed or rolled back."""
        return self.inner.is_ended

    def commit(self) -> None:
        """Have everything take effect, or raise and have nothing."""
        self._background.run(self.inner.commit())

    def rollback(self) -> None:
        """Have nothing take effect; without effect on a transaction that has ended."""
        self._background.run(self.inner.rollback())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.inner.is_ended:
            return
        if error is None:
            self.commit()
        else:
            self.rollback()


def inner(transaction: Transaction | None) -> AsyncTransaction | None:
    """The transaction of the client beneath, if there is one."""
    return None if transaction is None else transaction.inner
