"""The operations of the device registry: the one table that routes and the OpenAPI document are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic.json_schema import models_json_schema

from enmasse.iot.bulk import MAX_LINES
from enmasse.iot.commands import STATES, CommandRequest
from enmasse.iot.credentials import TYPES
from enmasse.iot.device import Device
from enmasse.iot.documents import MAX_ID, Part
from enmasse.iot.search import MAX_IN_PAGE, PAGE
from enmasse.iot.tenant import Possession, Tenant
from enmasse.version import __version__

PREFIX: Final = "/registry/v1"
MAX_WAIT_S: Final = 120

Document = dict[str, Any]
Body = Literal["", "Tenant", "Device", "Credentials", "Lines", "CommandRequest", "Possession"]
Answer = Literal["", "id", "Tenant", "Device", "Credentials", "Tenants", "Devices", "Imported", "Lines", "Ids", "any"]

JSON_LINES: Final = "application/x-ndjson"
CSV: Final = "text/csv"

_ERRORS: Final = {
    400: "The request is malformed.",
    403: "The client may read this, but not do that.",
    404: "There is none, or the client may not know of it.",
    409: "There is one already, or something of it is another's.",
    412: "The version is another than the one in If-Match.",
    413: "The body is too large.",
    429: "Too much waits already.",
    504: "The device has not answered.",
    503: "The registry cannot be used now.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    Attributes:
        name: the name of the method that serves it, and its id in the OpenAPI document.
        method: the method of HTTP.
        path: below the prefix.
        summary: a few words that say what it does.
        code: the code of success.
        answer: the content of the body then.
        body: the body of a request.
        optional: whether the body may be left out.
        errors: codes that it may be refused with.
        query: its parameters.
        versioned: whether it takes If-Match.
    """

    name: str
    method: str
    path: str
    summary: str
    code: int = 200
    answer: Answer = ""
    body: Body = ""
    optional: bool = False
    errors: tuple[int, ...] = ()
    query: tuple[str, ...] = ()
    versioned: bool = False


_T, _D = "/{tenant}", "/{tenant}/{device}"
_A = "/tenants/{tenant}/authorities"
_SEARCH = ("pageSize", "pageOffset", "filterJson", "sortJson")
_WRITE = (400, 403, 404, 409, 413)

