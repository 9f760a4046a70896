"""``enmasse account``: who may use the API."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from enmasse.cli.access import access_of, ask_password
from enmasse.cli.api_client import ApiClient
from enmasse.cli.contexts import read_contexts
from enmasse.cli.errors import UsageError
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer, make_table
from enmasse.identity.requester import ADMINISTRATORS

__all__ = ["account"]

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
    document = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding" if all_namespaces else "RoleBinding",
        "metadata": {"name": _UNFIT.sub("-", f"{name}:{role}"), **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": full},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group" if group else "User", "name": name}],
    }
    place = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    with ApiClient.find(data, warn=writer.warn) as api:
        api.call("POST", f"/apis/rbac.authorization.k8s.io/v1/{place}", json=document)
    writer.say(f"{name} has the role {full} {f'in namespace {namespace}' if namespace else 'everywhere'}")
