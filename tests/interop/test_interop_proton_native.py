"""Proton for C++ and the distribution's own C examples, built here, against a real node."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.conftest import HERE
from tests.interop.test_interop_users import PASSWORD
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

PATIENCE_S = 60
EXAMPLES = Path("/usr/share/proton/examples/c")


def build(directory: Path, source: Path, compiler: str, *libraries: str) -> str:
    """The program that a source is compiled to."""
    program = directory / source.stem
    built = subprocess.run(
        [compiler, "-O1", "-o", str(program), str(source), *(f"-l{library}" for library in libraries)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return str(program)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """cpp/client.cpp, built."""
    require("Proton for C++")
    return build(tmp_path_factory.mktemp("cpp"), HERE / "cpp" / "client.cpp", "g++", "qpid-proton-cpp")


def run(*command: str) -> str:
    """What a program says."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [("exchange", "queue"), ("exchange", "anycast"), ("outcomes", "queue"), ("request-reply", "anycast")],
)
def test_a_client_in_cpp_finds_what_amqp_promises(
    node: NodeProcess, addresses: Any, program: str, scenario: str, kind: str
) -> None:
    assert run(program, scenario, node.url, addresses.declare(kind)) == f"{scenario} ok\n"


def test_a_client_in_cpp_goes_on_with_a_node_that_was_killed(killable_node: Any, program: str) -> None:
    node, manage = killable_node
    address = manage().declare("queue")
    with subprocess.Popen([program, "reconnect", node.url, address], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "reconnect begun\n"
            node.kill()
            node.start()
            assert process.communicate(timeout=PATIENCE_S)[0] == "reconnect ok\n"
        finally:
            process.kill()


@pytest.mark.parametrize("scenario", ["exchange", "outcomes"])
def test_a_client_in_cpp_comes_in_over_tls(secure_orders: tuple[str, str], program: str, scenario: str) -> None:
    url, authority = secure_orders
    assert run(program, scenario, url, "orders", "jo", PASSWORD, authority) == f"{scenario} ok\n"


def test_a_client_in_cpp_stays_out_with_a_wrong_password(secure_orders: tuple[str, str], program: str) -> None:
    url, authority = secure_orders
    done = subprocess.run(
        [program, "exchange", url, "orders", "jo", "wrong", authority],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Authentication failed" in done.stdout


def example(directory: Path, name: str) -> str:
    """One of the distribution's examples, built as it is."""
    require("Proton for C, and its examples")
    return build(
        directory, EXAMPLES / f"{name}.c", "gcc", ":libqpid-proton-core.so.10", ":libqpid-proton-proactor.so.1"
    )


def test_the_c_examples_send_and_receive(node: NodeProcess, addresses: Any, tmp_path: Path) -> None:
    address = addresses.declare("queue")
    where = ("127.0.0.1", str(node.port), address, "10")
    assert "10 messages sent and acknowledged" in run(example(tmp_path, "send"), *where)
    assert "10 messages received" in run(example(tmp_path, "receive"), *where)


def test_the_c_example_that_aborts_leaves_nothing_behind(node: NodeProcess, addresses: Any, tmp_path: Path) -> None:
    address = addresses.declare("queue")
    said = run(example(tmp_path, "send-abort"), "127.0.0.1", str(node.port), address, "10")
    assert "10 messages started and aborted" in said
    assert addresses.read(address)["messagesStored"] == 0
