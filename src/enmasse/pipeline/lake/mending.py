"""What a power cut may leave of a Delta table's log.

delta-rs names a new entry before it is on disk, so a cut may leave the name without the content, and no reader
opens the table any more. Such an entry was not waited for by anybody (see ``delta``): no checkpoint calls its
batch done, so the batch comes again.
"""

from __future__ import annotations

import json
from pathlib import Path

from enmasse.pipeline.lake.file_writing import sync

__all__ = ["mend"]


def mend(path: Path) -> int:
    """Take away the newest entries of a table's log that are no entries; how many.

    Args:
        path: the table's folder; need not be there. Nobody writes it meanwhile.
    """
    log = path / "_delta_log"
    taken = 0
    for entry in sorted(log.glob("[0-9]*.json"), reverse=True):
        if _is_whole(entry):
            break
        entry.unlink()
        taken += 1
    if taken:
        sync(log)
    return taken


def _is_whole(entry: Path) -> bool:
    try:
        actions = [json.loads(line) for line in entry.read_bytes().splitlines()]
    except ValueError:
        return False
    return bool(actions) and all(isinstance(action, dict) for action in actions)