OPERATIONS: Final = (
    Operation(
        name="create_tenant",
        method="POST",
        path="/tenants",
        summary="Create a tenant, and its id",
        code=201,
        answer="id",
        body="Tenant",
        optional=True,
        errors=_WRITE,
        query=("namespace",),
    ),
    Operation(
        name="search_tenants",
        method="GET",
        path="/tenants",
        summary="Search for tenants",
        answer="Tenants",
        errors=(400, 404),
        query=_SEARCH,
    ),
    Operation(
        name="create_tenant_with_id",
        method="POST",
        path=f"/tenants{_T}",
        summary="Create a tenant",
        code=201,
        answer="id",
        body="Tenant",
        optional=True,
        errors=_WRITE,
    ),
    Operation(
        name="tenant", method="GET", path=f"/tenants{_T}", summary="Read a tenant", answer="Tenant", errors=(404,)
    ),
    Operation(
        name="usage",
        method="GET",
        path=f"/tenants{_T}/usage",
        summary="Read what a tenant's devices have used of its limits",
        answer="any",
        errors=(404,),
    ),
    Operation(
        name="update_tenant",
        method="PUT",
        path=f"/tenants{_T}",
        summary="Replace a tenant",
        code=204,
        body="Tenant",
        errors=(*_WRITE, 412),
        versioned=True,
    ),
    Operation(
        name="delete_tenant",
        method="DELETE",
        path=f"/tenants{_T}",
        summary="Delete a tenant with all that it has",
        code=204,
        errors=(403, 404, 409, 412),
        versioned=True,
    ),
    Operation(
        name="authorities",
        method="GET",
        path=_A,
        summary="Read which authorities of a tenant are proved, and which count where a device names no tenant",
        answer="any",
        errors=(404,),
    ),
    Operation(
        name="nonce",
        method="POST",
        path=f"{_A}/{{authority}}/nonce",
        summary="Make a nonce that the key of an authority is to sign, as it is",
        answer="any",
        errors=(400, 403, 404),
    ),
    Operation(
        name="prove_authority",
        method="POST",
        path=f"{_A}/{{authority}}/proof",
        summary="Prove to have the key of an authority by the signature of a nonce",
        code=204,
        body="Possession",
        errors=(400, 403, 404, 409, 413),
    ),
    Operation(
        name="vouch_for_authority",
        method="POST",
        path=f"{_A}/{{authority}}/vouch",
        summary="Vouch that a tenant has the key of an authority, as an operator",
        code=204,
        errors=(400, 403, 404, 409),
    ),
    Operation(
        name="grant_alias",
        method="POST",
        path=f"/tenants{_T}/alias",
        summary="Grant a tenant the alias that it asks for, as an operator",
        answer="any",
        errors=(403, 404, 409),
    ),
    Operation(
        name="create_device",
        method="POST",
        path=f"/devices{_T}",
        summary="Create a device, and its id",
        code=201,
        answer="id",
        body="Device",
        optional=True,
        errors=_WRITE,
    ),
    Operation(
        name="search_devices",
        method="GET",
        path=f"/devices{_T}",
        summary="Search for devices of a tenant",
        answer="Devices",
        errors=(400, 404),
        query=(*_SEARCH, "isGateway"),
    ),
    Operation(
        name="delete_devices",
        method="DELETE",
        path=f"/devices{_T}",
        summary="Delete all devices of a tenant",
        code=204,
        errors=(403, 404),
    ),
    Operation(
        name="create_device_with_id",
        method="POST",
        path=f"/devices{_D}",
        summary="Create a device",
        code=201,
        answer="id",
        body="Device",
        optional=True,
        errors=_WRITE,
    ),
    Operation(
        name="device", method="GET", path=f"/devices{_D}", summary="Read a device", answer="Device", errors=(404,)
    ),
    Operation(
        name="update_device",
        method="PUT",
        path=f"/devices{_D}",
        summary="Replace a device",
        code=204,
        body="Device",
        errors=(*_WRITE, 412),
        versioned=True,
    ),
    Operation(
        name="delete_device",
        method="DELETE",
        path=f"/devices{_D}",
        summary="Delete a device with its credentials",
        code=204,
        errors=(403, 404, 412),
        versioned=True,
    ),
    Operation(
        name="credentials",
        method="GET",
        path=f"/credentials{_D}",
        summary="Read the credentials of a device, without what is secret",
        answer="Credentials",
        errors=(403, 404),
    ),
    Operation(
        name="update_credentials",
        method="PUT",
        path=f"/credentials{_D}",
        summary="Replace the credentials of a device",
        code=204,
        body="Credentials",
        errors=(*_WRITE, 412),
        versioned=True,
    ),
    Operation(
        name="import_devices",
        method="POST",
        path=f"/import{_T}",
        summary=f"Create up to {MAX_LINES} devices, one for each line",
        answer="Imported",
        body="Lines",
        errors=_WRITE,
        query=("existing",),
    ),
    Operation(
        name="export_devices",
        method="GET",
        path=f"/export{_T}",
        summary="Read all devices of a tenant, one on each line",
        answer="Lines",
        errors=(400, 403, 404),
        query=("format",),
    ),
    Operation(
        name="expected_devices",
        method="GET",
        path=f"/ids{_T}",
        summary="Read the ids of the devices that are enabled, and no gateways",
        answer="Ids",
        errors=(403, 404),
        query=("space",),
    ),
    Operation(
        name="send_command",
        method="POST",
        path=f"/commands{_D}",
        summary="Send a device a command: have it stored, or ask the device and wait for its answer",
        answer="any",
        body="CommandRequest",
        errors=(400, 403, 404, 409, 413, 429, 504),
        query=("wait",),
    ),
    Operation(
        name="send_commands",
        method="POST",
        path=f"/commands{_T}",
        summary="Store a command to several devices, or to a group of them",
        code=202,
        answer="any",
        body="CommandRequest",
        errors=(400, 403, 404, 413, 429),
    ),
    Operation(
        name="search_commands",
        method="GET",
        path=f"/commands{_T}",
        summary="List commands, the latest first",
        answer="any",
        errors=(400, 404),
        query=("device", "state", "batch", "pageSize", "pageOffset"),
    ),
    Operation(
        name="command",
        method="GET",
        path=f"/commands{_T}/{{command}}",
        summary="Read a command, and what became of it",
        answer="any",
        errors=(404,),
    ),
    Operation(
        name="cancel_command",
        method="DELETE",
        path=f"/commands{_T}/{{command}}",
        summary="Take back a command that waits",
        code=204,
        errors=(403, 404, 409),
    ),
    Operation(name="describe", method="GET", path="/openapi.json", summary="Read this description", answer="any"),
)

