"""The served kinds in each of their versions, with verbs, subresources and operations.

Discovery and OpenAPI are generated from this, so that they agree.

``openapi.v2`` and ``openapi.v3`` convert the operations to their formats. kubectl reads from them which parameters a
PATCH supports (``dryRun``, ``fieldValidation``); other clients read all of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from enmasse.model.schema.kinds import ADDRESS_SPACE, KINDS, MAX_IN_LIST, WRITTEN_IN_LISTS
from enmasse.model.schema.subresources import REPORTS, TABLES_OF_SPACES, Subresource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.model.schema.kinds import Kind

_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")


@dataclass(frozen=True, slots=True)
class Served:
    """A kind in one of its versions."""

    kind: Kind
    version: str

    @property
    def group(self) -> str:
        """The API group; empty for Kubernetes' core."""
        return self.kind.group

    @property
    def api_version(self) -> str:
        """Group and version, as ``apiVersion:`` has it."""
        return self.kind.api_version_of(self.version)

    @property
    def prefix(self) -> str:
        """The prefix of all its paths."""
        return self.kind.base_path(self.version)

    @property
    def is_namespaced(self) -> bool:
        """True if its objects have namespaces."""
        return self.kind.scope == "Namespaced"

    @property
    def is_read_only(self) -> bool:
        """True if clients cannot write its objects."""
        return self.kind.is_read_only

    @property
    def takes_lists(self) -> bool:
        """True if one request can write several of its objects."""
        return self.kind in WRITTEN_IN_LISTS

    @property
    def list_kind(self) -> str:
        """The kind of a list of its objects."""
        return f"{self.kind.name}List"

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs of Kubernetes that it supports."""
        return _READ if self.is_read_only else tuple(sorted((*_READ, *_WRITE)))

    @property
    def subresources(self) -> tuple[Subresource, ...]:
        """The subresources of its objects."""
        status = (Subresource("status", ("get", "patch", "update")),) if self.kind.has_status else ()
        return (*status, *self.kind.subresources)


def group_prefix(group: str) -> str:
    """Return the path of a group."""
    return f"/apis/{group}" if group else "/api"


SERVED: tuple[Served, ...] = tuple(Served(kind, version) for kind in KINDS for version in kind.versions)
"""In the order of the kinds; the stored version of a kind comes first."""


Answer = Literal[
    "object", "list", "object-or-list", "status", "rows", "text", "items", "messages", "outcomes", "report"
]
Body = Literal["", "object", "list", "object-or-list", "patch", "delete-options", "arguments"]
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
        type: the type of its value.
        description: the effect of the parameter.
        values: the only ones that it takes; empty: any.
    """

    type: Literal["string", "integer", "boolean"]
    description: str
    values: tuple[str, ...] = ()


PARAMETERS: Final[dict[str, Parameter]] = {
    "address": Parameter("string", "Only what is about this address; of series, the name of its object."),
    "allowWatchBookmarks": Parameter("boolean", "Have a watch tell its version from time to time."),
    "before": Parameter("string", "Only what came before this time."),
    "bodies": Parameter("boolean", "Whether messages are shown with their bodies."),
    "connection": Parameter("string", "Only what is about this connection."),
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
    "filter": Parameter("string", "A name, or a pattern of names: + and * are a word, # the rest."),
    "follow": Parameter("boolean", "Go on with lines as they come."),
    "force": Parameter("boolean", "Apply: take fields over that another manager has."),
    "gracePeriodSeconds": Parameter("integer", "Accepted; deletion waits for finalizers alone."),
    "id": Parameter("string", "The id of the only message that is wanted."),
    "includeObject": Parameter(
        "string", "What of each object goes with a row of a table.", ("None", "Metadata", "Object")
    ),
    "labelSelector": Parameter("string", "Choose by labels: a=b, a!=b, a, !a, a in (b, c)."),
    "limit": Parameter("integer", "How many a page of a list has at most."),
    "minutes": Parameter("integer", "How far back; up to 60."),
    "namespace": Parameter("string", "Only what lies in this namespace."),
    "offset": Parameter("integer", "Of a stream: where to begin in each partition; of rows: how many to skip."),
    "pipeline": Parameter("string", "Only what is about this pipeline."),
    "propagationPolicy": Parameter(
        "string",
        "Orphan: what the object owns stays; else it goes too.",
        ("Background", "Foreground", "Orphan"),
    ),
    "resourceVersion": Parameter("string", "Watch: begin after this version; list: as resourceVersionMatch says."),
    "resourceVersionMatch": Parameter(
        "string", "A list exactly of resourceVersion, or of it or a later one.", ("Exact", "NotOlderThan")
    ),
    "search": Parameter("string", "Only what has a text in it, in capitals or not."),
    "selector": Parameter("string", "Choose messages by a selector, as in colour = 'red'."),
    "sendInitialEvents": Parameter("boolean", "Watch: begin with all that is there, and mark its end."),
    "sort": Parameter("string", "The column by which rows are ordered; with - before it in descending order."),
    "status": Parameter("string", "Only what is in this phase."),
    "tail": Parameter("integer", "The last so many lines."),
    "time": Parameter("string", "Of a stream: begin with what was appended then or later (RFC 3339)."),
    "timeoutSeconds": Parameter("integer", "When a watch ends."),
    "type": Parameter("string", "Only what is of this type."),
    "user": Parameter("string", "Only what this user did."),
    "watch": Parameter("boolean", "Stream what comes instead of an answer as of now."),
    "whole": Parameter("boolean", "With id: show up to 1 MiB of the body."),
}
"""Of queries."""

