"""The interfaces that ``connection.Connection`` calls with a client's frames."""

from __future__ import annotations

from typing import Any, Protocol


class SendSink(Protocol):
    """Takes the messages of ``SEND`` frames whose heads are the same but for the receipt.

    Attributes:
        is_lasting: true if later frames with the same head may use this sink, until the connection's
            ``forget_sinks``.
    """

    is_lasting: bool

    def on_send(self, body: bytes, receipt: bytes | None) -> None:
        """Take a message; its receipt is due once the message is safe.

        Raises:
            RemoteError: the message cannot be taken, which ends the connection.
        """


class Handler(Protocol):
    """Handles a client's frames; a ``RemoteError`` that it raises becomes the ``ERROR`` that ends the connection.

    Receipts are passed with the escapes that they had in the frame, and sent back in the same way.
    """

    def on_connect(self, headers: dict[str, str]) -> None:
        """Log the client in and call ``connected`` or ``fail``, now or later; its input is held until then."""

    def make_sink(self, headers: dict[str, str]) -> SendSink:
        """Return the sink for messages with these headers."""

    def on_acknowledge(self, number: int) -> None:
        """Accept the delivery of that number; the frame has no other header."""

    def on_frame(self, command: bytes, headers: dict[str, str], receipt: bytes | None) -> None:
        """Handle any other frame but ``SEND``."""

    def on_blocked(self, is_blocked: bool) -> None:
        """Stop or resume sending messages."""

    def on_written(self) -> None:
        """Called when the output is being written."""

    def on_closed(self, error: Exception | None) -> None:
        """Called when the connection ends; ``error`` is the reason if the server closed it."""


class _Nobody(Handler):
    """Takes the place of the handler of a connection that has ended, which knows its engine, and hears no more."""


NOBODY: Any = _Nobody()  # type: ignore[abstract]  # nothing is read any more, and so no sink is asked for
