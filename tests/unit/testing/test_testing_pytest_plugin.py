"""The plugin of pytest costs nothing where no test takes a fixture of it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

PROGRAM = """\
import sys
import pytest
before = set(sys.modules)
import enmasse.testing.pytest_plugin
print(*sorted(set(sys.modules) - before))
"""


def test_the_package_names_its_plugin_to_pytest() -> None:
    plugins = {point.name: point.value for point in entry_points(group="pytest11")}
    assert plugins.get("enmasse") == "enmasse.testing.pytest_plugin", (
        "installed before there was one: pip install -e ."
    )


def test_the_plugin_imports_nothing_but_itself() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["enmasse", "enmasse.testing", "enmasse.testing.pytest_plugin", "enmasse.version"]
