"""An address that two objects declare is that of the one which has its place, for whoever looks it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from enmasse.model.schema.names import by_claim
from enmasse.pipeline.host.declared import Declared

if TYPE_CHECKING:
    from enmasse.control.store.registry import Registry

ADDRESSES = "/apis/enmasse.io/v1beta1/namespaces/default/addresses"


def document(name: str, created: str = "", *, is_placed: bool = False) -> dict[str, Any]:
    status = {"planStatus": {"name": "standard-small-queue"}} if is_placed else {}
    return {"metadata": {"name": name, "creationTimestamp": created}, "status": status}


def test_the_declaration_that_has_its_place_counts_and_else_the_oldest() -> None:
    placed, old, young = document("z", "3", is_placed=True), document("y", "1"), document("x", "2")
    assert by_claim([young, old, placed]) == [placed, old, young]


@pytest.mark.parametrize("served", ["shop.a", "shop.m", "shop.z"])
def test_a_refused_declaration_does_not_hide_the_served_one_from_pipelines(
    api: Any, registry: Registry, served: str
) -> None:
    registry.create_catalog()
    space = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": {"name": "shop"}, "spec": {}}
    assert api("POST", ADDRESSES.replace("addresses", "addressspaces"), json=space).status_code == 201
    for name in ("shop.a", "shop.m", "shop.z"):
        spec = {"address": "orders", "type": "queue" if name == served else "stream"}
        given = {"apiVersion": "enmasse.io/v1beta1", "kind": "Address", "metadata": {"name": name}, "spec": spec}
        created = api("POST", ADDRESSES, json=given)
        assert created.status_code == 201, created.text
        if name == served:
            status = {"planStatus": {"name": "standard-small-queue"}, "isReady": True, "phase": "Active"}
            assert api("PUT", f"{ADDRESSES}/{name}/status", json=created.json() | {"status": status}).is_success
    found = api.talk(lambda client: Declared(client, lambda: None).addresses_now("default", "shop"))
    assert found == {"orders": {"type": "queue"}}
    pipeline = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Pipeline",
        "metadata": {"name": "shop.hot"},
        "spec": {"sources": [{"name": "orders", "address": "orders"}], "sinks": [{"table": "kept"}]},
    }
    made = api("POST", ADDRESSES.replace("addresses", "pipelines"), json=pipeline)
    assert "is a queue" in str(made.headers.get_list("warning")), (made.text, made.headers)
