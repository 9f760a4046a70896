from __future__ import annotations

import threading

from enmasse.pipeline.running.start_gate import StartGate


def test_no_more_start_at_a_time_than_there_are_places() -> None:
    gate, inside, most, lock = StartGate(2), 0, 0, threading.Lock()

    def start() -> None:
        nonlocal inside, most
        with gate.passing():
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
    gate = StartGate(1)
    with gate.passing():
        gate.open()
        gate.wait_until(lambda: False)
        with gate.passing():
            pass


def test_waiting_ends_when_it_is_done() -> None:
    looks = iter([False, False, True])
    StartGate(1).wait_until(lambda: next(looks))
    assert next(looks, None) is None
