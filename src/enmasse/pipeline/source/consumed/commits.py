"""How far a query has committed, as Spark's own checkpoint says.

Spark tells a source that a batch is committed only when it plans the next one, which on a quiet address may be
never. Its checkpoint tells at once: ``commits/N`` is there as soon as batch N is done, and ``offsets/N`` holds what
the source said the batch ends with.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from enmasse.pipeline.source.consumed.disk import Disk

__all__ = ["CommitLog", "local_path"]


def local_path(location: str) -> Path | None:
    """Where a checkpoint lies on this machine; ``None`` if it lies elsewhere, as in HDFS or S3."""
    parts = urlsplit(location)
    if parts.scheme not in {"", "file"} or (parts.scheme and parts.netloc not in {"", "localhost"}):
        return None
    return Path(os.path.normpath(Path(unquote(parts.path) if parts.scheme else location).absolute()))


class CommitLog:
    """What a checkpoint says of one spool.

    Args:
        folder: the checkpoint.
        spool: the spool's id, which is part of its offsets.
    """

    def __init__(self, folder: Path, spool: str) -> None:
        self._folder = folder
        self._spool = spool
        self._disk = Disk()
        self._synced = -1

    def position(self) -> int | None:
        """The offset below which everything is committed, and will be after a loss of power too.

        ``None`` while nothing is committed, or if what is committed is not of this spool.
        """
        try:
            done = [int(path.name) for path in (self._folder / "commits").iterdir() if path.name.isdecimal()]
        except OSError:
            return None
        for batch in sorted(done, reverse=True)[:2]:
            path = self._folder / "offsets" / str(batch)
            try:
                position = self._position_in(path.read_text())
                if position is not None:
                    self._sync(batch)
                    return position
            except OSError:
                continue
        return None

    def _position_in(self, text: str) -> int | None:
        for line in text.splitlines():
            found = self._find(line)
            if found is not None:
                return found
        return None

    def _find(self, value: Any) -> int | None:
        """Our offset in a line: as it is, or as text within what a later version of Spark writes around it."""
        if isinstance(value, str):
            if self._spool not in value:
                return None
            try:
                return self._find(json.loads(value))
            except ValueError:
                return None
        if isinstance(value, dict):
            if value.get("spool") == self._spool:
                return int(value["next"])
            value = list(value.values())
        if isinstance(value, list):
            return next((found for item in value if (found := self._find(item)) is not None), None)
        return None

    def _sync(self, batch: int) -> None:
        """Have the proof survive a loss of power, before anything is deleted because of it."""
        if batch <= self._synced:
            return
        for folder in (self._folder / "offsets", self._folder / "commits"):
            self._disk.sync(folder / str(batch))
            self._disk.sync(folder)
        self._synced = batch
