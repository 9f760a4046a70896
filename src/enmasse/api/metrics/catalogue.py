"""The catalogue of metrics: name, type, labels, meaning, and the source of the value.

    python -m enmasse.api.metrics.catalogue docs/reference/metrics.md

updates the tables of the reference; a test checks that they are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

PREFIX = "enmasse_"

ADDRESS_LABELS = ("namespace", "addressspace", "address", "type")
CONSUMER_LABELS = (*ADDRESS_LABELS, "consumer", "partition")
SPACE_LABELS = ("name", "namespace")
COUNT_LABELS = ("addressspace", "namespace")
CONNECTOR_LABELS = (*SPACE_LABELS, "connector")
RELAY_LABELS = (*COUNT_LABELS, "connector", "node")
NODE_LABELS = ("node",)
PIPELINE_LABELS = ("pipeline", "addressspace", "namespace")
QUERY_LABELS = (*PIPELINE_LABELS, "query")

BEGIN, END = "<!-- begin: generated -->", "<!-- end: generated -->"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: without the prefix, and for counters without ``_total``.
        kind: the type in Prometheus.
        help: one sentence.
        labels: names of its labels.
        source: the attribute of the node's entity with the value.
        scale: the factor of the attribute.
        read: returns the value where it is not an attribute, from the figures of the API, the canaries, the status of
            a pipeline, the statistics of a node, an address, or a connector. None gives no sample; a map gives one
            for each value of the last labels. Without source and read, ``metrics`` computes the value.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    source: str = ""
    scale: float = 1.0
    read: Callable[[Any], Any] | None = None

    def value(self, of: Any) -> Any:
        """Return the value for one object; None: it has none."""
        if self.read is not None:
            return self.read(of)
        found = of.get(self.source)
        return found if found is None or isinstance(found, dict) else float(found) * self.scale

    @property
    def full_name(self) -> str:
        """The name in Prometheus."""
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")


def _sum_of_queries(status: dict[str, Any], field: str) -> int:
    return sum(query.get(field) or 0 for query in status.get("queries") or ())


def _by_query(field: str, scale: float = 1.0) -> Callable[[dict[str, Any]], dict[str, float]]:
    """Return what reads a field of each query of a pipeline's status."""

    def read(status: dict[str, Any]) -> dict[str, float]:
        found = {query["name"]: query.get(field) for query in status.get("queries") or ()}
        return {name: value * scale for name, value in found.items() if value is not None}

    return read


def _most_of(status: dict[str, Any], field: str, key: tuple[str, ...], count: str) -> dict[tuple[str, ...], int]:
    """Return counts that several queries have of the same rows, as the one has it that has read most."""
    most: dict[tuple[str, ...], int] = {}
    for query in status.get("queries") or ():
        for item in query.get(field) or ():
            name = tuple(str(item.get(part) or "") for part in key)
            most[name] = max(most.get(name, 0), int(item.get(count) or 0))
    return most


PHASES = ("pending", "configuring", "active", "failed", "terminating")

CANARY_METRICS: tuple[Metric, ...] = (
    Metric(
        "address_canary_health_failures",
        "counter",
        "Messages of control itself that a node did not give back.",
        read=lambda canaries: sum(canary.failures for canary in canaries),
    ),
    Metric(
        "address_canary_health_check_failures",
        "counter",
        "Times that control could not send such a message, because the node was not reachable.",
        read=lambda canaries: sum(canary.check_failures for canary in canaries),
    ),
)

API_METRICS: tuple[Metric, ...] = (
    Metric(
        "api_connections",
        "gauge",
        "Connections to the API.",
        read=lambda api: None if api.connections is None else len(api.connections),
    ),
    Metric(
        "api_turned_away",
        "counter",
        "Connections to the API that were closed because there were too many.",
        read=lambda api: None if api.connections is None else api.connections.turned_away,
    ),
    Metric(
        "api_timeouts",
        "counter",
        "Connections that took too long to ask, or to fetch the answer.",
        read=lambda api: None if api.connections is None else api.connections.timed_out,
    ),
    Metric("api_watches", "gauge", "Watches that are open.", read=lambda api: len(api.watches)),
    Metric(
        "api_watches_refused",
        "counter",
        "Watches that were refused or ended because there were too many.",
        read=lambda api: api.watches.refused,
    ),
    Metric(
        "api_logins_delayed",
        "counter",
        "Logins at the API that were not looked at, because too many had failed.",
        read=lambda api: api.logins.delayed,
    ),
)

