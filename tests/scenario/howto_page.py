"""A how-to whose blocks are commands and programs, each with what it says in the next block."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.foreign_tools import TELEGRAF, require
from tests.support.installation import Installation
from tests.support.ready_commands import command_path

__all__ = ["HOWTOS", "play"]

HOWTOS = Path(__file__).parents[2] / "docs" / "howto"

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
TOLD = re.compile(r"accepted|(address|messaginguser)/\S+ (created|unchanged|configured)|addressspace/.*")
PORTS = ("5672", "61613", "1883", "8081")
"""The customary ones, of AMQP, STOMP, MQTT and HTTP: every port of a node speaks every protocol."""

NEEDED = {
    "from proton": "python-qpid-proton", "from paho": "paho-mqtt",
    "mosquitto_sub ": "mosquitto_pub and mosquitto_sub", "mosquitto_pub ": "mosquitto_pub and mosquitto_sub",
    "telegraf --": "Telegraf",
}  # fmt: skip
FOREIGN = ("nginx", "caddy")
"""Files of programs that are not run here."""


def play(name: str, installation: Installation, place: Path, ports: Mapping[str, str] | None = None) -> None:
    """Make what a page expects, and run it block by block.

    Args:
        name: of the page.
        installation: where, with the space that the page expects.
        place: a directory for what its commands write.
        ports: those of other programs that the page starts, and the free ones in their places.
    """
    document = (HOWTOS / name).read_text()
    for text, tool in NEEDED.items():
        if text in document:
            require(tool)
    for command in re.findall(r"`(enmasse create address [^`]+)`", document.partition("\n## ")[0]):
        words = shlex.split(command)[1:]
        # Another page may have made one of the name.
        installation.ok("delete", *words[1:3], "--ignore-not-found")
        installation.ok("wait", *words[1:3], "--for", "delete")
        installation.ok(*words, "--wait", "150")
    port = installation.url("amqp").rpartition(":")[2]
    path = f"{command_path()}:{TELEGRAF}"
    environment = {**os.environ, "PATH": path, "ENMASSE_DATA": str(installation.data), "COLUMNS": "100"}
    output = ""
    checked = 0
    for kind, content in BLOCK.findall(document):
        if kind == "text":
            assert _lines(output) == _lines(content), output
            checked += 1
            continue
        if kind in FOREIGN:
            continue
        script = re.sub(rf"\b({'|'.join(PORTS)})\b", port, content)
        for named, free in (ports or {}).items():
            script = re.sub(rf"\b{named}\b", free, script)
        for words in re.findall(r"^export (.+)$", script, re.MULTILINE) if kind == "sh" else ():
            # The reader has one shell, in which it lasts.
            environment |= dict(word.split("=", 1) for word in shlex.split(words))
        interpreter = {"sh": ["bash", "-euc"], "python": [sys.executable, "-c"]}[kind]
        output = _run([*interpreter, script], environment, place)
    assert checked


def _run(command: list[str], environment: dict[str, str], place: Path) -> str:
    done = subprocess.run(
        command, env=environment, cwd=place, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"
    return done.stdout


def _lines(text: str) -> list[str]:
    """Without what only tells that something went well."""
    return [line.rstrip() for line in text.splitlines() if line.strip() and not TOLD.fullmatch(line.strip())]
