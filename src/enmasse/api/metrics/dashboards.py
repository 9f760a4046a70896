"""Dashboards for Grafana, made from the catalogue of metrics: the installation, a space, pipelines and devices.

    python -m enmasse.api.metrics.dashboards deploy/grafana

writes a file for each, to be imported or provisioned; a test checks that they are up to date. What a panel says of
its figures is what the catalogue says of the metrics.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from enmasse.api.metrics.catalogue import (
    ADDRESS_METRICS,
    CONNECTOR_METRICS,
    CONTROL_METRICS,
    NODE_METRICS,
    SPACE_LABELS,
    Metric,
)

_METRICS: Final = {
    metric.name: metric for metric in (*CONTROL_METRICS, *NODE_METRICS, *ADDRESS_METRICS, *CONNECTOR_METRICS)
}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_VERSION: Final = 39
"""Of Grafana's model of dashboards: Grafana 10 and 11 have it, and later ones read it."""
_COLUMNS: Final = 24
_HEIGHT: Final = 8
_LOW: Final = 4
"""The height of a figure that stands alone."""


@dataclass(frozen=True, slots=True)
class _Query:
    """A line of a panel.

    Attributes:
        metric: its name in the catalogue.
        by: the labels that the lines have; without them it is one.
        how: the figure: the sum or the most of a gauge, the rate of a counter, its increase within the time shown, or
            the seconds in which 99 of 100 of a histogram's are done.
        where: a further matcher, such as ``type="queue"``.
        legend: the name of the line; empty: the labels' values.
    """

    metric: str
    by: tuple[str, ...] = ()
    how: Literal["sum", "max", "min", "rate", "increase", "p99"] = "sum"
    where: str = ""
    legend: str = ""

    @property
    def found(self) -> Metric:
        return _METRICS[self.metric]

    def expression(self, variables: tuple[str, ...]) -> str:
        """Return it in Prometheus' language, within what the variables of a dashboard choose."""
        metric = self.found
        name_label = "name" if metric.labels[:2] == SPACE_LABELS else "addressspace"
        labels = {"namespace": "namespace", "addressspace": name_label, "node": "node", "pipeline": "pipeline"}
        matchers = [
            f'{labels[variable]}=~"${variable}"' for variable in variables if labels[variable] in metric.labels
        ]
        chosen = ",".join([*matchers, *filter(None, [self.where])])
        series = metric.full_name + ("_bucket" if self.how == "p99" else "") + (f"{{{chosen}}}" if chosen else "")
        group = f" by ({', '.join(self.by)})" if self.by else ""
        match self.how:
            case "rate":
                return f"sum{group} (rate({series}[$__rate_interval]))"
            case "increase":
                return f"sum{group} (increase({series}[$__range]))"
            case "p99":
                buckets = ", ".join(("le", *self.by))
                return f"histogram_quantile(0.99, sum by ({buckets}) (rate({series}[$__rate_interval])))"
            case how:
                return f"{how}{group} ({series})"


@dataclass(frozen=True, slots=True)
class _Panel:
    """A picture: lines over time, or one figure.

    Attributes:
        title: its title.
        queries: its lines.
        unit: Grafana's name of the unit.
        width: columns, of 24.
        is_figure: the latest value alone, in large letters.
        bad: from which value on a figure is shown in red.
        good: the value that is shown in green where all others are red; None: all are, up to ``bad``.
    """

    title: str
    queries: tuple[_Query, ...]
    unit: str = "short"
    width: int = 12
    is_figure: bool = False
    bad: float | None = None
    good: float | None = None


@dataclass(frozen=True, slots=True)
class _Dashboard:
    """A dashboard: panels in rows of 24 columns, and what may be chosen above them.

    Attributes:
        name: the name of its file, and a part of its id.
        title: its title.
        about: what it shows.
        variables: the labels whose values are chosen, each with the metric that tells them.
        panels: its panels, left to right.
    """

    name: str
    title: str
    about: str
    variables: tuple[tuple[str, str], ...]
    panels: tuple[_Panel, ...]


