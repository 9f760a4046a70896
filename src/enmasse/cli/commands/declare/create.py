"""``enmasse create``: a space or an address from a few words, without a file.

At a terminal, questions take the place of options; the choices come from the API.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.commands.declare.create_user import create_user
from enmasse.cli.commands.declare.wait import wait_until_ready
from enmasse.cli.errors import ApiError, UsageError
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
from enmasse.cli.output import Writer, make_table
from enmasse.cli.targets import find_space
from enmasse.model.kinds.address_settings import ADDRESS_TYPES
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, ADDRESS_SPACE_SCHEMA, NAMESPACE, Kind
from enmasse.model.schema.names import ROOT_TOPIC, object_name
from enmasse.model.schema.objects import decode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


create = typer.Typer(no_args_is_help=True, help="Create a space, an address, a user or a namespace.")

_BUILT_IN = ("none", "standard")
_FORBIDDEN = 403  # HTTP

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
    takes_any_name: Annotated[
        bool,
        typer.Option(
            "--any-name",
            help="Declare the topic #, too: clients of MQTT may use any name; what leads nowhere is acknowledged.",
        ),
    ] = False,
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
        authentication, takes_any_name = answers.authentication, answers.takes_any_name
    spec: dict[str, Any] = {"type": space_type, "plan": plan}
    if authentication is not None:
        spec["authenticationService"] = {"type" if authentication in _BUILT_IN else "name": authentication}
    if takes_any_name:
        # As brokers do that take any name: to bridges and old clients an end of the connection says nothing.
        spec["mqtt"] = {"undeliverable": "acknowledge"}
    _create(ADDRESS_SPACE, name, namespace, spec, wait, output, data)
    if takes_any_name:
        topic = {"address": ROOT_TOPIC, "type": "topic"}
        _create(ADDRESS, ROOT_TOPIC, namespace, topic, wait, output, data, space=name)


@create.command("namespace")
def create_namespace(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    output: OutputChoice = Output.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Create a namespace: a place for the objects of one team."""
    writer = Writer()
    document = {"apiVersion": NAMESPACE.api_version, "kind": NAMESPACE.name, "metadata": {"name": name}}
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
            space = find_space(api, place, space)
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
    _create(ADDRESS, name, namespace, spec, wait, output, data, space=space)


def _create(
    kind: Kind,
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
    place = namespace or kind.default_namespace
    with ApiClient.find(data, warn=writer.warn) as api:
        if kind is ADDRESS:
            name = object_name(find_space(api, place, space), name)
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": name, "namespace": place},
            "spec": spec,
        }
        before = _spaces(api, place) if kind is ADDRESS_SPACE else []
        created = api.create(decode(document).to_dict())
        write_results(writer, output, [(created, "created")])
        if len(before) == 1:
            writer.warn(
                "who names no space found the only one until now, and finds none any more: "
                f"name {before[0]} or {name}.{place}, in commands by --space and --namespace"
            )
        if wait_s > 0:
            wait_until_ready(api, kind, place, name, wait_s, writer)


def _spaces(api: ApiClient, namespace: str) -> list[str]:
    """Return the spaces that there are, as hosts name them; of the namespace alone for who may not see all."""
    try:
        found = api.select(ADDRESS_SPACE, None)
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        found = api.select(ADDRESS_SPACE, namespace)
    return [f"{item['metadata']['name']}.{item['metadata']['namespace']}" for item in found]


create.command("user")(create_user)


_ADDRESSES = ("deadletter", "expiry")
"""Addresses that a queue or topic may name."""

_NONE = "-"


@dataclass(slots=True)
class SpaceAnswers:
    """The answers to the questions about a space."""

    name: str
    space_type: str
    plan: str
    authentication: str
    takes_any_name: bool = False


@dataclass(slots=True)
class AddressAnswers:
    """The answers to the questions about an address."""

    name: str
    address_type: str
    plan: str
    topic: str | None = None
    deadletter: str | None = None
    expiry: str | None = None


