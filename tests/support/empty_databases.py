"""Empty databases of a kind, made once by each worker: making their tables takes most of many short tests."""

from __future__ import annotations

import functools
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Closable(Protocol):
    """A store that has its database open."""

    def close(self) -> None: ...


def copied(kind: Callable[[Path], Closable], path: Path) -> Path:
    """Write an empty database to a path, for a store of a kind to open."""
    path.write_bytes(_content(kind))
    path.chmod(0o600)
    return path


@functools.cache
def _content(kind: Callable[[Path], Closable]) -> bytes:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "empty.db"
        with closing(kind(path)):
            pass
        # What a closed database is, is in one file.
        assert [*Path(directory).iterdir()] == [path]
        return path.read_bytes()
