"""Sends alerts as messages and waits until each was accepted."""

from __future__ import annotations

import json
from contextlib import suppress

from enmasse.client import ConnectionDeniedError, LinkDetachedError, LinkRefusedError
from enmasse.client.blocking import Connection, Message, Outcome, Sender, connect
from enmasse.errors import EnmasseError, LocalError, UnavailableError
from enmasse.pipeline.bands import Alert
from enmasse.pipeline.credentials import credentials
from enmasse.pipeline.patience import Patience

__all__ = ["AlertSender"]

ANSWER_S = 10.0
PATIENCE_S = 60.0
"""After so long the query fails, which is seen; started again it sends the same alerts."""


class AlertSender:
    """A sender to one address that comes back when the node was away.

    Args:
        url: where the space is reached.
        address: where alerts go.
        space: host name that chooses the space; empty: the URL's own.
    """

    def __init__(self, url: str, address: str, space: str = "") -> None:
        self._url = url
        self._address = address
        self._space = space
        self._connection: Connection | None = None
        self._sender: Sender | None = None

    def send(self, alerts: list[Alert]) -> None:
        """Send alerts, again and again until the address accepted each one.

        Raises:
            StreamUnavailableError: it did not for a minute.
        """
        patience = Patience(PATIENCE_S)
        left = [_message(alert) for alert in alerts]
        while left:
            try:
                outcomes = self._attached().send_all(left, timeout=ANSWER_S)
            except (
                UnavailableError,
                LinkDetachedError,
                LinkRefusedError,
                ConnectionDeniedError,
                LocalError,
            ) as error:
                self.close()
                patience.wait(error)
                continue
            refused = [outcome for outcome in outcomes if outcome != Outcome.ACCEPTED]
            pairs = zip(left, outcomes, strict=True)
            left = [message for message, outcome in pairs if outcome != Outcome.ACCEPTED]
            if refused:
                patience.wait(UnavailableError(f"{self._address!r} answered an alert with {refused[0]}"))

    def _attached(self) -> Sender:
        if self._connection is None or not self._connection.is_connected:
            self.close()
            self._connection = connect(
                self._url, hostname=self._space or None, reconnect=False, timeout=ANSWER_S, **credentials()
            )
        if self._sender is None:
            self._sender = self._connection.sender(self._address, resend=False, timeout=ANSWER_S)
        return self._sender

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection, self._sender = self._connection, None, None
        if connection is not None:
            with suppress(EnmasseError):
                connection.close()


def _message(alert: Alert) -> Message:
    return Message(
        json.dumps(alert.to_json()).encode(),
        subject=alert.device,
        message_id=alert.id,
        content_type="application/json",
        durable=True,
    )
