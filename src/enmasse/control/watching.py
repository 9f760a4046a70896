"""Following the changes of the resource store, however slow the follower is.

Nothing is queued for a follower: each reads the store's history from where it
stands. One that falls behind the history is told so and lists again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from enmasse.control.errors import StoreBusyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from enmasse.control.store import Change, ResourceStore

__all__ = ["follow"]


async def follow(
    store: ResourceStore,
    after: int,
    *,
    kinds: tuple[str, ...] = (),
    namespace: str | None = None,
    pause_s: float = 0.5,
) -> AsyncIterator[list[Change]]:
    """Yield the changes after a version as they come, in lists that are never empty.

    Args:
        store: whose changes.
        after: the last version that is known already.
        kinds: only these; empty: all.
        namespace: only this one; None: all.
        pause_s: seconds before another try while somebody has the store locked.

    Raises:
        ExpiredVersionError: when the history does not reach back to ``after``.
    """
    changed = asyncio.Event()
    with store.listening(changed.set):
        while True:
            changed.clear()
            try:
                found, after = store.changes(after, kinds=kinds, namespace=namespace)
            except StoreBusyError:
                await asyncio.sleep(pause_s)
                continue
            if found:
                yield found
            else:
                await changed.wait()