PIPELINE_METRICS: tuple[Metric, ...] = (
    Metric(
        "pipeline_rows",
        "gauge",
        "Rows that a pipeline read since its runner started.",
        PIPELINE_LABELS,
        read=lambda status: status.get("rows") or 0,
    ),
    Metric(
        "pipeline_lag", "gauge", "Rows that are there for a pipeline and were not read yet.", PIPELINE_LABELS, "lag"
    ),
    Metric("pipeline_rows_per_second", "gauge", "Rows that a pipeline reads a second.", PIPELINE_LABELS, "rate"),
    Metric(
        "pipeline_query_restarts",
        "gauge",
        "Times that queries of a pipeline failed and were started again, since its runner started.",
        PIPELINE_LABELS,
        read=lambda status: _sum_of_queries(status, "restarts"),
    ),
    Metric(
        "pipeline_bad_records",
        "gauge",
        "Messages that a pipeline could not decode or deliver, since its runner started.",
        PIPELINE_LABELS,
        read=lambda status: _sum_of_queries(status, "badRecords"),
    ),
    Metric(
        "pipeline_query_running",
        "gauge",
        "1 while a query of a pipeline runs or waits for rows, 0 while it does not; none while it is not to.",
        QUERY_LABELS,
        read=lambda status: {
            query["name"]: int(query.get("state") in ("Running", "Waiting"))
            for query in status.get("queries") or ()
            if query.get("state") not in ("Paused", "Finished")
        },
    ),
    Metric("pipeline_query_lag", "gauge", "Rows that a query did not read yet.", QUERY_LABELS, read=_by_query("lag")),
    Metric(
        "pipeline_query_rows_per_second",
        "gauge",
        "Rows that a query dealt with in a second of its last batch.",
        QUERY_LABELS,
        read=_by_query("processedRowsPerSecond"),
    ),
    Metric(
        "pipeline_query_batch_duration_seconds",
        "gauge",
        "How long the last batch of a query took, without waiting for rows.",
        QUERY_LABELS,
        read=_by_query("batchDurationMs", 0.001),
    ),
    Metric(
        "pipeline_query_watermark_delay_seconds",
        "gauge",
        "How far a query's watermark was behind the clock at its last report.",
        QUERY_LABELS,
        read=_by_query("watermarkDelayMs", 0.001),
    ),
    Metric(
        "pipeline_query_late_rows",
        "gauge",
        "Rows that came behind the watermark and were left out, since the runner started.",
        QUERY_LABELS,
        read=_by_query("lateRows"),
    ),
    Metric(
        "pipeline_query_state_rows", "gauge", "Rows of a query's state.", QUERY_LABELS, read=_by_query("stateRows")
    ),
    Metric(
        "pipeline_query_state_bytes",
        "gauge",
        "Bytes of memory of a query's state.",
        QUERY_LABELS,
        read=_by_query("stateBytes"),
    ),
    Metric(
        "pipeline_drift",
        "gauge",
        "Messages of a source that did not fit its schema, by column (empty: as a whole), since the runner started.",
        (*PIPELINE_LABELS, "source", "field"),
        read=lambda status: _most_of(status, "drift", ("source", "field"), "count"),
    ),
    Metric(
        "pipeline_unmet_expectations",
        "gauge",
        "Rows of a relation that did not meet an expectation, since the runner started.",
        (*PIPELINE_LABELS, "relation", "expectation"),
        read=lambda status: _most_of(status, "expectations", ("relation", "name"), "failed"),
    ),
    Metric(
        "pipeline_failed_rows",
        "gauge",
        "Rows of a relation that an expression failed for, since the runner started.",
        (*PIPELINE_LABELS, "relation"),
        read=lambda status: _most_of(status, "failedRows", ("relation",), "count"),
    ),
)

