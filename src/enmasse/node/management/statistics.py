"""A node's figures and its state, for management, metrics and readiness."""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.node.health import Check
from enmasse.version import __version__

# A server and its management know each other.
if TYPE_CHECKING:
    from enmasse.node.server import Server


def read_statistics(server: Server) -> list[dict[str, Any]]:
    """Return the one entity of type ``io.enmasse.statistics``: counters since the start, and current values."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    addresses = [a for space in server.entities.spaces.values() for a in space.addresses.values()]
    # Addresses that nobody has used since the start are not built and have counted nothing.
    counts = [address.traffic() for address in addresses]
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
            "commitTimes": server.journal.commit_times.summary(),
            "turnLags": server.watch.lags.summary(),
            "recentLag": server.watch.recent_s,
            "memoryBytes": _memory_bytes(),
            "diskFreeBytes": shutil.disk_usage(server.directory).free,
            "halfOpen": len(server.ports.limiter.half_open),
            "turnedAway": server.ports.limiter.turned_away,
            "handshakeTimeouts": server.ports.limiter.timed_out,
            "unfinishedBytes": server.connections.unfinished.held,
            "unfinishedWaiting": len(server.connections.unfinished.waiting),
            "unfinishedGivenUp": server.connections.unfinished.given_up,
            "unreadBytes": server.connections.unread.held,
            "unreadLimit": server.connections.unread.max_bytes,
            "unreadWaiting": len(server.connections.unread.short),
            "unreadGivenUp": server.connections.unread.given_up,
            "transactionBytes": server.transactions.held,
            "transactionsGivenUp": server.transactions.given_up,
            "loginsFailed": server.gate.refused,
            "loginsDelayed": server.gate.logins.delayed,
            "passwordsChecked": server.checker.checked,
            "passwordsWaiting": server.checker.waiting,
            "passwordPid": server.checker.pid,
            "events": dict(server.events.counts),
            "ready": server.health.is_ready,
        }
    ]


def read_configuration(server: Server) -> list[dict[str, Any]]:
    """Return the one entity of type ``io.enmasse.configuration``, by which control sees if entities have changed."""
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
    """Return the checks that decide if the node is ready."""
    journal = server.journal
    failure = "" if journal.loss else journal.failure
    ports = server.space_ports.problems
    numbers = server.core.log_numbers.problem
    is_leaving = server.is_draining or server.is_stopping
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
        Check("log numbers", not numbers, numbers, is_needed=False),
        Check("ports of spaces", not ports, "; ".join(ports), is_needed=False),
        Check("stopping", not is_leaving, "the node is stopping" if is_leaving else ""),
    ]


def _memory_bytes() -> int:
    """Return this process' memory without the pages of files that it maps."""
    resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[1:3]
    return (int(resident) - int(shared)) * resource.getpagesize()
