"""The file of users: read at the start, checked every second, and read again when it has changed."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.errors import ConfigError
from enmasse.identity.errors import UsersFileError
from enmasse.identity.users_file import read_users
from enmasse.node.patterns import matcher_of

if TYPE_CHECKING:
    from enmasse.identity.users import Users


CHECK_S = 1.0
"""Seconds between two checks, each of which costs one system call."""

_log = logging.getLogger(__name__)


def load_users(path: Path) -> Users:
    """Read a file of users.

    Raises:
        ConfigError: it cannot be read, or holds what cannot be.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the file of users {path} cannot be read ({error.strerror}); "
            f"make one with `enmasse user add NAME --space SPACE --users {path}`"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"the file of users {path} is not text in UTF-8") from None
    try:
        return read_users(text, matcher_of)
    except UsersFileError as error:
        raise ConfigError(f"the file of users {path} is not understood: {error}") from None


class UsersFile:
    """Keeps a node's users as the file has them.

    Args:
        path: the file.
        changed: called with the users, at the start and whenever they have changed.
        loop: the event loop, for a timer.

    Raises:
        ConfigError: the file cannot be read, or holds what cannot be.
    """

    def __init__(self, path: Path, changed: Callable[[Users], None], loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._changed = changed
        self._loop = loop
        self._version = self._check()
        changed(load_users(path))
        self._warn_of_readers()
        self._timer = loop.call_later(CHECK_S, self._on_time)

    def _check(self) -> tuple[int, ...]:
        """Return what identifies the content of the file."""
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode

    def _warn_of_readers(self) -> None:
        if self._version and self._version[3] & (stat.S_IRGRP | stat.S_IROTH):
            _log.warning("others can read the file of users %s; do `chmod 600` on it", self._path)

    def _on_time(self) -> None:
        self._timer = self._loop.call_later(CHECK_S, self._on_time)
        if self._check() != self._version:
            self.reload()

    def reload(self) -> None:
        """Read the file again; one that cannot be used is logged and changes nothing."""
        self._version = self._check()
        try:
            users = load_users(self._path)
        except ConfigError as error:
            _log.error("%s; the users stay as they were", error)
            return
        self._changed(users)
        self._warn_of_readers()
        _log.info("the file of users was read again: %d users", len(users))

    def close(self) -> None:
        """Stop checking the file."""
        self._timer.cancel()
