"""CustomResourceDefinitions of our kinds, made from the classes.

Checks of the classes beyond single fields are written in CEL as far as a Kubernetes
API server can make them: fixed fields, fields of some types alone, and names.
The controllers make all checks anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from enmasse.model.kinds.addresses import FIELD_OWNERS, AddressSpec
from enmasse.model.schema.kinds import KINDS
from enmasse.model.schema.objects import class_of
from enmasse.model.schema.openapi import kind_schema

if TYPE_CHECKING:
    from enmasse.model.schema.kinds import Kind
    from enmasse.model.schema.openapi import Schema

CATEGORY: Final = "enmasse"
"""``kubectl get enmasse`` lists everything of ours."""

_SELECTABLE = {"Address": (".spec.address", ".spec.type"), "MessagingUser": (".spec.username",)}
_NOT_IN_CRDS = ("writeOnly", "x-kubernetes-group-version-kind")
_NAMED_AFTER_SPACE = {
    "rule": "self.metadata.name.contains('.')",
    "message": "expected <space>.<anything>, where the part before the first dot names the space",
}
_LABEL = {
    "rule": "self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    "message": "the name of a space is a single word of lower-case letters, digits and '-', at most 63 characters",
}
_OF_WHOLE = {
    "Address": [_NAMED_AFTER_SPACE],
    "MessagingUser": [_NAMED_AFTER_SPACE],
    "Pipeline": [_NAMED_AFTER_SPACE],
    "AddressSpace": [_LABEL],
}


def crds() -> list[Schema]:
    """Return the definitions of all our kinds."""
    return [crd(kind) for kind in KINDS if kind.is_ours]


def file_name(definition: Schema) -> str:
    """Return the name of the file that holds a definition."""
    return f"{definition['metadata']['name']}.yaml"


def crd(kind: Kind) -> Schema:
    """Return the definition of one kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}", "labels": {"app": "enmasse"}},
        "spec": {
            "group": kind.group,
            "scope": kind.scope,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short_names),
                "categories": [CATEGORY],
            },
            "conversion": {"strategy": "None"},
            "versions": [_version(kind, version) for version in kind.versions],
        },
    }


def _version(kind: Kind, version: str) -> Schema:
    schema = _plain(kind_schema(kind, version))
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    required = [name for name in schema.pop("required") if name not in ("apiVersion", "kind", "metadata")]
    schema |= {"required": required} if required else {}
    if rules := _OF_WHOLE.get(kind.name):
        schema["x-kubernetes-validations"] = rules
    if rules := [*_fixed(kind), *(_of_types() if kind.name == "Address" else ())]:
        schema["properties"]["spec"]["x-kubernetes-validations"] = rules
    found: Schema = {
        "name": version,
        "served": True,
        "storage": version == kind.version,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(column) for column in kind.printer_columns],
        "schema": {"openAPIV3Schema": schema},
    }
    if selectable := _SELECTABLE.get(kind.name):
        found["selectableFields"] = [{"jsonPath": path} for path in selectable]
    return found


def _column(column: Any) -> Schema:
    found = {"name": column.name, "type": column.type, "jsonPath": column.path, "description": column.description}
    return found | ({"priority": column.priority} if column.priority else {})


def _plain(schema: Any) -> Any:
    """Return a part of a schema as a CRD may have it."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _plain(value) for key, value in schema.items() if key not in _NOT_IN_CRDS}


def _fixed(kind: Kind) -> list[Schema]:
    """Return a rule for each field that keeps its first value; leaving it out means the present one."""
    rules = []
    for path in class_of(kind).immutable:
        parts = path.split(".")
        steps = [".".join(parts[: end + 1]) for end in range(len(parts))]
        absent = [f"!has({who}.{step})" for step in steps for who in ("oldSelf", "self")]
        rules.append(
            {
                "rule": " || ".join([*absent, f"self.{path} == oldSelf.{path}"]),
                "message": f"{path} cannot change; delete the {kind.name} and create it anew",
                "fieldPath": f".{path}",
            }
        )
    return rules


def _of_types() -> list[Schema]:
    """Return a rule for each field that only some types of addresses have."""
    rules: list[Schema] = [
        {
            "rule": "self.type != 'subscription' || has(self.topic)",
            "message": "a subscription needs a topic",
            "fieldPath": ".topic",
        }
    ]
    for field, types in FIELD_OWNERS.items():
        name = AddressSpec.model_fields[field].alias
        is_list = isinstance(AddressSpec.model_fields[field].default, tuple)
        given = f"has(self.{name})" + (f" && self.{name}.size() > 0" if is_list else "")
        rules.append(
            {
                "rule": f"!({given}) || self.type in [{', '.join(repr(item) for item in types)}]",
                "message": f"only {', '.join(types)} has {name}",
                "fieldPath": f".{name}",
            }
        )
    return rules
