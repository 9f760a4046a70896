"""``/metrics``: what Prometheus scrapes.

Rules:
1. Everything is read when it is asked for; nothing is sampled in between (see ``figures``).
2. A node that is down has ``enmasse_node_up`` 0 and no other series, rather than old ones.
3. Labels are bounded: addresses have metrics of their own up to ``MAX_ADDRESSES``, consumers of streams up to
   ``MAX_CONSUMERS``; how many addresses are left out is a metric itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from enmasse.api.metrics_catalogue import (
    ADDRESS_METRICS,
    CONTROL_METRICS,
    NODE_METRICS,
    PHASES,
    PREFIX,
    Metric,
)
from enmasse.api.metrics_pipelines import pipeline_figures
from enmasse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric as Family

    from enmasse.api.canary import Canary
    from enmasse.api.figures import Figures
    from enmasse.control.ports import NodeFigures
    from enmasse.control.registry import Registry

__all__ = ["MAX_ADDRESSES", "ControllerTimes", "metrics_routes"]

MAX_ADDRESSES = 2_000
"""With some twenty series each; a Prometheus server takes that from one target, and hardly more."""

MAX_CONSUMERS = 1_000

LOOP_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)

Document = dict[str, Any]
Maker = type[GaugeMetricFamily] | type[CounterMetricFamily]

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which nobody reads
_BY_NAME = {metric.name: metric for metric in (*CONTROL_METRICS, *NODE_METRICS, *ADDRESS_METRICS)}


class ControllerTimes:
    """How long the controller's looks took."""

    def __init__(self) -> None:
        metric = _BY_NAME["standard_controller_loop_duration_seconds"]
        self.histogram = Histogram(metric.full_name, metric.help, registry=None, buckets=LOOP_BUCKETS)

    def observe(self, seconds: float) -> None:
        """Count one look."""
        self.histogram.observe(seconds)


def metrics_routes(
    registry: Registry, figures: Figures | None, times: ControllerTimes, canary: Canary | None = None
) -> APIRouter:
    """Return the route.

    Args:
        registry: where the resources lie.
        figures: of the node; without, only control's own metrics are there.
        times: of the controller.
        canary: of the node.
    """
    router = APIRouter(tags=["operations"])

    @router.get("/metrics", summary="Metrics for Prometheus")
    async def metrics(namespace: str | None = None, addressspace: str | None = None) -> Response:
        found = None if figures is None else await figures.read()
        scrape = _Scrape(registry, figures, found, times, canary, (namespace, addressspace))
        collected = CollectorRegistry(auto_describe=False)
        collected.register(_Collected(list(scrape.collect())))
        # Thousands of addresses take a second to write down, and the API serves others meanwhile.
        text = await asyncio.to_thread(generate_latest, collected)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    return router