_ADDRESS: Final = ("address",)
_NODE: Final = ("node",)
_PIPELINE: Final = ("pipeline",)
_OF_QUERY: Final = ("pipeline", "query")
_OF_DEVICES: Final = 'address=~"(telemetry|event|command|command_response)/.*"'


def _figure(
    title: str, query: _Query, unit: str = "short", *, bad: float | None = None, good: float | None = None
) -> _Panel:
    return _Panel(title, (query,), unit, 4, is_figure=True, bad=bad, good=good)


DASHBOARDS: Final = (
    _Dashboard(
        "installation",
        "EnMasse: installation",
        "Nodes, their journals, the API, and all spaces in sum.",
        (("node", "node_up"),),
        (
            _figure("Nodes that answer", _Query("node_up"), bad=None),
            _figure("Nodes that do not", _Query("router_mesh_not_connected_total"), bad=1),
            _figure("Spaces not ready", _Query("address_space_status_not_ready"), bad=1),
            _figure("Addresses not ready", _Query("addresses_not_ready_total"), bad=1),
            _figure("Canaries lost", _Query("address_canary_health_failures", how="increase"), bad=1),
            _figure("Journals that fail", _Query("journal_failing"), bad=1),
            _Panel("Messages in, by space", (_Query("messages_in", ("addressspace",), "rate"),), "cps"),
            _Panel("Messages out, by space", (_Query("messages_out", ("addressspace",), "rate"),), "cps"),
            _Panel("Connections", (_Query("node_connections", _NODE),)),
            _Panel("Processor", (_Query("node_cpu_seconds", _NODE, "rate"),), "percentunit"),
            _Panel("Memory", (_Query("node_memory_bytes", _NODE),), "bytes"),
            _Panel("Delay of a node's turns", (_Query("node_turn_lag_seconds", _NODE, "p99"),), "s"),
            _Panel("Time to the disk and back", (_Query("journal_commit_seconds", _NODE, "p99"),), "s"),
            _Panel(
                "Disk",
                (
                    _Query("node_disk_free_bytes", _NODE, "min", legend="{{node}}: free"),
                    _Query("journal_file_bytes", _NODE, legend="{{node}}: journal"),
                ),
                "bytes",
            ),
            _Panel(
                "Who was not let in",
                (
                    _Query("node_logins_failed", how="rate", legend="wrong logins"),
                    _Query("node_logins_delayed", how="rate", legend="logins not looked at"),
                    _Query("node_turned_away", how="rate", legend="turned away"),
                    _Query("node_handshake_timeouts", how="rate", legend="too slow"),
                ),
                "cps",
            ),
            _Panel(
                "Room for what is on its way",
                (
                    _Query("node_unfinished_bytes", _NODE, legend="{{node}}: unfinished messages"),
                    _Query("node_unread_bytes", _NODE, legend="{{node}}: unread by clients"),
                    _Query("node_transaction_bytes", _NODE, legend="{{node}}: transactions"),
                ),
                "bytes",
            ),
            _Panel("What the logs tell", (_Query("node_events", ("event",), "rate"),), "cps"),
            _Panel("Reconciling", (_Query("standard_controller_loop_duration_seconds", how="p99"),), "s"),
        ),
    ),
    _Dashboard(
        "space",
        "EnMasse: space",
        "The addresses of a space: what comes, what goes, what waits, and what became of it; its connectors.",
        (("namespace", "address_space_status_ready"), ("addressspace", "messages_in")),
        (
            _figure("Ready", _Query("address_space_status_ready", how="min"), good=1),
            _figure("Addresses", _Query("addresses_total")),
            _figure("Not ready", _Query("addresses_not_ready_total"), bad=1),
            _figure("Senders", _Query("senders")),
            _figure("Receivers", _Query("receivers")),
            _figure("Stored", _Query("bytes_stored"), "bytes"),
            _Panel("Messages in", (_Query("messages_in", _ADDRESS, "rate"),), "cps"),
            _Panel("Messages out", (_Query("messages_out", _ADDRESS, "rate"),), "cps"),
            _Panel("Stored messages", (_Query("messages_stored", _ADDRESS),)),
            _Panel("Lag of consumers of streams", (_Query("consumer_lag", ("address", "consumer")),)),
            _Panel("Deliveries under way", (_Query("unsettled", _ADDRESS),)),
            _Panel(
                "Credit",
                (
                    _Query("credit_asked", _ADDRESS, legend="{{address}}: of receivers"),
                    _Query("credit_granted", _ADDRESS, legend="{{address}}: of senders"),
                ),
            ),
            _Panel(
                "Outcomes",
                tuple(
                    _Query(name, how="rate", legend=name) for name in ("accepted", "rejected", "released", "modified")
                ),
                "cps",
            ),
            _Panel(
                "Not delivered",
                (
                    _Query("dropped", how="rate", legend="dropped"),
                    _Query("expired", how="rate", legend="expired"),
                    _Query("dead_lettered", how="rate", legend="dead letters"),
                ),
                "cps",
            ),
            _Panel(
                "Sessions and subscriptions",
                (
                    _Query("address_space_sessions", legend="sessions"),
                    _Query("address_space_subscriptions", legend="subscriptions"),
                ),
            ),
            _Panel("Memory of these", (_Query("address_space_subscription_bytes", ("name",)),), "bytes"),
            _Panel("Connectors that work", (_Query("connector_up", ("connector", "node"), "min"),)),
            _Panel(
                "Messages of connectors",
                (
                    _Query("connector_messages_sent", ("connector",), "rate", legend="{{connector}}: there"),
                    _Query("connector_messages_received", ("connector",), "rate", legend="{{connector}}: from there"),
                ),
                "cps",
            ),
        ),
    ),
    _Dashboard(
        "pipelines",
        "EnMasse: pipelines",
        "How far pipelines are, how long their batches take, and which rows were left out, and why.",
        (("namespace", "pipelines"), ("addressspace", "pipelines"), ("pipeline", "pipeline_rows")),
        (
            _figure("Running", _Query("pipelines", where='phase="Running"')),
            _figure("Failed", _Query("pipelines", where='phase="Failed"'), bad=1),
            _figure("Queries that rest", _Query("pipeline_query_running", how="min"), good=1),
            _figure("Restarts", _Query("pipeline_query_restarts"), bad=1),
            _figure("Bad records", _Query("pipeline_bad_records"), bad=1),
            _figure("Failed rows", _Query("pipeline_failed_rows"), bad=1),
            _Panel("Rows a second", (_Query("pipeline_rows_per_second", _PIPELINE),), "cps"),
            _Panel("Lag", (_Query("pipeline_lag", _PIPELINE),)),
            _Panel("Batches", (_Query("pipeline_query_batch_duration_seconds", _OF_QUERY, "max"),), "s"),
            _Panel(
                "Watermarks behind the clock",
                (_Query("pipeline_query_watermark_delay_seconds", _OF_QUERY, "max"),),
                "s",
            ),
            _Panel("State", (_Query("pipeline_query_state_bytes", _OF_QUERY),), "bytes"),
            _Panel("Late rows", (_Query("pipeline_query_late_rows", _OF_QUERY),)),
            _Panel("Drift", (_Query("pipeline_drift", ("pipeline", "source", "field")),)),
            _Panel(
                "Unmet expectations",
                (_Query("pipeline_unmet_expectations", ("pipeline", "relation", "expectation")),),
            ),
        ),
    ),
    _Dashboard(
        "devices",
        "EnMasse: devices",
        "Telemetry, events and commands of devices, by tenant: each tenant has addresses of its own.",
        (("namespace", "address_space_status_ready"), ("addressspace", "messages_in")),
        (
            _figure("Telemetry a second", _Query("messages_in", how="rate", where='address=~"telemetry/.*"'), "cps"),
            _figure("Events a second", _Query("messages_in", how="rate", where='address=~"event/.*"'), "cps"),
            _figure("Events that wait", _Query("messages_stored", where='address=~"event/.*"')),
            _figure("Commands a second", _Query("messages_in", how="rate", where='address=~"command/.*"'), "cps"),
            _figure("Connections", _Query("node_connections")),
            _figure("Wrong logins", _Query("node_logins_failed", how="increase")),
            _Panel("From devices, and to them", (_Query("messages_in", _ADDRESS, "rate", where=_OF_DEVICES),), "cps"),
            _Panel("Stored events", (_Query("messages_stored", _ADDRESS, where='address=~"event/.*"'),)),
            _Panel("Who listens", (_Query("receivers", _ADDRESS, where=_OF_DEVICES),)),
            _Panel(
                "Not delivered",
                (
                    _Query("released", _ADDRESS, "rate", where=_OF_DEVICES, legend="{{address}}: nobody took it"),
                    _Query("rejected", _ADDRESS, "rate", where=_OF_DEVICES, legend="{{address}}: rejected"),
                    _Query("expired", _ADDRESS, "rate", where=_OF_DEVICES, legend="{{address}}: expired"),
                ),
                "cps",
            ),
            _Panel("Sessions", (_Query("address_space_sessions", ("name",)),)),
            _Panel("Lag of pipelines", (_Query("pipeline_lag", _PIPELINE),)),
        ),
    ),
)


