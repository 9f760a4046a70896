"""Reads the credentials of a pipeline, for spaces that only users may enter.

User and password stand in files or in the environment of the driver and the executors, and nowhere else:
Spark shows options in its plans, event logs and pages, so an option only names them.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TypedDict

from enmasse.pipeline.errors import AccessError, OptionError

FOLDER_VARIABLE = "ENMASSE_CREDENTIALS"
"""Names the folder in which ``NAME.json`` holds the credentials called NAME."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""As Kubernetes names a Secret, or freer; it cannot lead out of the folder."""

LARGEST_FILE = 64 << 10
"""No user and password are longer; a Secret of Kubernetes has at most 1 MiB in all."""


class Credentials(TypedDict):
    """Arguments of ``enmasse.client.connect``."""

    user: str | None
    password: str | None


def check_name(name: str) -> str:
    """Return the name, if credentials may be called so; empty is none.

    Raises:
        OptionError: it is no name.
    """
    if name and not _NAME.fullmatch(name):
        raise OptionError(
            "option credentials: expected the name of credentials, letters, digits, dots, dashes and underscores; "
            "user and password themselves stand in a file or in the environment"
        )
    return name


def credentials(name: str = "") -> Credentials:
    """User and password; None where none are given.

    Args:
        name: of the file ``NAME.json`` in the folder that ``ENMASSE_CREDENTIALS`` names; empty for what
            ``ENMASSE_USER`` and ``ENMASSE_PASSWORD`` say. Read anew each time, so a new password counts
            from the next connection on.

    Raises:
        OptionError: the name is none.
        AccessError: there are no such credentials here.
    """
    if not check_name(name):
        return {"user": os.environ.get("ENMASSE_USER"), "password": os.environ.get("ENMASSE_PASSWORD")}
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise AccessError(
            f"option credentials names {name!r}, but {FOLDER_VARIABLE} is not set in this process: set it to the "
            f"folder that holds {name}.json, for the driver and every executor"
        )
    return _read(Path(folder, f"{name}.json"), name)


def authorities_file(name: str) -> Path:
    """Return the file of the authorities that belong to credentials: ``ca.crt`` of the Secret."""
    return Path(os.environ.get(FOLDER_VARIABLE, ""), f"{check_name(name)}.crt")


def _read(path: Path, name: str) -> Credentials:
    wanted = f'{path} should hold {{"user": "...", "password": "..."}}'
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise AccessError(f"there are no credentials {name!r}: {wanted} ({error.strerror})") from None
    try:
        given = json.loads(content) if len(content) <= LARGEST_FILE else None
    except ValueError:
        # Without its cause: that would quote the file.
        given = None
    if not isinstance(given, dict) or not isinstance(given.get("user"), str) or not given["user"]:
        raise AccessError(f"the credentials {name!r} cannot be read: {wanted}")
    password = given.get("password")
    if password is not None and not isinstance(password, str):
        raise AccessError(f"the credentials {name!r} cannot be read: {wanted}")
    return {"user": given["user"], "password": password}
