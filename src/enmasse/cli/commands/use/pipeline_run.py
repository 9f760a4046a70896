"""``enmasse pipeline run``: declare a pipeline, from a file or a built-in one, and see how it goes.

A built-in pipeline is made from words of the command line: parameters by name, read as their types say.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.commands.use.pipeline_progress import follow
from enmasse.cli.errors import UsageError
from enmasse.cli.manifests import read_manifests
from enmasse.cli.objects import object_label
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer
from enmasse.cli.targets import find_space
from enmasse.model.kinds.pipelines.builtins import BUILTINS
from enmasse.model.schema.kinds import PIPELINE
from enmasse.model.schema.objects import decode
from enmasse.model.schema.openapi import structural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from enmasse.cli.api_client import Document


def run(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="YAML or JSON with a pipeline; - for standard input.")
    ] = None,
    builtin: Annotated[
        str | None,
        typer.Option(
            "--builtin", "-b", metavar="NAME", help="A built-in pipeline instead.", autocompletion=complete_builtins
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the built-in pipeline.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Of a built-in pipeline; its own by default.")
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option("--credentials", metavar="SECRET", help="Secret with the credentials of whom it runs as."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not wait to see how it goes.")] = False,
    seconds: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Look so long; 0: until Ctrl-C.")
    ] = 0,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Declare a pipeline, from a file or a built-in one, and see how it goes.

    Ctrl-C ends the looking; the pipeline goes on.
    """
    if (file is None) == (builtin is None):
        raise UsageError("name either a FILE with a pipeline, or a built-in one with --builtin")
    if builtin is None and (settings or name or secret or space):
        raise UsageError("--set, --name, --credentials and --space are for --builtin: a file says all that itself")
    writer, kind = Writer(), PIPELINE
    with ApiClient.find(data, warn=writer.warn) as api:
        if builtin is not None:
            place = namespace or kind.default_namespace
            space = find_space(api, place, space)
            documents = [builtin_document(builtin, settings or [], f"{space}.{name or builtin}", place, secret)]
            refuse_another(api.find_present(documents).values(), documents[0], builtin)
        else:
            assert file is not None
            documents = [resource.to_dict() for resource in read_manifests([file], namespace)]
        results = api.apply_all(documents, api.find_present(documents))
        for item, done in results:
            writer.note(f"{object_label(item)} {done}")
        found = [item for item, _ in results if item["kind"] == kind.name]
        if not found:
            raise UsageError(f"there is no pipeline in {file}, only {', '.join(object_label(i) for i, _ in results)}")
        if detach or len(found) > 1:
            return
        metadata = found[0]["metadata"]
        follow(writer, lambda: api.get(kind, metadata["namespace"], metadata["name"]), seconds=seconds)


def complete_builtins(incomplete: str) -> list[str]:
    """Return the built-in pipelines that begin so."""
    return [name for name in BUILTINS if name.startswith(incomplete)]


def refuse_another(present: Iterable[Document], wanted: Document, builtin: str) -> None:
    """Refuse to put a built-in pipeline in the place of something else of its name."""
    name = wanted["metadata"]["name"]
    for found in present:
        held = (found["spec"].get("builtin") or {}).get("name")
        if found["metadata"]["name"] == name and held != builtin:
            what = f"the built-in pipeline '{held}'" if held else "a pipeline of your own"
            raise UsageError(f"pipeline {name} is there, and is {what}: choose another --name, or delete it")


def builtin_document(
    builtin: str, settings: Sequence[str], name: str, namespace: str, secret: str | None = None
) -> Document:
    """Return the declaration of a built-in pipeline.

    Args:
        builtin: the name of the built-in pipeline.
        settings: ``key=value`` for each parameter.
        name: the name of the pipeline, with its space.
        namespace: the namespace of it.
        secret: of whom it runs as.

    Raises:
        UsageError: there is no such pipeline or parameter, or a value is none.
        InvalidResourceError: the parameters do not fit together.
    """
    if builtin not in BUILTINS:
        known = ", ".join(f"{key} ({kind.does})" for key, kind in BUILTINS.items())
        raise UsageError(f"there is no built-in pipeline '{builtin}'; there are {known}")
    spec: Document = {"builtin": {"name": builtin, "parameters": _parameters(builtin, settings)}}
    document = {
        "apiVersion": PIPELINE.api_version,
        "kind": PIPELINE.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec | ({"credentialsSecret": secret} if secret else {}),
    }
    return decode(document).to_dict()


def _parameters(builtin: str, settings: Sequence[str]) -> Document:
    known = structural(BUILTINS[builtin])["properties"]
    found: Document = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, not '{setting}'")
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"--set {key}: {builtin} has no such parameter; {hint}")
        found[key] = _value(key, text, str(known[key].get("type", "")))
    return found


def _value(key: str, text: str, kind: str) -> Any:
    """Return what a text means for a parameter of a type; lists may be given by commas."""
    if kind == "string":
        return text
    if kind == "array" and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return json.loads(text)
    except ValueError:
        expected = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "array": "a list"}
        raise UsageError(f"--set {key}: expected {expected.get(kind, 'JSON')}, got '{text}'") from None
