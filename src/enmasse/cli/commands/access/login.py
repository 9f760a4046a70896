"""``enmasse login`` and ``enmasse logout``: the account that later commands use."""

from __future__ import annotations

import base64
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
import yaml

from enmasse.cli.api_client import ApiClient, operator_token
from enmasse.cli.commands.access.account import ask_password, create_token_by_password, parse_period
from enmasse.cli.contexts import Context, read_contexts, write_contexts
from enmasse.cli.errors import UsageError
from enmasse.cli.installation import find_endpoints, find_url
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer
from enmasse.drivers.data_directory import Layout, replace_file
from enmasse.errors import ConfigError, EnmasseError
from enmasse.identity.rbac import LOCAL_OPERATOR


def login(
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Of the API; by default that of the data directory."),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="Who vouches for the server (PEM); `enmasse ca` prints it there."),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="The account; by default it is asked for.")
    ] = None,
    with_token: Annotated[
        bool, typer.Option("--with-token", help="Read a token from standard input instead of a password.")
    ] = False,
    valid_for: Annotated[
        str, typer.Option("--valid-for", metavar="TIME", help="How long one stays logged in, such as 12h.")
    ] = "30d",
    context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="A name for it; by default the server's.")
    ] = None,
    kubeconfig: Annotated[
        bool, typer.Option("--kubeconfig", help="Have kubectl use it too: writes $KUBECONFIG or ~/.kube/config.")
    ] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Log in; every command to come that names no data directory uses this installation.

    The password is asked for, or is the first line of standard input. What is
    kept is a token, in ~/.config/enmasse/config, readable by you alone. Where
    no account has a password, --kubeconfig alone does something: it names the
    file with the token of the data directory.
    """
    writer = Writer()
    url, authority = _server(server, ca, data)
    name = context or urlsplit(url).netloc
    if server is None and user is None and not with_token and not _can_log_in(data):
        proof = Layout(data).operator_token.absolute()
        if not kubeconfig:
            writer.say(
                f"nobody can or need log in here: no account of {data} has a password, and commands that may read "
                f"{proof} prove themselves by it. `enmasse login --kubeconfig` has kubectl do so, too"
            )
            return
        written = _write_kubeconfig(name, LOCAL_OPERATOR.name, url, authority, {"tokenFile": str(proof)})
        writer.say(f"kubectl uses context {name}, as {written} says, with the token of {proof}")
        return
    seconds = parse_period(valid_for)
    if with_token:
        token, token_id = sys.stdin.readline().strip(), ""
    else:
        account = user or _ask_user()
        wanted = {"note": f"enmasse login on {socket.gethostname()}"[:100], "expirationSeconds": seconds}
        made = create_token_by_password(url, authority, account, ask_password(), wanted)
        token, token_id = made["token"], made["id"]
    found = Context(name, url, "", token, token_id, authority)
    with ApiClient.of_context(found, warn=writer.warn) as api:
        who = str(api.call("GET", "/whoami")["username"])
    found = Context(name, url, who, token, token_id, authority)
    write_contexts(read_contexts().with_context(found))
    writer.say(f"logged in to {url} as {who}")
    if kubeconfig:
        written = _write_kubeconfig(name, who, url, authority, {"token": token})
        writer.say(f"kubectl uses context {name}, as {written} says")


def logout(
    everywhere: Annotated[
        bool,
        typer.Option("--everywhere", help="End all sessions too, and all tokens of the console and `enmasse login`."),
    ] = False,
) -> None:
    """Log out: the token is revoked and forgotten."""
    writer = Writer()
    contexts = read_contexts()
    current = contexts.current
    if current is None:
        raise UsageError("nobody has logged in")
    if everywhere:
        with ApiClient.of_context(current, warn=writer.warn) as api:
            api.call("DELETE", "/apis/access.enmasse.io/v1beta1/sessions")
    elif current.token_id:
        try:
            with ApiClient.of_context(current, warn=writer.warn) as api:
                api.call("DELETE", f"/apis/access.enmasse.io/v1beta1/tokens/{current.token_id}")
        except EnmasseError as error:
            writer.warn(f"the token could not be revoked, only forgotten: {error}")
    write_contexts(contexts.without(current.name))
    writer.say(f"logged out of {current.server}{' everywhere' if everywhere else ''}")


def _server(server: str | None, ca: Path | None, data: Path) -> tuple[str, str]:
    """Return the URL of the API and its authority's certificate."""
    try:
        authority = ca.read_text(encoding="ascii") if ca is not None else ""
    except (OSError, ValueError) as error:
        raise ConfigError(f"{ca} cannot be read as a certificate: {error}") from None
    if server is not None:
        if urlsplit(server).scheme not in ("http", "https"):
            raise UsageError(f"--server {server}: a URL is expected, such as https://messaging.example.org:8443")
        return server.rstrip("/"), authority
    endpoints = find_endpoints(data)
    protected = endpoints.url("api-tls")
    if protected is None:
        raise UsageError("the installation asks nobody who they are: start it without `--api-auth open`")
    own = Layout(data).tls / "authority" / "ca.crt"
    return protected, authority or own.read_text(encoding="ascii")


def _can_log_in(data: Path) -> bool:
    """Return True if any account has a password; also where we may not read the accounts."""
    token = operator_token(data)
    if not token:
        return True
    with ApiClient(find_url(data, "api"), warn=lambda _warning: None, token=token) as api:
        accounts = api.call("GET", "/apis/access.enmasse.io/v1beta1/accounts")["items"]
    return any(item["hasPassword"] for item in accounts)


def _ask_user() -> str:
    if not sys.stdin.isatty():
        raise UsageError("name the account with --user")
    return input("User: ")


def _write_kubeconfig(name: str, who: str, server: str, authority: str, proof: dict[str, str]) -> Path:
    """Add cluster, user and context to the file that kubectl reads, and make it the current one."""
    given = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = Path(given) if given else Path.home() / ".kube" / "config"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.exists() else {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as kubectl's configuration: {type(error).__name__}") from None
    cluster: dict[str, Any] = {"server": server}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    user = f"{who}@{name}"
    for key, called, field, value in (
        ("clusters", name, "cluster", cluster),
        ("users", user, "user", proof),
        ("contexts", name, "context", {"cluster": name, "user": user, "namespace": "default"}),
    ):
        others = [item for item in document.get(key) or [] if item.get("name") != called]
        document[key] = [*others, {"name": called, field: value}]
    whole = {"apiVersion": "v1", "kind": "Config"} | document | {"current-context": name}
    replace_file(path, yaml.safe_dump(whole, sort_keys=False).encode())
    return path
