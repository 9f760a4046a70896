"""``enmasse account`` and ``enmasse token``: the accounts of people, and the tokens by which programs use the API.

Both work through the API, or on the file of accounts where nothing runs yet.
"""

from __future__ import annotations

import getpass
import re
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.contexts import read_contexts
from enmasse.cli.errors import UsageError
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer, make_table
from enmasse.control.access.accounts import Accounts
from enmasse.drivers.data_directory import DirectoryLock, Layout
from enmasse.errors import ConfigError
from enmasse.identity.rbac import ADMINISTRATORS
from enmasse.model.schema.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

account = typer.Typer(no_args_is_help=True, help="Who may use the API, and for what.")

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]

_PREFIX = "enmasse.io:"
_UNFIT = re.compile(r"[/%\s]")  # in the name of an object


@account.command("add")
def add(
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything.")] = False,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="Of which it is a member; repeatable.")
    ] = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="For programs: tokens are the only way in.")
    ] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Add an account; the password is asked for, or is the first line of standard input.

    It may do nothing until it is granted a role, or is made with --admin. Works
    before the installation is started for the first time, too.
    """
    writer = Writer()
    groups = [*(group or ()), *([ADMINISTRATORS] if admin else ())]
    password = "" if no_password else ask_password(is_new=True)
    with access_of(data, warn=writer.warn) as access:
        access.add_account(name, password, groups)
    writer.say(f"account {name} added")


@account.command("remove")
def remove(name: Name, data: Data = DEFAULT_DATA) -> None:
    """Remove an account with its tokens; what it was granted stays, for an account of the same name."""
    writer = Writer()
    with access_of(data, warn=writer.warn) as access:
        access.remove_account(name)
    writer.say(f"account {name} removed")


@account.command("list")
def list_accounts(data: Data = DEFAULT_DATA) -> None:
    """Show all accounts."""
    writer = Writer()
    with access_of(data, warn=writer.warn) as access:
        found = access.accounts()
    rows = [
        [item["username"], ",".join(item["groups"]), "yes" if item["hasPassword"] else "no", item["created"]]
        for item in found
    ]
    writer.out.print(make_table(["NAME", "GROUPS", "PASSWORD", "CREATED"], rows))


@account.command("passwd")
def passwd(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="By default who has logged in.", show_default=False)
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Give an account another password; the old one is asked for first, but of the operator."""
    writer = Writer()
    context = read_contexts().current if data == DEFAULT_DATA else None
    whose = name or (context.user if context else None)
    if whose is None:
        raise UsageError("name the account: nobody has logged in")
    old = ask_password("Old password: ") if context is not None and context.user == whose else ""
    password = ask_password("New password: ", is_new=True)
    with access_of(data, warn=writer.warn) as access:
        access.set_password(whose, password, old)
    writer.say(f"the password of account {whose} is another now")


@account.command("grant")
def grant(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The account, or another user.", show_default=False)],
    role: Annotated[
        str,
        typer.Argument(
            metavar="ROLE",
            help="tenant-edit, tenant-view, service-admin or schema-reader.",
            show_default=False,
        ),
    ],
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", metavar="NS", help="Where the role counts.")
    ] = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Everywhere.")] = False,
    group: Annotated[bool, typer.Option("--group", help="NAME is a group.")] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Give a user or a group a role in a namespace, or everywhere."""
    if all_namespaces == (namespace is not None):
        raise UsageError("say where the role counts: either --namespace NS or --all-namespaces")
    writer = Writer()
    full = role if ":" in role else _PREFIX + role
    kind = CLUSTER_ROLE_BINDING if all_namespaces else ROLE_BINDING
    document = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": _UNFIT.sub("-", f"{name}:{role}"), **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.name, "name": full},
        "subjects": [{"apiGroup": CLUSTER_ROLE.group, "kind": "Group" if group else "User", "name": name}],
    }
    place = f"namespaces/{namespace}/{kind.plural}" if namespace else kind.plural
    with ApiClient.find(data, warn=writer.warn) as api:
        api.call("POST", f"/apis/rbac.authorization.k8s.io/v1/{place}", json=document)
    writer.say(f"{name} has the role {full} {f'in namespace {namespace}' if namespace else 'everywhere'}")


token = typer.Typer(no_args_is_help=True, help="Tokens by which programs use the API.")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@token.command("create")
def create(
    account: Annotated[
        str | None, typer.Option("--account", metavar="NAME", help="Whose it is; by default who has logged in.")
    ] = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What it is for.")] = "",
    valid_for: Annotated[
        str, typer.Option("--valid-for", metavar="TIME", help="Such as 12h or 90d; 0: until it is revoked.")
    ] = "90d",
    data: Data = DEFAULT_DATA,
) -> None:
    """Make a token and print it, this one time.

    A request carries it as `Authorization: Bearer TOKEN`.
    """
    writer = Writer()
    seconds = parse_period(valid_for)
    with access_of(data, warn=writer.warn) as access:
        made = access.create_token(account, note, seconds)
    writer.say(made["token"])
    until = f"good until {made['expires']}" if made["expires"] else "good until it is revoked"
    writer.note(f"token {made['id']} of account {made['account']}, {until}; it is not shown again")


@token.command("list")
def list_tokens(data: Data = DEFAULT_DATA) -> None:
    """Show tokens: one's own, an administrator everybody's."""
    writer = Writer()
    with access_of(data, warn=writer.warn) as access:
        found = access.tokens()
    rows = [
        [
            item["id"],
            item["account"],
            item["created"],
            item["expires"] or "never",
            item["lastUsed"] or "never",
            item["note"],
        ]
        for item in found
    ]
    writer.out.print(make_table(["ID", "ACCOUNT", "CREATED", "EXPIRES", "LAST USED", "NOTE"], rows))


@token.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `enmasse token list` shows it.")],
    data: Data = DEFAULT_DATA,
) -> None:
    """Make a token worth nothing, at once."""
    writer = Writer()
    with access_of(data, warn=writer.warn) as access:
        access.revoke_token(token_id)
    writer.say(f"token {token_id} revoked")


def parse_period(text: str) -> int:
    """Return the seconds that a text such as ``12h`` stands for.

    Raises:
        UsageError: when it stands for nothing.
    """
    found = re.fullmatch(r"(\d{1,9})([smhd]?)", text)
    if found is None or (not found[2] and found[1] != "0"):
        raise UsageError(f"{text!r} is no period: a number with s, m, h or d is expected, such as 12h, or 0")
    return int(found[1]) * _UNITS.get(found[2], 0)


Document = dict[str, Any]

_PATH = "/apis/access.enmasse.io/v1beta1"


class AccessAdmin(Protocol):
    """The administration of accounts and tokens, in their JSON forms."""

    def add_account(self, name: str, password: str, groups: Sequence[str]) -> Document:
        """Add an account; without a password tokens are its only way in."""

    def remove_account(self, name: str) -> None:
        """Remove an account with its tokens."""

    def accounts(self) -> list[Document]:
        """Return all accounts."""

    def set_password(self, name: str, password: str, old: str) -> None:
        """Give an account another password."""

    def create_token(self, account: str | None, note: str, seconds: int) -> Document:
        """Make a token, by default for the caller."""

    def tokens(self) -> list[Document]:
        """Return all tokens that the caller may see."""

    def revoke_token(self, token_id: str) -> None:
        """Revoke a token."""


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
    from enmasse.control.access.accounts import WebPasswords  # noqa: PLC0415  # most commands need no argon2

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
