"""Waiting until something is so, with a deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from enmasse.cli.columns import is_ready, sentence_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.cli.api_client import ApiClient
    from enmasse.cli.output import Writer
    from enmasse.model.kinds import Kind

__all__ = ["wait_until", "wait_until_ready"]

_PAUSE_S = 0.1  # short enough to feel immediate, long enough to leave the machine to the others


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again, at least once; return whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(_PAUSE_S, left))
    return True


def wait_until_ready(api: ApiClient, kind: Kind, namespace: str, name: str, seconds: float, writer: Writer) -> None:
    """Wait until an object can be used; say so when it cannot, which is no failure of creating it."""
    present = api.get(kind, namespace, name)

    def ready_or_waiting() -> bool:
        nonlocal present
        present = api.get(kind, namespace, name)
        # What waits for another object may wait for ever: that is worth saying at once.
        return is_ready(present) or (
            present["status"]["phase"] in ("Pending", "Failed") and bool(present["status"].get("messages"))
        )

    wait_until(ready_or_waiting, seconds)
    if not is_ready(present):
        writer.warn(f"it cannot be used yet: {sentence_of(present)}")