CONTROL_METRICS: tuple[Metric, ...] = (
    Metric("version", "gauge", "1, with the version as a label.", ("version",)),
    Metric("addressspaceplan_info", "gauge", "1 for each plan of spaces.", ("addressspaceplan",)),
    Metric("addressplan_info", "gauge", "1 for each plan of addresses.", ("addressplan",)),
    Metric(
        "authentication_service_ready",
        "gauge",
        "1 if an authentication service is ready.",
        ("authservice_name", "authservice_type"),
    ),
    Metric(
        "component_health",
        "gauge",
        "1 if a process of the installation answers: control and each node, by the name that it has.",
        ("job",),
    ),
    Metric("address_space_status_ready", "gauge", "1 if the space is ready.", SPACE_LABELS),
    Metric("address_space_status_not_ready", "gauge", "1 if the space is not ready.", SPACE_LABELS),
    Metric("address_spaces_total", "gauge", "Declared spaces."),
    *(Metric(f"address_spaces_{phase}_total", "gauge", f"Spaces in phase {phase}.") for phase in PHASES),
    Metric("address_space_connectors_total", "gauge", "Declared connectors of a space.", SPACE_LABELS),
    Metric("address_space_connector_status_ready", "gauge", "1 if a connector works.", CONNECTOR_LABELS),
    Metric("address_space_connector_status_not_ready", "gauge", "1 if a connector does not work.", CONNECTOR_LABELS),
    Metric("addresses_forwarders_total", "gauge", "Declared forwarders of a space's addresses.", COUNT_LABELS),
    Metric(
        "addresses_forwarders_ready_total",
        "gauge",
        "Forwarders of a space's addresses that work: none in this version.",
        COUNT_LABELS,
    ),
    Metric("addresses_forwarders_not_ready_total", "gauge", "Forwarders that do not work.", COUNT_LABELS),
    Metric("addresses_total", "gauge", "Declared addresses of a space.", COUNT_LABELS),
    Metric("addresses_ready_total", "gauge", "Addresses of a space that are ready.", COUNT_LABELS),
    Metric("addresses_not_ready_total", "gauge", "Addresses of a space that are not ready.", COUNT_LABELS),
    *(Metric(f"addresses_{phase}_total", "gauge", f"Addresses in phase {phase}.", COUNT_LABELS) for phase in PHASES),
    Metric(
        "address_space_broker_global_max_size",
        "gauge",
        "Bytes that all addresses of a space may store together; spaces without such a limit are left out.",
        SPACE_LABELS,
    ),
    Metric("address_space_sessions", "gauge", "Sessions of a space that outlive their connections.", SPACE_LABELS),
    Metric(
        "address_space_subscriptions",
        "gauge",
        "Filters of a space's MQTT clients, and subscriptions that other receivers made at its topics.",
        SPACE_LABELS,
    ),
    Metric(
        "address_space_subscription_bytes",
        "gauge",
        "Bytes of memory that sessions, wills and subscriptions of a space take.",
        SPACE_LABELS,
    ),
    Metric(
        "standard_controller_loop_duration_seconds",
        "histogram",
        "How long reconciling took, one object each: a space, an address, a user, a plan.",
    ),
    Metric(
        "standard_controller_router_check_failures",
        "counter",
        "Times that a node did not answer when it was asked how it is.",
    ),
    *CANARY_METRICS,
    *API_METRICS,
    Metric("router_mesh_not_connected_total", "gauge", "Nodes that do not answer."),
    Metric(
        "router_mesh_undelivered_total",
        "gauge",
        "Messages for direct addresses that wait in nodes, because their receivers' connections are full.",
    ),
    Metric("addresses_without_metrics", "gauge", "Addresses beyond the bound, which have no metrics of their own."),
    Metric("pipelines", "gauge", "Declared pipelines of a space in each phase.", (*COUNT_LABELS, "phase")),
    *PIPELINE_METRICS,
)

