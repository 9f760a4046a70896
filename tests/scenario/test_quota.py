"""A tenant with the free plan: what would fit, what waits, and what is let in, as a user sees it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.scenario.conftest import Installation

pytestmark = pytest.mark.slow

PATIENCE_S = 30


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Installation]:
    from tests.scenario.conftest import Installation

    installation = Installation(tmp_path / "data")
    installation.start()
    yield installation
    assert installation.stop() == 0


def address(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": f"shop.{name}"},
        "spec": {"address": name, "type": "queue"},
    }


def status(site: Installation, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(site.ok("get", "address", f"shop.{name}", "-o", "json"))["status"]
    return found


def until_phase(site: Installation, name: str, phase: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while status(site, name)["phase"] != phase:
        assert time.monotonic() < deadline, status(site, name)
        time.sleep(0.05)


def test_the_eleventh_address_of_the_free_plan_waits_until_another_goes(site: Installation, tmp_path: Path) -> None:
    site.ok("create", "space", "shop", "--plan", "free")
    for number in range(10):
        site.ok("create", "address", f"a{number}", "--type", "queue", "--wait", "0" if number < 9 else "20")
    manifest = tmp_path / "late.yaml"
    manifest.write_text(yaml.safe_dump(address("late")))
    refusal = "Quota exceeded for resource addresses: plan 'free' allows 10, 10 are used"
    assert refusal in site.ok("apply", "-f", str(manifest), "--dry-run")
    site.ok("apply", "-f", str(manifest))
    until_phase(site, "late", "Pending")
    assert status(site, "late")["messages"] == [refusal]
    site.ok("delete", "address", "shop.a3")
    until_phase(site, "late", "Active")
    assert "would use 10 of 10 addresses" in site.ok("apply", "-f", str(manifest), "--dry-run")
    assert site.ok("send", "late", "in time") == "accepted\n"
    site.ok("delete", "space", "shop")
    deadline = time.monotonic() + PATIENCE_S
    while site.run("get", "space", "shop").code == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert json.loads(site.ok("get", "addresses", "-o", "json"))["items"] == []
