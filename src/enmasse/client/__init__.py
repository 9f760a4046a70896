"""PUBLIC: the asyncio client for AMQP 1.0, on the same engine as the node.

    async with connect("amqp://127.0.0.1:5672") as connection:
        sender = await connection.sender("orders")
        await sender.send(Message(b"one coffee"))

``enmasse.client.blocking`` is the same without asyncio; ``enmasse.client.management`` manages a node.
"""

from enmasse.client.connecting import connect
from enmasse.client.connection import Connection
from enmasse.client.errors import (
    ClosedError,
    ConnectionDeniedError,
    DeadlineError,
    FullError,
    LinkDetachedError,
    LinkRefusedError,
    RemoteError,
    TlsError,
    TooLargeError,
    TransactionError,
    UnavailableError,
    UrlError,
)
from enmasse.client.message import Message, Outcome
from enmasse.client.options import TlsOptions
from enmasse.client.receiver import Delivery, Receiver
from enmasse.client.sender import Sender
from enmasse.client.transaction import Transaction

__all__ = [
    "ClosedError",
    "Connection",
    "ConnectionDeniedError",
    "DeadlineError",
    "Delivery",
    "FullError",
    "LinkDetachedError",
    "LinkRefusedError",
    "Message",
    "Outcome",
    "Receiver",
    "RemoteError",
    "Sender",
    "TlsError",
    "TlsOptions",
    "TooLargeError",
    "Transaction",
    "TransactionError",
    "UnavailableError",
    "UrlError",
    "connect",
]
