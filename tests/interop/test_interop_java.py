"""The clients of Java, Qpid JMS and ProtonJ2, against a real node; what they check is in java/*.java."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import blocking
from enmasse.engines.authority import Authority
from enmasse.testing.node_process import NodeProcess
from tests.foreign_tools import require
from tests.interop.conftest import HERE, SPACE, TOOLS
from tests.interop.test_interop_users import PASSWORD, run_user

pytestmark = pytest.mark.slow

PATIENCE_S = 150
QUEUES = ("jms-queue", "jms-other", "jms-short", "j2-queue")

JMS = (
    "messages-of-every-kind", "transactions", "recover", "selector", "browser", "topic", "durable-subscription",
    "shared-subscription", "request-reply", "anonymous-producer", "completions", "expiry", "delay", "priority",
    "unknown-queue", "prefetch", "large-message", "many",
)  # fmt: skip
PROTONJ2 = (
    "exchange", "outcomes", "credit", "drain", "direct-outcome", "request-reply", "transactions",
    "streamed-message", "unknown-address",
)  # fmt: skip
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

Reports = dict[str, str]


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    """One of the programs, at work."""
    require("a JDK", "Qpid JMS and ProtonJ2")
    return subprocess.Popen(
        ["java", "-cp", f"{TOOLS / 'java'}/*", str(HERE / "java" / program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(program: str, *arguments: str) -> Reports:
    """What became of each scenario: "ok", or why not."""
    with started(program, *arguments) as process:
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    reports = dict(line.split(" ", 1) for line in out.splitlines())
    assert reports, err
    return reports


def declare(management: Any) -> None:
    for address in (*QUEUES, "jms-topic", "j2-anycast"):
        kind = {"jms-topic": "topic", "j2-anycast": "anycast"}.get(address, "queue")
        attributes = {"space": SPACE, "address": address, "addressType": kind}
        management.create("io.enmasse.address", f"default/interop.{address}", attributes)


def jms_on(node: NodeProcess, *scenarios: str, options: str = "", scheme: str = "amqp", user: str = "") -> Reports:
    url = f"{scheme}://localhost:{node.port}{options}"
    return run("JmsClient.java", url, user, PASSWORD if user else "", *scenarios)


@pytest.fixture(scope="module")
def open_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node whose space needs no users."""
    with NodeProcess(tmp_path_factory.mktemp("open")) as node:
        with blocking.connect(node.admin_url, timeout=30) as connection:
            management = connection.management()
            management.create("io.enmasse.space", SPACE, {"authentication": "none"})
            declare(management)
        yield node
        assert "Traceback" not in node.log, node.log


@pytest.fixture(scope="module")
def jms(open_node: NodeProcess) -> Reports:
    return jms_on(open_node, *JMS)


@pytest.fixture(scope="module")
def protonj2(open_node: NodeProcess) -> Reports:
    return run("ProtonJ2Client.java", "localhost", str(open_node.port), "", "", "", "", *PROTONJ2)


@pytest.mark.parametrize("scenario", JMS)
def test_qpid_jms_finds_what_jms_promises(jms: Reports, scenario: str) -> None:
    assert jms[scenario] == "ok"


@pytest.mark.parametrize("scenario", PROTONJ2)
def test_protonj2_finds_what_amqp_promises(protonj2: Reports, scenario: str) -> None:
    assert protonj2[scenario] == "ok"


class Secure:
    """A node with TLS and one user, and a trust store of Java with its authority."""

    def __init__(self, node: NodeProcess, store: Path) -> None:
        self.node = node
        self.store = store

    @property
    def options(self) -> str:
        trusts = (
            f"transport.trustStoreLocation={self.store}&transport.trustStorePassword={PASSWORD.replace(' ', '%20')}"
        )
        return f"?{trusts}&transport.trustStoreType=PKCS12"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("secure")
    users, store = directory / "users.yaml", directory / "trust.p12"
    run_user("add", "jo", "--space", "interop", "--users", str(users), "--send", "#", "--recv", "#")
    authority = Authority(directory / "tls")
    authority.keep_server_certificate("default", ["localhost", "127.0.0.1"])
    require("a JDK")
    subprocess.run(
        [
            "keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(authority.path),
            "-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD,
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    arguments = ("--users", str(users), "--tls", str(authority.directory))
    with NodeProcess(directory / "data", *arguments) as node:
        with blocking.connect(node.admin_url, timeout=30) as connection:
            management = connection.management()
            management.create("io.enmasse.space", SPACE, {"authentication": "standard"})
            declare(management)
        yield Secure(node, store)
        assert "Traceback" not in node.log, node.log
        assert PASSWORD not in node.log


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_qpid_jms_comes_in_over_tls_with_every_mechanism_it_has(secure: Secure, mechanism: str) -> None:
    options = f"{secure.options}&amqp.saslMechanisms={mechanism}"
    reports = jms_on(secure.node, "selector", "request-reply", options=options, scheme="amqps", user="jo")
    assert reports == {"selector": "ok", "request-reply": "ok"}


def test_qpid_jms_stays_out_with_a_wrong_password(secure: Secure) -> None:
    url = f"amqps://localhost:{secure.node.port}{secure.options}"
    reports = run("JmsClient.java", url, "jo", "wrong", "topic")
    assert "JMSSecurity" in reports["topic"]


def test_protonj2_comes_in_over_tls(secure: Secure) -> None:
    where = ("localhost", str(secure.node.port), "jo", PASSWORD, str(secure.store), PASSWORD)
    reports = run("ProtonJ2Client.java", *where, "exchange", "request-reply")
    assert reports == {"exchange": "ok", "request-reply": "ok"}


def _ends_well_when_its_node_is_killed(node: NodeProcess, start: Callable[[], subprocess.Popen[str]]) -> None:
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(start())
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == "reconnect begun\n"
        node.kill()
        node.start()
        out, err = process.communicate(timeout=PATIENCE_S)
        assert out == "reconnect ok\n", err


def test_qpid_jms_goes_on_with_a_node_that_was_killed(open_node: NodeProcess) -> None:
    url = f"failover:(amqp://localhost:{open_node.port})?failover.reconnectDelay=50&failover.maxReconnectDelay=200"
    _ends_well_when_its_node_is_killed(open_node, lambda: started("JmsClient.java", url, "", "", "reconnect"))


def test_protonj2_goes_on_with_a_node_that_was_killed(open_node: NodeProcess) -> None:
    where = ("localhost", str(open_node.port), "", "", "", "")
    _ends_well_when_its_node_is_killed(open_node, lambda: started("ProtonJ2Client.java", *where, "reconnect"))
