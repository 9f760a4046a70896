"""The console's packages of Node.js, as its lock file names them."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from pathlib import Path

from tests.support.foreign_tools import require

SOURCE = Path(__file__).parents[2] / "console"


def run(*command: str) -> None:
    """Run a command in the folder of the source."""
    done = subprocess.run(
        command, cwd=SOURCE, capture_output=True, text=True, env=os.environ | {"NO_UPDATE_NOTIFIER": "1"}, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def bring_packages() -> Path:
    """Return the folder of the packages, brought first unless they are there: that takes a minute."""
    require("Node.js")
    # Several tests may need them at the same time.
    with (SOURCE / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _has_packages():
            run("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
    return SOURCE / "node_modules"


def _has_packages() -> bool:
    try:
        there = json.loads((SOURCE / "node_modules/.package-lock.json").read_text())["packages"]
    except FileNotFoundError:
        return False
    wanted = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    needed = {name for name, package in wanted.items() if name and not package.get("optional")}
    return needed <= there.keys() and all(
        name in wanted and package["integrity"] == wanted[name]["integrity"] for name, package in there.items()
    )
