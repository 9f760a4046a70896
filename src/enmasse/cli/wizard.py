"""Questions in place of options, where somebody sits at a terminal; what may be chosen comes from the API."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from enmasse.cli.errors import UsageError
from enmasse.cli.output import make_table
from enmasse.model.kinds import kind_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.cli.api_client import ApiClient
    from enmasse.cli.output import Writer

__all__ = ["AddressAnswers", "SpaceAnswers", "ask_for_address", "ask_for_space", "require_terminal"]

_ADDRESSES = ("deadletter", "expiry")
"""Addresses that a queue or topic may name."""

_NONE = "-"


@dataclass(slots=True)
class SpaceAnswers:
    """What was said about a space."""

    name: str
    space_type: str
    plan: str
    authentication: str


@dataclass(slots=True)
class AddressAnswers:
    """What was said about an address."""

    name: str
    address_type: str
    plan: str
    topic: str | None = None
    deadletter: str | None = None
    expiry: str | None = None


def require_terminal(what: str) -> None:
    """See that there is somebody to ask.

    Raises:
        UsageError: nobody sits there.
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
    answers = SpaceAnswers(name, kind, plan, service)
    _review(writer, f"enmasse create space {name} --type {kind} --plan {plan} --authentication {service}")
    return answers


def ask_for_address(api: ApiClient, writer: Writer, namespace: str, space: str) -> AddressAnswers:
    """Ask for all that an address of a space needs."""
    spaces, addresses = kind_named("AddressSpace"), kind_named("Address")
    assert spaces is not None
    assert addresses is not None
    space_type = api.get(spaces, namespace, space)["spec"]["type"]
    spec = next(item["spec"] for item in _schemas(api) if item["metadata"]["name"] == space_type)
    present = [
        (item["spec"]["address"], item["spec"]["type"])
        for item in api.select(addresses, namespace)
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
    kind = kind_named("AddressSpaceSchema")
    assert kind is not None
    found = sorted(api.select(kind, None), key=lambda item: item["metadata"]["name"] != "standard")
    if not found:
        raise UsageError("the installation has not told yet what may be chosen; try again in a moment")
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
