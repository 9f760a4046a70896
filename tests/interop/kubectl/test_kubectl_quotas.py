"""ResourceQuotas with kubectl: made, shown, and why something is refused."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.interop.kubectl.kubectl_command import Kubectl

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubectl")]


def test_a_quota_is_made_shown_and_enforced(kubectl: Kubectl) -> None:
    kubectl.ok("create", "quota", "team", "--hard=count/configmaps=1,requests.memory=1Gi,limits.cpu=2")
    kubectl.ok("create", "configmap", "one", "--from-literal=a=b")
    refused = kubectl.refused("create", "configmap", "two", "--from-literal=a=b")
    assert "exceeded quota: team, requested: count/configmaps=1, used: count/configmaps=1, limited: " in refused
    deadline = time.monotonic() + 30
    while "count/configmaps  1     1" not in (said := kubectl.ok("describe", "quota", "team")):
        assert time.monotonic() < deadline, said
    assert "requests.memory   0     1Gi" in said
    shown = kubectl.ok("get", "quota")
    assert "count/configmaps: 1/1, requests.memory: 0/1Gi" in shown
    assert "limits.cpu: 0/2" in shown
