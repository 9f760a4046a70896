"""A built-in pipeline from words of the command line: its parameters by name, read as their types say."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from enmasse.cli.errors import UsageError
from enmasse.model.builtins import BUILTINS
from enmasse.model.kinds import decode
from enmasse.model.openapi import structural

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["builtin_document", "complete_builtins"]

Document = dict[str, Any]


def complete_builtins(incomplete: str) -> list[str]:
    """Return the built-in pipelines that begin so."""
    return [name for name in BUILTINS if name.startswith(incomplete)]


def builtin_document(
    builtin: str, settings: Sequence[str], name: str, namespace: str, secret: str | None = None
) -> Document:
    """Return the declaration of a built-in pipeline.

    Args:
        builtin: which one.
        settings: ``key=value`` for each parameter.
        name: of the pipeline, with its space.
        namespace: where it lies.
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
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Pipeline",
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