def documents() -> dict[str, dict[str, Any]]:
    """Return the dashboards in Grafana's JSON model, by the names of their files without ``.json``."""
    return {dashboard.name: _document(dashboard) for dashboard in DASHBOARDS}


def _document(dashboard: _Dashboard) -> dict[str, Any]:
    names = tuple(name for name, _ in dashboard.variables)
    return {
        "uid": f"enmasse-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["enmasse"],
        "schemaVersion": _VERSION,
        "editable": True,
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "links": [
            {
                "title": "EnMasse",
                "type": "dashboards",
                "tags": ["enmasse"],
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": [_data_source(), *(_variable(names, *one) for one in dashboard.variables)]},
        "panels": list(_placed(dashboard.panels, names)),
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1}


def _variable(names: tuple[str, ...], name: str, metric: str) -> dict[str, Any]:
    found = _METRICS[metric]
    label = "name" if name == "addressspace" and found.labels[:2] == SPACE_LABELS else name
    before = names[: names.index(name)]
    within = ",".join(f'{one}=~"${one}"' for one in before if one in found.labels)
    query = f"label_values({found.full_name}{{{within}}}, {label})"
    return {
        "name": name,
        "label": {"addressspace": "space"}.get(name, name),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "A"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
    }


def _placed(panels: tuple[_Panel, ...], variables: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    column = row = height = 0
    for number, panel in enumerate(panels, start=1):
        if column + panel.width > _COLUMNS:
            column, row = 0, row + height
        height = _LOW if panel.is_figure else _HEIGHT
        yield {
            "id": number,
            "title": panel.title,
            "description": " ".join(dict.fromkeys(query.found.help for query in panel.queries)),
            "type": "stat" if panel.is_figure else "timeseries",
            "datasource": _SOURCE,
            "gridPos": {"x": column, "y": row, "w": panel.width, "h": height},
            "targets": [_target(index, query, variables) for index, query in enumerate(panel.queries)],
            **(_look_of_figure(panel) if panel.is_figure else _look_of_lines(panel)),
        }
        column += panel.width


def _target(index: int, query: _Query, variables: tuple[str, ...]) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + index),
        "datasource": _SOURCE,
        "expr": query.expression(variables),
        "legendFormat": query.legend or " ".join(f"{{{{{label}}}}}" for label in query.by) or query.found.full_name,
    }


def _look_of_figure(panel: _Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "text", "value": None}]
    if panel.good is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.good}]
    elif panel.bad is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.bad}]
    defaults = {"unit": panel.unit, "noValue": "0", "thresholds": {"mode": "absolute", "steps": steps}}
    calculated = {"values": False, "calcs": ["lastNotNull"], "fields": ""}
    return {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"reduceOptions": calculated, "colorMode": "value", "graphMode": "area", "textMode": "value"},
    }


def _look_of_lines(panel: _Panel) -> dict[str, Any]:
    defaults = {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}}
    return {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def written(document: dict[str, Any]) -> str:
    """Return a dashboard as its file has it."""
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in documents().items():
        (folder / f"{name}.json").write_text(written(document), encoding="utf-8")
