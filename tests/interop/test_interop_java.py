"""The clients of Java, Qpid JMS and ProtonJ2, against a real node; what they check is in java/*.java."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import HERE, TOOLS, Addresses
from tests.interop.test_interop_users import PASSWORD
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

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


class Program:
    """One of java/*.java at work: plays scenarios where it is asked to, one after the other."""

    def __init__(self, name: str, log: Path) -> None:
        require("a JDK", "Qpid JMS and ProtonJ2")
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                ["java", "-cp", f"{TOOLS / 'java'}/*", str(HERE / "java" / name)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def begin(self, *asked: str) -> None:
        """Have it begin with scenarios; where and as whom comes first."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(asked) + "\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """The next line that it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def play(self, *asked: str) -> Reports:
        """What became of each scenario: "ok", or why not."""
        self.begin(*asked)
        reports = dict(line.split(" ", 1) for line in iter(self.line, ""))
        assert reports, self._log.read_text()
        return reports

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def jms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Qpid JMS; asked for: URL, user, password, scenarios."""
    program = Program("JmsClient.java", tmp_path_factory.mktemp("jms") / "log")
    yield program
    program.close()


@pytest.fixture(scope="module")
def protonj2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """ProtonJ2; asked for: host, port, user, password, trust store and its password, scenarios."""
    program = Program("ProtonJ2Client.java", tmp_path_factory.mktemp("protonj2") / "log")
    yield program
    program.close()


def declare(addresses: Addresses) -> None:
    for address in (*QUEUES, "jms-topic", "j2-anycast"):
        addresses.declare({"jms-topic": "topic", "j2-anycast": "anycast"}.get(address, "queue"), address)


@pytest.fixture(scope="module")
def open_node(node: NodeProcess, addresses: Addresses) -> NodeProcess:
    """A node whose space needs no users."""
    declare(addresses)
    return node


@pytest.fixture(scope="module")
def jms_reports(jms: Program, open_node: NodeProcess) -> Reports:
    return jms.play(f"amqp://localhost:{open_node.port}", "", "", *JMS)


@pytest.fixture(scope="module")
def protonj2_reports(protonj2: Program, open_node: NodeProcess) -> Reports:
    return protonj2.play("localhost", str(open_node.port), "", "", "", "", *PROTONJ2)


@pytest.mark.parametrize("scenario", JMS)
def test_qpid_jms_finds_what_jms_promises(jms_reports: Reports, scenario: str) -> None:
    assert jms_reports[scenario] == "ok"


@pytest.mark.parametrize("scenario", PROTONJ2)
def test_protonj2_finds_what_amqp_promises(protonj2_reports: Reports, scenario: str) -> None:
    assert protonj2_reports[scenario] == "ok"


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
def secure(
    tmp_path_factory: pytest.TempPathFactory, secure_node: tuple[NodeProcess, Path], secure_addresses: Addresses
) -> Secure:
    node, authority = secure_node
    store = tmp_path_factory.mktemp("trust") / "trust.p12"
    require("a JDK")
    subprocess.run(
        [
            "keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(authority),
            "-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD,
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    declare(secure_addresses)
    return Secure(node, store)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_qpid_jms_comes_in_over_tls_with_every_mechanism_it_has(jms: Program, secure: Secure, mechanism: str) -> None:
    url = f"amqps://localhost:{secure.node.port}{secure.options}&amqp.saslMechanisms={mechanism}"
    reports = jms.play(url, "jo", PASSWORD, "selector", "request-reply")
    assert reports == {"selector": "ok", "request-reply": "ok"}


def test_qpid_jms_stays_out_with_a_wrong_password(jms: Program, secure: Secure) -> None:
    url = f"amqps://localhost:{secure.node.port}{secure.options}"
    assert "JMSSecurity" in jms.play(url, "jo", "wrong", "topic")["topic"]


def test_protonj2_comes_in_over_tls(protonj2: Program, secure: Secure) -> None:
    where = ("localhost", str(secure.node.port), "jo", PASSWORD, str(secure.store), PASSWORD)
    reports = protonj2.play(*where, "exchange", "request-reply")
    assert reports == {"exchange": "ok", "request-reply": "ok"}


def goes_on_when_its_node_is_killed(node: NodeProcess, program: Program, *asked: str) -> None:
    program.begin(*asked, "reconnect")
    assert program.line() == "reconnect begun"
    node.kill()
    node.start()
    assert [program.line(), program.line()] == ["reconnect ok", ""]


def test_qpid_jms_goes_on_with_a_node_that_was_killed(jms: Program, open_node: NodeProcess) -> None:
    url = f"failover:(amqp://localhost:{open_node.port})?failover.reconnectDelay=50&failover.maxReconnectDelay=200"
    goes_on_when_its_node_is_killed(open_node, jms, url, "", "")


def test_protonj2_goes_on_with_a_node_that_was_killed(protonj2: Program, open_node: NodeProcess) -> None:
    goes_on_when_its_node_is_killed(open_node, protonj2, "localhost", str(open_node.port), "", "", "", "")
