"""The folder of an installation's pipelines, which may be on a disk that others reach, too.

Rules:
1. One ``enmasse up`` at a time works with it: a second one would end the runners of the first.
2. It is one installation's: another one knows none of its pipelines, and would remove their checkpoints.
3. An installation keeps to its folder: with an empty one its pipelines would read and send everything again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from enmasse.control.errors import DirectoryInUseError
from enmasse.drivers.data_directory import DirectoryLock, Layout, make_private, replace_file
from enmasse.errors import ConfigError

OPTION: Final = "--pipelines-folder"
_OWNER: Final = "installation"
"""A file in the folder, with the id of the installation."""

_ANEW: Final = "To begin without their tables, and read everything again, move {} away"


@contextmanager
def pipelines_folder(layout: Layout, folder: Path) -> Iterator[None]:
    """Hold the folder for the duration of the block; it is made if there is none.

    Args:
        layout: the paths of the installation.
        folder: an absolute path.

    Raises:
        ConfigError: it is in use, belongs to another installation or cannot be written, or ours is another one.
    """
    with _held(layout, folder):
        _claim(layout, folder)
        yield


def folder_of(layout: Layout) -> Path:
    """Return the folder of an installation's pipelines, which need not be there.

    Raises:
        ConfigError: it is not known.
    """
    return Path(_noted(layout.pipelines_owner).get("folder") or layout.pipelines)


@contextmanager
def replaced_folder(layout: Layout, folder: Path, owner: Path, *, force: bool) -> Iterator[None]:
    """Hold a folder whose contents another's take the place of in the block, and which is the installation's then.

    Args:
        layout: the layout of the installation.
        folder: an absolute path.
        owner: a file as ``Layout.pipelines_owner``, of the installation whose contents come.
        force: replace what the installation has there.

    Raises:
        ConfigError: something is there, or it is in use, belongs to another installation or cannot be written.
    """
    former, own = _noted(layout.pipelines_owner).get("installation"), _noted(owner).get("installation")
    with _held(layout, folder):
        if (there := _owner_of(folder)) and (not force or there not in (former, own)):
            raise ConfigError(
                f"{folder} has the pipelines of {'this' if there == former else 'another'} installation: choose "
                f"another folder with {OPTION}{', or use --force' if there == former else ''}"
            )
        own = own or str(uuid.uuid4())
        yield
        replace_file(folder / _OWNER, own.encode())
        known = None if folder == layout.pipelines.absolute() else str(folder)
        replace_file(layout.pipelines_owner, json.dumps({"installation": own, "folder": known}).encode())


@contextmanager
def _held(layout: Layout, folder: Path) -> Iterator[None]:
    if folder == layout.data:
        raise ConfigError(f"{OPTION} {folder} is the data directory itself: name a folder below it, or elsewhere")
    make_private(folder, OPTION)
    try:
        with DirectoryLock(folder, option=OPTION):
            yield
    except DirectoryInUseError:
        raise ConfigError(
            f"{folder} is in use by another `enmasse up`, on this machine or another one: stop that one first, or "
            f"choose another folder with {OPTION}"
        ) from None


def _claim(layout: Layout, folder: Path) -> None:
    noted = _noted(layout.pipelines_owner)
    former = Path(noted["folder"]) if noted.get("folder") else layout.pipelines
    own, owner = noted.get("installation"), _owner_of(folder)
    if owner and owner != own:
        raise ConfigError(
            f"{folder} has the pipelines of another installation, as the file {folder / _OWNER} says: choose another "
            f"folder with {OPTION}. If that installation is gone for good, move what is in the folder away"
        )
    if not owner and former == folder != layout.pipelines:
        raise ConfigError(
            f"{folder} has nothing of the pipelines of {layout.data}, which are there: see to it that its disk is "
            f"there, too. {_ANEW.format(layout.pipelines_owner)}"
        )
    if not owner and former != folder and (former != layout.pipelines or (former / "spaces.json").exists()):
        raise ConfigError(
            f"the pipelines of {layout.data} are in {former}, and {folder} has nothing of them: start with "
            f"{OPTION} {former}, or first move all that is in it to {folder}. "
            f"{_ANEW.format(former if former == layout.pipelines else layout.pipelines_owner)}"
        )
    own = own or str(uuid.uuid4())
    now = {"installation": own, "folder": None if folder == layout.pipelines else str(folder)}
    if now != noted:
        replace_file(layout.pipelines_owner, json.dumps(now).encode())
    if not owner:
        replace_file(folder / _OWNER, own.encode())


def _owner_of(folder: Path) -> str:
    """Return the id of the installation whose folder it is; empty: nobody's yet."""
    try:
        return (folder / _OWNER).read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / _OWNER} cannot be read: {error}") from None


def _noted(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text()))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
