"""A node's figures and its state, as management, metrics and readiness tell them."""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address
from enmasse.messaging.topic import Topic
from enmasse.node.health import Check
from enmasse.version import __version__

if TYPE_CHECKING:
    from enmasse.node.server import Server

__all__ = ["check_server", "read_configuration", "read_statistics"]


def read_statistics(server: Server) -> list[dict[str, Any]]:
    """The one entity of type ``io.enmasse.statistics``: counters since the start, and what is now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    addresses = [a for space in server.entities.spaces.values() for a in space.addresses.values()]
    # An address that nobody has used since the start has counted nothing.
    counts = [_traffic(address) for address in addresses]
    dynamic = [space.dynamic for space in server.entities.spaces.values()]
    return [
        {
            "type": "io.enmasse.statistics",
            "identity": server.name,
            "name": server.name,
            "version": __version__,
            "pid": os.getpid(),
            "journalPid": server.journal.journal_pid,
            "startedAt": int(server.started * 1000),
            "uptime": int((time.time() - server.started) * 1000),
            "cpuSeconds": usage.ru_utime + usage.ru_stime,
            "connections": len(server.connections),
            "links": server.connections.links,
            "spaces": len(server.entities.spaces),
            "addresses": len(server.entities.declared) + sum(map(len, dynamic)),
            "messagesIn": sum(came for came, _ in counts),
            "messagesOut": sum(went for _, went in counts),
            "commits": server.core.batches_committed,
            "failedCommits": server.core.batches_failed,
            "unconfirmedBytes": server.journal.unconfirmed_bytes,
            "journalBytes": server.journal.file_bytes,
            "journalUp": server.journal.is_running,
            "journalFailure": server.journal.failure,
            "journalReplacements": server.journal.replacements,
            "groupCommits": server.journal.commits,
            "commitTimes": server.journal.commit_times.told(),
            "turnLags": server.watch.lags.told(),
            "recentLag": server.watch.recent_s,
            "memoryBytes": _memory_bytes(),
            "diskFreeBytes": shutil.disk_usage(server.directory).free,
            "halfOpen": len(server.ports.door.half_open),
            "turnedAway": server.ports.door.turned_away,
            "handshakeTimeouts": server.ports.door.timed_out,
            "events": dict(server.tally.counts),
            "ready": server.health.is_ready,
        }
    ]


def read_configuration(server: Server) -> list[dict[str, Any]]:
    """The one entity of type ``io.enmasse.configuration``: whether what the node was told has changed."""
    return [
        {
            "type": "io.enmasse.configuration",
            "identity": server.name,
            "name": server.name,
            "instance": server.instance,
            "changes": server.entities.changes,
            "installation": server.installation.id,
        }
    ]


def check_server(server: Server) -> list[Check]:
    """What makes a node ready."""
    journal = server.journal
    failure = "" if journal.loss else journal.failure
    trouble = f"the last batch could not be written: {failure}" if failure else ""
    return [
        Check("snapshot", server.is_loaded, "" if server.is_loaded else "not loaded yet"),
        Check("listeners", bool(server.listeners), "" if server.listeners else "none is open yet"),
        Check(
            "journal",
            journal.is_running and not journal.loss,
            journal.loss or ("" if journal.is_running else "its process is being started"),
        ),
        Check("storage", not trouble, trouble, is_needed=False),
        Check("stopping", not server.is_stopping, "the node is stopping" if server.is_stopping else ""),
    ]


def _traffic(address: Address) -> tuple[int, int]:
    """Messages that came and went; there may be thousands of addresses, so no more is counted than is told."""
    if isinstance(address, Topic):
        counts = address.counts()
        return counts["messagesIn"], counts["messagesOut"]
    gone = address.gone_counts
    came = gone["in"] + sum(producer.port.received for producer in address.producers)
    return came, gone["out"] + sum(consumer.deliveries for consumer in address.consumers)


def _memory_bytes() -> int:
    """What this process has in memory by itself, without the pages of files that it maps."""
    resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[1:3]
    return (int(resident) - int(shared)) * resource.getpagesize()
