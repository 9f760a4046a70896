"""What is written down of what kubectl did."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.polling import until

if TYPE_CHECKING:
    from tests.interop.kubectl.kubectl_command import Kubectl
    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubectl")]


def test_what_kubectl_changes_is_written_down_without_what_it_says(
    kubectl: Kubectl, installation: Installation
) -> None:
    kubectl.ok("create", "secret", "generic", "door", "--from-literal=password=open-sesame")
    kubectl.ok("get", "secret", "door")
    kubectl.ok("delete", "secret", "door")
    file = installation.data / "audit.log"

    def noted() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return [line for line in lines if (line.get("namespace"), line.get("name")) == (kubectl.namespace, "door")]

    # A line is written after the answer.
    until(lambda: [line["verb"] for line in noted()] == ["create", "delete"], noted)
    assert all(line["agent"].startswith("kubectl/v1.") and line["user"] for line in noted())
    assert [line["code"] for line in noted()] == [201, 200]
    assert "sesame" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
