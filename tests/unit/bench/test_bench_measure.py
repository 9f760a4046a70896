"""Measurements against a real node: whether what they count is what happened."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from enmasse.bench import BenchError, Plan, Report, measure
from enmasse.bench.conductor import Progress
from enmasse.client.blocking import connect
from enmasse.drivers.authority import Authority
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

SPACE = "default/bench"
ADDRESSES = {"direct": "anycast", "pair.0": "anycast", "pair.1": "anycast", "copies": "multicast", "stored": "queue"}
PAUSE_S = 0.8


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.keep_server_certificate("default", ("127.0.0.1",))
    return made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--tls", str(authority.directory)) as process:
        with connect(process.admin_url) as connection:
            management = connection.management()
            management.create("io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": "none"})
            for address, kind in ADDRESSES.items():
                attributes = {"space": SPACE, "address": address, "addressType": kind}
                management.create("io.enmasse.address", f"default/{address}", attributes)
        yield process


def run(node: NodeProcess, address: str, **wanted: object) -> Report:
    plan = {"duration_s": 0.5, "warmup_s": 0.2, **wanted}
    return asyncio.run(measure(Plan(url=node.url, address=address, **plan)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("direct", {"rate": 400}),
        ("direct", {"outstanding": 50}),
        ("stored", {"rate": 200, "is_durable": True, "size": 2000}),
        ("pair.%d", {"senders": 2, "receivers": 2, "processes": 2, "rate": 400}),
    ],
)
def test_what_was_sent_was_accepted_and_received(node: NodeProcess, address: str, wanted: dict[str, object]) -> None:
    report = run(node, address, **wanted)
    assert report.sent == report.accepted == report.received > 0
    assert report.measured_sent == report.measured_received == report.delivery.count == report.outcome.count > 0
    assert report.disordered == report.missing == report.unsent == report.foreign == 0
    rate = wanted.get("rate")
    if rate is not None:
        assert report.sent == round(float(str(rate)) * 0.7)
        assert report.measured_sent == round(float(str(rate)) * 0.5)


def test_presettled_messages_have_no_outcome_and_arrive(node: NodeProcess) -> None:
    report = run(node, "direct", is_presettled=True, rate=300)
    assert report.sent == report.received == 210
    assert report.outcomes == {}
    assert report.outcome.count == 0


def test_each_copy_is_counted(node: NodeProcess) -> None:
    report = run(node, "copies", receivers=3, is_multicast=True, rate=200)
    assert report.accepted == 140
    assert report.received == report.expected == 3 * 140
    assert report.missing == 0


def test_without_receivers_acceptance_is_measured_and_receivers_alone_drain(node: NodeProcess) -> None:
    stored = run(node, "stored", receivers=0, rate=300)
    assert stored.accepted == stored.outcome.count + 60 == 210
    assert stored.delivery.count == 0
    drained = run(node, "stored", senders=0)
    assert drained.foreign == 210
    assert drained.received == 0


def test_a_pause_of_the_peer_shows_in_the_percentiles_of_the_open_loop(node: NodeProcess) -> None:
    plan = Plan(url=node.url, address="direct", rate=300, duration_s=2.0, warmup_s=0.0)

    async def paused() -> Report:
        loop = asyncio.get_running_loop()
        stopped: list[float] = []

        def stop(progress: Progress) -> None:
            if progress.received and not stopped:
                stopped.append(progress.elapsed_s)
                os.kill(node.pid, signal.SIGSTOP)
                loop.call_later(PAUSE_S, os.kill, node.pid, signal.SIGCONT)

        try:
            return await measure(plan, stop)
        finally:
            os.kill(node.pid, signal.SIGCONT)

    report = asyncio.run(paused())
    assert report.sent == report.accepted == report.received == 600
    # Of 2 s the node paused for 0.8: a quarter of all messages were due in the first 0.5 s of that.
    for histogram in (report.delivery, report.outcome):
        assert histogram.percentile(90) > (PAUSE_S - 0.5) * 1e9
        assert histogram.most > (PAUSE_S - 0.1) * 1e9


def test_messages_that_never_get_credit_are_counted_with_the_time_they_waited(node: NodeProcess) -> None:
    report = run(node, "direct", receivers=0, rate=100, drain_s=0.3)
    assert report.sent == 0
    assert report.unsent == 70
    assert report.outcome.count == 50
    assert report.outcome.most >= 0.3e9
    assert any("never got credit" in remark for remark in report.remarks)


def test_an_address_that_is_not_there_ends_it_with_the_peers_words(node: NodeProcess) -> None:
    with pytest.raises(BenchError, match="has no address 'nowhere'"):
        run(node, "nowhere")


def test_the_end_of_the_peer_ends_the_measurement(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as lost:
        with connect(lost.admin_url) as connection:
            management = connection.management()
            management.create("io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": "none"})
            attributes = {"space": SPACE, "address": "direct", "addressType": "anycast"}
            management.create("io.enmasse.address", "default/direct", attributes)

        def kill(progress: Progress) -> None:
            if progress.received:
                with suppress(AssertionError):
                    lost.kill()

        plan = Plan(url=lost.url, address="direct", duration_s=30)
        with pytest.raises(BenchError, match="lost"):
            asyncio.run(measure(plan, kill))


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "enmasse", "bench", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **environment}
    )


SHORT = ("--rate", "200", "--duration", "0.5", "--warm-up", "0.1")


def test_the_command_prints_counts_and_percentiles(node: NodeProcess) -> None:
    done = bench("direct", "--url", node.url, *SHORT)
    assert done.returncode == 0, done.stderr
    counts = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines() if line}
    assert counts["sent"] == counts["accepted"] == counts["received"] == "120"
    assert "P99.9" in done.stdout
    assert "due to received" in done.stdout


def test_the_command_prints_json_without_secrets(node: NodeProcess) -> None:
    arguments = ("--user", "alice", "--allow-insecure-plain", "--json")
    done = bench("direct", "--url", node.url, *SHORT, *arguments, ENMASSE_PASSWORD="wonderland")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["sent"] == found["accepted"] == found["received"] == 120
    assert found["latency_us"]["delivery"]["p99"] > 0
    assert found["plan"]["rate"] == 200
    assert "wonderland" not in done.stdout + done.stderr
    assert "alice" not in done.stdout


def test_the_command_says_what_the_peer_refused(node: NodeProcess) -> None:
    done = bench("nowhere", "--url", node.url, *SHORT)
    assert done.returncode == 1
    assert "has no address 'nowhere'" in done.stderr


def test_the_command_speaks_tls_to_a_peer_that_it_is_told_to_trust(node: NodeProcess, authority: Authority) -> None:
    url = f"amqps://127.0.0.1:{node.port}"
    done = bench("direct", "--url", url, "--ca", str(authority.path), *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["received"] == 120
    refused = bench("direct", "--url", url, *SHORT)
    assert refused.returncode == 1
    assert "certificate" in refused.stderr


def test_a_password_in_the_url_is_refused(node: NodeProcess) -> None:
    done = bench("direct", "--url", f"amqp://alice:wonderland@127.0.0.1:{node.port}")
    assert done.returncode == 2
    assert "ENMASSE_PASSWORD" in done.stderr
