"""What a process reaches that is started as runners are: as root, and as a user who is not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.foreign_tools import as_nobody

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["as root", "as nobody"])
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of all attempts of ``network_attack``."""
    words: list[str] = []
    if os.getuid() == 0:
        words = as_nobody() if request.param == "as nobody" else []
    elif request.param == "as root":
        pytest.skip("only root can start it as root")
    folder = tmp_path_factory.mktemp("network")
    for path in (folder, folder.parent, folder.parent.parent):
        if path.stat().st_uid == os.getuid():
            path.chmod(0o777 if path == folder else 0o755)
    command = [*words, sys.executable, "-B", "-m", "tests.tenancy.network_attack", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "PermissionError" in done.stderr and "namespaces of its own" in done.stderr:
        pytest.skip("namespaces cannot be made here, nor the machine that is attacked")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    if found["problem"] and "Operation not permitted" in found["problem"]:
        pytest.skip(f"namespaces cannot be made here: {found['problem']}")
    assert found["problem"] == ""
    return found


OURS = {"127.0.0.1 5672": "127.0.0.1 5672", "127.0.0.1 8080": "127.0.0.1 8080"}
REFUSED = {"ConnectionRefusedError", "ConnectionResetError", "OSError", "PermissionError", "gaierror"}


def reached(outcome: dict[str, Any]) -> dict[str, str]:
    """The places that answered, and who did."""
    from tests.tenancy.network_attack import PLACES

    tried = {f"{host} {port}": outcome[f"{host} {port}"] for host, port in PLACES}
    return {place: answer for place, answer in tried.items() if answer not in REFUSED}


def test_a_runner_reaches_the_node_the_api_and_what_is_listed_and_nothing_else(outcomes: dict[str, Any]) -> None:
    assert reached(outcomes["listed"]) == OURS | {
        "127.0.0.1 6379": "127.0.0.1 6379",
        "10.2.3.4 443": "10.2.3.4 443",
        "10.2.3.4 80": "10.2.3.4 80",
        "known.test 443": "10.1.0.7 443",
        f"{socket.gethostname().lower()} 443": "10.1.0.9 443",
        "2001:db8:: 80": "2001:db8:: 80",
    }


def test_a_name_that_is_listed_has_one_address_though_it_is_this_machines_own(outcomes: dict[str, Any]) -> None:
    # Some clients take any one of several.
    names = ("known.test", "moved.test", socket.gethostname().lower())
    assert [len(outcomes["listed"][f"find {name}"]) for name in names] == [1, 1, 1]
    assert outcomes["everything"]["find known.test"] == "gaierror"


def test_a_network_that_is_listed_leads_to_no_loopback_port_and_to_no_metadata(outcomes: dict[str, Any]) -> None:
    assert reached(outcomes["everything"]) == OURS | {
        "10.1.0.7 443": "10.1.0.7 443",
        "10.2.3.4 443": "10.2.3.4 443",
        "10.2.3.4 80": "10.2.3.4 80",
        "198.51.100.1 80": "198.51.100.1 80",
        "2001:db8:: 80": "2001:db8:: 80",
    }


def test_without_namespaces_only_ports_of_ours_and_ephemeral_ones_are_reached(outcomes: dict[str, Any]) -> None:
    if reached(outcomes["uncaged"]).get("127.0.0.1 22"):
        pytest.skip("this kernel has no Landlock for ports")
    assert reached(outcomes["uncaged"]) == OURS


def test_no_folder_of_others_can_be_written_and_no_socket_of_others_found(outcomes: dict[str, Any]) -> None:
    found = outcomes["listed"]
    assert found["write ."] == "written"
    assert found["write /srv"] == "OSError"
    assert found["write /run/lock"] == "FileNotFoundError"
    assert found["list /run"] == []
    assert outcomes["mark"] in found["list /tmp"]
    assert not outcomes["left"]
    assert found["abstract socket"] == "ConnectionRefusedError"


def test_a_runner_sees_no_process_but_its_own(outcomes: dict[str, Any]) -> None:
    if outcomes["crowded"]:
        pytest.skip(f"process numbers cannot be its own here: {outcomes['crowded']}")
    found = outcomes["listed"]
    assert found["processes"] == [1, 2]
    assert found["keys"] in ("", "FileNotFoundError")
    assert found["first process"] == "PermissionError"
    # The kernel takes no signal for it from within.
    assert found["kill first"] == "sent"


def test_without_control_groups_memory_is_looked_after_and_cores_are_given(outcomes: dict[str, Any]) -> None:
    if outcomes["greedy"] is None:
        pytest.skip(f"process numbers cannot be its own here: {outcomes['crowded']}")
    found = outcomes["greedy"]
    assert found["said"] == ["1", "PermissionError"]
    assert found["status"] == -9, found["log"]
    assert "more than the 200 that they may: all of them are ended" in found["log"]


@pytest.mark.parametrize("kind", ["listed", "everything", "uncaged"])
def test_a_runner_has_no_call_that_it_needs_not_and_no_socket_but_of_the_network_and_files(
    outcomes: dict[str, Any], kind: str
) -> None:
    if outcomes["unfiltered"]:
        pytest.skip(f"calls cannot be filtered here: {outcomes['unfiltered']}")
    found = outcomes[kind]
    unknown = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
    assert found["calls"] == {name: "ENOSYS" if name in unknown else "EPERM" for name in found["calls"]}
    assert {"keyctl", "ptrace", "bpf", "unshare", "userfaultfd", "perf_event_open"} <= set(found["calls"])
    assert (found["clone"], found["typing"]) == ("EPERM", "EPERM")
    assert set(found["families"]) <= {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}
    assert found["netlink"] in ([], [0])


@pytest.mark.parametrize("kind", ["listed", "uncaged"])
def test_other_processes_can_be_neither_signalled_nor_read_nor_their_network_entered(
    outcomes: dict[str, Any], kind: str
) -> None:
    found = outcomes[kind]
    # Where it does not see them, their numbers are nobody's.
    refused = {"PermissionError"} if kind == "uncaged" else {"FileNotFoundError", "ProcessLookupError"}
    for what in ("memory", "network", "signal"):
        assert found[what] in refused | {"PermissionError"}, what
    assert found["core"] == [0, 0]


def test_a_relay_cannot_be_ended_or_read_by_its_runner_and_one_without_ends(outcomes: dict[str, Any]) -> None:
    assert outcomes["everything"]["kill relay"] == "PermissionError"
    assert outcomes["everything"]["trace relay"] == "PermissionError"
    assert set(outcomes["without relay"]) == {-15}
