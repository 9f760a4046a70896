"""The whole API as one OpenAPI 2.0 document: what kubectl before 1.27 checks and explains objects with."""

from __future__ import annotations

from typing import Any, Final

from enmasse.api.openapi_schemas import META, REFERENCE, answer_name, schema_name, schemas
from enmasse.api.operations import PARAMETERS, PATCH_TYPES, Operation, operations_of
from enmasse.api.served import SERVED
from enmasse.version import __version__

__all__ = ["document_v2"]

Document = dict[str, Any]

_BODIES: Final = {"patch": f"{META}.Patch", "delete-options": f"{META}.DeleteOptions"}
_JSON: Final = ["application/json"]
_WITHOUT: Final = ("nullable", "anyOf", "oneOf", "not", "writeOnly", "deprecated")  # words that 2.0 has not


def document_v2() -> Document:
    """Return the document."""
    paths: Document = {}
    for served in SERVED:
        for operation in operations_of(served):
            paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    for path, item in paths.items():
        if parameters := [_in_path(name) for name in ("namespace", "name") if f"{{{name}}}" in path]:
            item["parameters"] = parameters
    return {
        "swagger": "2.0",
        "info": {"title": "EnMasse", "version": f"v{__version__}"},
        "paths": paths,
        "definitions": {name: _converted(schema) for name, schema in schemas().items()},
    }


def _operation(operation: Operation) -> Document:
    served = operation.served
    parameters = [_in_query(name) for name in operation.query]
    if operation.body:
        schema: Document = {"type": "object"}
        if operation.body == "object":
            schema = _reference(schema_name(served))
        elif operation.body in _BODIES:
            schema = _reference(_BODIES[operation.body])
        parameters.append(
            {"name": "body", "in": "body", "required": operation.body != "delete-options", "schema": schema}
        )
    is_patch = operation.body == "patch"
    return {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [served.kind.name],
        "consumes": list(PATCH_TYPES) if is_patch else ["application/json", "application/yaml"],
        "produces": ["text/plain"] if (200, "text") in operation.answers else _JSON,
        "parameters": parameters,
        "responses": {
            str(code): {
                "description": "OK" if code == 200 else "Created",
                "schema": {"type": "string"} if what == "text" else _reference(answer_name(served, what)),
            }
            for code, what in operation.answers
        },
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": served.group,
            "version": served.version,
            "kind": served.kind.name,
        },
    }


def _in_path(name: str) -> Document:
    return {"name": name, "in": "path", "required": True, "type": "string", "description": f"The {name}."}


def _in_query(name: str) -> Document:
    parameter = PARAMETERS[name]
    found = {"name": name, "in": "query", "type": parameter.type, "description": parameter.description}
    return found | ({"enum": list(parameter.values)} if parameter.values else {})


def _reference(name: str) -> Document:
    return {"$ref": f"#/definitions/{name}"}


def _converted(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_converted(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(found := schema.get("$ref"), str):
        return _reference(found.removeprefix(REFERENCE))  # what stands beside a reference counts for nothing
    converted: Document = {}
    for key, value in schema.items():
        if key == "properties":
            converted[key] = {name: _converted(item) for name, item in value.items()}
        elif key.startswith("x-"):
            converted[key] = value
        elif key not in _WITHOUT:
            converted[key] = _converted(value)
    return converted
