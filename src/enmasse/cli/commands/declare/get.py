"""``enmasse get``: list what is declared, show single objects, and follow their changes.

``enmasse describe``: one object in full, for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.columns import age, is_ready, present, values_at
from enmasse.cli.commands.run.overview import NODE_WORDS, write_nodes
from enmasse.cli.connections import CONNECTED, sessions_of, write_sessions
from enmasse.cli.errors import UsageError
from enmasse.cli.objects import FormChoice, ObjectWriter, parse_form
from enmasse.cli.options import DEFAULT_DATA, AllNamespaces, Data, Labels, Namespace, Output, Space
from enmasse.cli.output import Writer, make_table
from enmasse.cli.targets import complete_targets, find, find_space, is_in, parse_targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from enmasse.cli.api_client import Change, Document
    from enmasse.cli.targets import Target


def get(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND[,KIND...] [NAME...] | KIND/NAME...",
            help="spaces, addresses, users, pipelines, plans, spaceplans ...; an address also as it is called.",
            autocompletion=complete_targets,
        ),
    ],
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    space: Space = None,
    labels: Labels = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show changes as they happen, until Ctrl-C.")] = False,
    sort_by: Annotated[
        str | None, typer.Option("--sort-by", metavar="PATH", help="Order by a field, such as .metadata.name.")
    ] = None,
    output: FormChoice = "table",
    data: Data = DEFAULT_DATA,
) -> None:
    """List the objects of kinds, or show some; also `connections`, `links`, `sessions`, `wills` and `nodes`."""
    writer, form = Writer(), parse_form(output)
    if targets[0].lower() in (*CONNECTED, *NODE_WORDS):
        if len(targets) > 1 or watch or sort_by or not isinstance(form, Output):
            raise UsageError(
                f"{targets[0]} takes no names, --watch, --sort-by or columns; `enmasse top` follows rates"
            )
        if targets[0].lower() in NODE_WORDS:
            write_nodes(writer, data, form)
            return
        _get_connected(writer, targets[0].lower(), namespace or "default", space, form, data)
        return
    wanted = parse_targets(targets)
    kinds = list(dict.fromkeys(target.kind for target in wanted))
    if watch and (len(kinds) > 1 or sort_by):
        raise UsageError("--watch follows one kind at a time, in the order of its changes")
    shown = ObjectWriter(writer, form, with_kind=len(kinds) > 1, with_namespace=all_namespaces)
    with ApiClient.find(data, warn=writer.warn) as api:
        selection = _Selection(api, namespace, all_namespaces, space, labels)
        if watch:
            _follow(selection, wanted, shown)
            return
        found = [selection.objects(target) for target in wanted]
        if space is not None and not any(found) and not all_namespaces:
            find_space(api, namespace or kinds[0].default_namespace, space)
    items = [item for some in found for item in some]
    if sort_by is not None:
        items.sort(key=lambda item: _order(item, sort_by))
    if items or form not in (Output.TABLE, Output.WIDE):
        is_single = len(wanted) == 1 and wanted[0].name is not None
        shown.write(kinds, items, single=is_single)
    else:
        where = "" if all_namespaces else f" in namespace {namespace or kinds[0].default_namespace}"
        writer.note(f"There are no {' or '.join(kind.plural for kind in kinds)}{where}.")


class _Selection:
    """The objects that the options of a command leave.

    Args:
        api: the API to ask.
        namespace: the only one; None: each kind's default.
        is_everywhere: whether all namespaces are meant.
        space: the only one; None: all.
        labels: the labels that objects have to have.
    """

    def __init__(
        self, api: ApiClient, namespace: str | None, is_everywhere: bool, space: str | None, labels: str
    ) -> None:
        self.api = api
        self._namespace = namespace
        self._is_everywhere = is_everywhere
        self._space = space
        self._labels = labels

    def objects(self, target: Target) -> list[Document]:
        """Return the objects of one target; a name that does not exist is an error."""
        kind, place = target.kind, self._namespace or target.kind.default_namespace
        if target.name is not None:
            return [find(self.api, kind, place, target.name, self._space)]
        items = self.api.select(kind, None if self._is_everywhere else place, self._labels)
        return [item for item in items if self._is_in(target, item)]

    def changes(self, target: Target) -> Iterator[list[Change]]:
        """Yield the objects of a target's kind, and then every change of one."""
        place = None if self._is_everywhere else self._namespace or target.kind.default_namespace
        for changes in self.api.watch(target.kind, place, self._labels):
            yield [change for change in changes if self._is_in(target, change[1])]

    def _is_in(self, target: Target, item: Document) -> bool:
        if self._space is None or not target.kind.is_in_space:
            return True
        return is_in(item, self._space)


def _follow(selection: _Selection, wanted: Sequence[Target], shown: ObjectWriter) -> None:
    named = {item["metadata"]["name"] for target in wanted if target.name for item in selection.objects(target)}
    target = wanted[0]
    for changes in selection.changes(target):
        shown.write_changes(target.kind, [one for one in changes if not named or one[1]["metadata"]["name"] in named])


def _order(item: Document, path: str) -> tuple[int, Any]:
    """Return a key by which mixed values can be compared: what is missing comes first, numbers before texts."""
    value = next(iter(values_at(item, path)), None)
    if value is None:
        return 0, 0
    if isinstance(value, bool | int | float):
        return 1, value
    return 2, str(value)


def _get_connected(writer: Writer, what: str, namespace: str, space: str | None, output: Output, data: Path) -> None:
    with ApiClient.find(data, warn=writer.warn) as api:
        items = sessions_of(api, what, namespace, find_space(api, namespace, space))
    write_sessions(writer, output, what, items)


_EFFECTIVE = ("planStatus", "subscription", "messageTtl", "messageRedelivery", "limits", "retention", "hard", "used")
_OBSERVED = ("connectors", "tenant", "delivered", "failed", "rejected", "lastError")


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
        item = find(api, kind, namespace or kind.default_namespace, name, space)
    metadata, status = item["metadata"], item.get("status", {})
    now = present()
    facts: dict[str, str] = {
        "Kind": item["kind"],
        "Name": metadata["name"],
        "Namespace": metadata.get("namespace", ""),
        "Age": f"{age(metadata['creationTimestamp'], now)} (since {metadata['creationTimestamp']})",
        "Generation": f"{metadata['generation']} (version {metadata['resourceVersion']})",
        "Uid": metadata["uid"],
    }
    if kind.is_ours:  # no controller reports the readiness of kinds of Kubernetes
        facts |= {"Ready": str(is_ready(item)), "Phase": status.get("phase", "Pending")}
    elif "phase" in status:
        facts["Phase"] = status["phase"]
    for field in ("labels", "annotations"):
        if metadata.get(field):
            facts[field.capitalize()] = ", ".join(f"{key}={value}" for key, value in metadata[field].items())
    width = max(len(fact) for fact in facts) + 2
    for fact, value in facts.items():
        writer.say(f"{fact + ':':<{width}}{value}")
    _block(writer, "Spec", item.get("spec", {}))
    _block(writer, "In effect", {key: status[key] for key in _EFFECTIVE if key in status})
    _block(writer, "Observed", {key: status[key] for key in _OBSERVED if key in status})
    if kind.is_ours:
        _conditions(writer, item)


def _block(writer: Writer, head: str, fields: dict[str, Any]) -> None:
    if fields:
        writer.say(f"{head}:")
        import yaml  # noqa: PLC0415  # of these commands `describe` alone needs it

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