def require_terminal(what: str) -> None:
    """Check that there is a terminal to ask questions at.

    Raises:
        UsageError: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"{what} is missing; at a terminal you would be asked for it")


def ask_for_space(api: ApiClient, writer: Writer) -> SpaceAnswers:
    """Ask for all that a space needs."""
    schemas = {item["metadata"]["name"]: item["spec"] for item in _schemas(api)}
    name = typer.prompt("Name of the space", err=True)
    kind = _choose(writer, "Type", [(name, spec.get("description", "")) for name, spec in schemas.items()])
    spec = schemas[kind]
    plan = _choose(writer, "Plan", _described(spec["plans"]))
    services = spec.get("authenticationServices", ())
    service = _choose(writer, "Authentication service", [(item, "") for item in services])
    question = "Declare the topic #, so that clients of MQTT may use any name?"
    takes_any_name = typer.confirm(question, default=False, err=True)
    answers = SpaceAnswers(name, kind, plan, service, takes_any_name)
    more = " --any-name" if takes_any_name else ""
    _review(writer, f"enmasse create space {name} --type {kind} --plan {plan} --authentication {service}{more}")
    return answers


def ask_for_address(api: ApiClient, writer: Writer, namespace: str, space: str) -> AddressAnswers:
    """Ask for all that an address of a space needs."""
    space_type = api.get(ADDRESS_SPACE, namespace, space)["spec"]["type"]
    spec = next(item["spec"] for item in _schemas(api) if item["metadata"]["name"] == space_type)
    present = [
        (item["spec"]["address"], item["spec"]["type"])
        for item in api.select(ADDRESS, namespace)
        if item["metadata"]["name"].startswith(f"{space}.")
    ]
    name = typer.prompt("Address", err=True)
    kind = _choose(writer, "Type", _described(spec["addressTypes"]))
    plans = next(item["plans"] for item in spec["addressTypes"] if item["name"] == kind)
    answers = AddressAnswers(name, kind, _choose(writer, "Plan", _described(plans)))
    if kind == "subscription":
        topics = [(topic, "") for topic, type_ in present if type_ == "topic"]
        if not topics:
            raise UsageError(f"space {space} has no topic yet, and a subscription needs one")
        answers.topic = _choose(writer, "Topic", topics)
    deadletters = [(address, "") for address, type_ in present if type_ == "deadletter"]
    if kind in ("queue", "topic") and deadletters:
        for field, title in zip(_ADDRESSES, ("Dead letters go to", "Expired messages go to"), strict=True):
            chosen = _choose(writer, title, [(_NONE, "nowhere"), *deadletters])
            setattr(answers, field, None if chosen == _NONE else chosen)
    more = "".join(
        f" --{field} {value}" for field in ("topic", *_ADDRESSES) if (value := getattr(answers, field)) is not None
    )
    _review(writer, f"enmasse create address {name} --space {space} --type {kind} --plan {answers.plan}{more}")
    return answers


def _schemas(api: ApiClient) -> list[dict[str, Any]]:
    found = sorted(api.select(ADDRESS_SPACE_SCHEMA, None), key=lambda item: item["metadata"]["name"] != "standard")
    if not found:
        raise UsageError("the installation has not published the plans to choose from yet; try again in a moment")
    return found


def _described(items: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(item["name"], item.get("description") or item.get("displayName") or "") for item in items]


def _choose(writer: Writer, title: str, choices: Sequence[tuple[str, str]]) -> str:
    """Ask for one of several; the first is the default, a number stands for a name."""
    if not choices:
        raise UsageError(f"{title}: there is nothing to choose from")
    rows = [[str(number), name, text] for number, (name, text) in enumerate(choices, start=1)]
    writer.err.print(make_table(("", title.upper(), ""), rows))
    names = [name for name, _ in choices]
    while True:
        answer = str(typer.prompt(title, default=names[0], err=True))
        if answer in names:
            return answer
        if answer.isdigit() and 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]
        writer.note(f"expected a number or a name of the list, got '{answer}'")


def _review(writer: Writer, command: str) -> None:
    writer.note(f"The same without questions:\n    {command}")
    typer.confirm("Create it?", default=True, abort=True, err=True)
