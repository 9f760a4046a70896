"""``enmasse wait``: go on when objects are ready, are gone, or have come so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.columns import is_ready, is_stuck, sentence_of, values_at
from enmasse.cli.errors import NotFoundError, UnreachableError, UsageError
from enmasse.cli.installation import wait_until
from enmasse.cli.options import DEFAULT_DATA, Data, Labels, Namespace, Space
from enmasse.cli.output import Writer
from enmasse.cli.targets import complete_targets, find, is_in, parse_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enmasse.cli.api_client import Document
    from enmasse.model.schema.kinds import Kind

    Test = Callable[[Document | None], bool]
    Awaited = tuple[Kind, str, str]  # and its namespace and name

_GONE = ("delete", "gone")
"""As kubectl calls it, and as people do."""

_DONE = dict.fromkeys(_GONE, "deleted") | {"create": "created"}


def wait(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND NAME... | KIND/NAME... | KIND",
            help="The objects; of a kind without names, all that there are now.",
            autocompletion=complete_targets,
        ),
    ],
    condition: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="CONDITION",
            help="condition=Ready, condition=TYPE=STATUS, delete or gone, create, jsonpath={.status.phase}=Active.",
        ),
    ] = "condition=Ready",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="Wait so long at most.")
    ] = 30.0,
    namespace: Namespace = None,
    space: Space = None,
    labels: Labels = "",
    data: Data = DEFAULT_DATA,
) -> None:
    """Wait until objects are ready, are gone, or have come so far; the exit code is 4 if they were not in time."""
    writer, test = Writer(), parse_condition(condition)
    is_existence = condition in _DONE
    with ApiClient.find(data, warn=writer.warn) as api:
        awaited: list[Awaited] = []
        for target in parse_targets(targets):
            place = namespace or target.kind.default_namespace
            if target.name is not None:
                awaited.append((target.kind, place, target.name))
            else:
                items = api.select(target.kind, place, labels)
                if target.kind.is_in_space:
                    items = [item for item in items if is_in(item, space)]
                awaited += [(target.kind, place, item["metadata"]["name"]) for item in items]

        def present(one: Awaited) -> Document | None:
            try:
                return find(api, *one, space)
            except NotFoundError:
                if is_existence:
                    return None
                raise

        late = wait_for_all(
            awaited,
            present,
            test,
            timeout,
            done=lambda label: writer.say(f"{label} {_DONE.get(condition, 'condition met')}"),
        )
    if late:
        raise UnreachableError(f"after {timeout:g} s still waiting for {condition}: {', '.join(late)}")


def wait_for_all(
    awaited: Sequence[Awaited],
    find: Callable[[Awaited], Document | None],
    test: Test,
    seconds: float,
    *,
    done: Callable[[str], None] = lambda _label: None,
) -> list[str]:
    """Wait until objects pass a test.

    Args:
        awaited: the objects.
        find: returns an object as it is; None when there is none.
        test: returns True for an object that has come so far.
        seconds: to wait at most.
        done: called with the label of each object that has.

    Returns:
        Labels of those that have not, with the reason as far as it is known.
    """
    waiting = list(awaited)
    reasons: dict[Awaited, str] = {}

    def are_done() -> bool:
        nonlocal waiting
        left = []
        for one in waiting:
            item = find(one)
            if test(item):
                done(_label(one))
            else:
                left.append(one)
                reasons[one] = sentence_of(item) if item is not None else "it does not exist"
        waiting = left
        return not waiting

    wait_until(are_done, seconds)
    return [_label(one) + (f" ({reasons[one]})" if reasons[one] else "") for one in waiting]


def _label(one: Awaited) -> str:
    kind, _, name = one
    return f"{kind.singular}/{name}"


def parse_condition(text: str) -> Test:
    """Return the test of a condition: it takes an object, or None if there is none.

    Raises:
        UsageError: listing what can be waited for.
    """
    what, _, rest = text.partition("=")
    if text in _GONE:
        return lambda item: item is None
    if text == "create":
        return lambda item: item is not None
    if what == "condition" and rest:
        name, _, status = rest.partition("=")
        return lambda item: item is not None and _has_condition(item, name, status or "True")
    if what == "jsonpath" and "}=" in rest:
        path, _, value = rest.rpartition("}=")
        values_at({}, path)
        return lambda item: item is not None and value in [str(found) for found in values_at(item, path)]
    raise UsageError(
        f"cannot wait for '{text}'; expected condition=TYPE, condition=TYPE=STATUS, delete (or gone), "
        "create or jsonpath={PATH}=VALUE"
    )


def _has_condition(item: Document, name: str, status: str) -> bool:
    if (name, status) == ("Ready", "True"):
        return is_ready(item)
    found = item.get("status", {}).get("conditions", [])
    return any((one["type"].lower(), one["status"]) == (name.lower(), status.capitalize()) for one in found)


def wait_until_ready(api: ApiClient, kind: Kind, namespace: str, name: str, seconds: float, writer: Writer) -> None:
    """Wait until an object can be used; warn if it cannot, which does not make its creation fail."""
    present = api.get(kind, namespace, name)

    def ready_or_waiting() -> bool:
        nonlocal present
        present = api.get(kind, namespace, name)
        return is_ready(present) or is_stuck(present)  # which is worth saying at once

    wait_until(ready_or_waiting, seconds)
    if not is_ready(present):
        writer.warn(f"it cannot be used yet: {sentence_of(present)}")
