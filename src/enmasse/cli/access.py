"""Accounts and tokens, as commands use them: through the API, or in the file where nothing runs yet."""

from __future__ import annotations

import getpass
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.cli.api_client import ApiClient
from enmasse.cli.contexts import read_contexts
from enmasse.cli.errors import UsageError
from enmasse.cli.options import DEFAULT_DATA
from enmasse.control.accounts import Accounts
from enmasse.control.lock import DirectoryLock
from enmasse.engines.embedded.paths import Layout
from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["AccessAdmin", "access_of", "ask_password"]

Document = dict[str, Any]

_PATH = "/apis/access.enmasse.io/v1beta1"


class AccessAdmin(Protocol):
    """What can be done about accounts and tokens; all in their JSON forms."""

    def add_account(self, name: str, password: str, groups: Sequence[str]) -> Document:
        """Add an account; without a password tokens are its only way in."""

    def remove_account(self, name: str) -> None:
        """Remove an account with its tokens."""

    def accounts(self) -> list[Document]:
        """Return all accounts."""

    def set_password(self, name: str, password: str, old: str) -> None:
        """Give an account another password."""

    def create_token(self, account: str | None, note: str, seconds: int) -> Document:
        """Make a token, by default for whoever asks."""

    def tokens(self) -> list[Document]:
        """Return all tokens that whoever asks may see."""

    def revoke_token(self, token_id: str) -> None:
        """Make a token worth nothing."""


class _ApiAccess:
    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def add_account(self, name: str, password: str, groups: Sequence[str]) -> Document:
        body = {"username": name, "groups": list(groups)} | ({"password": password} if password else {})
        return self._api.call("POST", f"{_PATH}/accounts", json=body)

    def remove_account(self, name: str) -> None:
        self._api.call("DELETE", f"{_PATH}/accounts/{name}")

    def accounts(self) -> list[Document]:
        found: list[Document] = self._api.call("GET", f"{_PATH}/accounts")["items"]
        return found

    def set_password(self, name: str, password: str, old: str) -> None:
        body = {"password": password} | ({"oldPassword": old} if old else {})
        self._api.call("PUT", f"{_PATH}/accounts/{name}/password", json=body)

    def create_token(self, account: str | None, note: str, seconds: int) -> Document:
        body: Document = {"note": note, "expirationSeconds": seconds}
        return self._api.call("POST", f"{_PATH}/tokens", json=body | ({"account": account} if account else {}))

    def tokens(self) -> list[Document]:
        found: list[Document] = self._api.call("GET", f"{_PATH}/tokens")["items"]
        return found

    def revoke_token(self, token_id: str) -> None:
        self._api.call("DELETE", f"{_PATH}/tokens/{token_id}")


class _FileAccess:
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def add_account(self, name: str, password: str, groups: Sequence[str]) -> Document:
        kept = _hash(password) if password else ""
        return self._accounts.add(name, password_hash=kept, groups=tuple(groups)).to_dict()

    def remove_account(self, name: str) -> None:
        self._accounts.remove(name)

    def accounts(self) -> list[Document]:
        return [account.to_dict() for account in self._accounts.all()]

    def set_password(self, name: str, password: str, old: str) -> None:
        self._accounts.set_password(name, _hash(password))

    def create_token(self, account: str | None, note: str, seconds: int) -> Document:
        if account is None:
            raise UsageError("name whose token it is with --account")
        return self._accounts.create_token(account, note=note, seconds=seconds).to_dict()

    def tokens(self) -> list[Document]:
        return [token.to_dict() for token in self._accounts.tokens()]

    def revoke_token(self, token_id: str) -> None:
        self._accounts.revoke_token(token_id)


def _hash(password: str) -> str:
    from enmasse.control.web_passwords import WebPasswords  # noqa: PLC0415  # most commands need no argon2

    return WebPasswords().hash(password)


@contextmanager
def access_of(data: Path, *, warn: Callable[[str], None]) -> Iterator[AccessAdmin]:
    """Give the way to accounts and tokens for the time of the block.

    Where somebody has logged in or the installation runs, it is the API; else the data directory's file.
    """
    is_logged_in = data == DEFAULT_DATA and read_contexts().current is not None
    layout = Layout(data)
    if is_logged_in or DirectoryLock(layout.control).is_held():
        with ApiClient.find(data, warn=warn) as api:
            yield _ApiAccess(api)
    else:
        with Accounts(layout.accounts, now=time.time) as accounts:
            yield _FileAccess(accounts)


def ask_password(prompt: str = "Password: ", *, is_new: bool = False) -> str:
    """Return a password, typed or the next line of standard input.

    It is never an argument: others could see it in the list of processes.

    Raises:
        ConfigError: when there is none, or it was typed in two ways.
    """
    if sys.stdin.isatty():
        password = getpass.getpass(prompt)
        if is_new and getpass.getpass("Again: ") != password:
            raise ConfigError("the two passwords differ; nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigError("the password is empty; type one, or write it to standard input")
    return password
