"""What the machine leaves of the operator's limits, and who is told to go."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from enmasse.api.http_connections import HttpConnections
from enmasse.errors import ConfigError, RemoteError
from enmasse.net.connection_limiter import MIN_FILES, OTHER_FILES, ConnectionLimits
from enmasse.node import ports
from enmasse.node.users.admission import Admission
from enmasse.node.users.gate import Gate
from enmasse.node.users.peer import PeerInfo


def fit(monkeypatch: pytest.MonkeyPatch, hard: int, limits: ConnectionLimits) -> tuple[ConnectionLimits, list[Any]]:
    asked: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: asked.append(wanted))
    return ports._fit(limits), asked


def test_as_many_files_are_asked_for_as_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, asked = fit(monkeypatch, 65_536, ConnectionLimits())
    assert fitted == ConnectionLimits()
    assert asked == [(65_536, 65_536)]


def test_no_more_connections_are_admitted_than_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, _ = fit(monkeypatch, 4_096, ConnectionLimits())
    assert fitted.max_connections + fitted.max_handshakes + OTHER_FILES == 4_096
    # Where there are other nodes, each may need another file: that of the home of its space.
    shared = ports._fit(ConnectionLimits(), has_peers=True)
    assert 2 * (shared.max_connections + shared.max_handshakes) + OTHER_FILES == 4_096
    few, _ = fit(monkeypatch, MIN_FILES, ConnectionLimits())
    assert few.max_connections > few.max_handshakes > 50


@pytest.mark.parametrize("hard", [32, 64, 128, 256, MIN_FILES - 1])
def test_too_few_files_for_the_rest_and_some_connections_are_a_sentence(
    monkeypatch: pytest.MonkeyPatch, hard: int
) -> None:
    with pytest.raises(ConfigError, match=rf"limit of open files is {hard}, and at least {MIN_FILES} .* `ulimit -n"):
        fit(monkeypatch, hard, ConnectionLimits())
    with pytest.raises(ConfigError, match=f"is {hard}, and"):
        HttpConnections()


def test_without_a_limit_of_files_the_operators_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, asked = fit(monkeypatch, resource.RLIM_INFINITY, ConnectionLimits(max_connections=7))
    assert fitted.max_connections == 7
    assert asked == []


def test_a_connection_that_the_door_refuses_is_told_why() -> None:
    peer_info = PeerInfo("127.0.0.1:1", refusal="the node has 1 connections")
    admission = Admission(Gate(None, lambda: 0.0), spaces=dict, default=None, peer_info=peer_info)
    with pytest.raises(RemoteError, match="the node has 1 connections") as caught:
        admission.enter(None)
    assert caught.value.condition == "amqp:resource-limit-exceeded"
