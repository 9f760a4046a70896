"""One client that sends itself messages at a steady rate, and how long each is on its way.

python benchmarks/bystander.py --port 61613 --host bench.default --address anycast.0 --pid NODE

It goes on until its standard input ends, then prints milliseconds as JSON: by the clock, counted from when each
message was due; and how long the node ran from its sending to its receipt, which tells more on a machine that others
use.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import sys
import time
from collections import deque
from pathlib import Path
from statistics import median, quantiles

from enmasse.wire.stomp.frames import encode_frame

RATE = 200


def watch(port: int, host: str, address: str, pid: int) -> dict[str, float]:
    """Send and receive until standard input ends."""
    peer = socket.create_connection(("127.0.0.1", port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(
        encode_frame("CONNECT", [("accept-version", "1.2"), ("host", host)])
        + encode_frame("SUBSCRIBE", [("id", "1"), ("destination", address), ("receipt", "r")])
    )
    heard = b""
    while b"RECEIPT" not in heard:
        heard += peer.recv(65536)
    print("ready", flush=True)
    took: list[float] = []
    node_ran: list[float] = []
    spent = Path(f"/proc/{pid}/schedstat")

    def ran_ms() -> float:
        return int(spent.read_text(encoding="ascii").split()[0]) / 1e6

    frame = encode_frame("SEND", [("destination", address)], b"x" * 100)
    under_way: deque[tuple[float, float]] = deque()
    due, rest, is_over = time.perf_counter(), b"", False
    while under_way or not is_over:
        early = max(0.0, due - time.perf_counter())
        ready = select.select([peer, *([] if is_over else [sys.stdin])], [], [], None if is_over else early)[0]
        is_over = is_over or sys.stdin in ready
        if peer in ready:
            data = peer.recv(65536)
            if not data:
                raise SystemExit("the server has ended it")
            *frames, rest = (rest + data).split(b"\0")
            for _ in frames:
                was_due, before = under_way.popleft()
                took.append((time.perf_counter() - was_due) * 1000)
                node_ran.append(ran_ms() - before)
        if not is_over and time.perf_counter() >= due:
            under_way.append((due, ran_ms()))
            peer.sendall(frame)
            due += 1 / RATE
    return {
        "p50": median(took),
        "p99": quantiles(took, n=100)[98],
        "max": max(took),
        "node_p99": quantiles(node_ran, n=100)[98],
        "node_max": max(node_ran),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="")
    parser.add_argument("--address", required=True)
    parser.add_argument("--pid", type=int, required=True)
    given = parser.parse_args()
    print(json.dumps(watch(given.port, given.host, given.address, given.pid)))


if __name__ == "__main__":
    main()
