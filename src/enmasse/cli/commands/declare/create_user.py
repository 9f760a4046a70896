"""``enmasse create user`` and ``enmasse passwd``: messaging users, and their passwords."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.commands.declare.wait import wait_until_ready
from enmasse.cli.errors import UsageError
from enmasse.cli.objects import object_label, write_results
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Output, OutputChoice, Space
from enmasse.cli.output import Writer
from enmasse.cli.passwords import ask_password, new_password
from enmasse.cli.targets import find_certain, find_space
from enmasse.model.schema.kinds import MESSAGING_USER
from enmasse.model.schema.names import object_name
from enmasse.model.schema.objects import decode

_SCRAM_SHA_1 = "enmasse.io/scram-sha-1"

Patterns = list[str]
Generate = Annotated[
    bool, typer.Option("--generate", help="Make up a password, and print it; it is shown this once only.")
]


def create_user(
    name: Annotated[str, typer.Argument(metavar="USERNAME", help="What it logs in with.")],
    space: Space = None,
    send: Annotated[
        Patterns | None, typer.Option("--send", metavar="PATTERN", help="Addresses to send to; repeatable.")
    ] = None,
    recv: Annotated[
        Patterns | None, typer.Option("--recv", metavar="PATTERN", help="Addresses to receive from; repeatable.")
    ] = None,
    view: Annotated[
        bool, typer.Option("--view", help="It may see the addresses and statistics of the space.")
    ] = False,
    manage: Annotated[
        bool, typer.Option("--manage", help="It may also purge and move messages, and close connections.")
    ] = False,
    certificate: Annotated[
        str | None,
        typer.Option(
            "--certificate", metavar="CN", help="A client certificate proves it, by this name; no password."
        ),
    ] = None,
    federated: Annotated[
        bool, typer.Option("--federated", help="The space's provider of identities proves it; no password.")
    ] = False,
    no_password: Annotated[bool, typer.Option("--no-password", help="Set it later, with `enmasse passwd`.")] = False,
    generate: Generate = False,
    scram_sha_1: Annotated[
        bool, typer.Option("--scram-sha-1", help="Also serve clients that know nothing newer than SHA-1.")
    ] = False,
    namespace: Namespace = None,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", help="Wait so long until it can come in; 0: do not.")
    ] = 10.0,
    output: OutputChoice = Output.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Create a user of a space; the password is asked for, or is the first line of standard input.

    PATTERN: `*` stands for one word between slashes, `#` for any number of
    them, `order*` for all that begins so, and `${username}` for the user's own
    name. Without any permission the user may come in, and do nothing.
    """
    writer = Writer()
    if sum((certificate is not None, federated, no_password, generate)) > 1:
        raise UsageError("--certificate, --federated, --no-password and --generate exclude each other")
    kind = MESSAGING_USER
    place = namespace or kind.default_namespace
    with ApiClient.find(data, warn=writer.warn) as api:
        of_space = find_space(api, place, space)
        authentication: dict[str, Any] = {"type": "password"}
        password = None
        if certificate is not None:
            authentication = {"type": "certificate", "subject": certificate}
        elif federated:
            authentication = {"type": "federated"}
        elif not no_password:
            password = new_password() if generate else ask_password()
            authentication["password"] = _encoded(password)
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {
                "name": object_name(of_space, name),
                "namespace": place,
                "annotations": {_SCRAM_SHA_1: "true"} if scram_sha_1 else {},
            },
            "spec": {
                "username": name,
                "authentication": authentication,
                "authorization": _authorization(send, recv, view=view, manage=manage),
            },
        }
        created = api.create(decode(document).to_dict())
        if generate and output is Output.TABLE and not writer.out.is_terminal:
            # What is kept of it is the password alone: a file of it, or a variable.
            writer.note(f"{object_label(created)} created")
        else:
            write_results(writer, output, [(created, "created")])
        if generate and password is not None:
            writer.say(password)
        if wait > 0 and not no_password:
            wait_until_ready(api, kind, place, created["metadata"]["name"], wait, writer)


def _authorization(send: Patterns | None, recv: Patterns | None, *, view: bool, manage: bool) -> list[dict[str, Any]]:
    grants: list[dict[str, Any]] = []
    if send and send == recv:
        grants.append({"operations": ["send", "recv"], "addresses": send})
    else:
        grants += [
            {"operations": [operation], "addresses": given}
            for operation, given in (("send", send), ("recv", recv))
            if given
        ]
    of_space = [operation for operation, is_given in (("view", view), ("manage", manage)) if is_given]
    return grants + ([{"operations": of_space}] if of_space else [])


def passwd(
    name: Annotated[str, typer.Argument(metavar="SPACE.USER", help="The user: SPACE.USERNAME.")],
    generate: Generate = False,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Set the password of a messaging user; it is asked for, or is the first line of standard input.

    Connections that came in with the former password are closed.
    """
    writer = Writer()
    kind = MESSAGING_USER
    place = namespace or kind.default_namespace
    with ApiClient.find(data, warn=writer.warn) as api:
        item = find_certain(api, kind, place, name, space)
        if item["spec"].get("authentication", {}).get("type", "password") != "password":
            raise UsageError(f"{name} proves itself by {item['spec']['authentication']['type']}, and has no password")
        password = new_password() if generate else ask_password()
        api.merge(item, {"spec": {"authentication": {"type": "password", "password": _encoded(password)}}})
    if generate:
        writer.say(password)
    writer.note(f"the password of {item['metadata']['name']} is set")


def _encoded(password: str) -> str:
    return b64encode(password.encode()).decode()