NODE_METRICS: tuple[Metric, ...] = (
    Metric("node_up", "gauge", "1 if the node answered within two seconds.", NODE_LABELS),
    Metric("node_ready", "gauge", "1 if it is ready, as its /readyz says.", NODE_LABELS, "ready"),
    Metric(
        "node_info",
        "gauge",
        "1, with the node's version as a label.",
        ("node", "version"),
        read=lambda node: {str(node.get("version")): 1},
    ),
    Metric("node_start_time_seconds", "gauge", "When it was started, since 1970.", NODE_LABELS, "startedAt", 0.001),
    Metric("node_cpu_seconds", "counter", "Processor time that the node's process used.", NODE_LABELS, "cpuSeconds"),
    Metric("node_memory_bytes", "gauge", "Memory of its own that the process has.", NODE_LABELS, "memoryBytes"),
    Metric("node_connections", "gauge", "Open connections.", NODE_LABELS, "connections"),
    Metric("node_half_open", "gauge", "Connections still in their handshake.", NODE_LABELS, "halfOpen"),
    Metric(
        "node_turned_away",
        "counter",
        "Connections that were dropped because too many were half-open.",
        NODE_LABELS,
        "turnedAway",
    ),
    Metric(
        "node_handshake_timeouts",
        "counter",
        "Connections that did not get through their handshake in time.",
        NODE_LABELS,
        "handshakeTimeouts",
    ),
    Metric(
        "node_unfinished_bytes",
        "gauge",
        "Room given out to messages and frames whose end has not come.",
        NODE_LABELS,
        "unfinishedBytes",
    ),
    Metric(
        "node_unfinished_waiting",
        "gauge",
        "Connections that are left unread until there is such room.",
        NODE_LABELS,
        "unfinishedWaiting",
    ),
    Metric(
        "node_unfinished_given_up",
        "counter",
        "Unfinished messages that were ended, as others needed their room.",
        NODE_LABELS,
        "unfinishedGivenUp",
    ),
    Metric(
        "node_unread_bytes",
        "gauge",
        "Room given out to what was made for clients that have yet to read it, beyond the share of each.",
        NODE_LABELS,
        "unreadBytes",
    ),
    Metric("node_unread_limit_bytes", "gauge", "The room that there is for that.", NODE_LABELS, "unreadLimit"),
    Metric(
        "node_unread_waiting",
        "gauge",
        "Connections that find no such room: they wait until they have read what there is for them.",
        NODE_LABELS,
        "unreadWaiting",
    ),
    Metric(
        "node_unread_given_up",
        "counter",
        "Answers and connections that were ended, as others needed their room.",
        NODE_LABELS,
        "unreadGivenUp",
    ),
    Metric(
        "node_transaction_bytes",
        "gauge",
        "Room given out to messages of transactions that are not discharged.",
        NODE_LABELS,
        "transactionBytes",
    ),
    Metric(
        "node_transactions_given_up",
        "counter",
        "Transactions that were made to roll back, as others needed their room.",
        NODE_LABELS,
        "transactionsGivenUp",
    ),
    Metric("node_logins_failed", "counter", "Logins that were refused.", NODE_LABELS, "loginsFailed"),
    Metric(
        "node_logins_delayed",
        "counter",
        "Logins that were not looked at, because too many had failed.",
        NODE_LABELS,
        "loginsDelayed",
    ),
    Metric(
        "node_passwords_waiting",
        "gauge",
        "Logins that wait for the check of their password.",
        NODE_LABELS,
        "passwordsWaiting",
    ),
    Metric("node_links", "gauge", "Attached links.", NODE_LABELS, "links"),
    Metric("node_spaces", "gauge", "Spaces that it serves.", NODE_LABELS, "spaces"),
    Metric("node_addresses", "gauge", "Addresses that it serves.", NODE_LABELS, "addresses"),
    Metric(
        "node_events",
        "counter",
        "What its log tells, whether a line was left out or not.",
        ("node", "event"),
        read=lambda node: node.get("events") or {},
    ),
    Metric(
        "node_turn_lag_seconds",
        "histogram",
        "How late the event loop came to what was due; looked at four times a second.",
        NODE_LABELS,
        "turnLags",
    ),
    Metric(
        "node_recent_turn_lag_seconds",
        "gauge",
        "The longest such delay of the last ten to twenty seconds.",
        NODE_LABELS,
        "recentLag",
    ),
    Metric("node_disk_free_bytes", "gauge", "Free space where the journal lies.", NODE_LABELS, "diskFreeBytes"),
    Metric("journal_up", "gauge", "1 if the journal process runs.", NODE_LABELS, "journalUp"),
    Metric(
        "journal_failing",
        "gauge",
        "1 if the last batch could not be written, as with a full disk.",
        NODE_LABELS,
        read=lambda node: 1 if node.get("journalFailure") else 0,
    ),
    Metric(
        "journal_replacements",
        "counter",
        "Journal processes that took over from one that died.",
        NODE_LABELS,
        "journalReplacements",
    ),
    Metric(
        "journal_commit_seconds",
        "histogram",
        "How long each batch took from the node to the disk and back.",
        NODE_LABELS,
        "commitTimes",
    ),
    Metric("journal_batches", "counter", "Batches that are on disk.", NODE_LABELS, "commits"),
    Metric("journal_failed_batches", "counter", "Batches that could not be written.", NODE_LABELS, "failedCommits"),
    Metric("journal_group_commits", "counter", "Commits, each of one batch or more.", NODE_LABELS, "groupCommits"),
    Metric("journal_unconfirmed_bytes", "gauge", "On the way to the disk.", NODE_LABELS, "unconfirmedBytes"),
    Metric(
        "journal_file_bytes", "gauge", "Size of the journal, free pages in it included.", NODE_LABELS, "journalBytes"
    ),
)

