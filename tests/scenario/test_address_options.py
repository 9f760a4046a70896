"""Options of addresses from their YAML to what messages do, over the whole installation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client.blocking import connect
from enmasse.client.management import ManagementError
from enmasse.drivers.data_directory import DEFAULT_NODE, Layout
from tests.support.installation import EXAMPLES
from tests.support.polling import until
from tests.support.ready_commands import command_path

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.installation import Installation

pytestmark = pytest.mark.slow


def stored(installation: Installation, address: str) -> list[dict[str, Any]]:
    """What an address holds, without taking it away."""
    found: list[dict[str, Any]] = json.loads(installation.ok("address", "browse", address, "-o", "json"))
    return found


def on_node(installation: Installation, name: str) -> dict[str, Any]:
    """An address as the node has it."""
    socket = Layout(installation.data).admin_socket(DEFAULT_NODE)
    with connect(f"amqp+unix://{socket}", patience=10) as connection:
        return connection.management().read("io.enmasse.address", name)


def fail(installation: Installation, address: str, times: int) -> None:
    """Take one message and give it back as failed, so often."""
    with connect(installation.url("amqp")) as connection, connection.receiver(address, credit=1) as receiver:
        for _ in range(times):
            delivery = receiver.receive(timeout=60)
            assert delivery is not None
            delivery.modify(failed=True)


def test_a_message_that_fails_too_often_is_a_dead_letter_and_can_be_sent_back(shared: Installation) -> None:
    for region in ("north", "south"):
        shared.ok("send", "payments", f"to the {region}", "--durable", "-p", f"region={region}")
    fail(shared, "payments", 6)
    until(lambda: len(stored(shared, "failed-payments")) == 2)
    letters = stored(shared, "failed-payments")
    assert {item["annotations"]["x-opt-original-address"] for item in letters} == {"payments"}
    shown = shared.ok("address", "browse", "failed-payments")
    assert "ORIGIN" in shown
    assert "to the north" in shown
    in_full = shared.ok("address", "browse", "failed-payments", "-o", "yaml")
    assert in_full.count("x-opt-original-address: payments") == 2
    back = shared.ok("address", "replay", "failed-payments", "--selector", "region = 'north'")
    assert back == "1 message sent back from 'failed-payments' to where they came from in space demo\n"
    assert shared.ok("receive", "payments", "--count", "1") == "to the north\n"
    assert [item["body"] for item in stored(shared, "failed-payments")] == ["to the south"]
    assert (
        shared.ok("address", "purge", "failed-payments") == "1 message deleted from 'failed-payments' in space demo\n"
    )


def test_a_command_arrives_in_time_or_expires_where_it_can_be_seen(shared: Installation) -> None:
    shared.ok("send", "door", "open", "--ttl", "60", "--subject", "front")
    assert shared.ok("receive", "door", "--count", "1") == "open\n"
    before = on_node(shared, "default/demo.door")
    shared.ok("send", "door", "too late", "--ttl", "0.2", "--subject", "front")
    until(lambda: [item["body"] for item in stored(shared, "missed-commands")] == ["too late"])
    after = on_node(shared, "default/demo.door")
    assert (after["messagesStored"], after["expired"]) == (0, before["expired"] + 1)


def test_a_stream_tells_what_it_keeps(shared: Installation) -> None:
    status = json.loads(shared.ok("get", "address", "measurements", "-o", "json"))["status"]
    assert status["retention"] == {"bytes": 500_000_000, "age": "1d"}
    told = on_node(shared, "default/demo.measurements")
    assert (told["retentionBytes"], told["retentionMs"]) == (500_000_000, 86_400_000)
    assert "retention:" in shared.ok("describe", "address", "measurements")


def test_messages_are_chosen_by_typed_properties(shared: Installation) -> None:
    for size in (1, 5):
        shared.ok("send", "orders", f"size {size}", "-p", f"size:={size}")
    browse = ("receive", "orders", "--selector", "size > 3", "--browse", "--timeout", "0.5")
    assert until(lambda: shared.run(*browse).out) == "size 5\n"
    moved = shared.ok("address", "move", "orders", "invoices", "--selector", "size > 3")
    assert moved == "1 message moved from 'orders' to 'invoices' in space demo\n"
    assert shared.ok("receive", "invoices", "--count", "1") == "size 5\n"
    assert shared.ok("receive", "orders", "--count", "1") == "size 1\n"
    wrong = shared.run("address", "purge", "orders", "--selector", "size >")
    assert (wrong.code, "is not understood at character 7" in wrong.err) == (1, True)


def test_an_administrator_does_the_same_over_amqp(shared: Installation) -> None:
    for body in ("a", "b", "c"):
        shared.ok("send", "orders", body, "--subject", body)
    socket = Layout(shared.data).admin_socket(DEFAULT_NODE)
    with connect(f"amqp+unix://{socket}", patience=10) as connection:
        management = connection.management()
        assert management.move("default/demo.orders", "invoices", "JMSType = 'a'") == 1
        assert management.purge("default/demo.orders", "JMSType = 'b'") == 1
        assert management.purge("default/demo.orders") == 1
        assert management.purge("default/demo.invoices") == 1
        shared.ok("send", "orders", "never failed")
        with pytest.raises(ManagementError, match="no original address") as caught:
            management.replay("default/demo.orders")
        assert caught.value.status == 409
        assert management.purge("default/demo.orders") == 1


def test_options_and_messages_survive_a_killed_node_and_may_change_afterwards(own: Installation) -> None:
    example = (EXAMPLES / "05-time-to-live.yaml").read_text()
    own.ok("apply", "-f", "-", stdin=example)
    own.ok("status", "--wait", "150")
    own.ok("send", "door", "open", "--subject", "front")
    told = on_node(own, "default/demo.door")
    options = {"ttlMaximum": 60_000, "expiry": "missed-commands", "lastValueKey": "subject", "storage": "durable"}
    assert options.items() <= told.items()
    pid = own.pid("node")
    os.kill(pid, signal.SIGKILL)
    until(lambda: own.pid("node") != pid)
    own.ok("status", "--wait", "150")
    assert options.items() <= on_node(own, "default/demo.door").items()
    assert [item["body"] for item in stored(own, "door")] == ["open"]
    own.ok("apply", "-f", "-", stdin=example.replace("maximum: 60000 ", "maximum: 300 "))
    own.ok("status", "--wait", "150")
    assert on_node(own, "default/demo.door")["ttlMaximum"] == 300
    own.ok("send", "door", "close", "--subject", "front")
    until(lambda: "close" in [item["body"] for item in stored(own, "missed-commands")])
    fixed = own.run("apply", "-f", "-", stdin=example.replace("storage: durable", "storage: memory"))
    assert (fixed.code, "spec.storage: cannot change from 'durable' to 'memory'" in fixed.err) == (1, True)


def test_lines_and_files_are_sent_and_what_is_printed_alone_is_taken(shared: Installation, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_bytes(b'{"loaves": 2}\n')
    before = time.time()
    assert shared.ok("send", "orders", "--lines", stdin="one\r\n\ntwo\nthree") == "3 accepted\n"
    assert shared.ok("send", "orders", "--file", str(file), "--content-type", "application/json") == "accepted\n"
    *lines, sent = stored(shared, "orders")
    assert [item["body"] for item in lines] == ["one", "two", "three"]
    assert (sent["body"], sent["contentType"]) == ('{"loaves": 2}\n', "application/json")
    assert before <= sent["creationTime"] <= time.time()
    # Where the reader has had enough, what was not written stays, nor is the next message waited for.
    environment = os.environ | {"PATH": command_path(), "ENMASSE_DATA": str(shared.data)}
    command = ["bash", "-c", "set -o pipefail; enmasse receive orders | head -1"]
    for line in ("one", "last"):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{line}\n", "")
        assert [item for item in stored(shared, "orders") if "deliveryCount" in item] == []
        shared.ok("address", "purge", "orders")
        shared.ok("send", "orders", "last")
    shared.ok("address", "purge", "orders")
