"""A service that makes a parcel of each order, and refuses orders without an address."""

from __future__ import annotations

import json
import sys

from enmasse.client.blocking import Message, connect


def ship(url: str) -> None:
    """Serve the queue ``orders`` until the program is ended."""
    with connect(url) as connection:
        parcels = connection.sender("parcels")
        for delivery in connection.receiver("orders"):
            order = json.loads(delivery.message.body)
            if not order.get("to"):
                delivery.reject("shop:no-address", "nobody knows where to")
                continue
            parcels.send(Message(json.dumps({"to": order["to"], "of": order["id"]}), durable=True))
            delivery.accept()


if __name__ == "__main__":
    ship(sys.argv[1])
