"""CustomResourceDefinitions made from the classes, and the files in ``deploy`` that hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from enmasse.cli.commands.declare.explain import written_crd
from enmasse.model.crd import CATEGORY, crds, file_name
from enmasse.model.kinds.addresses import AddressSpec
from enmasse.model.schema.kinds import KINDS, kind_named

FILES = Path(__file__).parents[3] / "deploy" / "crds"


def definition(kind: str) -> dict[str, Any]:
    return next(item for item in crds() if item["spec"]["names"]["kind"] == kind)


def schema_of(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def test_the_files_are_what_the_classes_say() -> None:
    expected = {file_name(item): written_crd(item) for item in crds()}
    found = {path.name: path.read_text(encoding="utf-8") for path in FILES.iterdir()}
    assert found == expected, "write them anew with `enmasse kube crds --to deploy/crds`"


def test_each_of_our_kinds_has_a_definition_with_its_names_versions_and_columns() -> None:
    assert {item["spec"]["names"]["kind"] for item in crds()} == {kind.name for kind in KINDS if kind.is_ours}
    for item in crds():
        spec = item["spec"]
        kind = kind_named(spec["names"]["kind"])
        assert kind is not None
        assert item["metadata"]["name"] == f"{kind.plural}.{kind.group}"
        assert spec["names"]["categories"] == [CATEGORY]
        assert spec["scope"] == kind.scope
        assert [version["name"] for version in spec["versions"]] == list(kind.versions)
        assert [version["storage"] for version in spec["versions"]] == [True] + [False] * (len(kind.versions) - 1)
        for version in spec["versions"]:
            assert version["subresources"] == {"status": {}}
            assert version["additionalPrinterColumns"][-1]["name"] == "Age"


def numbers(part: Any) -> list[float]:
    if isinstance(part, dict | list):
        return [number for item in (part.values() if isinstance(part, dict) else part) for number in numbers(item)]
    return [part] if isinstance(part, int | float) else []


def test_no_number_in_a_definition_is_beyond_what_a_double_holds_exactly() -> None:
    # Kubernetes reads bounds as doubles: the largest int64 is rounded up, overflows, and every value is refused.
    assert max(abs(number) for number in numbers(crds())) <= 2**53


@pytest.mark.parametrize(("value", "is_taken"), [(2**63 - 1, True), (2**63, False), (-1, False)])
def test_what_no_int64_holds_is_refused_all_the_same(value: int, is_taken: bool) -> None:
    ttl = {"messageTtl": {"minimum": 0, "maximum": value}}
    spec = {"address": "orders", "type": "queue", "plan": "standard-small-queue", **ttl}
    if is_taken:
        assert AddressSpec.model_validate(spec).model_dump(by_alias=True)["messageTtl"]["maximum"] == value
    else:
        with pytest.raises(ValidationError, match=r"messageTtl\.maximum"):
            AddressSpec.model_validate(spec)


def parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    below = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return [schema, *(part for item in below if isinstance(item, dict) for part in parts(item))]


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS if kind.is_ours])
def test_definitions_keep_the_rules_of_structural_schemas(kind: str) -> None:
    assert not {"required"} & schema_of(kind).keys() or "spec" in schema_of(kind)["required"]
    for part in parts(schema_of(kind)):
        assert not {"$ref", "writeOnly", "x-kubernetes-group-version-kind"} & part.keys()
        assert ("type" in part) != ("x-kubernetes-int-or-string" in part)
        # "properties" and "additionalProperties" exclude each other.
        assert not {"properties", "additionalProperties"} <= part.keys()
        for key in part.get("x-kubernetes-list-map-keys", ()):
            assert key in part["items"]["required"]
        for rule in part.get("x-kubernetes-validations", ()):
            assert rule["rule"]
            assert rule["message"]
            names = rule.get("fieldPath", "").split(".")[1:]
            found: Any = part
            for name in names:
                found = found["properties"][name]


def test_an_address_says_what_is_fixed_selectable_and_how_it_is_named() -> None:
    version = definition("Address")["spec"]["versions"][0]
    assert version["selectableFields"] == [{"jsonPath": ".spec.address"}, {"jsonPath": ".spec.type"}]
    schema = schema_of("Address")
    assert "metadata.name.contains('.')" in schema["x-kubernetes-validations"][0]["rule"]
    rules = {rule["fieldPath"]: rule["rule"] for rule in schema["properties"]["spec"]["x-kubernetes-validations"]}
    assert rules[".address"].endswith("self.address == oldSelf.address")
    assert rules[".subscription.maxConsumers"].startswith("!has(oldSelf.subscription) || !has(self.subscription) || ")
    assert rules[".partitions"].endswith("self.type in ['stream']")


def test_what_is_written_can_be_read_again_and_has_no_aliases() -> None:
    for item in crds():
        text = written_crd(item)
        assert yaml.safe_load(text) == item
        assert not any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.CSafeLoader))
