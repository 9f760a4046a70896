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

import httpx
import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.contexts import read_contexts, trust
from enmasse.cli.errors import ApiError, UnreachableError, UsageError
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer, make_table
from enmasse.control.access.accounts import BY_SESSION, Accounts
from enmasse.drivers.data_directory import DirectoryLock, Layout
from enmasse.errors import ConfigError
from enmasse.identity.rbac import ADMINISTRATORS
from enmasse.model.schema.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from enmasse.cli.contexts import Context

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
    keep_tokens: Annotated[
        bool, typer.Option("--keep-tokens", help="Leave those that were made in the console or by `enmasse login`.")
    ] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Give an account another password; the old one is asked for first, but of the operator.

    Its sessions end, and so do tokens that were made in the console or by
    `enmasse login`, but for the one that this command uses.
    """
    writer = Writer()
    context = read_contexts().current if data == DEFAULT_DATA else None
    whose = name or (context.user if context else None)
    if whose is None:
        raise UsageError("name the account: nobody has logged in")
    with access_of(data, warn=writer.warn) as access:
        ending = [item for item in access.tokens() if item["account"] == whose and item.get("madeBy") == BY_SESSION]
        if ending and not keep_tokens:
            writer.note(f"with the password end: {_listed(ending)}; --keep-tokens leaves them")
        old = ask_password("Old password: ") if context is not None and context.user == whose else ""
        password = ask_password("New password: ", is_new=True)
        access.set_password(whose, password, old, keeps_tokens=keep_tokens)
        left = [item for item in access.tokens() if item["account"] == whose]
    writer.say(f"the password of account {whose} is another now")
    if left:
        writer.note(f"still good are: {_listed(left)}; `enmasse token revoke ID` ends one")


@account.command("logout")
def log_out(name: Name, data: Data = DEFAULT_DATA) -> None:
    """Log an account out everywhere: its sessions end, and tokens made in the console or by `enmasse login`."""
    writer = Writer()
    with access_of(data, warn=writer.warn) as access:
        ended = access.end_sessions(name)
    writer.say(f"{name} is logged out everywhere")
    if ended:
        writer.note(f"ended: {_listed(ended)}")


def _listed(tokens: Sequence[Document]) -> str:
    return ", ".join(f"token {item['id']}" + (f" ({item['note']})" if item["note"] else "") for item in tokens)


@account.command("grant")
def grant(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The account, or another user.", show_default=False)],
    role: Annotated[
        str,
        typer.Argument(
            metavar="ROLE",
            help="tenant-edit, tenant-view, service-admin, schema-reader or metrics-reader.",
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

    A request carries it as `Authorization: Bearer TOKEN`. The password of who
    has logged in is asked for, or is the first line of standard input; where
    an account has none, the new token ends with the one it was made with.
    """
    writer = Writer()
    seconds = parse_period(valid_for)
    with access_of(data, warn=writer.warn) as access:
        made = access.create_token(account, note, seconds)
    writer.say(made["token"])
    until = f"good until {made['expires']}" if made["expires"] else "good until it is revoked"
    above = f", and ends with token {made['parent']}" if made.get("parent") else ""
    writer.note(f"token {made['id']} of account {made['account']}, {until}{above}; it is not shown again")


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
            (item["expires"] or "never") + (" (soon)" if item.get("endsSoon") else ""),
            item["lastUsed"] or "never",
            item.get("madeBy") or "-",
            item["note"],
        ]
        for item in found
    ]
    writer.out.print(make_table(["ID", "ACCOUNT", "CREATED", "EXPIRES", "LAST USED", "MADE BY", "NOTE"], rows))


@token.command("revoke")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `enmasse token list` shows it.")],
    data: Data = DEFAULT_DATA,
) -> None:
    """Make a token worth nothing, at once, and those that were made with it."""
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
_PROOF_HEADER = "EnMasse-Proof"
_TIMEOUT_S = 30.0


class AccessAdmin(Protocol):
    """The administration of accounts and tokens, in their JSON forms."""

    def add_account(self, name: str, password: str, groups: Sequence[str]) -> Document:
        """Add an account; without a password tokens are its only way in."""

    def remove_account(self, name: str) -> None:
        """Remove an account with its tokens."""

    def accounts(self) -> list[Document]:
        """Return all accounts."""

    def set_password(self, name: str, password: str, old: str, *, keeps_tokens: bool) -> None:
        """Give an account another password; sessions end with the old one, and tokens that were made in one."""

    def end_sessions(self, name: str) -> list[Document]:
        """End the sessions of an account and the tokens that were made in one, and return these."""

    def create_token(self, account: str | None, note: str, seconds: int) -> Document:
        """Make a token, by default for the caller."""

    def tokens(self) -> list[Document]:
        """Return all tokens that the caller may see."""

    def revoke_token(self, token_id: str) -> None:
        """Revoke a token."""


