"""The operations of the schema registry: the one table that routes and the OpenAPI document are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from enmasse.schemas.compatibility import LEVELS, MAX_CHARACTERS, TYPES
from enmasse.version import __version__

PREFIX: Final = "/schemas/v1"
SPACE: Final = f"{PREFIX}/spaces/{{namespace}}/{{space}}"

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ACCEPTED: Final = (MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json")

Document = dict[str, Any]
Body = Literal["", "Schema", "Level"]
Answer = Literal["map", "list", "number", "any"]
Verb = Literal["get", "create", "update", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    Attributes:
        name: the name of the method that serves it, and its id in the OpenAPI document.
        method: the method of HTTP.
        path: below the space's.
        summary: a few words that say what it does.
        verb: the right that it needs, on the space's ``schemas``.
        body: the body of a request.
        answer: the content of the answer's body.
        query: its parameters.
        errors: the codes of HTTP that it may be refused with.
    """

    name: str
    method: str
    path: str
    summary: str
    verb: Verb = "get"
    body: Body = ""
    answer: Answer = "map"
    query: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()


_S, _V = "/subjects/{subject}", "/subjects/{subject}/versions/{version}"
_WRITTEN = (400, 409, 415, 422)

OPERATIONS: Final = (
    Operation(name="root", method="GET", path="/", summary="See that there is a registry"),
    Operation(
        name="subjects", method="GET", path="/subjects", summary="List the subjects", answer="list",
        query=("subjectPrefix", "deleted", "deletedOnly"),
    ),
    Operation(
        name="versions", method="GET", path=f"{_S}/versions", summary="List the versions of a subject", answer="list",
        query=("deleted", "deletedOnly"),
    ),
    Operation(
        name="register", method="POST", path=f"{_S}/versions", summary="Register a schema", verb="create",
        body="Schema", query=("normalize",), errors=_WRITTEN,
    ),
    Operation(
        name="lookup", method="POST", path=_S, summary="Look up the version that has a schema", body="Schema",
        query=("normalize", "deleted"), errors=_WRITTEN,
    ),
    Operation(
        name="delete_subject", method="DELETE", path=_S, summary="Delete a subject", verb="delete", answer="list",
        query=("permanent",),
    ),
    Operation(
        name="version", method="GET", path=_V, summary="Read a version of a subject", query=("deleted",),
        errors=(422,),
    ),
    Operation(
        name="version_schema", method="GET", path=f"{_V}/schema", summary="Read the schema of a version alone",
        answer="any", query=("deleted",), errors=(422,),
    ),
    Operation(
        name="referenced_by", method="GET", path=f"{_V}/referencedby",
        summary="List the schemas that refer to a version: none", answer="list", errors=(422,),
    ),
    Operation(
        name="delete_version", method="DELETE", path=_V, summary="Delete a version", verb="delete", answer="number",
        query=("permanent",), errors=(422,),
    ),
    Operation(
        name="schemas", method="GET", path="/schemas", summary="Read all versions of all subjects", answer="list",
        query=("subjectPrefix", "deleted", "latestOnly"),
    ),
    Operation(name="types", method="GET", path="/schemas/types", summary="List the types of schemas", answer="list"),
    Operation(name="schema", method="GET", path="/schemas/ids/{id}", summary="Read a schema by its id"),
    Operation(
        name="schema_alone", method="GET", path="/schemas/ids/{id}/schema", summary="Read a schema alone",
        answer="any",
    ),
    Operation(
        name="subjects_of_id", method="GET", path="/schemas/ids/{id}/subjects",
        summary="List the subjects that have a schema", answer="list", query=("deleted",),
    ),
    Operation(
        name="versions_of_id", method="GET", path="/schemas/ids/{id}/versions",
        summary="List the versions that have a schema", answer="list", query=("deleted",),
    ),
    Operation(
        name="check", method="POST", path=f"/compatibility{_V}", summary="See whether a schema goes with a version",
        body="Schema", query=("normalize", "verbose"), errors=_WRITTEN,
    ),
    Operation(
        name="check_all", method="POST", path=f"/compatibility{_S}/versions",
        summary="See whether a schema could be registered", body="Schema", query=("normalize", "verbose"),
        errors=_WRITTEN,
    ),
    Operation(name="level", method="GET", path="/config", summary="Read the space's level of compatibility"),
    Operation(
        name="set_level", method="PUT", path="/config", summary="Set the space's level of compatibility",
        verb="update", body="Level", errors=(400, 415, 422),
    ),
    Operation(
        name="forget_level", method="DELETE", path="/config", summary="Have the space's level be the default",
        verb="update",
    ),
    Operation(
        name="level_of_subject", method="GET", path="/config/{subject}", summary="Read a subject's own level",
        query=("defaultToGlobal",),
    ),
    Operation(
        name="set_level_of_subject", method="PUT", path="/config/{subject}", summary="Set a subject's own level",
        verb="update", body="Level", errors=(400, 415, 422),
    ),
    Operation(
        name="forget_level_of_subject", method="DELETE", path="/config/{subject}",
        summary="Have a subject's level be the space's", verb="update",
    ),
    Operation(name="mode", method="GET", path="/mode", summary="Read the mode of the space: READWRITE"),
    Operation(name="mode_of_subject", method="GET", path="/mode/{subject}", summary="Read the mode of a subject"),
)  # fmt: skip

