"""What a commit costs without us: one process, plain LMDB, messages that are due at a fixed rate.

    python benchmarks/bare_commits.py --rate R --seconds S --directory D

As in the journal, whatever is due when a commit begins goes into that commit: a frame and a mark each.
Prints the latency in microseconds, from the moment a message was due until it is on disk, as JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time

import lmdb

from enmasse.messaging.frame import encode_frame

HEAD = b"\0\x53\x75\xa0\x64"
BODY = b"x" * 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--directory", required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bare-", dir=given.directory) as directory:
        waits = sorted(commit(directory, given.rate, int(given.rate * given.seconds)))
    print(json.dumps({"n": len(waits), "p50": _quantile(waits, 0.5), "p99": _quantile(waits, 0.99)}))


def commit(directory: str, rate: float, count: int) -> list[float]:
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
        with env.begin(write=True) as txn:
            for number in range(first, first + ready):
                frame = encode_frame(number, [0], [b""], [HEAD], [BODY])
                txn.put(b"\x02" + number.to_bytes(16, "big"), frame)
                txn.put(b"\x04" + b"mark", number.to_bytes(16, "big"))
        done = time.perf_counter()
        waits += [done - began - number / rate for number in range(first, first + ready)]
    env.close()
    return waits


def _quantile(waits: list[float], part: float) -> float:
    return waits[min(int(len(waits) * part), len(waits) - 1)] * 1e6


if __name__ == "__main__":
    main()