class _ApiAccess:
    def __init__(self, api: ApiClient, context: Context | None) -> None:
        self._api = api
        self._context = context

    def add_account(self, name: str, password: str, groups: Sequence[str]) -> Document:
        body = {"username": name, "groups": list(groups)} | ({"password": password} if password else {})
        return self._api.call("POST", f"{_PATH}/accounts", json=body)

    def remove_account(self, name: str) -> None:
        self._api.call("DELETE", f"{_PATH}/accounts/{name}")

    def accounts(self) -> list[Document]:
        found: list[Document] = self._api.call("GET", f"{_PATH}/accounts")["items"]
        return found

    def set_password(self, name: str, password: str, old: str, *, keeps_tokens: bool) -> None:
        body: Document = {"password": password} | ({"oldPassword": old} if old else {})
        body |= {"endTokens": []} if keeps_tokens else {}
        self._api.call("PUT", f"{_PATH}/accounts/{name}/password", json=body)

    def end_sessions(self, name: str) -> list[Document]:
        told = self._api.call("DELETE", f"{_PATH}/sessions", params={"account": name})
        ended: list[Document] = told["tokensEnded"]
        return ended

    def create_token(self, account: str | None, note: str, seconds: int) -> Document:
        body: Document = {"note": note, "expirationSeconds": seconds} | ({"account": account} if account else {})
        context = self._context
        if context is None or not self._api.call("GET", "/whoami").get("hasPassword"):
            return self._api.call("POST", f"{_PATH}/tokens", json=body)
        password = ask_password(f"Password of {context.user}: ")
        return create_token_by_password(context.server, context.authority, context.user, password, body)

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

    def set_password(self, name: str, password: str, old: str, *, keeps_tokens: bool) -> None:
        self._accounts.set_password(name, _hash(password))
        if not keeps_tokens:
            self._accounts.end_tokens(name)

    def end_sessions(self, name: str) -> list[Document]:
        return [token.to_dict() for token in self._accounts.end_tokens(name)]

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
    context = read_contexts().current if data == DEFAULT_DATA else None
    layout = Layout(data)
    if context is not None or DirectoryLock(layout.control).is_held():
        with ApiClient.find(data, warn=warn) as api:
            yield _ApiAccess(api, context)
    else:
        with Accounts(layout.accounts, now=time.time) as accounts:
            yield _FileAccess(accounts)


def create_token_by_password(server: str, authority: str, account: str, password: str, wanted: Document) -> Document:
    """Make a token with the password of an account, in a session that ends with it, and return its JSON form.

    Args:
        server: URL of the API.
        authority: the certificate (PEM) that vouches for it; empty: those that the system trusts do.
        account: the account whose password it is.
        password: the password as it was typed.
        wanted: the body of the request for the token.

    Raises:
        ApiError: the API refuses it.
        UnreachableError: it does not answer.
    """
    with httpx.Client(base_url=server, timeout=_TIMEOUT_S, trust_env=False, verify=trust(server, authority)) as http:
        told = _send(http, "/login", {"username": account, "password": password})
        proof = {_PROOF_HEADER: told["proof"]} if "proof" in told else {}  # an older API asks for none
        made = _send(http, f"{_PATH}/tokens", wanted, proof)
        _send(http, "/logout", {})
    return made


def _send(http: httpx.Client, path: str, body: Document, headers: dict[str, str] | None = None) -> Document:
    try:
        response = http.post(path, json=body, headers=headers)
        document: Document = response.json()
    except httpx.TransportError as error:
        hint = "; name its authority with --ca" if "CERTIFICATE_VERIFY_FAILED" in str(error) else ""
        raise UnreachableError(f"the API at {http.base_url} does not answer: {error}{hint}") from None
    except ValueError:
        raise ApiError(response.status_code, f"{http.base_url} does not speak this API") from None
    if response.is_error:
        raise ApiError(response.status_code, document.get("message", response.reason_phrase))
    return document


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
