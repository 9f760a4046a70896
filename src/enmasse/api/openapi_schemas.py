"""The schemas that OpenAPI tells of, by name: our kinds, and what all kinds of Kubernetes share."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from enmasse.api.served import SERVED
from enmasse.model.openapi import Schema, kind_schema
from enmasse.model.openapi import schema_name as name_of

if TYPE_CHECKING:
    from enmasse.api.operations import Answer
    from enmasse.api.served import Served

__all__ = ["META", "REFERENCE", "answer_name", "schema_name", "schemas"]

REFERENCE: Final = "#/components/schemas/"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_ROWS: Final = "io.enmasse.v1beta1.QueryResult"


def schema_name(served: Served) -> str:
    """Return the name of a kind's schema, as in ``io.enmasse.v1beta1.Address``."""
    return name_of(served.kind, served.version)


def answer_name(served: Served, what: Answer) -> str:
    """Return the name of the schema of what an operation answers; text has none."""
    name = schema_name(served)
    return {"object": name, "list": f"{name}List", "status": f"{META}.Status", "rows": _ROWS}[what]


@cache
def schemas() -> dict[str, Schema]:
    """Return every schema, in the form of OpenAPI 3.0; nobody changes what is returned."""
    found: dict[str, Schema] = {}
    for served in SERVED:
        name = schema_name(served)
        found[name] = _kind_schema(served)
        found[f"{name}List"] = _list_schema(served, name)
    return dict(sorted((found | _shared()).items()))


def reference(name: str) -> Schema:
    """Return a reference to a schema."""
    return {"$ref": f"{REFERENCE}{name}"}


def _kind_schema(served: Served) -> Schema:
    schema = dict(kind_schema(served.kind, served.version))
    schema["properties"] = schema["properties"] | {"metadata": reference(f"{META}.ObjectMeta")}
    return schema


def _list_schema(served: Served, name: str) -> Schema:
    return {
        "type": "object",
        "description": f"A list of objects of kind {served.kind.name}.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": reference(f"{META}.ListMeta"),
            "items": {"type": "array", "items": reference(name)},
        },
        "x-kubernetes-group-version-kind": _gvk(served, f"{served.kind.name}List"),
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
    rows = {
        "type": "object",
        "description": "What a query over a space's tables and addresses has given.",
        "required": ["columns", "rows", "truncated"],
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
            "truncated": truth,
        },
    }
    return {
        _ROWS: rows,
        f"{META}.ObjectMeta": {
            "type": "object",
            "description": "What tells objects from each other, and what is kept about them.",
            "properties": {name: {"description": told} | schema for name, (schema, told) in metadata.items()},
        },
        f"{META}.ManagedFieldsEntry": managed,
        f"{META}.OwnerReference": owner,
        f"{META}.ListMeta": page,
        f"{META}.Status": status,
        f"{META}.DeleteOptions": options,
        f"{META}.Patch": {"type": "object", "description": "A change to an object."},
    }
