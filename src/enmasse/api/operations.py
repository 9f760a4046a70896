"""Every operation on resources, as OpenAPI tells of it: paths, parameters, bodies, answers.

It is told in one form here, which ``openapi_v2`` and ``openapi_v3`` put into
theirs. kubectl reads from it which parameters a PATCH takes (``dryRun``,
``fieldValidation``), other clients read all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.api.served import Served, Subresource

__all__ = ["PARAMETERS", "PATCH_TYPES", "Answer", "Body", "Operation", "Parameter", "operations_of"]

Answer = Literal["object", "list", "status", "rows", "text"]
Body = Literal["", "object", "patch", "delete-options", "arguments"]
Method = Literal["get", "post", "put", "patch", "delete"]

PATCH_TYPES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query.

    Attributes:
        type: of its value.
        description: what it does.
        values: the only ones that it takes; empty: any.
    """

    type: Literal["string", "integer", "boolean"]
    description: str
    values: tuple[str, ...] = ()


PARAMETERS: Final[dict[str, Parameter]] = {
    "allowWatchBookmarks": Parameter("boolean", "Have a watch tell its version from time to time."),
    "continue": Parameter("string", "Go on with a list after the page that gave this token."),
    "dryRun": Parameter("string", "All: check everything, write nothing.", ("All",)),
    "fieldManager": Parameter("string", "Who changes the object, for managedFields."),
    "fieldSelector": Parameter("string", "Choose by fields: metadata.name=a, spec.type!=queue."),
    "fieldValidation": Parameter(
        "string",
        "What happens to unknown and repeated fields: Strict refuses them, Warn drops them with a warning, "
        "Ignore drops them.",
        ("Ignore", "Warn", "Strict"),
    ),
    "follow": Parameter("boolean", "Go on with lines as they come."),
    "force": Parameter("boolean", "Apply: take fields over that another manager has."),
    "gracePeriodSeconds": Parameter("integer", "Accepted; deletion waits for finalizers alone."),
    "includeObject": Parameter(
        "string", "What of each object goes with a row of a table.", ("None", "Metadata", "Object")
    ),
    "labelSelector": Parameter("string", "Choose by labels: a=b, a!=b, a, !a, a in (b, c)."),
    "limit": Parameter("integer", "How many objects a page of a list has at most."),
    "propagationPolicy": Parameter(
        "string",
        "Orphan: what the object owns stays; else it goes too.",
        ("Background", "Foreground", "Orphan"),
    ),
    "resourceVersion": Parameter("string", "Watch: begin after this version; list: as resourceVersionMatch says."),
    "resourceVersionMatch": Parameter(
        "string", "A list exactly of resourceVersion, or of it or a later one.", ("Exact", "NotOlderThan")
    ),
    "sendInitialEvents": Parameter("boolean", "Watch: begin with all that is there, and mark its end."),
    "tail": Parameter("integer", "The last so many lines."),
    "timeoutSeconds": Parameter("integer", "When a watch ends."),
    "watch": Parameter("boolean", "Stream the changes instead of a list."),
}

_LIST = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "includeObject",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = ("dryRun", "gracePeriodSeconds", "propagationPolicy")
_LOG = ("follow", "tail")
_DELETE_CHOSEN = (*_DELETE, "continue", "fieldSelector", "labelSelector", "limit")


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    Attributes:
        served: the kind and version that it is about.
        path: with ``{namespace}`` and ``{name}`` where they belong.
        method: of HTTP.
        action: the verb in Kubernetes' words, ``x-kubernetes-action``.
        id: a unique name.
        summary: one sentence.
        query: the parameters of its query, keys of ``PARAMETERS``.
        body: what is sent.
        answers: codes of success, and what is answered: the object, a list, a Status, rows of a query, or text.
    """

    served: Served
    path: str
    method: Method
    action: str
    id: str
    summary: str
    query: tuple[str, ...] = ()
    body: Body = ""
    answers: tuple[tuple[int, Answer], ...] = ((200, "object"),)

    @property
    def path_parameters(self) -> tuple[str, ...]:
        """The names in the path."""
        return tuple(name for name in ("namespace", "name") if f"{{{name}}}" in self.path)


def operations_of(served: Served) -> Iterator[Operation]:
    """Yield all operations on the objects of one kind in one version."""
    plural, name = served.kind.plural, served.kind.name
    everywhere = f"{served.prefix}/{plural}"
    collection = f"{served.prefix}/namespaces/{{namespace}}/{plural}" if served.is_namespaced else everywhere
    single = f"{collection}/{{name}}"
    stem = f"{''.join(part.capitalize() for part in served.api_version.replace('/', '.').split('.'))}{name}"

    def operation(
        path: str,
        method: Method,
        action: str,
        verb: str,
        query: tuple[str, ...] = (),
        body: Body = "",
        suffix: str = "",
    ) -> Operation:
        answers: tuple[tuple[int, Answer], ...] = ((200, "object"),)
        if action == "list":
            answers = ((200, "list"),)
        elif action == "post":
            answers = ((201, "object"), (200, "object"))
        elif action == "deletecollection":
            answers = ((200, "list"),)
        elif action == "delete":
            answers = ((200, "status"),)
        elif action == "patch" and not suffix:
            answers = ((200, "object"), (201, "object"))
        identity = f"{action}{stem}{suffix}"
        return Operation(served, path, method, action, identity, f"{name}: {verb}", query, body, answers)

    if served.is_namespaced:
        yield operation(
            everywhere, "get", "list", "list or watch in all namespaces", _LIST, suffix="ForAllNamespaces"
        )
    yield operation(collection, "get", "list", "list or watch", _LIST)
    yield operation(single, "get", "get", "read", ("includeObject",))
    if not served.is_read_only:
        yield operation(collection, "post", "post", "create", _WRITE, "object")
        yield operation(
            collection, "delete", "deletecollection", "delete all that are chosen", _DELETE_CHOSEN, "delete-options"
        )
        yield operation(single, "put", "put", "replace", _WRITE, "object")
        yield operation(single, "patch", "patch", "change or apply", (*_WRITE, "force"), "patch")
        yield operation(single, "delete", "delete", "delete", _DELETE, "delete-options")
    for below in served.subresources:
        yield from _below(served, below, single, stem)


def _below(served: Served, below: Subresource, single: str, stem: str) -> Iterator[Operation]:
    path, suffix = f"{single}/{below.name}", below.name.capitalize()
    summary = f"{served.kind.name}: {below.name}"
    for verb in below.verbs:
        match verb:
            case "get":
                identity, answer = f"get{stem}{suffix}", ((200, below.answer),)
                asked = _LOG if below.answer == "text" else ()
                yield Operation(served, path, "get", "get", identity, summary, asked, answers=answer)
            case "update":
                yield Operation(served, path, "put", "put", f"put{stem}{suffix}", summary, _WRITE, "object")
            case "patch":
                query = (*_WRITE, "force")
                yield Operation(served, path, "patch", "patch", f"patch{stem}{suffix}", summary, query, "patch")
            case _:
                identity, answer = f"{below.name}{stem}", ((200, below.answer),)
                yield Operation(served, path, "post", "connect", identity, summary, (), "arguments", answer)
