"""go-amqp (Go) and fe2o3-amqp (Rust) against a real node; what they check is in go/main.go and rust/src/main.rs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.conftest import TOOLS, Addresses
from tests.interop.test_interop_users import PASSWORD
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

PATIENCE_S = 120

GO = (
    "properties", "exchange", "outcomes", "direct-outcomes", "settled", "settle-second", "credit", "drain",
    "large-message", "request-reply", "selector", "stream", "sessions", "unknown-address",
)  # fmt: skip
RUST = (
    "properties", "exchange", "outcomes", "direct-outcomes", "settled", "settle-second", "credit", "drain",
    "large-message", "request-reply", "selector", "stream", "many-unsettled", "transactions", "unknown-address",
)  # fmt: skip

Reports = dict[str, str]


def run(program: str, name: str, *arguments: str) -> Reports:
    """What became of each scenario: "ok", or why not."""
    require(name)
    done = subprocess.run(
        [TOOLS / program, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    reports = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert reports, done.stderr
    return reports


def go(url: str, *scenarios: str, user: str = "", password: str = PASSWORD, authority: str = "") -> Reports:
    return run("go-client", "go-amqp", url, user, password, authority, *scenarios)


def rust(url: str, *scenarios: str, user: str = "", password: str = PASSWORD, mechanism: str = "") -> Reports:
    return run("rust-client", "fe2o3-amqp", url, user, password, mechanism, *scenarios)


def declare(addresses: Addresses) -> None:
    kinds = {"anycast": "anycast", "stream": "stream", "other": "queue"}
    for address in sorted({*GO, *RUST, *kinds}):
        addresses.declare(kinds.get(address, "queue"), address)


@pytest.fixture(scope="module")
def open_url(node: NodeProcess, addresses: Addresses) -> str:
    """A node whose space needs no users."""
    declare(addresses)
    return f"amqp://localhost:{node.port}"


@pytest.fixture(scope="module")
def go_reports(open_url: str) -> Reports:
    return go(open_url, *GO)


@pytest.fixture(scope="module")
def rust_reports(open_url: str) -> Reports:
    return rust(open_url, *RUST)


@pytest.mark.parametrize("scenario", GO)
def test_go_amqp_finds_what_amqp_promises(go_reports: Reports, scenario: str) -> None:
    assert go_reports[scenario] == "ok"


@pytest.mark.parametrize("scenario", RUST)
def test_fe2o3_amqp_finds_what_amqp_promises(rust_reports: Reports, scenario: str) -> None:
    assert rust_reports[scenario] == "ok"


@pytest.fixture(scope="module")
def secure(secure_node: tuple[NodeProcess, Path], secure_addresses: Addresses) -> tuple[int, Path]:
    """The port of a node with one user, plain and by TLS, and its authority."""
    declare(secure_addresses)
    node, authority = secure_node
    return node.port, authority


def test_go_amqp_comes_in_over_tls_with_its_password_only(secure: tuple[int, Path]) -> None:
    port, authority = secure
    url = f"amqps://localhost:{port}"
    reports = go(url, "exchange", "request-reply", user="jo", authority=str(authority))
    assert reports == {"exchange": "ok", "request-reply": "ok"}
    assert "failed" in go(url, "exchange", user="jo", password="wrong", authority=str(authority))["exchange"]
    assert "certificate" in go(url, "exchange", user="jo")["exchange"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_fe2o3_amqp_comes_in_with_every_scram_it_has(secure: tuple[int, Path], mechanism: str) -> None:
    url = f"amqp://localhost:{secure[0]}"
    reports = rust(url, "exchange", "request-reply", user="jo", mechanism=mechanism)
    assert reports == {"exchange": "ok", "request-reply": "ok"}
    assert "failed" in rust(url, "exchange", user="jo", password="wrong", mechanism=mechanism)["exchange"]
