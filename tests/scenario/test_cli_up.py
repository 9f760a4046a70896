"""The whole installation through its command line: start, use, kill, come back, stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from enmasse.client.blocking import connect
from enmasse.client.message import Message
from tests.support.polling import until
from tests.support.processes import is_alive
from tests.support.sparkplug_payloads import SESSION

if TYPE_CHECKING:
    from tests.support.installation import Installation

pytestmark = pytest.mark.slow

STORED = ("orders", "invoices", "commands", "failed")


def test_a_command_is_a_program_with_an_exit_code(shared: Installation) -> None:
    command = [sys.executable, "-m", "enmasse", "get", "space", "nope", "--data", str(shared.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "error: there is no AddressSpace 'nope' in namespace default; there are demo\n"


def test_endpoints_and_processes_are_written_down(shared: Installation) -> None:
    protocols = [item["protocol"] for item in shared.endpoints()["endpoints"]]
    of_clients = ["amqp", "amqps", "stomp", "stomps", "mqtt", "mqtts", "http", "https"]
    assert protocols == [*of_clients, "api", "console", "registry", "schemas", "api-tls"]
    processes = shared.endpoints()["processes"]
    assert [item["kind"] for item in processes] == ["supervisor", "control", "node", "journal", "pipelines"]
    assert all(is_alive(item["pid"]) for item in processes)
    for kind in ("control", "pipelines"):
        words = Path(f"/proc/{shared.pid(kind)}/cmdline").read_text().split("\0")
        assert words[words.index("--api-auth") + 1] == "token"
    assert shared.url("amqp") in shared.ok("endpoints")


def test_another_installation_does_not_get_the_pipelines_of_one_that_runs(
    shared: Installation, tmp_path: Path
) -> None:
    other = type(shared)(tmp_path / "data")
    refused = other.run("up", "--pipelines-folder", str(shared.data / "pipelines"))
    assert refused.code == 1
    assert refused.err.startswith(f"error: {shared.data}/pipelines is in use by another `enmasse up`")


@pytest.mark.parametrize("where", [("-s", "typo"), ("-s", "demo", "-n", "nowhere"), ("-s", "typo", "-n", "nowhere")])
def test_a_misspelt_space_is_refused_though_there_is_only_one(shared: Installation, where: tuple[str, ...]) -> None:
    for command in (("send", "orders", "x"), ("request", "orders", "x"), ("receive", "orders")):
        result = shared.run(*command, *where)
        assert (result.code, result.out) == (3, "")
        assert "names no space" in result.err
        assert "enmasse get spaces -A" in result.err


def test_every_example_is_ready(shared: Installation) -> None:
    items = json.loads(shared.ok("get", "addresses", "-o", "json"))["items"]
    assert {item["spec"]["type"] for item in items} == {
        "anycast",
        "multicast",
        "queue",
        "topic",
        "subscription",
        "stream",
        "deadletter",
    }
    assert all(item["status"]["isReady"] for item in items)
    document = json.loads(shared.ok("status", "-o", "json"))
    assert (document["ready"], len(document["spaces"]), len(document["addresses"])) == (True, 1, len(items))


GUARDED = """
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: guarded}
spec:
  endpoints:
    - name: messaging
      service: messaging
      expose: {type: route, annotations: {zone: a}}
  networkPolicy: {ingress: [{from: [{podSelector: {}}]}]}
