"""The named schemas of OpenAPI: our kinds, and the shared types of Kubernetes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from enmasse.api.kube.served import SERVED
from enmasse.model.schema.kinds import ADDRESS_SPACE
from enmasse.model.schema.openapi import Schema, kind_schema
from enmasse.model.schema.openapi import schema_name as name_of
from enmasse.model.schema.subresources import REPORTS

if TYPE_CHECKING:
    from enmasse.api.kube.served import Answer, Operation, Served
    from enmasse.model.schema.subresources import ListedField, Subresource

REFERENCE: Final = "#/components/schemas/"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_MESSAGES: Final = "io.enmasse.v1beta1.MessageList"
_OUTCOMES: Final = "io.enmasse.v1beta1.OutcomeList"


def schema_name(served: Served) -> str:
    """Return the name of a kind's schema, as in ``io.enmasse.v1beta1.Address``."""
    return name_of(served.kind, served.version)


def answer_name(operation: Operation, what: Answer) -> str:
    """Return the name of the schema of an answer; text has none."""
    name = schema_name(operation.served)
    if operation.below is not None and what in ("rows", "items", "report"):
        return _name_below(operation.served, operation.below)
    named = {"object": name, "object-or-list": name, "list": f"{name}List", "status": f"{META}.Status"}
    return (named | {"messages": _MESSAGES, "outcomes": _OUTCOMES})[what]


def _name_below(served: Served, below: Subresource) -> str:
    return schema_name(served).removesuffix(served.kind.name) + below.kind


_WARNINGS: Schema = {
    "type": "array",
    "description": "In the answer to a write: what its author should know, as Warning headers of one object say it.",
    "items": {"type": "string"},
}


@cache
def schemas() -> dict[str, Schema]:
    """Return all schemas, in the form of OpenAPI 3.0; the result must not be changed."""
    found: dict[str, Schema] = {}
    for served in SERVED:
        name = schema_name(served)
        found[name] = _kind_schema(served)
        found[f"{name}List"] = _list_schema(served, f"{served.kind.name}List", reference(name))
        for below in served.subresources:
            if below.answer == "items":
                found[_name_below(served, below)] = _list_schema(served, below.kind, fields_schema(below.fields))
            elif below.answer == "rows":
                found[_name_below(served, below)] = _rows_schema()
            elif below.answer == "report":
                found[_name_below(served, below)] = _report_schema(below)
            if served.kind is ADDRESS_SPACE:
                found |= {_name_below(served, report): _report_schema(report) for report in REPORTS}
    return dict(sorted((found | _shared()).items()))


def reference(name: str) -> Schema:
    """Return a reference to a schema."""
    return {"$ref": f"{REFERENCE}{name}"}


def _kind_schema(served: Served) -> Schema:
    schema = dict(kind_schema(served.kind, served.version))
    schema["properties"] = schema["properties"] | {"metadata": reference(f"{META}.ObjectMeta")}
    return schema


def _list_schema(served: Served, kind: str, item: Schema) -> Schema:
    return {
        "type": "object",
        "description": f"A list of objects of kind {kind.removesuffix('List')}.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": reference(f"{META}.ListMeta"),
            "items": {"type": "array", "items": item},
            **({"warnings": _WARNINGS} if kind == served.list_kind and served.takes_lists else {}),
        },
        "x-kubernetes-group-version-kind": _gvk(served, kind),
    }


_ANYTHING: Final[Schema] = {"type": "object", "additionalProperties": {"nullable": True}}

_TYPES: Final[dict[str, Schema]] = {
    "time": {"type": "string", "format": "date-time"},
    "strings": {"type": "array", "items": {"type": "string"}},
    "numbers": {"type": "array", "items": {"type": "number"}},
    "object": _ANYTHING,
    "objects": {"type": "array", "items": _ANYTHING},
    "integer": {"type": "integer", "format": "int64"},
}


def fields_schema(fields: tuple[ListedField, ...]) -> Schema:
    """Return the schema of an object with some fields."""
    required = [field.name for field in fields if field.is_always]
    return {
        "type": "object",
        **({"required": required} if required else {}),
        "properties": {
            field.name: {"description": field.description} | _TYPES.get(field.type, {"type": field.type})
            for field in fields
        },
    }


def _report_schema(report: Subresource) -> Schema:
    described = fields_schema(report.beside)
    text = {"type": "string"}
    own: Schema = {"apiVersion": text, "kind": text, "metadata": reference(f"{META}.ListMeta")}
    if report.fields:
        own["items"] = {"type": "array", "items": fields_schema(report.fields)}
        described["required"] = ["items", *described.get("required", ())]
    return described | {"properties": own | described["properties"]}


def _rows_schema() -> Schema:
    text = {"type": "string"}
    return {
        "type": "object",
        "description": "What a query over a space's tables and addresses has given.",
        "required": ["columns", "rows", "truncated", "warnings"],
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": reference(f"{META}.ListMeta"),
            "columns": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": text, "type": text}},
            },
            "rows": {
                "type": "array",
                "description": "Of each row the value of each column.",
                "items": {"type": "array", "items": {"nullable": True}},
            },
            "truncated": {"type": "boolean"},
            "warnings": {
                "type": "array",
                "description": "Columns with moments beyond the years 1 to 9999, and how many there are.",
                "items": text,
            },
        },
    }