_QUERY: Final = {
    "subjectPrefix": ("string", "How the names begin."),
    "deleted": ("boolean", "Those that were deleted too."),
    "deletedOnly": ("boolean", "Only those that were deleted."),
    "latestOnly": ("boolean", "Of each subject the latest version alone."),
    "permanent": ("boolean", "Delete for good what was deleted before."),
    "normalize": ("boolean", "Take keys in another order for the same schema."),
    "verbose": ("boolean", "Say why it is not compatible."),
    "defaultToGlobal": ("boolean", "The space's level where the subject has none of its own."),
}
_PARTS: Final = {
    "namespace": "The namespace of the space.",
    "space": "The space.",
    "subject": "The subject; without '/'.",
    "version": "A number, or latest.",
    "id": "The id of a schema.",
}
_ERRORS: Final = {
    400: "The request is malformed.",
    403: "The client may read this, but not do that.",
    404: "There is none, or the client may not know of it.",
    409: "The schema is not compatible with earlier ones.",
    415: "The content type is none of the registry's.",
    422: "It is no valid schema, version or level.",
    503: "The registry cannot be used now.",
}
_ANSWERS: Final[dict[Answer, Document]] = {
    "map": {"type": "object"},
    "list": {"type": "array"},
    "number": {"type": "integer"},
    "any": {},
}


def openapi_document() -> Document:
    """Return the OpenAPI 3.1 document of the registry."""
    paths: Document = {}
    for operation in OPERATIONS:
        paths.setdefault(SPACE + operation.path, {})[operation.method.lower()] = _described(operation)
    schema = {
        "type": "object",
        "required": ["schema"],
        "properties": {
            "schema": {"type": "string", "maxLength": MAX_CHARACTERS},
            "schemaType": {"type": "string", "enum": list(TYPES), "default": "AVRO"},
        },
    }
    level = {"type": "object", "required": ["compatibility"], "properties": {"compatibility": {"enum": list(LEVELS)}}}
    error = {
        "type": "object",
        "required": ["error_code", "message"],
        "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "EnMasse schema registry", "version": __version__},
        "paths": paths,
        "components": {"schemas": {"Schema": schema, "Level": level, "Error": error}},
    }


def _described(operation: Operation) -> Document:
    path = SPACE + operation.path
    parameters: list[Document] = [
        {"name": name, "in": "path", "required": True, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in _PARTS.items()
        if f"{{{name}}}" in path
    ]
    for name in operation.query:
        of, meaning = _QUERY[name]
        parameters.append({"name": name, "in": "query", "description": meaning, "schema": {"type": of}})
    refused = {MEDIA_TYPE: {"schema": _reference("Error")}}
    answers: Document = {
        "200": {"description": "It is done.", "content": {MEDIA_TYPE: {"schema": _ANSWERS[operation.answer]}}}
    }
    for code in sorted({403, 404, 503, *operation.errors}):
        answers[str(code)] = {"description": _ERRORS[code], "content": refused}
    found: Document = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": answers,
    }
    if operation.body:
        content = {media: {"schema": _reference(operation.body)} for media in ACCEPTED}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _reference(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}
