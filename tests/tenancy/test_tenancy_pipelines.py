"""Every way in which red's pipelines may try to reach what blue's have, with Spark and processes as they are."""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client.message import Message
from enmasse.drivers.data_directory import DEFAULT_NODE, Layout
from enmasse.pipeline.host.separation import find_separation
from tests.support.foreign_tools import require
from tests.tenancy import pipeline_attack
from tests.tenancy.refusals import Way
from tests.tenancy.tenants import NAMESPACES, PASSWORDS, SECRET, document, path_of
from tests.tenancy.ways_pipelines import OUTCOMES, PYTHON_WAYS, REQUEST_WAYS, SQL_WAYS, pipelines_of, query

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(900),  # two Java processes start
    pytest.mark.skipif(os.getuid() != 0, reason="only root can keep processes of spaces apart"),
]

LATE_S = 400.0


def somebodys_port() -> socket.socket:
    """A port that listens; not one as the system gives out by itself: red's Spark may have it, in its own network."""
    for port in random.sample(range(10_000, 20_000), 200):
        with suppress(OSError):
            return socket.create_server(("", port))
    raise AssertionError("no port is free")


@pytest.fixture(scope="session")
def piping(tenants: Tenants) -> Iterator[Tenants]:
    """Both tenants with a pipeline; red's has tried everything."""
    require("Java 17 for Spark")
    separation = find_separation(tenants.data, tenants.data / "pipelines")
    if not separation.is_possible or not separation.is_caged:
        pytest.skip(f"runners cannot be kept apart here: {separation.reason or separation.uncaged}")
    for who, namespace in NAMESPACES.items():
        with tenants.http(who) as http:
            entries = {"username": "keeper", "password": PASSWORDS[who]}
            data = {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()}
            http.post(path_of("secrets", namespace), json=document("secrets", namespace, "runner", data=data))
            if who == "red":
                code = {"attack.py": Path(pipeline_attack.__file__).read_text()}
                attack = document("configmaps", namespace, "attack", data=code)
                http.post(path_of("configmaps", namespace), json=attack).raise_for_status()
    declare(tenants, "blue", "blue.keep", sinks=[{"table": "treasure"}])
    until(tenants, "blue", "blue.keep", "SELECT * FROM treasure")
    with tenants.connect("red", user="keeper") as connection:
        connection.sender("history").send(Message("begin", durable=True))
    foreign = somebodys_port()
    target = {
        "data": str(tenants.data),
        "admin": str(Layout(tenants.data).admin_socket(DEFAULT_NODE)),
        "host": str(Layout(tenants.data).pipelines_socket),
        "api": tenants.api,
        "amqp": tenants.amqp,
        "own": PASSWORDS["red"],
        "blue": user_of(tenants, "team-b.blue"),
        "foreign": foreign.getsockname()[1],
        "machine": address_of_machine(),
        # As text: what a pipeline is told is looked for nowhere else.
        "processes": json.dumps(
            ["enmasse control", "enmasse node", "enmasse.storage.journal", "enmasse.pipeline host", "team-b"]
        ),
        "ports": [int(url.rpartition(":")[2]) for url in (tenants.api, tenants.amqp)],
    }
    step = {
        "name": "tried",
        "function": "attack:run",
        "schema": "way STRING, outcome STRING",
        "parameters": target,
    }
    declare(tenants, "red", "red.probe", steps=[step], code={"configMap": "attack"}, sinks=[{"table": "found"}])
    OUTCOMES.update(dict(until(tenants, "red", "red.probe", "SELECT way, outcome FROM found")))
    foreign.close()
    yield tenants
    for who, name in (("red", "red.probe"), ("blue", "blue.keep")):
        with tenants.http(who) as http:
            http.delete(pipelines_of(who, name))


def declare(tenants: Tenants, who: str, name: str, **spec: Any) -> None:
    given = {"credentialsSecret": "runner", "sources": [{"name": "rows", "address": "history"}]} | spec
    body = {"apiVersion": "enmasse.io/v1beta1", "kind": "Pipeline", "metadata": {"name": name}, "spec": given}
    with tenants.http(who) as http:
        answer = http.post(pipelines_of(who), json=body)
        assert answer.status_code == 201, answer.text


def until(tenants: Tenants, who: str, name: str, sql: str) -> list[list[Any]]:
    """Wait until a query has rows."""
    deadline = time.monotonic() + LATE_S
    while True:
        answer = query(tenants, sql, as_=who, of=who)
        if answer.status_code == 200 and (rows := answer.json()["rows"]):
            return list(rows)
        with tenants.http(who) as http:
            status = http.get(pipelines_of(who, name)).json().get("status")
        assert time.monotonic() < deadline, (answer.text, status)
        time.sleep(0.5)


def address_of_machine() -> str:
    """One that its network has, or of its loopback interface if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("198.51.100.1", 9))  # nothing is sent by this
        except OSError:
            return "127.0.0.1"
        return str(sock.getsockname()[0])


def user_of(tenants: Tenants, folder: str) -> int:
    return int(json.loads((tenants.data / "pipelines" / "spaces.json").read_text())[folder]["user"])


def test_what_blue_has_is_there_to_be_reached(piping: Tenants) -> None:
    folder = piping.data / "pipelines" / "team-b.blue"
    assert list((folder / "lake" / "treasure").rglob("*.parquet"))
    assert list((folder / "checkpoints").rglob("offsets/*"))
    assert (folder / "credentials" / "runner.json").exists()
    rows = query(piping, "SELECT CAST(value AS STRING) AS text FROM treasure", as_="blue", of="blue").json()["rows"]
    assert any(SECRET in row[0] for row in rows)
    # And red's own way to its own is open.
    assert query(piping, "SELECT way FROM found").json()["rows"]


@pytest.mark.parametrize("way", PYTHON_WAYS, ids=lambda way: way.words)
def test_reds_python_does_not_get_to(way: Way, piping: Tenants) -> None:
    way.attempt(piping)


@pytest.mark.parametrize("way", SQL_WAYS, ids=lambda way: way.words)
def test_reds_sql_does_not_get_to(way: Way, piping: Tenants) -> None:
    way.attempt(piping)


@pytest.mark.parametrize("way", REQUEST_WAYS, ids=lambda way: way.words)
def test_red_does_not_get_by_declaring_or_asking_to(way: Way, piping: Tenants) -> None:
    way.attempt(piping)


def test_tenants_share_no_process_and_no_user(piping: Tenants) -> None:
    red, blue = (user_of(piping, name) for name in ("team-a.red", "team-b.blue"))
    assert red != blue
    owners = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            owners[folder.name] = (folder.stat().st_uid, (folder / "cmdline").read_bytes())
        except OSError:
            continue
    for user, mine, other in ((red, b"team-a", b"team-b"), (blue, b"team-b", b"team-a")):
        lines = [line for owner, line in owners.values() if owner == user]
        assert any(b"java" in line for line in lines)
        assert any(mine in line for line in lines)
        assert not any(other in line for line in lines)


def test_each_way_was_tried_once(piping: Tenants) -> None:
    assert set(OUTCOMES) == set(pipeline_attack.WAYS)
    assert len(PYTHON_WAYS) + len(SQL_WAYS) + len(REQUEST_WAYS) >= 60
