"""The API of a running control process over real HTTP, without a node."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from enmasse.drivers.data_directory import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

SPACES = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"
SPACE = {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": {"name": "shop"}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("control")


@pytest.fixture(scope="module")
def control(data: Path) -> Iterator[httpx.Client]:
    command = [sys.executable, "-m", "enmasse", "control", "--data", str(data), "--port", "0", "--supervised"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        event = json.loads(process.stdout.readline())
        proof = {"authorization": f"Bearer {Layout(data).operator_token.read_text()}"}
        with httpx.Client(base_url=event["url"], headers=proof, trust_env=False, timeout=30) as client:
            yield client
        process.stdin.close()  # as when its supervisor dies
        assert process.wait(150) == 0


def test_a_watch_sees_an_object_come_change_and_go(control: httpx.Client) -> None:
    version = control.get(SPACES).json()["metadata"]["resourceVersion"]
    parameters = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "30"}
    seen: list[tuple[str, str]] = []
    with control.stream("GET", SPACES, params=parameters) as stream:
        lines = stream.iter_lines()
        assert control.post(SPACES, json=SPACE).status_code == 201
        event = json.loads(next(lines))
        seen.append((event["type"], event["object"]["metadata"]["name"]))
        reasons: dict[str, str] = {}
        while reasons.get("Ready") != "NodeUnavailable":  # the controller finds no node, and says so in the status
            event = json.loads(next(lines))
            reasons = {item["type"]: item["reason"] for item in event["object"]["status"].get("conditions", ())}
        seen.append((event["type"], event["object"]["metadata"]["name"]))
        control.delete(f"{SPACES}/shop")
        while event["type"] == "MODIFIED":
            event = json.loads(next(lines))
        seen.append((event["type"], event["object"]["metadata"]["name"]))
    assert seen == [("ADDED", "shop"), ("MODIFIED", "shop"), ("DELETED", "shop")]


def test_the_default_plans_are_there(control: httpx.Client) -> None:
    path = "/apis/admin.enmasse.io/v1beta2/namespaces/enmasse-infra/addressplans"
    names = {item["metadata"]["name"] for item in control.get(path).json()["items"]}
    assert {"standard-small-queue", "standard-large-stream", "brokered-topic"} <= names


def test_a_page_of_another_origin_is_kept_out(control: httpx.Client) -> None:
    assert control.get("/healthz", headers={"host": "rebound.example:8080"}).status_code == 403
    text = control.post(SPACES, content=json.dumps(SPACE), headers={"content-type": "text/plain"})
    assert text.status_code == 415
    assert control.get(SPACES).json()["items"] == []


def test_an_endless_body_is_cut_off(control: httpx.Client) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(1000):
            yield b" " * 65536

    headers = {"content-type": "application/json"}
    try:
        code = control.post(SPACES, content=endless(), headers=headers).status_code
    except httpx.WriteError:
        code = 413  # the server has hung up before everything was sent
    assert code == 413
    assert control.get("/healthz").text == "ok"


def test_a_second_control_process_on_the_same_directory_is_refused(control: httpx.Client, data: Path) -> None:
    assert control.get("/readyz").text == "ok"
    command = [sys.executable, "-m", "enmasse", "control", "--data", str(data), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert "is in use by process" in second.stderr
