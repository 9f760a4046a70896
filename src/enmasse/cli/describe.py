"""``enmasse describe``: one object in full, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from enmasse.cli.api_client import ApiClient
from enmasse.cli.columns import age, is_ready, present
from enmasse.cli.errors import UsageError
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer, make_table
from enmasse.cli.targets import complete_targets, parse_targets
from enmasse.model.kinds import restore

if TYPE_CHECKING:
    from enmasse.cli.api_client import Document

__all__ = ["describe"]

_EFFECTIVE = ("planStatus", "subscription", "messageTtl", "messageRedelivery", "limits", "retention")


def describe(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND NAME | KIND/NAME",
            help="The object; an address also as it is called.",
            autocompletion=complete_targets,
        ),
    ],
    namespace: Namespace = None,
    space: Space = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show everything about one object: what was declared, what was found, and why."""
    writer = Writer()
    wanted = parse_targets(targets)
    if len(wanted) > 1 or (name := wanted[0].name) is None:
        raise UsageError(f"which {wanted[0].kind.singular}? Name one: KIND NAME or KIND/NAME")
    kind = wanted[0].kind
    with ApiClient.find(data, warn=writer.warn) as api:
        item = api.resolve(kind, namespace or kind.default_namespace, name, space)
    metadata, status = item["metadata"], item.get("status", {})
    now = present()
    facts: dict[str, str] = {
        "Kind": item["kind"],
        "Name": metadata["name"],
        "Namespace": metadata.get("namespace", ""),
        "Age": f"{age(metadata['creationTimestamp'], now)} (since {metadata['creationTimestamp']})",
        "Generation": f"{metadata['generation']} (version {metadata['resourceVersion']})",
        "Uid": metadata["uid"],
        "Ready": str(is_ready(item)),
        "Phase": status.get("phase", "Pending"),
    }
    for field in ("labels", "annotations"):
        if metadata.get(field):
            facts[field.capitalize()] = ", ".join(f"{key}={value}" for key, value in metadata[field].items())
    width = max(len(fact) for fact in facts) + 2
    for fact, value in facts.items():
        writer.say(f"{fact + ':':<{width}}{value}")
    _block(writer, "Spec", item.get("spec", {}))
    _block(writer, "In effect", {key: status[key] for key in _EFFECTIVE if key in status})
    _conditions(writer, item)
    for sentence in restore(item).unapplied():
        writer.warn(sentence)


def _block(writer: Writer, head: str, fields: dict[str, Any]) -> None:
    if fields:
        writer.say(f"{head}:")
        for line in yaml.safe_dump(fields, sort_keys=False, allow_unicode=True).splitlines():
            writer.say(f"  {line}")


def _conditions(writer: Writer, item: Document) -> None:
    conditions = item.get("status", {}).get("conditions", [])
    if not conditions:
        writer.say("Conditions: none yet")
        return
    now = present()
    writer.say("Conditions:")
    rows = [
        [
            f"  {condition['type']}",
            condition["status"],
            condition["reason"],
            age(condition.get("lastTransitionTime", ""), now),
            condition.get("message", ""),
        ]
        for condition in conditions
    ]
    writer.out.print(make_table(["  TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"], rows))
