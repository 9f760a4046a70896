"""Loopback hosts, and the refusal of all others."""

from __future__ import annotations

import pytest

from enmasse.drivers.supervisor.endpoints import is_loopback, require_loopback
from enmasse.errors import ConfigError


@pytest.mark.parametrize("host", ["::1", "[::1]", "127.0.0.1", "127.9.9.9", "localhost", "localhost."])
def test_this_machine_is_recognised(host: str) -> None:
    assert is_loopback(host)
    require_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "[::2]", "127.0.0.1.x", "", "example.org"])
def test_every_other_host_is_refused_with_the_reason(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match=r"only loopback interfaces .* because there are no users"):
        require_loopback(host)
