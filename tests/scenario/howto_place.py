"""A directory with an installation, in which the commands of a how-to are run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from enmasse.drivers.data_directory import Layout
from tests.support.polling import until
from tests.support.ready_commands import command_path

__all__ = ["Place", "blocks"]

DOCS = Path(__file__).parents[2] / "docs" / "howto"
KUBECTL = Path(__file__).parents[1] / "tools/kubectl/usr/bin"
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```(?:sh|python)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@dataclass
class Place:
    """A directory with an installation, and a shell in it."""

    directory: Path
    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "ENMASSE_DATA"},
            "PATH": f"{command_path()}:{KUBECTL}",
            "ENMASSE_CONFIG": str(self.directory / "config"),
            "KUBECONFIG": str(self.directory / "kubeconfig"),
            "COLUMNS": "200",
        }

    def start(self) -> None:
        with (self.directory / "up.log").open("w") as log:
            self.process = subprocess.Popen(
                ["enmasse", "up", "--ports", "auto", *self.arguments],
                cwd=self.directory,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        process = self.process
        until(lambda: "Everything runs" in self.log or process.poll() is not None, lambda: self.log)
        assert process.poll() is None, self.log
        told = self.log
        for customary, name in (("8443", "api-tls"), ("8080", "api"), ("5672", "amqp")):
            found = re.search(rf"^{name} .*:(\d+)\s*$", told, re.MULTILINE)
            self.ports[customary] = found[1] if found else customary

    ports: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return (self.directory / "up.log").read_text()

    @property
    def data(self) -> Path:
        """The data directory, which is the customary one."""
        return self.directory / ".enmasse"

    def api(self, path: str, method: str = "GET") -> Any:
        """What the API answers the operator of the default namespace, sooner than a command that has to start."""
        proof = {"authorization": f"Bearer {Layout(self.data).operator_token.read_text()}"}
        url = f"http://127.0.0.1:{self.ports['8080']}"
        # It speaks no TLS: to read all authorities each time would take longer than to ask.
        with httpx.Client(base_url=url, headers=proof, trust_env=False, verify=False) as http:
            answer = http.request(method, f"/apis/enmasse.io/v1beta1/namespaces/default/{path}", timeout=60)
        assert answer.is_success or answer.status_code == 404, answer.text
        return answer.json()

    def pipeline(self, name: str) -> dict[str, Any]:
        """The status of a pipeline; at first there is nothing."""
        told: dict[str, Any] = self.api(f"pipelines/{name}").get("status", {})
        return {"phase": "", "rows": 0, "lag": None, "conditions": []} | told

    def run(self, commands: str) -> str:
        """Run commands of a shell, or a program of Python, and return what they say."""
        for customary, port in self.ports.items():
            commands = commands.replace(f"127.0.0.1:{customary}", f"127.0.0.1:{port}")
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", commands]
            if re.search(r"^(import|from) ", commands, re.MULTILINE)
            else ["bash", "-euc", commands],
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout

    def stop(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(150)


def blocks(page: str) -> dict[str, tuple[str, str | None]]:
    found = BLOCK.findall((DOCS / page).read_text())
    return {name: (commands, told or None) for name, commands, told in found}
