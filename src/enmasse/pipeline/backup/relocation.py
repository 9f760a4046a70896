"""The absolute paths that a folder of pipelines holds, told the new place when the folder was moved or restored.

Spark remembers which files it has read by their paths, a spool whose it is by that of a checkpoint, and a batch the
links to the files of a table that it joins. With paths of a former place files would be read once more, and spools
refused.

Rules:
1. The file ``place`` says where the folder was when these paths were right; it is written last, and what has the new
   place already is left as it is. So an interrupted move goes on at the next start.
2. Only whole paths of the space itself are changed: what follows a quote, or ``file:``.
3. Files belong to the space's processes: no link is followed, and a file keeps its owner.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from enmasse.drivers.data_directory import replace_file
from enmasse.errors import ConfigError
from enmasse.pipeline.backup.files import files_below, is_own_file
from enmasse.pipeline.sums import resealed

PLACE: Final = "place"

_LARGEST_TEXT: Final = 64 << 20
_BINARY: Final = (".zip", ".sst", ".changelog", ".delta", ".snapshot", ".parquet", ".arrow", ".again", ".crc")


def place_of(folder: Path) -> str:
    """Return the place that the paths in a folder of pipelines are of."""
    try:
        return (folder / PLACE).read_text()
    except FileNotFoundError:
        return str(folder.resolve())


def relocate(folder: Path) -> bool:
    """Have what remembers where a folder of pipelines lies remember its present place; whether that is another one.

    Args:
        folder: nothing runs there.

    Raises:
        ConfigError: a file cannot be read or written.
    """
    former, now = place_of(folder), str(folder.resolve())
    try:
        if former != now:
            for space in folder.glob("*.*"):
                for kind in ("checkpoints", "spool"):
                    _relocate(space / kind, f"{former}/{space.name}/", f"{now}/{space.name}/")
        replace_file(folder / PLACE, now.encode())
    except OSError as error:
        raise ConfigError(
            f"the pipelines of {former} were moved to {folder}, and what remembers that cannot be changed: {error}"
        ) from None
    return former != now


def _relocate(top: Path, former: str, now: str) -> None:
    # Spark writes URIs, which are quoted; others write JSON, with letters as they are or escaped.
    changes = {f"{scheme}{quote(former)}": f"{scheme}{quote(now)}" for scheme in ("file:", "file://")}
    changes |= {f'"{old}': f'"{_in_json(now)}' for old in (former, _in_json(former))}
    for _, folder, names in files_below(top):
        for name in names:
            if name.endswith(_BINARY) or (text := _text_of(name, folder)) is None:
                continue
            moved = text
            for old, new in changes.items():
                moved = moved.replace(old, new)
            if moved != text:
                _replace(name, folder, resealed(text, moved))


def _text_of(name: str, folder: int) -> str | None:
    """Return the contents of a file of an open folder; None: it is none of the space's own, or no text."""
    try:
        number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOENT):
            return None
        raise
    with os.fdopen(number, "rb") as file:
        facts = os.fstat(number)
        if not is_own_file(facts, folder) or facts.st_size > _LARGEST_TEXT:
            return None
        with suppress(UnicodeDecodeError):
            return file.read().decode()
    return None


def _replace(name: str, folder: int, text: str) -> None:
    partial = f".{name}.moving"
    facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    with suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=folder)
    number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    with os.fdopen(number, "wb") as file:
        os.fchown(number, facts.st_uid, facts.st_gid)
        os.fchmod(number, facts.st_mode & 0o777)
        file.write(text.encode())
        file.flush()
        os.fsync(number)
    # Hadoop's checksum is of the former contents; without one none is looked at.
    with suppress(FileNotFoundError):
        os.unlink(f".{name}.crc", dir_fd=folder)
    os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]
