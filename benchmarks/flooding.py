"""One connection that sends one kind of AMQP frame as fast as the node reads it, and reads the answers.

python benchmarks/flooding.py --port 5672 --kind attach --address queue.flood --seconds 10
"""

from __future__ import annotations

import argparse
import select
import socket
import time
from collections.abc import Callable

from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import Attach, Begin, Composite, Detach, End, Flow, Open, Source, Target

CHUNK_BYTES = 256 << 10
WINDOW = 1 << 16


def attaching(address: str) -> list[Composite]:
    """A sender's link that comes and goes."""
    target = Target(address=address)
    attach = Attach(name="flood", handle=0, role=False, source=Source(), target=target, initial_delivery_count=0)
    return [attach, Detach(handle=0, closed=True)]


def beginning(_address: str) -> list[Composite]:
    """A session that comes and goes."""
    return [Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW), End()]


def echoing(_address: str) -> list[Composite]:
    """Credit of a receiver that is never the same, and the wish to be answered."""
    return [
        Flow(
            next_incoming_id=0,
            incoming_window=WINDOW,
            next_outgoing_id=0,
            outgoing_window=WINDOW,
            handle=0,
            delivery_count=0,
            link_credit=credit,
            echo=True,
        )
        for credit in (1, 2)
    ]


KINDS: dict[str, Callable[[str], list[Composite]]] = {
    "attach": attaching,
    "begin": beginning,
    "flow": echoing,
}


def flood(port: int, kind: str, address: str, seconds: float) -> None:
    """Send, and read what comes back, until the time is over."""
    first: list[Composite] = [Open(container_id="flood")]
    if kind != "begin":
        first += beginning(address)[:1]
    if kind == "flow":
        first.append(Attach(name="flood", handle=0, role=True, source=Source(address=address), target=Target()))
    pair = b"".join(amqp_frame(0, frame) for frame in KINDS[kind](address))
    chunk = memoryview(pair * (CHUNK_BYTES // len(pair)))
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(AMQP_HEADER + b"".join(amqp_frame(0, frame) for frame in first))
        sock.setblocking(False)
        until = time.monotonic() + seconds
        rest = chunk
        while time.monotonic() < until:
            readable, writable, _ = select.select([sock], [sock], [], 1.0)
            if readable and not sock.recv(1 << 20):
                message = "the node has closed the connection"
                raise SystemExit(message)
            if writable:
                rest = rest[sock.send(rest) :] or chunk


def main() -> None:
    """Do as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    flood(given.port, given.kind, given.address, given.seconds)


if __name__ == "__main__":
    main()
