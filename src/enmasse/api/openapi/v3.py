"""The OpenAPI 3.0 documents of the API, one for each group and version, for newer clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.api.kube.served import IN_PATHS, PARAMETERS, PATCH_TYPES, Operation, Parameter, all_operations
from enmasse.api.openapi.schemas import META, REFERENCE, answer_name, fields_schema, schemas
from enmasse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.api.kube.served import Answer

Document = dict[str, Any]

_BODIES: Final = {"patch": f"{META}.Patch", "delete-options": f"{META}.DeleteOptions"}
_OBJECTS: Final = ("application/json", "application/yaml")


def documents_v3() -> dict[str, Document]:
    """Return the documents by path, as in ``apis/enmasse.io/v1beta1``."""
    found: dict[str, Document] = {}
    for operation in all_operations():
        document = found.setdefault(
            operation.served.prefix.removeprefix("/"),
            {"openapi": "3.0.0", "info": {"title": "EnMasse", "version": f"v{__version__}"}, "paths": {}},
        )
        item = document["paths"].setdefault(operation.path, {})
        item[operation.method] = _operation(operation)
        if operation.path_parameters:
            item["parameters"] = [_in_path(name) for name in operation.path_parameters]
    for document in found.values():
        document["components"] = {"schemas": _needed(document["paths"])}
    return found


def _operation(operation: Operation) -> Document:
    served = operation.served
    described: Document = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.kind],
        "parameters": [_in_query(name, operation) for name in operation.query],
        "responses": {
            str(code): _response("OK" if code == 200 else "Created", operation, what)
            for code, what in operation.answers
        }
        | {"default": _response("An error", operation, "status")},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": served.group,
            "version": served.version,
            "kind": operation.kind,
        },
    }
    if operation.body:
        schema: Document = {"type": "object"}
        if operation.body == "arguments" and operation.below is not None:
            schema = fields_schema(operation.below.body)
        elif operation.body in ("object", "list", "object-or-list"):
            schema = _described(operation, operation.body)
        elif operation.body in _BODIES:
            schema = _reference(_BODIES[operation.body])
        types = PATCH_TYPES if operation.body == "patch" else _OBJECTS
        described["requestBody"] = {
            "required": operation.body != "delete-options",
            "content": {name: {"schema": schema} for name in types},
        }
    return described


def _response(description: str, operation: Operation, what: Answer) -> Document:
    content: Document = {"text/plain": {"schema": {"type": "string"}}}
    if what != "text":
        content = {"application/json": {"schema": _described(operation, what)}}
    return {"description": description, "content": content}


def _described(operation: Operation, what: Answer) -> Document:
    named: tuple[Answer, ...] = ("object", "list") if what == "object-or-list" else (what,)
    found = [_reference(answer_name(operation, one)) for one in named]
    return found[0] if len(found) == 1 else {"oneOf": found}


def _in_path(name: str) -> Document:
    parameter = IN_PATHS.get(name) or Parameter("string", f"The {name}.")
    found = {"name": name, "in": "path", "required": True, "description": parameter.description}
    return found | {"schema": _schema_of(parameter)}


def _in_query(name: str, operation: Operation) -> Document:
    parameter = PARAMETERS[name]
    found: Document = {"name": name, "in": "query", "description": parameter.description}
    found["schema"] = _schema_of(parameter)
    return found | ({"required": True} if name in operation.required else {})


def _schema_of(parameter: Parameter) -> Document:
    return {"type": parameter.type} | ({"enum": list(parameter.values)} if parameter.values else {})


def _reference(name: str) -> Document:
    return {"$ref": f"{REFERENCE}{name}"}


def _needed(paths: Document) -> Document:
    """Return the schemas that the paths refer to, directly or indirectly."""
    every, found, open_ones = schemas(), {}, list(_references(paths))
    while open_ones:
        name = open_ones.pop()
        if name not in found:
            found[name] = _in_version_3(every[name])
            open_ones += _references(found[name])
    return dict(sorted(found.items()))


def _in_version_3(schema: Any) -> Any:
    """Move references with other keywords beside them into an ``allOf``: 3.0 ignores keywords beside a reference."""
    if isinstance(schema, list):
        return [_in_version_3(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {key: _in_version_3(value) for key, value in schema.items()}
    if "$ref" in converted and len(converted) > 1:
        return {"allOf": [{"$ref": converted.pop("$ref")}]} | converted
    return converted


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(found := part.get("$ref"), str):
            yield found.removeprefix(REFERENCE)
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)
