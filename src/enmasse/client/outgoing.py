"""Messages on their way out."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from enmasse.client.outcome import Outcome
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.sections import with_message_annotations

if TYPE_CHECKING:
    from enmasse.client.sender import Sender
    from enmasse.client.transaction import Transaction

__all__ = ["RESENT", "Outgoing"]

RESENT = "x-opt-resent"
"""The annotation of a message that may have arrived before."""


class Outgoing:
    """A message on its way out, and who waits for its outcome."""

    __slots__ = ("future", "is_resent", "message_format", "payload", "settled", "sink", "transaction")

    def __init__(
        self,
        sink: Sender,
        future: asyncio.Future[Outcome],
        payload: bytes,
        settled: bool,
        message_format: int,
        transaction: Transaction | None = None,
    ) -> None:
        self.sink = sink
        self.future = future
        self.payload = payload
        self.settled = settled
        self.message_format = message_format
        self.transaction = transaction
        self.is_resent = False

    def flag(self) -> None:
        """It is to be sent once more: say so, where the format has a place for that."""
        if not self.is_resent:
            self.is_resent = True
            if not self.message_format:
                with suppress(DecodeError):
                    self.payload = with_message_annotations(self.payload, {RESENT: True})
