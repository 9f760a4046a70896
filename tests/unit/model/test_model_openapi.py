"""Schemas made from the classes: complete, structural, and with keys for server-side apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from enmasse.model.schema.kinds import KINDS, Kind, kind_named
from enmasse.model.schema.objects import class_of
from enmasse.model.schema.openapi import SET, kind_schema, list_keys, schema_at, schemas

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY_KIND = [pytest.param(kind, id=kind.name) for kind in KINDS]


def found(name: str) -> Kind:
    kind = kind_named(name)
    assert kind is not None
    return kind


def parts(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every part of a schema with its path."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from parts(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from parts(schema[key], f"{path}[]")


def test_every_version_of_every_kind_has_a_schema_that_names_it() -> None:
    named = {
        (gvk["group"], gvk["version"], gvk["kind"])
        for schema in schemas().values()
        for gvk in schema["x-kubernetes-group-version-kind"]
    }
    assert named == {(kind.group, version, kind.name) for kind in KINDS for version in kind.versions}
    assert {"io.enmasse.admin.v1beta1.AddressPlan", "io.k8s.api.core.v1.Secret"} <= schemas().keys()


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_schemas_are_structural_and_explain_themselves(kind: Kind) -> None:
    schema = kind_schema(kind, kind.version)
    assert schema["required"][:3] == ["apiVersion", "kind", "metadata"]
    for path, part in parts(schema):
        assert "$ref" not in part, path
        assert ("type" in part) != ("x-kubernetes-int-or-string" in part), path
        if part.get("type") == "array":
            assert part["x-kubernetes-list-type"] in ("map", "set", "atomic"), path
        for key in part.get("x-kubernetes-list-map-keys", ()):
            assert key in part["items"]["required"], path
    for name in ("metadata", "spec", "status"):
        part = schema["properties"].get(name)
        assert part is None or part["description"], name


@pytest.mark.parametrize("kind", [item for item in EVERY_KIND if item.values[0].is_ours])  # type: ignore[union-attr]
def test_what_a_field_allows_is_in_the_schema(kind: Kind) -> None:
    spec = kind_schema(kind, kind.version)["properties"]["spec"]
    fields = class_of(kind).model_fields["spec"].annotation.model_fields  # type: ignore[union-attr]
    assert set(spec["properties"]) == {field.alias for field in fields.values()}


def test_bounds_choices_and_forms_are_told() -> None:
    spec = kind_schema(found("address"), "v1beta1")["properties"]["spec"]["properties"]
    assert spec["partitions"] | {"description": ""} == {
        "description": "",
        "type": "integer",
        "format": "int64",
        "minimum": 1,
        "maximum": 1024,
    }
    assert spec["type"]["enum"][-1] == "deadletter"
    assert spec["retention"]["properties"]["age"]["pattern"].startswith("^")
    plan = kind_schema(found("sinfra"), "v1beta1")["properties"]["spec"]["properties"]
    assert plan["broker"]["properties"]["resources"]["properties"]["memory"]["x-kubernetes-int-or-string"]
    user = kind_schema(found("muser"), "v1beta1")
    password = schema_at(user, ("spec", "authentication", "password"))
    assert password is not None
    assert password["writeOnly"]


@pytest.mark.parametrize(
    ("kind", "path", "keys"),
    [
        ("space", "metadata.finalizers", SET),
        ("space", "metadata.ownerReferences", ("uid",)),
        ("space", "spec.connectors", ("name",)),
        ("space", "spec.connectors.addresses", ("name",)),
        ("space", "spec.connectors.endpointHosts", None),
        ("address", "spec.forwarders", ("name",)),
        ("address", "status.conditions", ("type",)),
        ("muser", "spec.authorization", None),
        ("cm", "data.anything", None),
        ("address", "nothing.at.all", None),
    ],
)
def test_lists_are_keyed_sets_or_one_value(kind: str, path: str, keys: tuple[str, ...] | None) -> None:
    assert list_keys(found(kind))(tuple(path.split("."))) == keys
