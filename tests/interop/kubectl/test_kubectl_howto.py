"""The commands of the page on kubectl do what it says, in its order."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.interop.kubectl.kubectl_command import Kubectl
    from tests.scenario.conftest import Installation

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "use-kubectl.md"
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```sh\n(.*?)```", re.DOTALL)


def test_the_page_on_kubectl(kubectl: Kubectl, installation: Installation, tmp_path: Path) -> None:
    blocks = dict(BLOCK.findall(PAGE.read_text()))
    assert list(blocks) == ["apply", "look", "change", "delete"]
    # One shell for all of them: the alias holds to the end. The port and the namespace are this test's.
    script = "shopt -s expand_aliases\n" + "".join(f"echo '== {name}'\n{text}" for name, text in blocks.items())
    script = script.replace("http://localhost:8080", installation.url("api")).replace(
        "red", f"{kubectl.namespace}-red"
    )
    script = script.replace("alias kubectl='kubectl ", f"alias kubectl='{kubectl.binary} ")
    done = subprocess.run(
        ["bash", "-eu"],
        input=script,
        cwd=tmp_path,
        env={"HOME": str(kubectl.home), "PATH": os.environ["PATH"], "KUBECONFIG": str(kubectl.home / "config")},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = dict(zip(["", *blocks], re.split(r"^== \w+\n", done.stdout, flags=re.MULTILINE), strict=True))
    assert "address.enmasse.io/shop.orders condition met" in parts["apply"]
    assert "maximumDeliveryAttempts" in parts["look"]
    assert "+  messageTtl:" in parts["change"]
    assert "(server dry run)" in parts["change"]
    assert '"shop.orders" deleted' in parts["delete"]