IN_PATHS: Final[dict[str, Parameter]] = {
    "table": Parameter("string", "Of what there are rows.", TABLES_OF_SPACES),
}
"""Those of paths that take only some values; others are names."""

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
_WRITE_QUERY = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = ("dryRun", "gracePeriodSeconds", "propagationPolicy")
_LOG = ("follow", "tail")
_DELETE_CHOSEN = (*_DELETE, "continue", "fieldSelector", "labelSelector", "limit")


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    Attributes:
        served: its kind and version.
        path: with ``{namespace}`` and ``{name}`` as placeholders.
        method: the method of HTTP.
        action: the verb of ``x-kubernetes-action``.
        id: a unique name.
        summary: one sentence.
        query: the parameters of its query, keys of ``PARAMETERS``.
        required: those that a request must have.
        body: the type of the body.
        answers: the codes of success, with the type of the answer: the object, a list, one as the other (version 2
            of OpenAPI can name the object alone), a Status, rows of a query, text, or what the subresource says.
        below: the subresource that it is about; None: the objects themselves.
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
    required: tuple[str, ...] = ()
    below: Subresource | None = None

    @property
    def kind(self) -> str:
        """The kind that it is about."""
        is_beside = self.below is not None and self.below in REPORTS
        return self.below.kind if self.below is not None and is_beside else self.served.kind.name

    @property
    def path_parameters(self) -> tuple[str, ...]:
        """The names in the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))


def all_operations() -> Iterator[Operation]:
    """Yield all operations on objects, and those that are about no object."""
    for served in SERVED:
        yield from operations_of(served)
    of_spaces = next(served for served in SERVED if served.kind is ADDRESS_SPACE)
    for report in REPORTS:
        path, stem = f"{of_spaces.prefix}/{report.name}", f"{_joined(of_spaces.api_version)}{_joined(report.name)}"
        yield Operation(
            of_spaces, path, "get", "list", f"get{stem}", report.name, report.query,
            answers=((200, report.answer),), below=report,
        )  # fmt: skip


def _joined(path: str) -> str:
    """Return the words of a path as one, each with a capital."""
    return "".join(part.capitalize() for part in re.findall(r"\w+", path))


def operations_of(served: Served) -> Iterator[Operation]:
    """Yield all operations on the objects of one kind in one version."""
    plural, name = served.kind.plural, served.kind.name
    everywhere = f"{served.prefix}/{plural}"
    collection = f"{served.prefix}/namespaces/{{namespace}}/{plural}" if served.is_namespaced else everywhere
    single = f"{collection}/{{name}}"
    stem = f"{_joined(served.api_version)}{name}"

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
        elif body == "object-or-list":
            answers = ((201, body),)
        elif body == "list":
            answers = ((200, body),)
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
        if served.takes_lists:
            several = f"{MAX_IN_LIST} at most, all of them or none"
            yield operation(
                collection, "post", "post", f"create one, or several ({several})", _WRITE_QUERY, "object-or-list"
            )
            yield operation(
                collection, "put", "put", f"replace several ({several})", _WRITE_QUERY, "list", suffix="List"
            )
        else:
            yield operation(collection, "post", "post", "create", _WRITE_QUERY, "object")
        yield operation(
            collection, "delete", "deletecollection", "delete all that are chosen", _DELETE_CHOSEN, "delete-options"
        )
        yield operation(single, "put", "put", "replace", _WRITE_QUERY, "object")
        yield operation(single, "patch", "patch", "change or apply", (*_WRITE_QUERY, "force"), "patch")
        yield operation(single, "delete", "delete", "delete", _DELETE, "delete-options")
    for below in served.subresources:
        yield from _below(served, below, single, stem)


def _below(served: Served, below: Subresource, single: str, stem: str) -> Iterator[Operation]:
    path, suffix = f"{single}/{below.name}", _joined(below.name)
    summary = f"{served.kind.name}: {below.name}"
    for verb in below.verbs:
        match verb:
            case "get":
                identity = f"get{stem}{suffix}"
                answer: tuple[tuple[int, Answer], ...] = ((200, below.answer),)
                asked = ("continue", *below.query) if below.answer == "items" else below.query
                yield Operation(served, path, "get", "get", identity, summary, asked, answers=answer, below=below)
            case "delete":
                place = f"{path}/{{{below.item}}}" if below.item else path
                identity, asked = f"delete{stem}{suffix}", () if below.item else below.query
                yield Operation(
                    served, place, "delete", "delete", identity, summary, asked, "", ((200, "status"),), asked, below
                )
            case "watch":
                pass  # a parameter of what is got
            case "update":
                yield Operation(served, path, "put", "put", f"put{stem}{suffix}", summary, _WRITE_QUERY, "object")
            case "patch":
                query = (*_WRITE_QUERY, "force")
                yield Operation(served, path, "patch", "patch", f"patch{stem}{suffix}", summary, query, "patch")
            case _:
                # What is posted to messages is sent, and what became of each is answered.
                what: Answer = "outcomes" if below.name == "messages" else below.answer
                identity = f"{below.name}{stem}"
                # Only what is answered by a Status is chosen by a query, too.
                given = below.query if below.answer == "status" else ()
                answer = ((200, what),)
                yield Operation(
                    served, path, "post", "connect", identity, summary, given, "arguments", answer, below=below
                )
