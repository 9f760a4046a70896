"""A file system of a few megabytes, to be filled up or made read only; only root can make one."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["fill_up", "mount", "small_disk"]


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"needs the right to mount a small file system: run as root ({done.stderr.strip()})")


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Mount an empty disk at a place, for as long as the block runs."""
    if os.geteuid() != 0:
        pytest.skip("needs the right to mount a small file system: run as root")
    place.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill_up(directory: Path) -> Path:
    """Write a file until the disk is full."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - no other error ends the loop
    return ballast
