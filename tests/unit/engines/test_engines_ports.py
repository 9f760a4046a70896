"""Ports and the files that tell of them."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from enmasse.engines.embedded.paths import Layout
from enmasse.engines.supervisor.endpoints import (
    Endpoint,
    Endpoints,
    Process,
    read_endpoints,
    write_endpoints,
)
from enmasse.engines.supervisor.ports import choose_ports, is_free
from enmasse.errors import ConfigError

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


def test_a_port_can_be_named_beside_automatic_ones(tmp_path: Path) -> None:
    free = choose_ports(Layout(tmp_path), HOST, automatic=True).api
    assert choose_ports(Layout(tmp_path), HOST, automatic=True, amqp=free).amqp == free


def test_a_port_choice_that_cannot_be_read_is_made_anew(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.ports.write_text('{"amqp": 1}')
    assert choose_ports(layout, HOST, automatic=True).amqp > 1024


def test_endpoints_are_written_as_others_read_them(tmp_path: Path) -> None:
    endpoints = Endpoints(
        (Endpoint("amqp", "amqp://127.0.0.1:5672"), Endpoint("api", "http://127.0.0.1:8080")),
        (Process("node", "node-0", 42),),
    )
    path = Layout(tmp_path).endpoints
    assert read_endpoints(path) is None
    write_endpoints(path, endpoints)
    assert read_endpoints(path) == endpoints
    assert json.loads(path.read_text())["processes"] == [{"kind": "node", "name": "node-0", "pid": 42}]
    assert endpoints.url("api") == "http://127.0.0.1:8080"
    assert endpoints.url("mqtt") is None
    assert [item.name for item in tmp_path.iterdir()] == ["endpoints.json"]


def test_a_file_that_lists_no_endpoints_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    path.write_text('{"endpoints": 1}')
    with pytest.raises(ConfigError, match="cannot be read as a list of endpoints"):
        read_endpoints(path)


def test_an_admin_socket_lies_with_its_node_unless_the_path_is_too_long(tmp_path: Path) -> None:
    short = Layout(Path("/data"))
    assert short.admin_socket("node-0") == Path("/data/nodes/node-0/admin.sock")
    long = Layout(tmp_path / ("x" * 120))
    assert len(str(long.admin_socket("node-0"))) < 100
    assert long.admin_socket("node-0") != long.admin_socket("node-1")
    assert long.admin_socket("node-0") == long.admin_socket("node-0")
