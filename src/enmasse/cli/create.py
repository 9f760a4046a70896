"""``enmasse create``: a space or an address from a few words, without a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.create_user import create_user
from enmasse.cli.errors import UsageError
from enmasse.cli.objects import write_results
from enmasse.cli.options import (
    DEFAULT_DATA,
    Data,
    Namespace,
    Output,
    OutputChoice,
    Space,
    complete_types,
)
from enmasse.cli.output import Writer
from enmasse.cli.spaces import only_space
from enmasse.cli.waiting import wait_until_ready
from enmasse.cli.wizard import ask_for_address, ask_for_space, require_terminal
from enmasse.model.addresses import ADDRESS_TYPES
from enmasse.model.kinds import decode, kind_named
from enmasse.model.names import object_name

if TYPE_CHECKING:
    from pathlib import Path


__all__ = ["create"]

create = typer.Typer(no_args_is_help=True, help="Create a space, an address, a user or a namespace.")

_BUILT_IN = ("none", "standard")

Plan = Annotated[str | None, typer.Option("--plan", metavar="NAME", help="Plan; the smallest by default.")]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="Wait so long until it can be used; 0: do not.")
]


@create.command("space")
def create_space(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Without it you are asked for everything.")
    ] = None,
    space_type: Annotated[str, typer.Option("--type", help="standard or brokered.")] = "standard",
    plan: Plan = None,
    authentication: Annotated[
        str | None,
        typer.Option(
            "--authentication",
            metavar="SERVICE",
            help="none: everybody may come in; standard: the space's users; or the name of a service.",
        ),
    ] = None,
    namespace: Namespace = None,
    wait: Wait = 10.0,
    output: OutputChoice = Output.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Create an address space: a group of addresses, reachable over one connection."""
    if name is None:
        require_terminal("the name of the space")
        writer = Writer()
        with ApiClient.find(data, warn=writer.warn) as api:
            answers = ask_for_space(api, writer)
        name, space_type, plan = answers.name, answers.space_type, answers.plan
        authentication = answers.authentication
    spec: dict[str, Any] = {"type": space_type, "plan": plan}
    if authentication is not None:
        spec["authenticationService"] = {"type" if authentication in _BUILT_IN else "name": authentication}
    _create("AddressSpace", name, namespace, spec, wait, output, data)


@create.command("namespace")
def create_namespace(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    output: OutputChoice = Output.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Create a namespace: a place for the objects of one team."""
    writer = Writer()
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    with ApiClient.find(data, warn=writer.warn) as api:
        write_results(writer, output, [(api.create(decode(document).to_dict()), "created")])


@create.command("address")
def create_address(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[ADDRESS]", help="What applications will call it; without it you are asked for everything."
        ),
    ] = None,
    address_type: Annotated[
        str | None,
        typer.Option(
            "--type",
            "-t",
            metavar="TYPE",
            help="anycast, multicast, queue, topic, subscription, stream or deadletter.",
            autocompletion=complete_types,
        ),
    ] = None,
    space: Space = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="ADDRESS", help="Of a subscription: its topic.")
    ] = None,
    plan: Plan = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", metavar="N", help="Of a stream; fixed for ever.")
    ] = None,
    max_consumers: Annotated[
        int | None, typer.Option("--max-consumers", metavar="N", help="Of a subscription; 1 by default.")
    ] = None,
    deadletter: Annotated[
        str | None, typer.Option("--deadletter", metavar="ADDRESS", help="Where messages go that failed too often.")
    ] = None,
    expiry: Annotated[
        str | None, typer.Option("--expiry", metavar="ADDRESS", help="Where messages go whose time is over.")
    ] = None,
    fallback: Annotated[
        str | None,
        typer.Option("--fallback", metavar="ADDRESS", help="A queue for what nobody receives; anycast, multicast."),
    ] = None,
    ttl: Annotated[
        float | None, typer.Option("--ttl", metavar="SECONDS", min=0.001, help="How long messages wait at most.")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", metavar="N", help="How much it stores at most.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option("--storage", metavar="WHAT", help="What survives a restart: message, memory or durable."),
    ] = None,
    namespace: Namespace = None,
    wait: Wait = 10.0,
    output: OutputChoice = Output.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Create an address in a space; `enmasse apply` takes every option that there is."""
    if name is None:
        require_terminal("the address")
        writer, place = Writer(), namespace or "default"
        with ApiClient.find(data, warn=writer.warn) as api:
            space = space or only_space(api, place)
            answers = ask_for_address(api, writer, place, space)
        name, address_type, plan, topic = answers.name, answers.address_type, answers.plan, answers.topic
        deadletter, expiry = answers.deadletter, answers.expiry
    elif address_type is None:
        raise UsageError(f"what type is {name}? Name it with --type: {', '.join(ADDRESS_TYPES)}")
    spec = {
        "address": name,
        "type": address_type,
        "plan": plan,
        "topic": topic,
        "partitions": partitions,
        "subscription": {"maxConsumers": max_consumers} if max_consumers is not None else None,
        "deadletter": deadletter,
        "expiry": expiry,
        "fallback": fallback,
        "messageTtl": {"maximum": round(ttl * 1000)} if ttl is not None else None,
        "limits": {"maxBytes": max_bytes} if max_bytes is not None else None,
        "storage": storage,
    }
    _create("Address", name, namespace, spec, wait, output, data, space=space)


def _create(
    kind_name: str,
    name: str,
    namespace: str | None,
    spec: dict[str, Any],
    wait_s: float,
    output: Output,
    data: Path,
    *,
    space: str | None = None,
) -> None:
    writer = Writer()
    kind = kind_named(kind_name)
    assert kind is not None
    place = namespace or kind.default_namespace
    with ApiClient.find(data, warn=writer.warn) as api:
        if kind.name == "Address":
            name = object_name(space or only_space(api, place), name)
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": name, "namespace": place},
            "spec": spec,
        }
        created = api.create(decode(document).to_dict())
        write_results(writer, output, [(created, "created")])
        if wait_s > 0:
            wait_until_ready(api, kind, place, name, wait_s, writer)


create.command("user")(create_user)
