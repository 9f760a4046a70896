"""Passwords of a command: typed, read from standard input, or made; never given as an argument."""

from __future__ import annotations

import getpass
import os
import secrets
import string
import sys

from enmasse.errors import ConfigError

PASSWORD = "ENMASSE_PASSWORD"  # noqa: S105  the variable's name

_LETTERS = string.ascii_letters + string.digits
_LENGTH = 24
"""142 bits: no list of hashes gives it away."""


def ask_password() -> str:
    """Ask for a new password; it is never an argument, which others could see in the list of processes.

    Raises:
        ConfigError: when it is empty, or was typed twice in different ways.
    """
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise ConfigError("the two passwords differ; nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigError("the password is empty; type one, or write it to standard input")
    return password


def password_of(user: str) -> str:
    """Return the password of a user who connects: the variable ``ENMASSE_PASSWORD``, or what is typed.

    Raises:
        ConfigError: when there is neither it nor a terminal.
    """
    given = os.environ.get(PASSWORD)
    if given is not None:
        return given
    if not sys.stderr.isatty():
        raise ConfigError(f"the password of {user} is not known: put it into the variable {PASSWORD}")
    return getpass.getpass(f"Password of {user}: ")


def new_password() -> str:
    """Return a random password; letters and digits, so that it survives every shell and file."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
