"""Every metric, by name: what it means and where its value comes from.

    python -m enmasse.api.metrics_catalogue docs/reference/metrics.md

writes the tables of the reference anew; a test sees to it that they are fresh.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["ADDRESS_METRICS", "CONTROL_METRICS", "NODE_METRICS", "PREFIX", "Metric", "reference_tables"]

PREFIX = "enmasse_"

ADDRESS_LABELS = ("namespace", "addressspace", "address", "type")
CONSUMER_LABELS = (*ADDRESS_LABELS, "consumer", "partition")
SPACE_LABELS = ("name", "namespace")
COUNT_LABELS = ("addressspace", "namespace")
NODE_LABELS = ("node",)
PIPELINE_LABELS = ("pipeline", "addressspace", "namespace")

BEGIN, END = "<!-- begin: generated -->", "<!-- end: generated -->"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: without the prefix, and for counters without ``_total``.
        kind: as Prometheus has them.
        help: one sentence.
        labels: names of its labels.
        source: the attribute of the node's entity that it is read from; empty: computed.
        scale: by which the attribute is multiplied.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    source: str = ""
    scale: float = 1.0

    @property
    def full_name(self) -> str:
        """As Prometheus stores it."""
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")


PHASES = ("pending", "configuring", "active", "failed", "terminating")

CONTROL_METRICS: tuple[Metric, ...] = (
    Metric("version", "gauge", "1, with the version as a label.", ("version",)),
    Metric("address_space_status_ready", "gauge", "1 if the space is ready.", SPACE_LABELS),
    Metric("address_space_status_not_ready", "gauge", "1 if the space is not ready.", SPACE_LABELS),
    Metric("address_spaces_total", "gauge", "Declared spaces."),
    *(Metric(f"address_spaces_{phase}_total", "gauge", f"Spaces in phase {phase}.") for phase in PHASES),
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
    Metric(
        "standard_controller_loop_duration_seconds",
        "histogram",
        "How long the controller's looks took, one thing each: a space, the node, the plans.",
    ),
    Metric(
        "standard_controller_router_check_failures",
        "counter",
        "Times that a node did not answer when it was asked how it is.",
    ),
    Metric("address_canary_health_failures", "counter", "Messages of control itself that a node did not give back."),
    Metric(
        "address_canary_health_check_failures",
        "counter",
        "Times that control could not send such a message, because the node was not reachable.",
    ),
    Metric("router_mesh_not_connected_total", "gauge", "Nodes that do not answer."),
    Metric(
        "router_mesh_undelivered_total",
        "gauge",
        "Messages for direct addresses that wait in nodes, because their receivers' connections are full.",
    ),
    Metric("addresses_without_metrics", "gauge", "Addresses beyond the bound, which have no metrics of their own."),
    Metric("pipelines", "gauge", "Declared pipelines of a space in each phase.", (*COUNT_LABELS, "phase")),
    Metric("pipeline_rows", "gauge", "Rows that a pipeline read since its runner started.", PIPELINE_LABELS),
    Metric("pipeline_lag", "gauge", "Rows that are there for a pipeline and were not read yet.", PIPELINE_LABELS),
    Metric("pipeline_rows_per_second", "gauge", "Rows that a pipeline reads a second.", PIPELINE_LABELS),
    Metric(
        "pipeline_query_restarts",
        "gauge",
        "Times that queries of a pipeline failed and were started again, since its runner started.",
        PIPELINE_LABELS,
    ),
    Metric(
        "pipeline_bad_records",
        "gauge",
        "Messages that a pipeline could not decode or deliver, since its runner started.",
        PIPELINE_LABELS,
    ),
)

NODE_METRICS: tuple[Metric, ...] = (
    Metric("node_up", "gauge", "1 if the node answered within two seconds.", NODE_LABELS),
    Metric("node_ready", "gauge", "1 if it is ready, as its /readyz says.", NODE_LABELS, "ready"),
    Metric("node_info", "gauge", "1, with the node's version as a label.", ("node", "version")),
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
    Metric("node_links", "gauge", "Attached links.", NODE_LABELS, "links"),
    Metric("node_spaces", "gauge", "Spaces that it serves.", NODE_LABELS, "spaces"),
    Metric("node_addresses", "gauge", "Addresses that it serves.", NODE_LABELS, "addresses"),
    Metric("node_events", "counter", "What its log tells, whether a line was left out or not.", ("node", "event")),
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
    Metric("journal_failing", "gauge", "1 if the last batch could not be written, as with a full disk.", NODE_LABELS),
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
    Metric("accepted", "counter", "Deliveries that receivers accepted.", ADDRESS_LABELS, "accepted"),
    Metric("rejected", "counter", "Deliveries that receivers rejected.", ADDRESS_LABELS, "rejected"),
    Metric("released", "counter", "Deliveries that receivers released.", ADDRESS_LABELS, "released"),
    Metric("modified", "counter", "Deliveries that receivers modified.", ADDRESS_LABELS, "modified"),
    Metric("dropped", "counter", "Messages lost without anybody being told.", ADDRESS_LABELS, "dropped"),
    Metric("expired", "counter", "Messages whose time was over.", ADDRESS_LABELS, "expired"),
    Metric("dead_lettered", "counter", "Messages that became dead letters.", ADDRESS_LABELS, "deadLettered"),
    Metric(
        "consumer_lag",
        "gauge",
        "Of a stream: messages that a named consumer still has to read.",
        CONSUMER_LABELS,
    ),
)

_TABLES = (
    ("Control", CONTROL_METRICS),
    ("Nodes and their journals", NODE_METRICS),
    ("Addresses", ADDRESS_METRICS),
)


def reference_tables() -> str:
    """The tables of the reference, in Markdown."""
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
    """A page with the tables between its two marks written anew."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{reference_tables()}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
