"""The route ``/metrics``, which Prometheus scrapes.

Rules:
1. Values are read when they are scraped, not sampled in between (see ``nodes``).
2. A node that is down has ``enmasse_node_up`` 0 and no other series, rather than old values.
3. Series are bounded: addresses have metrics of their own up to ``MAX_ADDRESSES``, consumers of streams up to
   ``MAX_CONSUMERS``, connectors up to ``MAX_CONNECTORS``; the number of addresses left out is a metric itself.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enmasse.api.metrics.catalogue import (
    ADDRESS_METRICS,
    API_METRICS,
    CANARY_METRICS,
    CONNECTOR_METRICS,
    CONSUMER_LABELS,
    CONTROL_METRICS,
    NODE_METRICS,
    PHASES,
    PIPELINE_METRICS,
    PREFIX,
    Metric,
)
from enmasse.model.schema.kinds import (
    ADDRESS_PLAN,
    ADDRESS_SPACE,
    ADDRESS_SPACE_PLAN,
    AUTHENTICATION_SERVICE,
    PIPELINE,
)
from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric as Family

    from enmasse.api.http_connections import HttpConnections
    from enmasse.api.kube.watch import Watches
    from enmasse.api.metrics.nodes import Canary, Figures
    from enmasse.control.ports import NodeFigures
    from enmasse.control.store.registry import Registry
    from enmasse.identity.throttle import LoginThrottle

MAX_ADDRESSES = 2_000
"""With some twenty series each, about as much as a Prometheus server can scrape from one target."""

MAX_CONSUMERS = 1_000

MAX_CONNECTORS = 1_000
"""Connectors with figures of their own."""

MAX_PIPELINES = 1_000
"""Pipelines with metrics of their own."""

_USED = {
    "address_space_sessions": "sessions",
    "address_space_subscriptions": "subscriptions",
    "address_space_subscription_bytes": "subscriptionBytes",
}
"""The figures of a space that count on its nodes together, by the metric."""

LOOP_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)

Document = dict[str, Any]
Maker = type[GaugeMetricFamily] | type[CounterMetricFamily]

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which is not used
_BY_NAME = {metric.name: metric for metric in (*CONTROL_METRICS, *NODE_METRICS)}


class ControllerTimes:
    """Durations of reconciliations."""

    def __init__(self) -> None:
        metric = _BY_NAME["standard_controller_loop_duration_seconds"]
        self.histogram = Histogram(metric.full_name, metric.help, registry=None, buckets=LOOP_BUCKETS)

    def observe(self, seconds: float) -> None:
        """Count one reconciliation."""
        self.histogram.observe(seconds)


@dataclass(frozen=True, slots=True)
class ApiFigures:
    """Figures of the API itself.

    Attributes:
        logins: by password.
        watches: all open ones.
        connections: the connections of all ports.
    """

    logins: LoginThrottle
    watches: Watches
    connections: HttpConnections | None = None

    def families(self) -> Iterator[Family]:
        """Yield every family."""
        yield from _families(API_METRICS, [([], self)])


def metrics_routes(
    registry: Registry,
    figures: Sequence[Figures],
    times: ControllerTimes,
    canaries: Sequence[Canary] = (),
    own: ApiFigures | None = None,
) -> list[Route]:
    """Return the route.

    Args:
        registry: the registry of the resources.
        figures: the figures of each node; without any, there are only metrics of control.
        times: the times of the controllers.
        canaries: the canaries of the nodes.
        own: of the API itself.
    """

    async def metrics(request: Request) -> Response:
        namespace, addressspace = map(request.query_params.get, ("namespace", "addressspace"))
        answers = await asyncio.gather(*(item.read() for item in figures))
        found = {item.name: answer for item, answer in zip(figures, answers, strict=True)}
        failures = sum(item.failures for item in figures)
        scrape = _Scrape(registry, found, failures, times, canaries, (namespace, addressspace))
        collected = CollectorRegistry(auto_describe=False)
        of_api = own.families() if own is not None and (namespace, addressspace) == (None, None) else ()
        collected.register(_Collected([*scrape.collect(), *of_api]))
        # Formatting thousands of addresses takes a second, in which the API serves other requests.
        text = await asyncio.to_thread(generate_latest, collected)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    return [Route("/metrics", metrics)]


class _Collected(Collector):
    """A collector of metrics that were computed before."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        """Yield them."""
        yield from self._families


class _Scrape:
    """The answer to one request.

    Args:
        registry: the registry of the resources.
        found: figures of each node, by name; None: it did not answer.
        failures: the number of times that nodes did not answer.
        times: the times of the controllers.
        canaries: the canaries of the nodes.
        only: namespace and space of the series; ``None`` for all.
    """

    def __init__(
        self,
        registry: Registry,
        found: Mapping[str, NodeFigures | None],
        failures: int,
        times: ControllerTimes,
        canaries: Sequence[Canary],
        only: tuple[str | None, str | None],
    ) -> None:
        self._registry = registry
        self._nodes = found
        self._up = {name: figures for name, figures in found.items() if figures is not None}
        self._failures = failures
        self._times = times
        self._canaries = canaries
        self._only = only

    def collect(self) -> Iterator[Family]:
        """Yield every family."""
        yield from self._declared()
        if self._only != (None, None):
            if self._up:
                yield from self._addresses()
            return
        yield _gauge("version", [([__version__], 1)])
        yield from self._platform()
        yield from self._times.histogram.collect()
        if not self._nodes:
            return
        yield _family(_BY_NAME["standard_controller_router_check_failures"], [([], self._failures)])
        if self._canaries:
            yield from _families(CANARY_METRICS, [([], self._canaries)])
        yield _gauge("router_mesh_not_connected_total", [([], len(self._nodes) - len(self._up))])
        yield _gauge("node_up", [([name], 1 if name in self._up else 0) for name in self._nodes])
        if self._up:
            waiting = sum(item.get("backlog") or 0 for found in self._up.values() for item in found.addresses)
            yield _gauge("router_mesh_undelivered_total", [([], waiting)])
            yield from _families(NODE_METRICS, [([name], found.statistics) for name, found in self._up.items()])
            yield from self._addresses()

    def _platform(self) -> Iterator[Family]:
        """Yield the metrics of what the operator declares, as EnMasse 1.0 names them."""
        for kind in (ADDRESS_SPACE_PLAN, ADDRESS_PLAN):
            plans = sorted({_key(plan)[1] for plan in self._registry.store.select(kind.name)})
            yield _gauge(f"{kind.name.lower()}_info", [([name], 1) for name in plans])
        services = [
            ([_key(service)[1], str(service["spec"]["type"])], 1 if _is_ready(service) else 0)
            for service in self._registry.store.select(AUTHENTICATION_SERVICE.name)
            if _key(service)[0] == PLAN_NAMESPACE
        ]
        yield _gauge("authentication_service_ready", services)
        nodes = [([name], 1 if name in self._up else 0) for name in self._nodes]
        yield _gauge("component_health", [(["control"], 1), *nodes])

    def _is_wanted(self, namespace: str, space: str) -> bool:
        return self._only[0] in (None, namespace) and self._only[1] in (None, space)

    # Declared objects

    def _declared(self) -> Iterator[Family]:
        store = self._registry.store
        spaces = [s for s in store.select(ADDRESS_SPACE.name) if self._is_wanted(*_key(s))]
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

        yield from _connectors(spaces)
        forwarders = self._registry.forwarders()
        rows = [([name, namespace], forwarders[f"{namespace}/{name}"]) for namespace, name in sorted(keys)]
        yield _gauge("addresses_forwarders_total", rows)
        yield _gauge("addresses_forwarders_ready_total", [(labels, 0) for labels, _ in rows])
        yield _gauge("addresses_forwarders_not_ready_total", rows)

        wanted = [p for p in store.select(PIPELINE.name) if self._is_wanted(_key(p)[0], _key(p)[1].partition(".")[0])]
        yield from _pipelines(wanted)

    # Addresses on nodes

    def _addresses(self) -> Iterator[Family]:
        wanted = []
        listed = [item for found in self._up.values() for item in found.addresses]
        for item in sorted(listed, key=lambda item: str(item.get("name"))):
            namespace, _, space = str(item.get("space") or "").partition("/")
            if self._is_wanted(namespace, space):
                labels = [namespace, space, str(item.get("address")), str(item.get("addressType"))]
                wanted.append((labels, item))
        # A node with very many addresses does not list all of them.
        on_nodes = sum(int(found.statistics.get("addresses") or 0) for found in self._up.values())
        known = len(wanted) if self._only != (None, None) else on_nodes
        yield _gauge("addresses_without_metrics", [([], max(0, max(known, len(wanted)) - MAX_ADDRESSES))])
        del wanted[MAX_ADDRESSES:]
        yield from _families(ADDRESS_METRICS, wanted)
        limits: dict[tuple[str, str], int] = {}
        used: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in _USED}
        for item in [item for found in self._up.values() for item in found.spaces]:
            namespace, _, space = str(item["name"]).partition("/")
            if not self._is_wanted(namespace, space):
                continue
            if item.get("maxBytes"):
                limits[space, namespace] = item["maxBytes"]  # all nodes know it, and one stores
            for name, attribute in _USED.items():
                used[name][space, namespace] += item.get(attribute) or 0
        yield _gauge("address_space_broker_global_max_size", [([*labels], most) for labels, most in limits.items()])
        for name, counts in used.items():
            yield _gauge(name, [([*labels], number) for labels, number in counts.items()])
        yield from _families(CONNECTOR_METRICS, list(itertools.islice(self._relays(), MAX_CONNECTORS)))

    def _relays(self) -> Iterator[tuple[list[str], Any]]:
        """Yield the connectors that nodes have, each with its labels."""
        for node, found in self._up.items():
            for item in found.spaces:
                namespace, _, space = str(item["name"]).partition("/")
                if self._is_wanted(namespace, space):
                    for connector in item.get("connectorStatus") or ():
                        yield [space, namespace, str(connector["name"]), node], connector


def _connectors(spaces: Iterable[Document]) -> Iterator[Family]:
    """Yield the metrics of connectors."""
    counts: list[tuple[list[str], float]] = []
    ready: list[tuple[list[str], float]] = []
    for space in spaces:
        namespace, name = _key(space)
        declared = space["spec"].get("connectors") or ()
        working = {item["name"] for item in space.get("status", {}).get("connectors") or () if item.get("isReady")}
        counts.append(([name, namespace], len(declared)))
        ready += [([name, namespace, item["name"]], 1 if item["name"] in working else 0) for item in declared]
    yield _gauge("address_space_connectors_total", counts)
    yield _gauge("address_space_connector_status_ready", ready)
    yield _gauge("address_space_connector_status_not_ready", [(labels, 1 - value) for labels, value in ready])


def _pipelines(pipelines: Iterable[Document]) -> Iterator[Family]:
    """Yield the metrics of pipelines, from their statuses."""
    phases: Counter[tuple[str, str, str]] = Counter()
    statuses: list[tuple[list[str], Any]] = []
    for item in pipelines:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        space, status = name.partition(".")[0], item.get("status", {})
        phases[space, namespace, str(status.get("phase") or "Pending")] += 1
        statuses.append(([name, space, namespace], status))
    yield _gauge("pipelines", [(list(key), number) for key, number in sorted(phases.items())])
    yield from _families(PIPELINE_METRICS, statuses[:MAX_PIPELINES])


def _families(metrics: Iterable[Metric], of: list[tuple[list[str], Any]]) -> Iterator[Family]:
    """Yield metrics with a sample for each object, given with its labels."""
    for metric in metrics:
        found = [(labels, value) for labels, one in of if (value := metric.value(one)) is not None]
        if metric.kind == "histogram":
            if found:
                yield _histogram(metric, found)
        elif metric.labels == CONSUMER_LABELS:
            yield _family(metric, list(_spread(found))[:MAX_CONSUMERS])
        elif metric.source or metric.read is not None:
            yield _family(metric, _spread(found))


def _spread(found: Iterable[tuple[list[str], Any]]) -> Iterator[tuple[list[str], float]]:
    """Yield samples; a map gives one for each key, which is the value of the last labels."""
    for labels, value in found:
        if not isinstance(value, dict):
            yield labels, value
            continue
        for key, number in value.items():
            yield [*labels, *(key if isinstance(key, tuple) else (str(key),))], number


def _gauge(name: str, rows: Iterable[tuple[list[str], float]]) -> Family:
    return _family(_BY_NAME[name], rows)


def _family(metric: Metric, rows: Iterable[tuple[list[str], float]]) -> Family:
    make: Maker = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(PREFIX + metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, found: Iterable[tuple[list[str], Document]]) -> Family:
    family = HistogramMetricFamily(PREFIX + metric.name, metric.help, labels=metric.labels)
    for labels, value in found:
        total = 0
        buckets = []
        for bound, count in zip([*map(str, value["bounds"]), "+Inf"], value["counts"], strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric(labels, buckets, value["sum"])
    return family


def _key(document: Document) -> tuple[str, str]:
    metadata = document["metadata"]
    return metadata["namespace"], metadata["name"]


def _is_ready(document: Document) -> bool:
    return bool(document.get("status", {}).get("isReady"))


def _phase(document: Document) -> str:
    return str(document.get("status", {}).get("phase") or "Pending").lower()
