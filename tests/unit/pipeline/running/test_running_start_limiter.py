from __future__ import annotations

import threading

from enmasse.pipeline.running.supervision.query_supervisor import StartLimiter


def test_no_more_start_at_a_time_than_there_are_places() -> None:
    limiter, inside, most, lock = StartLimiter(2), 0, 0, threading.Lock()

    def start() -> None:
        nonlocal inside, most
        with limiter.slot():
            with lock:
                inside += 1
                most = max(most, inside)
            sum(range(100_000))
            with lock:
                inside -= 1

    threads = [threading.Thread(target=start) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 2


def test_an_open_gate_keeps_nobody() -> None:
    limiter = StartLimiter(1)
    with limiter.slot():
        limiter.open()
        limiter.wait_until(lambda: False)
        with limiter.slot():
            pass


def test_waiting_ends_when_it_is_done() -> None:
    looks = iter([False, False, True])
    StartLimiter(1).wait_until(lambda: next(looks))
    assert next(looks, None) is None
