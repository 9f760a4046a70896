"""``/metrics`` and ``/readyz``: every series that the reference lists, and a node that does not answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from enmasse.api.app import ApiParts, NodeAccess, create_app
from enmasse.api.http_connections import HttpConnections
from enmasse.api.metrics import metrics as metrics_module
from enmasse.api.metrics import nodes as nodes_module
from enmasse.api.metrics.catalogue import (
    ADDRESS_METRICS,
    CONNECTOR_METRICS,
    CONTROL_METRICS,
    NODE_METRICS,
    rewritten,
)
from enmasse.api.metrics.dashboards import documents, written
from enmasse.api.metrics.nodes import Canary, Figures
from enmasse.client.management import ManagementError
from enmasse.control.errors import NodeUnavailableError
from enmasse.control.ports import NodeFigures
from enmasse.node.management.entity_types import ATTRIBUTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.control.store.registry import Registry

ROOT = Path(__file__).parents[3]

ALL = (*CONTROL_METRICS, *NODE_METRICS, *ADDRESS_METRICS, *CONNECTOR_METRICS)

STATISTICS: dict[str, Any] = {
    "version": "9.9", "startedAt": 1_000, "cpuSeconds": 1.5, "memoryBytes": 2, "connections": 3,
    "halfOpen": 1, "turnedAway": 1, "handshakeTimeouts": 1,
    "unfinishedBytes": 1, "unfinishedWaiting": 1, "unfinishedGivenUp": 1, "transactionBytes": 1,
    "unreadBytes": 1, "unreadLimit": 2, "unreadWaiting": 1, "unreadGivenUp": 1,
    "transactionsGivenUp": 1,
    "loginsFailed": 1, "loginsDelayed": 1, "passwordsWaiting": 1,
    "links": 4,
    "spaces": 1, "addresses": 2, "commits": 6, "failedCommits": 1, "groupCommits": 5, "unconfirmedBytes": 7,
    "journalBytes": 8, "journalUp": True, "journalFailure": "", "journalReplacements": 2, "diskFreeBytes": 9,
    "commitTimes": {"bounds": [0.001, 0.01], "counts": [3, 2, 1], "sum": 0.5},
    "turnLags": {"bounds": [0.001], "counts": [10, 0], "sum": 0.001}, "recentLag": 0.001, "ready": True,
    "events": {"connection-opened": 11, "link-refused": 12},
}  # fmt: skip


def address(name: str, space: str = "ns/shop", kind: str = "queue", **counts: Any) -> dict[str, Any]:
    """An address as a node tells it."""
    found = dict.fromkeys((metric.source for metric in ADDRESS_METRICS if metric.source), 0)
    return {"name": f"{space}.{name}", "space": space, "address": name, "addressType": kind, **found, **counts}


def connector(name: str, **figures: Any) -> dict[str, Any]:
    """A connector as a node tells it."""
    return {
        "name": name,
        "problem": "",
        **{metric.source: 0 for metric in CONNECTOR_METRICS if metric.source},
        **figures,
    }


class FakeNode:
    """A node that says what the test wants, or nothing."""

    name = "node-0"

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.hangs = False
        self.found = NodeFigures(
            dict(STATISTICS),
            {"ready": True, "problems": []},
            [
                {"name": "ns/shop", "maxBytes": 1 << 30, "sessions": 2, "subscriptions": 3, "subscriptionBytes": 9},
                {
                    "name": "ns/other",
                    "maxBytes": None,
                    "connectorStatus": [
                        connector("mill", messagesIn=31, messagesOut=32, unsettled=33, silence=1.5),
                        connector("barn", problem="nothing listens there", reconnects=34, silence=None),
                    ],
                },
            ],
            [
                address("orders", messagesIn=21, messagesStored=22, bytesStored=23, creditGranted=24, unsettled=25),
                address("feed", kind="stream", consumers=[{"name": "c", "partition": 1, "offset": 5, "lag": 26}]),
                address("live", "ns/other", "anycast", backlog=27),
            ],
        )

    async def figures(self, _counters: object = ()) -> NodeFigures:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return self.found

    async def health(self) -> Mapping[str, Any]:
        return (await self.figures()).health

    async def ping(self) -> None:
        await self.figures()


class Watched:
    """The API of a control process with such a node."""

    def __init__(self, registry: Registry, messages: Any) -> None:
        self.registry = registry
        self.messages = messages
        self.node = FakeNode()
        self.canary = Canary(self.node, patience_s=0.05)

    def get(self, path: str, **headers: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            access = NodeAccess(messages=self.messages, figures=self.node, canary=self.canary)
            app = create_app(
                ApiParts(
                    registry=self.registry,
                    stop=asyncio.Event(),
                    nodes={"node-0": access},
                    connections=HttpConnections(),
                )
            )
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.get(path, headers=headers)

        return asyncio.run(ask())

    def scrape(self, query: str = "") -> dict[tuple[str, ...], float]:
        """Every sample, by name and labels."""
        answer = self.get("/metrics" + query)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        return {
            (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }


@pytest.fixture
def watched(registry: Registry, api: Any) -> Watched:
    return Watched(registry, api.messages)


def test_every_metric_of_the_catalogue_is_there_and_no_other(watched: Watched) -> None:
    text = watched.get("/metrics").text
    told = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert told == {metric.full_name for metric in ALL}


def test_a_node_and_its_journal_are_told(watched: Watched) -> None:
    found = watched.scrape()
    node = "node=node-0"
    assert found["enmasse_node_up", node] == 1
    assert found["enmasse_node_start_time_seconds", node] == 1
    assert found["enmasse_node_connections", node] == 3
    assert found["enmasse_node_info", node, "version=9.9"] == 1
    assert found["enmasse_node_events_total", "event=link-refused", node] == 12
    assert found["enmasse_journal_up", node] == 1
    assert found["enmasse_journal_commit_seconds_bucket", "le=0.01", node] == 5
    assert found["enmasse_journal_commit_seconds_bucket", "le=+Inf", node] == 6
    assert found["enmasse_journal_commit_seconds_count", node] == 6
    assert found["enmasse_journal_commit_seconds_sum", node] == 0.5


def test_an_address_is_told_by_its_space(watched: Watched) -> None:
    found = watched.scrape()
    orders = ("address=orders", "addressspace=shop", "namespace=ns", "type=queue")
    names = ("messages_in_total", "messages_stored", "bytes_stored", "credit_granted", "unsettled")
    assert [found[f"enmasse_{name}", *orders] for name in names] == [21, 22, 23, 24, 25]
    # As EnMasse 1.0 has it, of what its brokers stored.
    count = [key for key in found if key[0] == "enmasse_artemis_durable_message_count"]
    assert {found[key] for key in count} == {22}
    assert ("enmasse_artemis_durable_message_count", *orders) in count
    lag = [key for key in found if key[0] == "enmasse_consumer_lag"]
    assert [found[key] for key in lag] == [26]
    assert found["enmasse_address_space_broker_global_max_size", "name=shop", "namespace=ns"] == 1 << 30
    of_space = ("sessions", "subscriptions", "subscription_bytes")
    assert [found[f"enmasse_address_space_{name}", "name=shop", "namespace=ns"] for name in of_space] == [2, 3, 9]
    assert found["enmasse_router_mesh_undelivered_total",] == 27


def test_connectors_and_forwarders_have_the_names_of_enmasse(watched: Watched, api: Any) -> None:
    connectors = [{"name": name, "endpointHosts": [{"host": "far.example.com"}]} for name in ("east", "west")]
    space = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": {"name": "shop"}}
    spaces = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"
    made = api("POST", spaces, json=space | {"spec": {"connectors": connectors}}).json()
    status = {"connectors": [{"name": "east", "isReady": True}, {"name": "west"}]}
    assert api("PUT", f"{spaces}/shop/status", json=made | {"status": status}).is_success
    watched.registry.forwarders = lambda: Counter({"default/shop": 2})
    found = watched.scrape()
    shop = ("name=shop", "namespace=default")
    assert found["enmasse_address_space_connectors_total", *shop] == 2
    for name, is_ready in (("east", 1), ("west", 0)):
        labels = (f"connector={name}", *shop)
        assert found["enmasse_address_space_connector_status_ready", *labels] == is_ready
        assert found["enmasse_address_space_connector_status_not_ready", *labels] == 1 - is_ready
    counts = [found[f"enmasse_addresses_forwarders_{state}total", "addressspace=shop", "namespace=default"]
              for state in ("", "ready_", "not_ready_")]  # fmt: skip
    assert counts == [2, 0, 2]


def test_plans_services_and_processes_have_the_names_of_enmasse(watched: Watched) -> None:
    watched.registry.create_catalog()
    found = watched.scrape()
    assert found["enmasse_addressspaceplan_info", "addressspaceplan=standard-small"] == 1
    assert found["enmasse_addressplan_info", "addressplan=standard-small-queue"] == 1
    service = ("authservice_name=none-authservice", "authservice_type=none")
    assert found["enmasse_authentication_service_ready", *service] == 0  # nobody has looked after it here
    assert [found["enmasse_component_health", f"job={name}"] for name in ("control", "node-0")] == [1, 1]
    own = {key[0] for key in watched.scrape("?namespace=ns&addressspace=shop")}
    assert not own & {"enmasse_addressplan_info", "enmasse_component_health"}


def test_a_connector_is_told_as_its_node_has_it(watched: Watched) -> None:
    found = watched.scrape()
    mill, barn = (
        ("addressspace=other", f"connector={name}", "namespace=ns", "node=node-0") for name in ("mill", "barn")
    )
    names = (
        "up",
        "messages_sent_total",
        "messages_received_total",
        "unsettled",
        "silence_seconds",
        "reconnects_total",
    )
    assert [found[f"enmasse_connector_{name}", *mill] for name in names] == [1, 31, 32, 33, 1.5, 0]
    assert (found["enmasse_connector_up", *barn], found["enmasse_connector_reconnects_total", *barn]) == (0, 34)
    assert ("enmasse_connector_silence_seconds", *barn) not in found
    assert not [key for key in watched.scrape("?namespace=ns&addressspace=shop") if "connector=mill" in key]


def test_a_tenant_sees_its_own_space_alone(watched: Watched) -> None:
    text = watched.get("/metrics?namespace=ns&addressspace=other").text
    assert 'addressspace="other"' in text
    assert "shop" not in text
    assert "node_" not in text


def test_labels_are_bounded(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "MAX_ADDRESSES", 20)
    monkeypatch.setattr(metrics_module, "MAX_CONNECTORS", 1)
    watched.node.found.addresses[:] = [address(f"a{number:05}") for number in range(27)]
    found = watched.scrape()
    assert sum(key[0] == "enmasse_messages_stored" for key in found) == 20
    assert found["enmasse_addresses_without_metrics",] == 7
    assert sum(key[0] == "enmasse_connector_up" for key in found) == 1


@pytest.mark.parametrize("is_silent", [True, False])
@pytest.mark.slow
def test_a_dead_node_is_down_and_hangs_nobody(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    monkeypatch.setattr(nodes_module, "PATIENCE_S", 0.05)
    watched.node.hangs = is_silent
    watched.node.error = NodeUnavailableError("node node-0 is not connected")
    found = watched.scrape()
    assert found["enmasse_node_up", "node=node-0"] == 0
    assert found["enmasse_router_mesh_not_connected_total",] == 1
    assert found["enmasse_standard_controller_router_check_failures_total",] == 1
    assert not [key for key in found if key[0] == "enmasse_journal_up"]
    assert found["enmasse_address_spaces_total",] == 0


def test_a_journal_that_cannot_write_is_failing(watched: Watched) -> None:
    watched.node.found.statistics["journalFailure"] = "no space left on the device"
    assert watched.scrape()["enmasse_journal_failing", "node=node-0"] == 1


def test_a_canary_that_does_not_come_back_is_counted(watched: Watched) -> None:
    def count() -> list[float]:
        found = watched.scrape()
        names = ("failures", "check_failures")
        return [found[f"enmasse_address_canary_health_{name}_total",] for name in names]

    assert asyncio.run(watched.canary.check())
    assert count() == [0, 0]
    watched.node.error = ManagementError(500, "it has a bug")
    assert not asyncio.run(watched.canary.check())
    watched.node.error = NodeUnavailableError("node node-0 is not connected")
    assert not asyncio.run(watched.canary.check())
    watched.node.error = None
    watched.node.hangs = True
    assert not asyncio.run(watched.canary.check())
    watched.node.hangs = False
    assert count() == [2, 1]


def test_one_answer_serves_all_who_ask_at_the_same_time() -> None:
    now = [0.0]

    async def story() -> tuple[int, int, int]:
        node = FakeNode()
        figures = Figures(node, clock=lambda: now[0])
        await asyncio.gather(*(figures.read() for _ in range(5)))
        first = node.asked
        now[0] += nodes_module.FRESH_S / 2
        await figures.read()
        second = node.asked
        now[0] += nodes_module.FRESH_S
        await figures.read()
        return first, second, node.asked

    assert asyncio.run(story()) == (1, 1, 2)


def test_control_is_ready_whatever_the_node_is_and_tells_of_it(watched: Watched) -> None:
    assert watched.get("/readyz").text == "ok"
    assert watched.get("/readyz?verbose").text == "[+] store\n[+] node node-0\nreadyz passed\n"
    watched.node.found.health.update(ready=False, problems=["journal: its process is being started"])
    answer = watched.get("/readyz?verbose")
    assert (answer.status_code, answer.text.splitlines()[1]) == (
        200,
        "[!] node node-0: journal: its process is being started",
    )
    watched.node.error = NodeUnavailableError("node node-0 is not connected")
    assert watched.get("/readyz", accept="application/json").json() == {
        "ready": True,
        "nodes": [{"name": "node-0", "up": False, "ready": False, "problems": ["node node-0 is not connected"]}],
    }


def test_a_probe_may_ask_for_one_node_and_gets_its_own_word(watched: Watched) -> None:
    def asked(name: str = "node-0") -> tuple[int, str]:
        answer = watched.get(f"/readyz/nodes/{name}")
        return answer.status_code, answer.text

    assert asked() == (200, "ok")
    watched.node.found.health.update(ready=False, problems=["stopping: the node is stopping"])
    assert asked() == (503, "not ready")
    watched.node.found.health.update(ready=True)
    assert asked() == (200, "ok")
    watched.node.error = NodeUnavailableError("node node-0 is not connected")
    assert asked() == (503, "not ready")
    assert asked("node-7") == (404, "there is no such node")


def test_a_node_tells_every_attribute_that_a_metric_is_read_from() -> None:
    for entity_type, metrics in (("io.enmasse.statistics", NODE_METRICS), ("io.enmasse.address", ADDRESS_METRICS)):
        assert {metric.source for metric in metrics if metric.source} <= set(ATTRIBUTES[entity_type])


def test_the_reference_lists_every_metric() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    assert page == rewritten(page), "run: python -m enmasse.api.metrics.catalogue docs/reference/metrics.md"


def test_the_rules_for_alerts_name_metrics_that_exist() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8"))
    told = {metric.full_name for metric in ALL}
    named = {
        name.removesuffix("_bucket")
        for group in rules["groups"]
        for rule in group["rules"]
        for name in re.findall(r"enmasse_\w+", rule["expr"])
    }
    assert len(named) > 10
    assert named <= told


def test_the_dashboards_are_made_anew_and_choose_by_labels_that_their_metrics_have() -> None:
    kept = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "deploy/grafana").glob("*.json")}
    assert kept == {name: written(document) for name, document in documents().items()}, "`make reference` makes them"
    metrics = {metric.full_name: metric for metric in ALL}
    for text in kept.values():
        panels = json.loads(text)["panels"]
        assert all(panel["description"] for panel in panels)
        for expression in (target["expr"] for panel in panels for target in panel["targets"]):
            ((name, matched),) = re.findall(r"(enmasse_\w+?)(?:_bucket)?(?:\{(.*?)\})?(?=[\[)])", expression)
            grouped = re.findall(r" by \((.*?)\)", expression)
            used = [*re.findall(r"(\w+)=", matched), *(label for some in grouped for label in some.split(", "))]
            assert set(used) <= {*metrics[name].labels, "le"}, expression
            is_rate = "rate(" in expression or "increase(" in expression
            assert (metrics[name].kind != "gauge") is is_rate, expression


def test_queries_of_pipelines_are_told_apart_and_what_they_read_twice_counts_once() -> None:
    drift = [{"source": "readings", "field": "t", "count": 2}]
    rules = [{"relation": "fit", "name": "positive", "rows": 9, "failed": 4}]
    queries = [
        {
            "name": "table-a",
            "state": "Running",
            "lag": 7,
            "batchDurationMs": 250,
            "drift": drift,
            "expectations": rules,
        },
        {"name": "table-b", "state": "Failed", "drift": drift},
        {"name": "table-c", "state": "Paused"},
    ]
    pipeline = {"metadata": {"namespace": "default", "name": "shop.hot"}, "status": {"queries": queries}}
    found = {family.name: family.samples for family in metrics_module._pipelines([pipeline])}

    def told(name: str, label: str) -> list[tuple[str, float]]:
        return [(sample.labels[label], sample.value) for sample in found[f"enmasse_{name}"]]

    assert told("pipeline_query_running", "query") == [("table-a", 1), ("table-b", 0)]
    assert told("pipeline_query_lag", "query") == [("table-a", 7)]
    assert told("pipeline_query_batch_duration_seconds", "query") == [("table-a", 0.25)]
    assert told("pipeline_drift", "field") == [("t", 2)]
    assert told("pipeline_unmet_expectations", "expectation") == [("positive", 4)]
