"""What a commit costs without us: plain LMDB, messages that are due at a fixed rate.

    python benchmarks/bare_commits.py --rate R --seconds S --directory D [--passed-on]

In one process, or passed on to it as a node does to its journal: by a process that does nothing else, over
sockets. As in the journal, whatever is there when a commit begins goes into that commit: a frame and a mark
each. Prints the latency in microseconds, from the moment a message was due until it is on disk, or until
that is known where it came from, as JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import select
import socket
import tempfile
import time

import lmdb

from enmasse.messaging.log.frame import encode_frame

HEAD = b"\0\x53\x75\xa0\x64"
BODY = b"x" * 100
MESSAGE = b"m" * 128
NUMBER_BYTES = 8
READ_BYTES = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--passed-on", action="store_true")
    given = parser.parse_args()
    measure = send if given.passed_on else commit
    with tempfile.TemporaryDirectory(prefix="bare-", dir=given.directory) as directory:
        waits = sorted(measure(directory, given.rate, int(given.rate * given.seconds)))
    print(json.dumps({"n": len(waits), "p50": _quantile(waits, 0.5), "p99": _quantile(waits, 0.99)}))


def commit(directory: str, rate: float, count: int) -> list[float]:
    """Commit what is due in this process."""
    env = lmdb.open(directory, map_size=1 << 40)
    waits: list[float] = []
    began = time.perf_counter()
    while len(waits) < count:
        first = len(waits)
        due = began + first / rate
        now = time.perf_counter()
        if now < due:
            time.sleep(due - now)
            now = time.perf_counter()
        ready = max(1, min(count, int((now - began) * rate) + 1) - first)
        _write(env, first, ready)
        done = time.perf_counter()
        waits += [done - began - number / rate for number in range(first, first + ready)]
    env.close()
    return waits


def send(directory: str, rate: float, count: int) -> list[float]:
    """Send what is due to a process that passes it on to the one that commits."""
    ours, above = socket.socketpair()
    below, last = socket.socketpair()
    fork = multiprocessing.get_context("fork")
    others = [
        fork.Process(target=_pass_on, args=(above, below, (ours, last))),
        fork.Process(target=_commit_received, args=(last, directory, (ours, above, below))),
    ]
    for process in others:
        process.start()
    for end in (above, below, last):
        end.close()
    waits: list[float] = []
    sent, heard = 0, b""
    began = time.perf_counter()
    while len(waits) < count:
        due = min(count, int((time.perf_counter() - began) * rate) + 1)
        ours.sendall(MESSAGE * (due - sent))
        sent = due
        rest_s = began + sent / rate - time.perf_counter() if sent < count else None
        if select.select([ours], [], [], rest_s and max(0.0, rest_s))[0]:
            heard += ours.recv(READ_BYTES)
            now = time.perf_counter()
            whole = len(heard) - len(heard) % NUMBER_BYTES
            if whole:
                committed = int.from_bytes(heard[whole - NUMBER_BYTES : whole], "big")
                waits += [now - began - number / rate for number in range(len(waits), committed)]
                heard = heard[whole:]
    ours.close()
    for process in others:
        process.join()
    return waits


def _pass_on(above: socket.socket, below: socket.socket, unused: tuple[socket.socket, ...]) -> None:
    for end in unused:
        end.close()
    while True:
        for source in select.select([above, below], [], [])[0]:
            data = source.recv(READ_BYTES)
            if not data:
                return
            (below if source is above else above).sendall(data)


def _commit_received(source: socket.socket, directory: str, unused: tuple[socket.socket, ...]) -> None:
    for end in unused:
        end.close()
    env = lmdb.open(directory, map_size=1 << 40)
    received = committed = 0
    while data := source.recv(READ_BYTES):
        received += len(data)
        whole = received // len(MESSAGE)
        if whole > committed:
            _write(env, committed, whole - committed)
            committed = whole
            source.sendall(committed.to_bytes(NUMBER_BYTES, "big"))
    env.close()


def _write(env: lmdb.Environment, first: int, count: int) -> None:
    with env.begin(write=True) as txn:
        for number in range(first, first + count):
            frame = encode_frame(number, [0], [b""], [HEAD], [BODY])
            txn.put(b"\x02" + number.to_bytes(16, "big"), frame)
            txn.put(b"\x04" + b"mark", number.to_bytes(16, "big"))


def _quantile(waits: list[float], part: float) -> float:
    return waits[min(int(len(waits) * part), len(waits) - 1)] * 1e6


if __name__ == "__main__":
    main()
