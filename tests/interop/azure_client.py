"""Sends and receives with the AMQP client inside Azure's SDK for Python; run as a program.

Arguments: PORT CA_FILE ADDRESS USER COUNT amqp|websocket; the password comes on standard input. Prints what came.
"""

from __future__ import annotations

import sys
from typing import Any

from azure.servicebus import _pyamqp
from azure.servicebus._pyamqp.authentication import SASLPlainAuth
from azure.servicebus._pyamqp.constants import TransportType
from azure.servicebus._pyamqp.message import Message, Properties

# The SDK has no types for these.
SendClient: Any = _pyamqp.SendClient
ReceiveClient: Any = _pyamqp.ReceiveClient


def main() -> None:
    """Send numbered messages, then receive as many."""
    _, port, authority, address, user, number_of, transport = sys.argv
    count = int(number_of)
    options: Any = {
        "auth": SASLPlainAuth(user, sys.stdin.readline().rstrip("\n")),
        "connection_verify": authority,
        "custom_endpoint_address": f"amqps://localhost:{port}",
        "transport_type": TransportType.Amqp if transport == "amqp" else TransportType.AmqpOverWebsocket,
        # It waits for ever where it asks the receiver to settle second.
        "receive_settle_mode": 0,
    }
    with SendClient("localhost", address, **options) as sender:
        for number in range(count):
            body = f"message {number}".encode()
            sender.send_message(Message(data=[body], properties=Properties(message_id=str(number))))
    received = 0
    with ReceiveClient("localhost", address, link_credit=100, send_settle_mode=1, **options) as receiver:
        while received < count:
            for message in receiver.receive_message_batch(max_batch_size=count, timeout=30):
                print(b"".join(message.data).decode(), message.properties.message_id.decode())  # noqa: T201
                received += 1


if __name__ == "__main__":
    main()
