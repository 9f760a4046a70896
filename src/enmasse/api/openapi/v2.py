"""The OpenAPI 2.0 document of the whole API, as JSON and in protocol buffers.

kubectl before 1.27 validates and explains objects with it, and reads protocol buffers alone.

Rules:
1. The messages are those of gnostic's ``openapi.v2``; their field numbers are the wire format.
   Only fields that our documents have are described, and one that is not described is an error.
2. Maps are lists of named values there, and fields that begin with ``x-`` are vendor extensions.
3. Values without a type of their own (defaults, extensions) are YAML texts, for which JSON will do.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from enmasse.api.kube.protobuf import Messages
from enmasse.api.kube.served import IN_PATHS, PARAMETERS, PATCH_TYPES, Operation, Parameter, all_operations
from enmasse.api.openapi.schemas import META, REFERENCE, answer_name, fields_schema, schemas
from enmasse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

Document = dict[str, Any]

_BODIES: Final = {"patch": f"{META}.Patch", "delete-options": f"{META}.DeleteOptions"}
_JSON: Final = ["application/json"]
_WITHOUT: Final = ("nullable", "anyOf", "oneOf", "not", "writeOnly", "deprecated")  # keywords that 2.0 does not have


def document_v2() -> Document:
    """Return the document."""
    paths: Document = {}
    for operation in all_operations():
        item = paths.setdefault(operation.path, {})
        item[operation.method] = _operation(operation)
        if operation.path_parameters:
            item["parameters"] = [_in_path(name) for name in operation.path_parameters]
    return {
        "swagger": "2.0",
        "info": {"title": "EnMasse", "version": f"v{__version__}"},
        "paths": paths,
        "definitions": {name: _converted(schema) for name, schema in schemas().items()},
    }


def _operation(operation: Operation) -> Document:
    served = operation.served
    parameters = [_in_query(name, operation) for name in operation.query]
    if operation.body:
        schema: Document = {"type": "object"}
        if operation.body == "arguments" and operation.below is not None:
            schema = _converted(fields_schema(operation.below.body))
        elif operation.body in ("object", "list", "object-or-list"):
            schema = _reference(answer_name(operation, operation.body))
        elif operation.body in _BODIES:
            schema = _reference(_BODIES[operation.body])
        parameters.append(
            {"name": "body", "in": "body", "required": operation.body != "delete-options", "schema": schema}
        )
    is_patch = operation.body == "patch"
    return {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.kind],
        "consumes": list(PATCH_TYPES) if is_patch else ["application/json", "application/yaml"],
        "produces": ["text/plain"] if (200, "text") in operation.answers else _JSON,
        "parameters": parameters,
        "responses": {
            str(code): {
                "description": "OK" if code == 200 else "Created",
                "schema": {"type": "string"} if what == "text" else _reference(answer_name(operation, what)),
            }
            for code, what in operation.answers
        },
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": served.group,
            "version": served.version,
            "kind": operation.kind,
        },
    }


def _in_path(name: str) -> Document:
    parameter = IN_PATHS.get(name) or Parameter("string", f"The {name}.")
    found = {"name": name, "in": "path", "required": True, "type": parameter.type}
    return found | {"description": parameter.description} | _values(parameter)


def _in_query(name: str, operation: Operation) -> Document:
    parameter = PARAMETERS[name]
    found: Document = {"name": name, "in": "query", "type": parameter.type, "description": parameter.description}
    if name in operation.required:
        found["required"] = True
    return found | _values(parameter)


def _values(parameter: Parameter) -> Document:
    return {"enum": list(parameter.values)} if parameter.values else {}


def _reference(name: str) -> Document:
    return {"$ref": f"#/definitions/{name}"}


def _converted(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_converted(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(found := schema.get("$ref"), str):
        return _reference(found.removeprefix(REFERENCE))  # keywords beside a reference are ignored
    converted: Document = {}
    for key, value in schema.items():
        if key == "properties":
            converted[key] = {name: _converted(item) for name, item in value.items()}
        elif key.startswith("x-"):
            converted[key] = value
        elif key not in _WITHOUT:
            converted[key] = _converted(value)
    return converted


_PACKAGE = "openapi.v2"

_MESSAGES: Final[dict[str, str]] = {
    "AdditionalPropertiesItem": "schema=1:Schema boolean=2:bool",
    "Any": "yaml=2:string",
    "BodyParameter": "description=1:string name=2:string in=3:string required=4:bool schema=5:Schema",
    "Definitions": "additional_properties=1:NamedSchema*",
    "Document": "swagger=1:string info=2:Info paths=8:Paths definitions=9:Definitions",
    "Info": "title=1:string version=2:string description=3:string",
    "ItemsItem": "schema=1:Schema*",
    "NamedAny": "name=1:string value=2:Any",
    "NamedPathItem": "name=1:string value=2:PathItem",
    "NamedResponseValue": "name=1:string value=2:ResponseValue",
    "NamedSchema": "name=1:string value=2:Schema",
    "NonBodyParameter": "query_parameter_sub_schema=3:QueryParameterSubSchema"
    " path_parameter_sub_schema=4:PathParameterSubSchema",
    "Operation": "tags=1:string* summary=2:string description=3:string operation_id=5:string produces=6:string*"
    " consumes=7:string* parameters=8:ParametersItem* responses=9:Responses vendor_extension=13:NamedAny*",
    "Parameter": "body_parameter=1:BodyParameter non_body_parameter=2:NonBodyParameter",
    "ParametersItem": "parameter=1:Parameter",
    "PathItem": "get=2:Operation put=3:Operation post=4:Operation delete=5:Operation patch=8:Operation"
    " parameters=9:ParametersItem*",
    "PathParameterSubSchema": "required=1:bool in=2:string description=3:string name=4:string type=5:string"
    " enum=20:Any*",
    "Paths": "path=2:NamedPathItem*",
    "Properties": "additional_properties=1:NamedSchema*",
    "QueryParameterSubSchema": "required=1:bool in=2:string description=3:string name=4:string type=6:string"
    " enum=21:Any*",
    "Response": "description=1:string schema=2:SchemaItem",
    "ResponseValue": "response=1:Response",
    "Responses": "response_code=1:NamedResponseValue*",
    "Schema": "_ref=1:string format=2:string title=3:string description=4:string default=5:Any multiple_of=6:double"
    " maximum=7:double exclusive_maximum=8:bool minimum=9:double exclusive_minimum=10:bool max_length=11:int64"
    " min_length=12:int64 pattern=13:string max_items=14:int64 min_items=15:int64 unique_items=16:bool"
    " max_properties=17:int64 min_properties=18:int64 required=19:string* enum=20:Any*"
    " additional_properties=21:AdditionalPropertiesItem type=22:TypeItem items=23:ItemsItem all_of=24:Schema*"
    " properties=25:Properties read_only=27:bool example=30:Any vendor_extension=31:NamedAny*",
    "SchemaItem": "schema=1:Schema",
    "TypeItem": "value=1:string*",
}

_TYPES: Final = Messages(_PACKAGE, _MESSAGES)

_SCHEMA_NAMES: Final = {
    "$ref": "_ref",
    "multipleOf": "multiple_of",
    "exclusiveMaximum": "exclusive_maximum",
    "exclusiveMinimum": "exclusive_minimum",
    "maxLength": "max_length",
    "minLength": "min_length",
    "maxItems": "max_items",
    "minItems": "min_items",
    "uniqueItems": "unique_items",
    "maxProperties": "max_properties",
    "minProperties": "min_properties",
    "readOnly": "read_only",
}


def encode_document(document: Document) -> bytes:
    """Return an OpenAPI 2.0 document in gnostic's protocol buffers.

    Raises:
        ValueError: when the document has a field that is not described here.
    """
    known = {"swagger", "info", "paths", "definitions"}
    _refuse_unknown("document", document, known)
    message = _make(
        "Document",
        swagger=document["swagger"],
        info=_make("Info", **document["info"]),
        paths=_make("Paths", path=_named("NamedPathItem", document["paths"], _path_item)),
        definitions=_make(
            "Definitions", additional_properties=_named("NamedSchema", document["definitions"], _schema)
        ),
    )
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def message_type(name: str) -> type[Message]:
    """Return the class of one of the messages."""
    return _TYPES.type(name)


def _make(name: str, /, **fields: Any) -> Message:
    return message_type(name)(**fields)


def _named(name: str, values: Document, encode: Callable[[Any], Message]) -> list[Message]:
    return [_make(name, name=key, value=encode(value)) for key, value in values.items()]


def _any(value: Any) -> Message:
    return _make("Any", yaml=json.dumps(value, separators=(",", ":")) + "\n")


def _extensions(document: Document) -> list[Message]:
    return _named("NamedAny", {key: value for key, value in document.items() if key.startswith("x-")}, _any)


def _path_item(item: Document) -> Message:
    fields: Document = {}
    for key, value in item.items():
        fields[key] = [_parameter(one) for one in value] if key == "parameters" else _operation_message(value)
    return _make("PathItem", **fields)


def _operation_message(operation: Document) -> Message:
    plain = {"tags", "summary", "description", "produces", "consumes"}
    _refuse_unknown("operation", operation, plain | {"operationId", "parameters", "responses"})
    return _make(
        "Operation",
        **{key: value for key, value in operation.items() if key in plain},
        operation_id=operation["operationId"],
        parameters=[_parameter(one) for one in operation.get("parameters", ())],
        responses=_make("Responses", response_code=_named("NamedResponseValue", operation["responses"], _response)),
        vendor_extension=_extensions(operation),
    )


def _parameter(parameter: Document) -> Message:
    where = parameter["in"]
    fields = dict(parameter)
    if where == "body":
        fields["schema"] = _schema(fields["schema"])
        inner = {"body_parameter": _make("BodyParameter", **fields)}
    else:
        if "enum" in fields:
            fields["enum"] = [_any(value) for value in fields["enum"]]
        message = _make(f"{where.capitalize()}ParameterSubSchema", **fields)
        inner = {"non_body_parameter": _make("NonBodyParameter", **{f"{where}_parameter_sub_schema": message})}
    return _make("ParametersItem", parameter=_make("Parameter", **inner))


def _response(response: Document) -> Message:
    fields: Document = {"description": response["description"]}
    if "schema" in response:
        fields["schema"] = _make("SchemaItem", schema=_schema(response["schema"]))
    return _make("ResponseValue", response=_make("Response", **fields))


def _schema(schema: Document) -> Message:
    fields: Document = {"vendor_extension": _extensions(schema)}
    for key, value in schema.items():
        match key:
            case "type":
                fields["type"] = _make("TypeItem", value=[value])
            case "items":
                fields["items"] = _make("ItemsItem", schema=[_schema(value)])
            case "properties":
                named = _named("NamedSchema", value, _schema)
                fields["properties"] = _make("Properties", additional_properties=named)
            case "additionalProperties":
                inner = {"boolean": value} if isinstance(value, bool) else {"schema": _schema(value)}
                fields["additional_properties"] = _make("AdditionalPropertiesItem", **inner)
            case "allOf":
                fields["all_of"] = [_schema(one) for one in value]
            case "enum":
                fields["enum"] = [_any(one) for one in value]
            case "default" | "example":
                fields[key] = _any(value)
            case _ if not key.startswith("x-"):
                fields[_SCHEMA_NAMES.get(key, key)] = value
    return _make("Schema", **fields)


def _refuse_unknown(what: str, document: Document, known: set[str]) -> None:
    if unknown := {key for key in document if not key.startswith("x-")} - known:
        raise ValueError(f"no field of the protocol buffer is known for {', '.join(sorted(unknown))} of a {what}")