_OF_BROKERS = ("queue", "subscription", "deadletter")
"""The types of addresses whose messages a broker of EnMasse 1.0 stored."""

ADDRESS_METRICS: tuple[Metric, ...] = (
    Metric("messages_in", "counter", "Messages that senders sent.", ADDRESS_LABELS, "messagesIn"),
    Metric("messages_out", "counter", "Deliveries to receivers.", ADDRESS_LABELS, "messagesOut"),
    Metric("senders", "gauge", "Attached senders.", ADDRESS_LABELS, "senders"),
    Metric("receivers", "gauge", "Attached receivers.", ADDRESS_LABELS, "receivers"),
    Metric("credit_asked", "gauge", "Credit that receivers have given and not used.", ADDRESS_LABELS, "creditAsked"),
    Metric("credit_granted", "gauge", "Credit that senders have and not used.", ADDRESS_LABELS, "creditGranted"),
    Metric("unsettled", "gauge", "Deliveries that receivers have not settled.", ADDRESS_LABELS, "unsettled"),
    Metric(
        "messages_backlog",
        "gauge",
        "Of a direct address: messages that wait for a receiver's connection.",
        ADDRESS_LABELS,
        "backlog",
    ),
    Metric("messages_stored", "gauge", "Stored messages.", ADDRESS_LABELS, "messagesStored"),
    Metric("bytes_stored", "gauge", "Their bytes.", ADDRESS_LABELS, "bytesStored"),
    Metric(
        "artemis_durable_message_count",
        "gauge",
        "Stored messages of what a broker of EnMasse 1.0 had: queues, subscriptions and dead-letter addresses. Those "
        "that are not durable are among them.",
        ADDRESS_LABELS,
        read=lambda item: item.get("messagesStored") if item.get("addressType") in _OF_BROKERS else None,
    ),
    Metric("accepted", "counter", "Deliveries that receivers accepted.", ADDRESS_LABELS, "accepted"),
    Metric("rejected", "counter", "Deliveries that receivers rejected.", ADDRESS_LABELS, "rejected"),
    Metric("released", "counter", "Deliveries that receivers released.", ADDRESS_LABELS, "released"),
    Metric("modified", "counter", "Deliveries that receivers modified.", ADDRESS_LABELS, "modified"),
    Metric("dropped", "counter", "Messages lost without anybody being told.", ADDRESS_LABELS, "dropped"),
    Metric("expired", "counter", "Messages whose time was over.", ADDRESS_LABELS, "expired"),
    Metric("dead_lettered", "counter", "Messages that became dead letters.", ADDRESS_LABELS, "deadLettered"),
    Metric(
        "selectors_exceeded",
        "counter",
        "Times that a message was too much work for a selector.",
        ADDRESS_LABELS,
        "selectorsExceeded",
    ),
    Metric(
        "consumer_lag",
        "gauge",
        "Of a stream: messages that a named consumer still has to read.",
        CONSUMER_LABELS,
        "consumers",
        read=lambda address: {
            (str(one["name"]), str(one["partition"])): one["lag"] for one in address.get("consumers") or ()
        },
    ),
)