"""


def test_a_space_shows_which_of_its_fields_have_no_effect(shared: Installation) -> None:
    would = shared.run("apply", "-f", "-", "--dry-run", stdin=GUARDED)
    assert "spec.networkPolicy has no effect" in would.out
    done = shared.run("apply", "-f", "-", stdin=GUARDED)
    assert done.err.count("warning: guarded: ") == 2
    until(lambda: "spec.networkPolicy has no effect" in shared.ok("get", "space", "guarded", "-o", "wide"))
    shown = shared.ok("describe", "space", "guarded")
    for path in ("spec.endpoints[0].expose.annotations", "spec.networkPolicy"):
        assert path in shown
    item = json.loads(shared.ok("get", "space", "guarded", "-o", "json"))
    told = {one["type"]: (one["status"], one["reason"]) for one in item["status"]["conditions"]}
    assert (told["InEffect"], told["Ready"]) == (("False", "NotInEffect"), ("False", "NotInEffect"))
    shared.ok("delete", "space", "guarded")
    until(lambda: shared.run("get", "space", "guarded").code == 3)


def test_a_message_is_sent_to_a_queue_and_received(shared: Installation) -> None:
    arguments = ("--subject", "hot", "--durable", "--property", "size=large")
    assert shared.ok("send", "orders", "one coffee", *arguments) == "accepted\n"
    received = json.loads(shared.ok("receive", "orders", "--count", "1", "-o", "json"))
    assert time.time() - received.pop("creationTime") < 300
    assert received == {
        "subject": "hot",
        "durable": True,
        "properties": {"size": "large"},
        "body": "one coffee",
    }


def test_payloads_of_sparkplug_are_shown_by_the_names_that_births_have_said(shared: Installation) -> None:
    shared.ok("create", "address", "spBv1.0", "--type", "topic", "--wait", "30")
    shared.ok("create", "address", "measured", "--type", "subscription", "--topic", "spBv1.0", "--wait", "30")
    bodies = [*SESSION.items(), ("spBv1.0/STATE/host", b'{"online": true}'), ("spBv1.0/plant/NDATA/line-1", b"odd")]
    with connect(shared.url("amqp")) as connection:
        for name, body in bodies:
            connection.sender(name).send(Message(body))
    browsed = json.loads(shared.ok("address", "browse", "measured", "-o", "json"))
    assert [one["body"]["type"] for one in browsed[:-2]] == [name.split("/")[2] for name in SESSION]
    birth, command, data, *lines = shared.ok("receive", "measured", "--count", str(len(bodies))).splitlines()
    told = [json.loads(line) for line in (birth, command, data)]
    assert [one["type"] for one in told] == ["NBIRTH", "NCMD", "NDATA"]
    assert told[2]["seq"] == 1
    assert told[2]["metrics"][1] == {
        "name": "Offset",
        "value": -128,
        "datatype": "Int8",
        "timestamp": "2026-01-31T12:00:00.950Z",
        "alias": 2,
    }
    # What is none is shown as it is.
    assert lines[-2:] == ['{"online": true}', "odd"]
    with connect(shared.url("amqp")) as connection:
        data = "spBv1.0/plant/NDATA/line-1"
        connection.sender(data).send(Message(SESSION[data]))
        # As pipelines send bad records.
        connection.sender("orders").send(Message(SESSION[data], properties={"address": data}))
    for address in ("measured", "orders"):
        alone = json.loads(shared.ok("receive", address, "--count", "1"))
        assert [one["name"] for one in alone["metrics"]] == ["alias 1", "alias 2", "alias 3"]
    shared.ok("delete", "address", "measured")
    shared.ok("delete", "address", "spBv1.0")


def test_only_as_many_messages_as_asked_for_are_taken(shared: Installation) -> None:
    assert shared.ok("send", "invoices", "--count", "5", stdin="line\n") == "5 accepted\n"
    assert shared.ok("receive", "invoices", "--count", "2") == "line\nline\n"
    lines = ""
    # Without a number it takes what comes until nothing has come for so long.
    while len(lines) < len("line\n" * 3):
        lines += shared.run("receive", "invoices", "--timeout", "1").out
    assert lines == "line\n" * 3
    nothing = shared.run("receive", "invoices", "--timeout", "0.3")
    assert (nothing.code, "no message came" in nothing.err) == (4, True)


def test_a_stream_is_read_from_any_position_again_and_again(shared: Installation) -> None:
    for body in ("a", "b"):
        shared.ok("send", "clicks", body, "--subject", "same-key")
    for _ in range(2):
        assert shared.ok("receive", "clicks", "--from", "first", "--count", "2") == "a\nb\n"


def test_a_direct_address_without_receiver_gives_no_credit(shared: Installation) -> None:
    result = shared.run("send", "quotes", "hello", "--timeout", "0.5")
    assert (result.code, "no credit" in result.err) == (4, True)


def test_a_request_gets_its_reply(shared: Installation) -> None:
    attached = threading.Event()

    def serve() -> None:
        with connect(shared.url("amqp")) as connection, connection.receiver("quotes") as receiver:
            attached.set()
            delivery = receiver.receive(timeout=60)
            assert delivery is not None
            asked = delivery.message
            reply = type(asked)(asked.body.upper(), correlation_id=asked.message_id)
            with connection.sender(asked.reply_to) as sender:
                sender.send(reply)
            delivery.accept()

    server = threading.Thread(target=serve)
    server.start()
    assert attached.wait(30)
    assert shared.ok("request", "quotes", "how much?") == "HOW MUCH?\n"
    server.join()


def test_an_unknown_address_is_not_found(shared: Installation) -> None:
    for command in ("send", "receive"):
        result = shared.run(command, "nowhere", *(["x"] if command == "send" else []))
        assert (result.code, "amqp:not-found" in result.err) == (3, True)


def test_a_second_start_on_the_same_directory_is_refused(shared: Installation) -> None:
    result = shared.run("up")
    assert result.code == 1
    assert f"is in use by process {shared.pid('supervisor')}" in result.err
    assert shared.ok("endpoints")


def test_what_may_open_too_few_files_says_how_many_it_needs(tmp_path: Path) -> None:
    """With 32 descriptors a port could be opened, and no connection be accepted."""
    few_files = ("sh", "-c", 'ulimit -n 32; exec "$@"', "sh")
    started = {
        command[0]: subprocess.Popen(
            [*few_files, sys.executable, "-m", "enmasse", *command, "--data", str(tmp_path / command[0])],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in (("up", "--ports", "auto"), ("node",), ("control", "--port", "0"))
    }
    for name, process in started.items():
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1, name
        assert "the limit of open files is 32, and at least 512 are needed" in said
        assert "ulimit -n 4096" in said


def test_a_space_is_named_when_there_are_several(own: Installation) -> None:
    for space in ("red", "blue"):
        own.ok("create", "space", space)
        own.ok("create", "address", "orders", "--type", "queue", "--space", space)
    unclear = own.run("send", "orders", "x")
    assert unclear.code == 3
    assert "--space" in unclear.err
    own.ok("send", "orders", "for red", "--space", "red")
    assert own.run("receive", "orders", "--count", "1", "--timeout", "0.5", "--space", "blue").code == 4
    assert own.ok("receive", "orders", "--count", "1", "--space", "red") == "for red\n"


def test_what_waits_for_something_is_shown_and_served_once_it_is_there(own: Installation) -> None:
    own.ok("create", "space", "shop")
    waiting = own.run("create", "address", "reader", "--type", "subscription", "--topic", "news")
    assert (waiting.code, "topic 'news' does not exist yet" in waiting.err) == (0, True)
    status = own.run("status", "--wait", "0.5")
    assert (status.code, "address/shop.reader is not ready (topic 'news' does not exist yet)" in status.err) == (
        4,
        True,
    )
    assert own.run("status").code == 1
    own.ok("create", "address", "news", "--type", "topic")
    own.ok("status", "--wait", "150")
    own.ok("send", "news", "hello")
    assert own.ok("receive", "reader", "--count", "1") == "hello\n"
    own.ok("delete", "space", "shop")
    until(lambda: own.run("send", "news", "x", "--timeout", "1").code == 3)


def test_killed_processes_come_back_on_the_same_ports_with_everything(own: Installation) -> None:
    own.apply_examples()
    before = own.endpoints()
    for address in STORED[:2]:
        own.ok("send", address, f"to {address}", "--durable")
    for kind in ("node", "journal", "control"):
        pid = own.pid(kind)
        os.kill(pid, signal.SIGKILL)
        if kind == "node":
            until(lambda: not is_alive(pid))  # noqa: B023  it is asked at once
            place = urlsplit(own.url("amqp"))
            with socket.create_connection((place.hostname, place.port), timeout=60) as waits:
                waits.sendall(b"AMQP\x00\x01\x00\x00")
                assert waits.recv(8), "whoever comes meanwhile is not refused"
        until(lambda: own.pid(kind) != pid)  # noqa: B023  the same
        own.ok("status", "--wait", "150")
    assert own.endpoints()["endpoints"] == before["endpoints"]
    for address in STORED[:2]:
        assert own.ok("receive", address, "--count", "1") == f"to {address}\n"
    own.ok("create", "address", "more", "--type", "queue")
    own.ok("send", "more", "x")


def test_a_journal_that_is_gone_is_missed_and_once_begun_anew_the_node_is_told_everything(
    own: Installation,
) -> None:
    own.apply_examples()
    assert own.stop() == 0
    for path in sorted((own.data / "nodes").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    refused = own.run("up")
    journal = own.data / "nodes" / "node-0" / "journal"
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert refused.err.startswith(f"error: the journal in {journal} is gone: there is no {journal}/data.mdb")
    own.ok("journal", "init")
    own.start()
    own.ok("status", "--wait", "150")
    own.ok("send", "orders", "x")


def test_stopping_ends_every_process_and_keeps_ports_and_data(own: Installation) -> None:
    own.ok("create", "space", "shop")
    own.ok("create", "address", "orders", "--type", "queue")
    own.ok("send", "orders", "kept", "--durable")
    before = own.endpoints()
    assert own.stop() == 0
    assert not [item for item in before["processes"] if is_alive(item["pid"])]
    assert own.run("status").code == 4
    own.start()
    assert own.endpoints()["endpoints"] == before["endpoints"]
    own.ok("status", "--wait", "150")
    assert own.ok("receive", "orders", "--count", "1") == "kept\n"


def test_children_die_with_a_supervisor_that_is_killed_and_a_new_one_takes_over(own: Installation) -> None:
    own.ok("create", "space", "shop")
    processes = own.endpoints()["processes"]
    assert own.supervisor is not None
    own.supervisor.kill()
    own.supervisor.wait()
    own.start()
    assert not [item for item in processes if is_alive(item["pid"])]
    assert own.ok("get", "spaces", "-o", "name") == "addressspace/shop\n"
