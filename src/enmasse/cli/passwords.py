"""How a password gets to a command: typed, read from standard input, or made; never as an argument."""

from __future__ import annotations

import getpass
import secrets
import string
import sys

from enmasse.errors import ConfigError

__all__ = ["ask_password", "new_password"]

_LETTERS = string.ascii_letters + string.digits
_LENGTH = 24
"""142 bits: no list of hashes gives it away."""


def ask_password() -> str:
    """The password, which is never an argument: others could see it in the list of processes.

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


def new_password() -> str:
    """A password that nobody guesses; letters and digits, so that it survives every shell and file."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