CONNECTOR_METRICS: tuple[Metric, ...] = (
    Metric(
        "connector_up",
        "gauge",
        "0 if no server let the node in when that was needed last, else 1.",
        RELAY_LABELS,
        read=lambda connector: 0 if connector.get("problem") else 1,
    ),
    Metric(
        "connector_connections",
        "gauge",
        "Connections to its servers; without links there is none after a minute.",
        RELAY_LABELS,
        "connections",
    ),
    Metric("connector_reconnects", "counter", "Connections that were lost with links.", RELAY_LABELS, "reconnects"),
    Metric("connector_senders", "gauge", "Attached senders of clients.", RELAY_LABELS, "senders"),
    Metric("connector_receivers", "gauge", "Attached receivers of clients.", RELAY_LABELS, "receivers"),
    Metric(
        "connector_credit_granted",
        "gauge",
        "Credit that the other service has granted to senders and that they have not used.",
        RELAY_LABELS,
        "creditGranted",
    ),
    Metric(
        "connector_credit_asked",
        "gauge",
        "Credit that receivers have given and not used.",
        RELAY_LABELS,
        "creditAsked",
    ),
    Metric(
        "connector_unsettled",
        "gauge",
        "Messages, of both ways, that the other end has not settled.",
        RELAY_LABELS,
        "unsettled",
    ),
    Metric("connector_messages_sent", "counter", "Messages of senders.", RELAY_LABELS, "messagesIn"),
    Metric("connector_messages_received", "counter", "Deliveries to receivers.", RELAY_LABELS, "messagesOut"),
    Metric(
        "connector_dropped",
        "counter",
        "Messages, settled as they came, that found no room and are lost.",
        RELAY_LABELS,
        "dropped",
    ),
    Metric(
        "connector_bytes_sent",
        "counter",
        "Bytes written to its servers, with all that AMQP adds; without those of TLS.",
        RELAY_LABELS,
        "bytesSent",
    ),
    Metric(
        "connector_bytes_received", "counter", "Bytes read from its servers, likewise.", RELAY_LABELS, "bytesReceived"
    ),
    Metric(
        "connector_silence_seconds",
        "gauge",
        "Time since anything came on the connection that is silent longest; none without a connection.",
        RELAY_LABELS,
        "silence",
    ),
)

ADDRESS_COUNTERS = tuple(metric.source for metric in ADDRESS_METRICS)
"""The attributes of addresses that nodes are asked for."""

_TABLES = (
    ("Control", CONTROL_METRICS),
    ("Nodes and their journals", NODE_METRICS),
    ("Addresses", ADDRESS_METRICS),
    ("Connectors", CONNECTOR_METRICS),
)


def reference_tables() -> str:
    """Return the tables of the reference, in Markdown."""
    parts = []
    for title, metrics in _TABLES:
        rows = [
            f"| `{metric.full_name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.help} |"
            for metric in metrics
        ]
        parts.append(
            "\n".join([f"## {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def rewritten(page: str) -> str:
    """Return a page with the tables between its two marks replaced."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{reference_tables()}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
