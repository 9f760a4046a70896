"""The commands of the page on kubectl do what it says, in its order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.interop.kubectl.kubectl_command import Kubectl
    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubectl")]

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "use-kubectl.md"
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```sh\n(.*?)```", re.DOTALL)


def test_the_page_on_kubectl(kubectl: Kubectl, installation: Installation, tmp_path: Path) -> None:
    blocks = dict(BLOCK.findall(PAGE.read_text()))
    assert list(blocks) == ["apply", "look", "change", "delete"]
    # One shell for all of them: the alias holds to the end. The installation and the namespace are this test's.
    script = f"shopt -s expand_aliases\nalias kubectl={kubectl.binary}\n"
    script += "".join(f"echo '== {name}'\n{text}" for name, text in blocks.items())
    script = script.replace("red", f"{kubectl.namespace}-red")
    done = subprocess.run(
        ["bash", "-eu"],
        input=script,
        cwd=tmp_path,
        env={
            "HOME": str(kubectl.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(tmp_path / "config"),
            "ENMASSE_DATA": str(installation.data),
        },
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
