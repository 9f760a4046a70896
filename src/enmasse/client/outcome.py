"""What became of a message that was sent [AMQP 3.4]."""

from __future__ import annotations

from typing import Any, ClassVar

from enmasse.wire.amqp.composites import Performative
from enmasse.wire.amqp.outcomes import ACCEPTED, RELEASED
from enmasse.wire.amqp.performatives import Accepted, AmqpError, Modified, Rejected, Released
from enmasse.wire.amqp.transactions import Declared, TransactionalState

__all__ = ["Declaration", "Outcome"]


class Outcome:
    """The answer to a message; two are equal if their names are.

    So ``outcome == Outcome.REJECTED`` asks for the kind, whatever the reason.

    Attributes:
        name: ``accepted``, ``rejected``, ``released``, ``modified`` or ``settled``.
        condition: why a message was rejected, if the receiver told.
        description: the same in words.
        is_failed: for ``modified``, whether the delivery counts as a failed attempt.
        is_undeliverable_here: for ``modified``, whether this receiver is not to have it again.
        annotations: for ``modified``, annotations to add to the message.
        is_resent: whether the message was sent more than once, so that it may have arrived more than once.
    """

    __slots__ = ("annotations", "condition", "description", "is_failed", "is_resent", "is_undeliverable_here", "name")
    ACCEPTED: ClassVar[Outcome]
    """The receiver took responsibility for the message."""
    REJECTED: ClassVar[Outcome]
    """The message is invalid; sending it again is no use."""
    RELEASED: ClassVar[Outcome]
    """The message was not processed; it may be sent again."""
    MODIFIED: ClassVar[Outcome]
    """The message was not processed, or not to the end; it may be sent again."""
    SETTLED: ClassVar[Outcome]
    """Nothing is known: it was sent settled, or the receiver settled without a word."""

    def __init__(
        self,
        name: str,
        condition: str | None = None,
        description: str | None = None,
        *,
        is_failed: bool = False,
        is_undeliverable_here: bool = False,
        annotations: dict[Any, Any] | None = None,
    ) -> None:
        self.name = name
        self.condition = condition
        self.description = description
        self.is_failed = is_failed
        self.is_undeliverable_here = is_undeliverable_here
        self.annotations = annotations
        self.is_resent = False

    def resent(self) -> Outcome:
        """The same for a message that was sent more than once."""
        copied = Outcome(
            self.name,
            self.condition,
            self.description,
            is_failed=self.is_failed,
            is_undeliverable_here=self.is_undeliverable_here,
            annotations=self.annotations,
        )
        copied.is_resent = True
        return copied

    @classmethod
    def of(cls, state: Any) -> Outcome:
        """The outcome that a delivery state of the engine stands for."""
        if isinstance(state, Accepted):
            return cls.ACCEPTED
        if isinstance(state, TransactionalState):
            return cls.of(state.outcome)
        if isinstance(state, Declared):
            return Declaration(state.txn_id)
        if isinstance(state, Released):
            return cls.RELEASED
        if isinstance(state, Rejected):
            error = state.error or AmqpError("")
            return cls("rejected", error.condition or None, error.description)
        if isinstance(state, Modified):
            return cls(
                "modified",
                is_failed=state.delivery_failed,
                is_undeliverable_here=state.undeliverable_here,
                annotations=state.message_annotations,
            )
        return cls.SETTLED

    def state(self) -> Performative | None:
        """The delivery state of the engine that says the same; none says nothing."""
        if self.name == "rejected":
            return Rejected(AmqpError(self.condition, self.description) if self.condition else None)
        if self.name == "modified":
            return Modified(self.is_failed, self.is_undeliverable_here, self.annotations)
        return {"accepted": ACCEPTED, "released": RELEASED}.get(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        reason = ": ".join(part for part in (self.condition, self.description) if part)
        return f"{self.name} ({reason})" if reason else self.name

    def __repr__(self) -> str:
        return f"<Outcome {self}>"


class Declaration(Outcome):
    """The answer to the declaration of a transaction.

    Attributes:
        txn_id: the id that the transaction was given.
    """

    __slots__ = ("txn_id",)

    def __init__(self, txn_id: bytes) -> None:
        super().__init__("declared")
        self.txn_id = txn_id


Outcome.ACCEPTED = Outcome("accepted")
Outcome.REJECTED = Outcome("rejected")
Outcome.RELEASED = Outcome("released")
Outcome.MODIFIED = Outcome("modified")
Outcome.SETTLED = Outcome("settled")
