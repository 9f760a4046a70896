"""The state of a space's connectors: what is said of certificates that end."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.control.spaces.connectors import connector_statuses, connectors_of
from enmasse.control.spaces.planning import SpaceView
from tests.unit.client.authorities import DAY, Authority

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(("days", "word"), [(-1, "has ended"), (13, "ends"), (15, "")])
def test_a_connector_says_which_of_its_certificates_ends_within_a_fortnight(
    make_space: Callable[..., Any], tmp_path: Path, days: int, word: str
) -> None:
    authority = Authority(tmp_path, "authority")  # whose own certificate lasts for ten days
    ours = authority.sign("client", begins=-20 * DAY, ends=(days + 0.5) * DAY).read_text()
    now = dt.datetime.now(dt.UTC)

    def messages(**given: str) -> tuple[str, ...]:
        tls = {field: {"value": value} for field, value in given.items()}
        connector = {"name": "mill", "endpointHosts": [{"host": "mq.example.com"}], "tls": tls}
        space = make_space(connectors=[connector])
        connectors, waiting = connectors_of(space, lambda _namespace, _name: None)
        view = SpaceView(space, connectors=connectors, waiting=waiting)
        (status,) = connector_statuses(view, {}, now.isoformat())
        assert status.is_ready
        return status.messages

    found = messages(clientCert=ours, clientKey="its key")
    assert len(found) == bool(word)
    assert all(f"tls.clientCert {word} at 20" in message for message in found)
    (alone,) = messages(caCert=authority.ca_file.read_text())
    assert "tls.caCert ends at 20" in alone
    # Another authority may vouch for the server longer.
    lasting = authority.sign("another", ends=400 * DAY).read_text()
    assert messages(caCert=authority.ca_file.read_text() + lasting) == ()
    assert messages(caCert="no certificate") == ()