def _gvk(served: Served, kind: str) -> list[Schema]:
    return [{"group": served.group, "version": served.version, "kind": kind}]


def _shared() -> dict[str, Schema]:
    text, whole, truth = {"type": "string"}, {"type": "integer", "format": "int64"}, {"type": "boolean"}
    texts = {"type": "object", "additionalProperties": text}
    owner = {
        "type": "object",
        "description": "The object that this one belongs to, and goes with.",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": text,
            "kind": text,
            "name": text,
            "uid": text,
            "controller": truth,
            "blockOwnerDeletion": truth,
        },
    }
    managed = {
        "type": "object",
        "description": "Which fields one manager has set.",
        "properties": {
            "manager": text,
            "operation": text,
            "apiVersion": text,
            "time": {"type": "string", "format": "date-time"},
            "fieldsType": text,
            "fieldsV1": {"type": "object"},
            "subresource": text,
        },
    }
    time = {"type": "string", "format": "date-time"}
    metadata: dict[str, tuple[Schema, str]] = {
        "name": (text, "Unique among the objects of its kind in a namespace."),
        "generateName": (text, "What a name that the server makes begins with, where there is no name."),
        "namespace": (text, "The namespace that it lies in."),
        "labels": (texts, "Words to choose objects by."),
        "annotations": (texts, "What people and programs keep with the object."),
        "uid": (text, "Written by the server: tells an object from a later one of the same name."),
        "resourceVersion": (text, "Written by the server: changes with every write."),
        "generation": (whole, "Written by the server: changes with every write to the spec."),
        "creationTimestamp": (time, "Written by the server: when it was created."),
        "deletionTimestamp": (time, "Written by the server: when its deletion was asked for."),
        "deletionGracePeriodSeconds": (whole, "Written by the server: how long deletion may take."),
        "selfLink": (text, "Not used any more."),
        "finalizers": (
            {"type": "array", "items": text, "x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"},
            "What must be done before the object goes.",
        ),
        "ownerReferences": (
            {
                "type": "array",
                "items": reference(f"{META}.OwnerReference"),
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "uid",
            },
            "The objects that this one belongs to.",
        ),
        "managedFields": (
            {"type": "array", "items": reference(f"{META}.ManagedFieldsEntry")},
            "Written by the server: which manager has set which fields.",
        ),
    }
    status = {
        "type": "object",
        "description": "The answer to what returns no object, and every error.",
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": reference(f"{META}.ListMeta"),
            "status": text,
            "message": text,
            "reason": text,
            "details": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "code": {"type": "integer", "format": "int32"},
        },
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "Status", "version": "v1"}],
    }
    options = {
        "type": "object",
        "description": "How an object is deleted.",
        "properties": {
            "apiVersion": text,
            "kind": text,
            "dryRun": {"type": "array", "items": text},
            "gracePeriodSeconds": whole,
            "orphanDependents": truth,
            "preconditions": {"type": "object", "properties": {"uid": text, "resourceVersion": text}},
            "propagationPolicy": text,
        },
    }
    page = {
        "type": "object",
        "description": "What a list tells of itself.",
        "properties": {
            "continue": text,
            "remainingItemCount": whole,
            "resourceVersion": text,
            "selfLink": text,
        },
    }
    return {
        **_message_schemas(),
        f"{META}.ObjectMeta": {
            "type": "object",
            "description": "What tells objects from each other, and what is kept about them.",
            "properties": {
                name: {"description": description} | schema for name, (schema, description) in metadata.items()
            },
        },
        f"{META}.ManagedFieldsEntry": managed,
        f"{META}.OwnerReference": owner,
        f"{META}.ListMeta": page,
        f"{META}.Status": status,
        f"{META}.DeleteOptions": options,
        f"{META}.Patch": {"type": "object", "description": "A change to an object."},
    }


def _message_schemas() -> dict[str, Schema]:
    text, whole, truth = {"type": "string"}, {"type": "integer", "format": "int64"}, {"type": "boolean"}
    body = {
        "type": "object",
        "description": "So much of the body as was asked for, decoded if it can be.",
        "properties": {
            "form": {
                "type": "string",
                "enum": ["text", "json", "cbor", "avro", "protobuf", "sparkplug", "value", "sequence", "binary"],
            },
            "text": text,
            "value": {"nullable": True},
            "hex": text,
            "bytes": whole,
            "truncated": truth,
        },
    }
    message = {
        "type": "object",
        "properties": {
            "id": text,
            "offset": whole,
            "partition": whole,
            "time": {"type": "string", "format": "date-time"},
            "bytes": whole,
            "malformed": truth,
            "durable": truth,
            "priority": whole,
            "ttl": whole,
            "deliveryCount": whole,
            "properties": _ANYTHING,
            "applicationProperties": _ANYTHING,
            "annotations": _ANYTHING,
            "reason": text,
            "from": text,
            "body": body,
        },
    }
    outcome = {
        "type": "object",
        "properties": {"outcome": text, "condition": text, "description": text},
    }
    return {
        name: {
            "type": "object",
            "description": description,
            "required": ["items"],
            "properties": {
                "apiVersion": text,
                "kind": text,
                "metadata": reference(f"{META}.ListMeta"),
                "items": {"type": "array", "items": item},
            },
        }
        for name, description, item in (
            (_MESSAGES, "Messages of an address.", message),
            (_OUTCOMES, "What became of messages that were sent.", outcome),
        )
    }
