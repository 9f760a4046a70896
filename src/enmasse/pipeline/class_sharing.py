"""What Java is told to map Spark's classes from an archive, or to make one; ``running.class_archive`` says why."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["archive_folders", "archive_name", "recording_options", "sharing_options"]

_QUIET: Final = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
"""An archive that does not fit is nothing to complain about."""


def archive_name(java: Path) -> str:
    """The file for this Java and the Spark that is installed."""
    found = java.resolve()
    facts = f"{found} {found.stat().st_size} {found.stat().st_mtime_ns}"
    spark = importlib.metadata.version("pyspark")
    return f"spark-{spark}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}.jsa"


def archive_folders() -> list[Path]:
    """Beside the installation, where every user who may start it can read; else the user's own."""
    # Path.home() raises for a user without one, as spaces have.
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return [Path(sys.prefix, "share", "enmasse"), Path(cache, "enmasse")]


def sharing_options(java: Path) -> str:
    """What this Java is told so that it uses its archive; empty where none was made."""
    name = archive_name(java)
    found = next((folder / name for folder in archive_folders() if (folder / name).is_file()), None)
    # Java's options are separated by spaces.
    return "" if found is None or " " in str(found) else f"-XX:SharedArchiveFile={found} {_QUIET}"


def recording_options(archive: Path) -> str:
    """What Java is told so that it makes one when it ends."""
    return f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"
