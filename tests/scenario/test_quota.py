"""A tenant with the free plan: what would fit, what waits, and what is let in, as a user sees it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.polling import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.installation import Installation

pytestmark = pytest.mark.slow


def address(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": f"shop.{name}"},
        "spec": {"address": name, "type": "queue"},
    }


def status(own: Installation, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(own.ok("get", "address", f"shop.{name}", "-o", "json"))["status"]
    return found


def until_phase(own: Installation, name: str, phase: str) -> None:
    until(lambda: status(own, name)["phase"] == phase, lambda: status(own, name))


def test_the_eleventh_address_of_the_free_plan_waits_until_another_goes(own: Installation, tmp_path: Path) -> None:
    own.ok("create", "space", "shop", "--plan", "free")
    for number in range(10):
        own.ok("create", "address", f"a{number}", "--type", "queue", "--wait", "0" if number < 9 else "150")
    manifest = tmp_path / "late.yaml"
    manifest.write_text(yaml.safe_dump(address("late")))
    refusal = "Quota exceeded for resource addresses: plan 'free' allows 10, 10 are used"
    assert refusal in own.ok("apply", "-f", str(manifest), "--dry-run")
    own.ok("apply", "-f", str(manifest))
    until_phase(own, "late", "Pending")
    assert status(own, "late")["messages"] == [refusal]
    own.ok("delete", "address", "shop.a3")
    until_phase(own, "late", "Active")
    assert "would use 10 of 10 addresses" in own.ok("apply", "-f", str(manifest), "--dry-run")
    assert own.ok("send", "late", "in time") == "accepted\n"
    own.ok("delete", "space", "shop")
    until(lambda: own.run("get", "space", "shop").code != 0)
    assert json.loads(own.ok("get", "addresses", "-o", "json"))["items"] == []
