"""kubectl and pipelines: applied, warned of, refused with the place, listed, explained, changed, gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.kubectl.kubectl_command import Kubectl, address

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubectl")]

TELEMETRY = {"address": "telemetry", "type": "stream", "plan": "standard-small-stream"}


def pipeline(sql: str = "SELECT device FROM readings", source: str = "telemetry") -> dict[str, Any]:
    readings = {
        "name": "readings",
        "address": source,
        "format": "json",
        "schema": "device STRING, temperature DOUBLE",
    }
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Pipeline",
        "metadata": {"name": "shop.hot"},
        "spec": {
            "sources": [readings],
            "steps": [{"name": "hot", "sql": sql}],
            "sinks": [{"address": "orders"}],
            "paused": True,
        },
    }


def test_a_pipeline_lives_as_every_object_does(shop: Kubectl) -> None:
    shop.apply(address("shop.telemetry", **TELEMETRY))
    assert shop.apply(pipeline()) == "pipeline.enmasse.io/shop.hot created\n"
    assert shop.apply(pipeline()) == "pipeline.enmasse.io/shop.hot unchanged\n"
    head, row = shop.table("pl")
    assert (head[:3], row[0]) == (["NAME", "READY", "PHASE"], "shop.hot")
    assert {"ROWS", "RATE", "LAG", "AGE"} <= set(" ".join(head).split())
    for name in ("pipeline", "pipelines", "pipe", "pipelines.enmasse.io"):
        assert shop.ok("get", name, "-o", "name") == "pipeline.enmasse.io/shop.hot\n"
    assert "pipeline.enmasse.io/shop.hot" in shop.ok("get", "enmasse", "-o", "name").split()
    assert "startingOffsets" in shop.ok("explain", "pipeline.spec.sources")
    shop.ok("patch", "pl", "shop.hot", "--type", "merge", "-p", '{"spec": {"trigger": "5s"}}')
    assert shop.document("pl", "shop.hot")["spec"]["trigger"] == "5s"
    assert "no column 'devise'" in shop.refused(
        *("patch", "pl", "shop.hot", "--type", "json", "-p"),
        '[{"op": "replace", "path": "/spec/steps/0/sql", "value": "SELECT devise FROM readings"}]',
    )
    shop.ok("delete", "pl", "shop.hot", "--timeout", "30s")
    assert "NotFound" in shop.refused("get", "pl", "shop.hot")


def test_what_is_wrong_is_refused_with_its_place_and_what_surprises_is_warned_of(shop: Kubectl) -> None:
    shop.apply(address("shop.telemetry", **TELEMETRY))
    refused = shop.refused("apply", "-f", shop.file(pipeline("SELECT * FROM redings")))
    assert "spec.steps[0].sql" in refused
    assert "line 1, column 15: there is no relation 'redings'; did you mean 'readings'?" in refused
    done = shop.run("apply", "-f", shop.file(pipeline(source="orders")))
    assert (done.code, done.out) == (0, "pipeline.enmasse.io/shop.hot created\n")
    assert "Warning: shop.hot: spec.sources[0].address: 'orders' is a queue: what the pipeline reads is" in done.err
    shop.ok("delete", "space", "shop", "--timeout", "30s")
    assert "NotFound" in shop.refused("get", "pl", "shop.hot")
