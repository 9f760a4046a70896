"""Ports and the files that tell of them."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.endpoints import (
    Endpoint,
    Endpoints,
    Process,
    read_endpoints,
    write_endpoints,
)
from enmasse.drivers.supervisor.ports import API_TLS_PORT, ClientSockets, choose_ports, is_free
from enmasse.errors import ConfigError
from tests.unit.node.line_protocol import LINES

HOST = "127.0.0.1"


def test_automatic_ports_are_free_different_and_kept(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    ports = choose_ports(layout, HOST, automatic=True)
    assert ports.amqp != ports.api
    assert is_free(HOST, ports.amqp)
    assert is_free(HOST, ports.api)
    assert choose_ports(layout, HOST, automatic=True) == ports


def test_an_automatic_port_that_was_taken_meanwhile_is_chosen_anew(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    ports = choose_ports(layout, HOST, automatic=True)
    with socket.create_server((HOST, ports.amqp)):
        again = choose_ports(layout, HOST, automatic=True)
    assert again.amqp != ports.amqp
    assert again.api == ports.api


def test_a_port_that_is_asked_for_and_taken_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} .* is taken by another program: use --ports auto"):
            choose_ports(Layout(tmp_path), HOST, automatic=False, amqp=port)


def test_a_port_for_tls_that_nobody_asked_for_gives_way_on_loopback(tmp_path: Path) -> None:
    layout, free = Layout(tmp_path), choose_ports(Layout(tmp_path), HOST, automatic=True)
    with ExitStack() as stack:
        with suppress(OSError):  # somebody else has it already
            stack.enter_context(socket.create_server((HOST, API_TLS_PORT)))
        found = choose_ports(layout, HOST, automatic=False, amqp=free.amqp, api=free.api, api_tls_host=HOST)
        assert found.api_tls not in (0, API_TLS_PORT)
        assert is_free(HOST, found.api_tls)
        with pytest.raises(ConfigError, match=f"port {API_TLS_PORT} "):
            choose_ports(
                layout, HOST, automatic=False, amqp=free.amqp, api=free.api, api_tls_host=HOST, api_tls=API_TLS_PORT
            )


def test_a_port_can_be_named_beside_automatic_ones(tmp_path: Path) -> None:
    free = choose_ports(Layout(tmp_path), HOST, automatic=True).api
    assert choose_ports(Layout(tmp_path), HOST, automatic=True, amqp=free).amqp == free


def test_a_row_of_a_protocol_brings_its_port(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    free = choose_ports(layout, HOST, automatic=True, protocols=[LINES])
    assert len({free.amqp, free.api, free.further["lines"]}) == 3
    assert choose_ports(layout, HOST, automatic=True, protocols=[LINES]) == free, "kept"
    with socket.create_server((HOST, 0)) as other:
        taken = other.getsockname()[1]
        busy = replace(LINES, port=taken)
        given = {"automatic": False, "amqp": free.amqp, "api": free.api, "protocols": [busy]}
        spare = choose_ports(layout, HOST, **given).further["lines"]  # type: ignore[arg-type]
        assert spare not in (0, taken), "nobody asked for the customary one, so it gives way"
        with pytest.raises(ConfigError, match=f"port {taken} .lines. .* or --port lines=N to name one"):
            choose_ports(layout, HOST, further={"lines": taken}, **given)  # type: ignore[arg-type]
    named = choose_ports(layout, HOST, automatic=True, further={"lines": taken}, protocols=[LINES])
    assert named.further == {"lines": taken}


def test_a_choice_from_before_there_were_further_protocols_is_kept(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    former = choose_ports(layout, HOST, automatic=True, protocols=[])
    written = json.loads(layout.ports.read_text())
    del written["further"]
    layout.ports.write_text(json.dumps(written))
    now = choose_ports(layout, HOST, automatic=True, protocols=[LINES])
    assert (now.amqp, now.api) == (former.amqp, former.api)


def test_a_port_choice_that_cannot_be_read_is_made_anew(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.ports.write_text('{"amqp": 1}')
    assert choose_ports(layout, HOST, automatic=True).amqp > 1024


def test_who_comes_while_no_node_is_there_waits_once_one_has_listened_until_all_are_refused(tmp_path: Path) -> None:
    ports = choose_ports(Layout(tmp_path), HOST, automatic=True, protocols=[LINES])
    sockets = ClientSockets(HOST, ports)
    at = (HOST, ports.further["lines"])
    sockets.by_protocol["amqp"].listen()
    with pytest.raises(ConfigError, match=rf"port {ports.amqp} \(amqp\) on {HOST} cannot be opened: Address already"):
        ClientSockets(HOST, ports)
    sockets.refuse()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(at)
        with sockets.by_protocol["lines"].dup() as of_node:
            of_node.listen()
        with socket.create_connection(at) as waits:
            with sockets.by_protocol["lines"].dup() as of_next:
                of_next.accept()[0].close()
            assert waits.recv(1) == b""
        sockets.refuse()
    sockets.close()


def test_endpoints_are_written_as_others_read_them(tmp_path: Path) -> None:
    endpoints = Endpoints(
        (Endpoint("amqp", "amqp://127.0.0.1:5672"), Endpoint("api", "http://127.0.0.1:8080")),
        (Process("node", "node-0", 42),),
        "messaging.example.org",
    )
    path = Layout(tmp_path).endpoints
    assert read_endpoints(path) is None
    write_endpoints(path, endpoints)
    assert read_endpoints(path) == endpoints
    assert json.loads(path.read_text())["processes"] == [{"kind": "node", "name": "node-0", "pid": 42}]
    assert endpoints.url("api") == "http://127.0.0.1:8080"
    assert endpoints.url("mqtt") is None
    written = json.loads(path.read_text())
    del written["domain"]
    path.write_text(json.dumps(written))
    former = read_endpoints(path)
    assert former is not None
    assert former.domain == "enmasse.local"
    assert [item.name for item in tmp_path.iterdir()] == ["endpoints.json"]


def test_a_file_that_lists_no_endpoints_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    path.write_text('{"endpoints": 1}')
    with pytest.raises(ConfigError, match="cannot be read as a list of endpoints"):
        read_endpoints(path)


def test_an_admin_socket_lies_with_its_node_unless_the_path_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Layout(Path("/data"))
    assert short.admin_socket("node-0") == Path("/data/nodes/node-0/admin.sock")
    long = Layout(tmp_path / ("x" * 120))
    assert len(str(long.admin_socket("node-0"))) < 100
    assert long.admin_socket("node-0") != long.admin_socket("node-1")
    assert long.admin_socket("node-0") == long.admin_socket("node-0")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 100)))
    assert len(str(long.admin_socket("node-0"))) < 100
