"""The AMQP client inside Azure's SDK, which is made for one service, against a real node."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.interop.conftest import HERE
from tests.interop.test_interop_users import PASSWORD

pytestmark = pytest.mark.slow

COUNT = 30


@pytest.mark.parametrize("transport", ["amqp"])
def test_the_client_of_azures_sdk_sends_and_receives_over_tls(secure_orders: tuple[str, str], transport: str) -> None:
    url, authority = secure_orders
    port = url.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, str(HERE / "azure_client.py"), port, authority, "orders", "jo", str(COUNT), transport],
        input=f"{PASSWORD}\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"message {number} {number}" for number in range(COUNT)]
