"""One installation with two projects, its applications over Proton, and devices that are registered as tests ask."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.devices.stage import APPLICATION_PASSWORD, BLUE, GREEN, Stage
from tests.support.installation import Installation

if TYPE_CHECKING:
    from pathlib import Path


PROJECT = """
apiVersion: iot.enmasse.io/v1alpha1
kind: IoTProject
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  downstreamStrategy:
    managedStrategy:
      addressSpace: {{name: {name}-space}}
      addresses: {{telemetry: {{type: {telemetry}}}}}
"""


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("devices")
    installation = Installation(folder / "data")
    installation.start("--no-pipelines")
    try:
        installation.ok("create", "namespace", "other")
        for tenant, telemetry in ((GREEN, "anycast"), (BLUE, "stream")):
            namespace, _, name = tenant.partition(".")
            file = folder / f"{name}.yaml"
            file.write_text(PROJECT.format(name=name, namespace=namespace, telemetry=telemetry))
            installation.ok("apply", "-f", str(file))
            installation.ok("wait", "iotproject", name, "--namespace", namespace, "--timeout", "60")
            words = ("create", "user", "app", "--space", f"{name}-space", "--namespace", namespace)
            installation.ok(*words, "--send", "#", "--recv", "#", stdin=APPLICATION_PASSWORD)
        with Stage(installation, count(1)) as found:
            yield found
    finally:
        code = installation.stop() if installation.is_running else 0
    assert code == 0