class _Collected(Collector):
    """What was collected before."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        """Yield it."""
        yield from self._families


class _Scrape:
    """All that one request is answered.

    Args:
        registry: where the resources lie.
        figures: of the node.
        found: what the node said just now.
        times: of the controller.
        canary: of the node.
        only: namespace and space whose series are wanted; ``None`` for all.
    """

    def __init__(
        self,
        registry: Registry,
        figures: Figures | None,
        found: NodeFigures | None,
        times: ControllerTimes,
        canary: Canary | None,
        only: tuple[str | None, str | None],
    ) -> None:
        self._registry = registry
        self._figures = figures
        self._found = found
        self._times = times
        self._canary = canary
        self._only = only

    def collect(self) -> Iterator[Family]:
        """Yield every family."""
        yield from self._declared()
        if self._only != (None, None):
            if self._found is not None:
                yield from self._addresses(self._found)
            return
        yield _gauge("version", [([__version__], 1)])
        yield from self._times.histogram.collect()
        if self._figures is None:
            return
        failures = self._figures.failures
        yield _family(_BY_NAME["standard_controller_router_check_failures"], [([], failures)])
        if self._canary is not None:
            yield _family(_BY_NAME["address_canary_health_failures"], [([], self._canary.failures)])
            yield _family(_BY_NAME["address_canary_health_check_failures"], [([], self._canary.check_failures)])
        yield _gauge("router_mesh_not_connected_total", [([], 0 if self._found else 1)])
        name = self._figures.name
        yield _gauge("node_up", [([name], 1 if self._found else 0)])
        if self._found is not None:
            waiting = sum(item.get("backlog") or 0 for item in self._found.addresses)
            yield _gauge("router_mesh_undelivered_total", [([], waiting)])
            yield from _of_node(name, self._found.statistics)
            yield from self._addresses(self._found)

    def _is_wanted(self, namespace: str, space: str) -> bool:
        return self._only[0] in (None, namespace) and self._only[1] in (None, space)

    # What is declared

    def _declared(self) -> Iterator[Family]:
        store = self._registry.store
        spaces = [s for s in store.select("AddressSpace") if self._is_wanted(*_key(s))]
        ready = [([name, namespace], 1 if _is_ready(s) else 0) for s in spaces for namespace, name in [_key(s)]]
        yield _gauge("address_space_status_ready", ready)
        yield _gauge("address_space_status_not_ready", [(labels, 1 - value) for labels, value in ready])
        phases = Counter(_phase(space) for space in spaces)
        yield _gauge("address_spaces_total", [([], len(spaces))])
        for phase in PHASES:
            yield _gauge(f"address_spaces_{phase}_total", [([], phases[phase])])
        keys = {_key(space) for space in spaces}
        counted: Counter[tuple[tuple[str, str], str]] = Counter()
        for (space, phase), number in self._registry.tally().items():
            namespace, _, name = space.partition("/")
            key = (namespace, name)
            if self._is_wanted(*key):
                keys.add(key)
                counted[key, phase.lower()] += number
                counted[key, "ready" if phase == "Active" else "not_ready"] += number
                counted[key, ""] += number
        for state in ("", "ready", "not_ready", *PHASES):
            rows = [([name, namespace], counted[(namespace, name), state]) for namespace, name in sorted(keys)]
            yield _gauge(f"addresses_{state}_total" if state else "addresses_total", rows)

        wanted = [p for p in store.select("Pipeline") if self._is_wanted(_key(p)[0], _key(p)[1].partition(".")[0])]
        for metric, figures in pipeline_figures(wanted):
            yield _gauge(metric, figures)

    # What the node says of addresses

    def _addresses(self, found: NodeFigures) -> Iterator[Family]:
        wanted = []
        for item in sorted(found.addresses, key=lambda item: str(item.get("name"))):
            namespace, _, space = str(item.get("space") or "").partition("/")
            if self._is_wanted(namespace, space):
                labels = [namespace, space, str(item.get("address")), str(item.get("addressType"))]
                wanted.append((labels, item))
        # Of a node with very many addresses not all were asked for.
        known = len(wanted) if self._only != (None, None) else int(found.statistics.get("addresses") or 0)
        yield _gauge("addresses_without_metrics", [([], max(0, max(known, len(wanted)) - MAX_ADDRESSES))])
        del wanted[MAX_ADDRESSES:]
        for metric in ADDRESS_METRICS:
            if metric.source:
                rows = [(labels, value) for labels, item in wanted if (value := item.get(metric.source)) is not None]
                yield _family(metric, rows)
        consumers = [
            ([*labels, str(one["name"]), str(one["partition"])], one["lag"])
            for labels, item in wanted
            for one in item.get("consumers") or ()
        ]
        yield _gauge("consumer_lag", consumers[:MAX_CONSUMERS])
        limits = []
        for item in found.spaces:
            namespace, _, space = str(item["name"]).partition("/")
            if item.get("maxBytes") and self._is_wanted(namespace, space):
                limits.append(([space, namespace], item["maxBytes"]))
        yield _gauge("address_space_broker_global_max_size", limits)


def _of_node(name: str, statistics: Document) -> Iterator[Family]:
    for metric in NODE_METRICS:
        value = statistics.get(metric.source) if metric.source else None
        if value is None:
            continue
        if metric.kind == "histogram":
            yield _histogram(metric, [name], value)
        else:
            yield _family(metric, [([name], float(value) * metric.scale)])
    yield _gauge("node_info", [([name, str(statistics.get("version"))], 1)])
    yield _gauge("journal_failing", [([name], 1 if statistics.get("journalFailure") else 0)])
    events = statistics.get("events") or {}
    yield _family(_BY_NAME["node_events"], [([name, str(event)], count) for event, count in events.items()])


def _gauge(name: str, rows: Iterable[tuple[list[str], float]]) -> Family:
    return _family(_BY_NAME[name], rows)


def _family(metric: Metric, rows: Iterable[tuple[list[str], float]]) -> Family:
    make: Maker = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(PREFIX + metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, labels: list[str], told: Document) -> Family:
    family = HistogramMetricFamily(PREFIX + metric.name, metric.help, labels=metric.labels)
    total = 0
    buckets = []
    for bound, count in zip([*map(str, told["bounds"]), "+Inf"], told["counts"], strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(labels, buckets, told["sum"])
    return family


def _key(document: Document) -> tuple[str, str]:
    metadata = document["metadata"]
    return metadata["namespace"], metadata["name"]


def _is_ready(document: Document) -> bool:
    return bool(document.get("status", {}).get("isReady"))


def _phase(document: Document) -> str:
    return str(document.get("status", {}).get("phase") or "Pending").lower()
