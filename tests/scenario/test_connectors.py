"""Connectors as users declare and test them: the how-to, and who may test what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.scenario.howto_page import play
from tests.support.installation import Installation
from tests.support.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    found = Installation(tmp_path_factory.mktemp("connectors") / "d")
    found.start("--no-pipelines", "--connector-network", "127.0.0.1/32")
    try:
        yield found
    finally:
        code = found.stop() if found.is_running else 0
    assert code == 0


def test_the_page_about_other_brokers_does_what_it_says(place: Installation, tmp_path: Path) -> None:
    play("connect-another-broker.md", place, tmp_path)
    told = (tmp_path / "steps.txt").read_text()
    assert "TLSv1.3" in told
    assert "let in as 'miller' by SCRAM-SHA-512" in told
    assert "a receiver of 'orders' is attached" in told
    for shown in (told, place.ok("get", "space", "bakery", "-o", "json"), _logs(place)):
        assert "flour and water" not in shown


def _logs(place: Installation) -> str:
    return "".join(each.read_text() for each in (place.data / "logs").iterdir()) + (
        (place.data / "audit.log").read_text()
    )


def test_what_cannot_be_tested_is_said_without_a_traceback(place: Installation) -> None:
    port = place.url("amqp").rpartition(":")[2]
    here = {"endpointHosts": [{"host": "127.0.0.1", "port": int(port)}]}
    connectors: list[dict[str, Any]] = [
        {"name": "open", **here},
        {"name": "elsewhere", "endpointHosts": [{"host": "127.0.0.2", "port": 5672}]},
        {"name": "waiting", **here, "tls": {"caCert": {"valueFromSecret": {"name": "missing"}}}},
    ]
    space = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": "market"},
        "spec": {"connectors": connectors},
    }
    place.ok("apply", "-f", "-", stdin=json.dumps(space))
    items = json.loads(place.run("connector", "test", "elsewhere", "--space", "market", "-o", "json").out)
    assert [(item["host"], item["succeeded"]) for item in items] == [("127.0.0.2", False)]
    (step,) = items[0]["steps"]
    assert step["step"] == "DNS"
    assert "allows it by --connector-network" in step["message"]
    for name, code, expected in (
        ("waiting", 1, "connector 'waiting' waits: there is no Secret default/missing"),
        ("nowhere", 3, "space market has no connector nowhere; it has open, elsewhere, waiting"),
    ):
        done = place.run("connector", "test", name, "--space", "market")
        assert (done.code, expected in done.err) == (code, True), done.err
    # Who needs it is told, too; and so once the Secret is gone again.
    waits = "connector 'waiting' waits: there is no Secret default/missing"
    for _ in range(2):
        until(lambda: waits in place.run("send", "waiting/orders", "hello", "--space", "market").err)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "missing"}}
        place.ok("apply", "-f", "-", stdin=json.dumps(secret | {"stringData": {"ca.crt": place.ok("ca")}}))
        until(lambda: waits not in place.run("send", "waiting/orders", "hello", "--space", "market").err)
        place.ok("delete", "secret", "missing")
    # The space is ready, and says which of its connectors is not.
    waits = "it waits: there is no Secret default/missing"
    until(lambda: f"connector waiting: {waits}" in " ".join(place.ok("get", "space", "market", "-o", "wide").split()))
    shown = place.ok("describe", "space", "market")
    assert "Ready:" in shown
    assert waits in shown
    (seen,) = [item for item in json.loads(place.ok("status", "-o", "json"))["spaces"]
               if item["metadata"]["name"] == "market"]  # fmt: skip
    assert [item["name"] for item in seen["status"]["connectors"] if not item.get("isReady")] == ["waiting"]