_PATTERN: Final = "A JSON map with `field`, a JSON pointer, and "
_QUERY: Final[dict[str, tuple[Document, str]]] = {
    "namespace": ({"type": "string"}, "The namespace that the tenant is made in; left out: none."),
    "pageSize": ({"type": "integer", "minimum": 0, "maximum": MAX_IN_PAGE, "default": PAGE}, "How many at most."),
    "pageOffset": ({"type": "integer", "minimum": 0, "default": 0}, "How many before them are left out."),
    "filterJson": (
        {"type": "string"},
        f"{_PATTERN}the `value` that it has; may be repeated, and then all must hold.",
    ),
    "sortJson": ({"type": "string"}, f"{_PATTERN}`direction`, `asc` or `desc`; may be repeated."),
    "isGateway": ({"type": "boolean"}, "Gateways alone, or what is none."),
    "existing": ({"type": "string", "enum": ["fail", "replace", "skip"]}, "What becomes of devices that are there."),
    "wait": ({"type": "number", "minimum": 0, "maximum": MAX_WAIT_S}, "Seconds to wait for the device's answer."),
    "device": ({"type": "string"}, "Only those of a device."),
    "state": ({"type": "string", "enum": list(STATES)}, "Only those in a state."),
    "batch": ({"type": "string"}, "Only those that were stored together."),
    "format": ({"type": "string", "enum": ["json", "csv"]}, "Of the lines."),
    "space": ({"type": "string"}, "Only if the tenant's project is in this address space."),
}
_IDS: Final = ("tenant", "device", "command", "authority")


def openapi_document() -> Document:
    """Return the OpenAPI 3.1 document of the registry."""
    models: tuple[type[Part], ...] = (Tenant, Device, CommandRequest, Possession, *TYPES.values())
    _, defined = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    schemas: Document = defined["$defs"]
    schemas["Error"] = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    schemas["Id"] = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
    schemas["Ids"] = {"type": "array", "items": {"type": "string"}}
    schemas["Credentials"] = {"type": "array", "items": {"anyOf": [_reference(it.__name__) for it in TYPES.values()]}}
    for name in ("Tenant", "Device"):
        item = {"allOf": [{"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}]}
        properties = {"total": {"type": "integer"}, "result": {"type": "array", "items": item}}
        schemas[f"{name}s"] = {"type": "object", "required": ["total", "result"], "properties": properties}
    counts = {name: {"type": "integer"} for name in ("created", "updated", "skipped")}
    failed = {"type": "array", "items": {"type": "object", "required": ["line", "code", "error"]}}
    schemas["Imported"] = {
        "type": "object",
        "required": [*counts, "failed"],
        "properties": counts | {"failed": failed},
    }
    paths: Document = {}
    for operation in OPERATIONS:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "EnMasse device registry", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _described(operation: Operation) -> Document:
    parameters: list[Document] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "maxLength": MAX_ID}}
        for name in _IDS
        if f"{{{name}}}" in operation.path
    ]
    for name in operation.query:
        schema, description = _QUERY[name]
        parameters.append({"name": name, "in": "query", "description": description, "schema": schema})
    if operation.versioned:
        parameters.append({"name": "If-Match", "in": "header", "schema": {"type": "string"}})
    success: Document = {"description": "It is done."}
    if operation.answer == "Lines":
        success["content"] = {JSON_LINES: {}, CSV: {}}
    elif operation.answer:
        named = {"id": "Id"}.get(operation.answer, operation.answer)
        schema = {"type": "object"} if named == "any" else _reference(named)
        success["content"] = {"application/json": {"schema": schema}}
    refused = {"application/json": {"schema": _reference("Error")}}
    answers: Document = {str(operation.code): success}
    for code in (*operation.errors, 503):
        answers[str(code)] = {"description": _ERRORS[code], "content": refused}
    found: Document = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": answers,
    }
    if operation.body:
        content: Document = {"application/json": {"schema": _reference(operation.body)}}
        if operation.body == "Lines":
            content = {JSON_LINES: {"schema": {"type": "string"}}, CSV: {"schema": {"type": "string"}}}
        found["requestBody"] = {"required": not operation.optional, "content": content}
    return found


def _reference(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}
