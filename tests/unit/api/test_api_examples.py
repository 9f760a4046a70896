"""Every example applies as it is, and applies again; so does YAML in the form of EnMasse 1.0."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.model.kinds.address_settings import ADDRESS_TYPES
from enmasse.model.schema.kinds import kind_of
from enmasse.model.schema.manifest import in_order, load_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from enmasse.control.store.registry import Registry
    from enmasse.model.schema.resource import Resource

    Api = Callable[..., httpx.Response]

EXAMPLES = Path(__file__).parents[3] / "examples"
FILES = sorted(path for path in EXAMPLES.rglob("*.yaml") if not path.stem.endswith("-rows"))
OF_ENMASSE_1_0 = sorted((EXAMPLES / "enmasse-1.0").iterdir())


def resources(path: Path) -> list[Resource]:
    return in_order(load_manifest(path.read_text(encoding="utf-8"), path.name))


def write(api: Api, resource: Resource) -> httpx.Response:
    kind, metadata = kind_of(resource), resource.metadata
    place = f"/namespaces/{metadata.namespace or kind.default_namespace}" if kind.scope == "Namespaced" else ""
    collection = f"{kind.base_path()}{place}/{kind.plural}"
    created = api("POST", collection, json=resource.to_dict())
    if created.status_code != 409:
        return created
    return api("PUT", f"{collection}/{metadata.name}", json=resource.to_dict())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_example_applies_and_applies_again_without_a_change(api: Api, registry: Registry, path: Path) -> None:
    registry.create_catalog()
    for resource in resources(path):
        response = write(api, resource)
        assert response.status_code == 201, response.text
    versions = [write(api, resource).json()["metadata"]["resourceVersion"] for resource in resources(path)]
    assert len(set(versions)) == len(versions)
    assert registry.store.version == max(map(int, versions))


def test_examples_in_the_form_of_enmasse_1_0_have_every_kind_type_and_field_of_it() -> None:
    found = [item for path in OF_ENMASSE_1_0 for item in resources(path)]
    assert {item.kind for item in found} >= {
        "AddressSpace",
        "Address",
        "AddressSpacePlan",
        "AddressPlan",
        "StandardInfraConfig",
        "BrokeredInfraConfig",
        "AuthenticationService",
        "MessagingUser",
        "ConsoleService",
    }
    specs: dict[str, list[dict[str, Any]]] = {}
    for item in found:
        specs.setdefault(item.kind, []).append(item.spec.to_dict())
    assert {spec["type"] for spec in specs["Address"]} == set(ADDRESS_TYPES) - {"stream"}
    assert {spec["type"] for spec in specs["AddressSpace"]} == {"standard", "brokered"}
    assert {spec["type"] for spec in specs["AuthenticationService"]} == {"none", "standard", "external"}
    assert {key for spec in specs["AddressSpace"] for key in spec} >= {"endpoints", "connectors", "networkPolicy"}
    assert any("forwarders" in spec for spec in specs["Address"])


def test_what_has_no_effect_yet_is_warned_of_and_not_refused(api: Api, registry: Registry) -> None:
    registry.create_catalog()
    warnings = {
        item.metadata.name: write(api, item).headers.get_list("warning")
        for item in resources(EXAMPLES / "enmasse-1.0" / "02-infrastructure.yaml")
    }
    assert all(warnings.values())
    assert "team-infra: spec.networkPolicy has no effect: " in warnings["team-infra"][0]
