"""kubectl as a command, and objects for it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.installation import Done
from tests.support.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEBIAN", "Kubectl", "address", "newer_kubectl", "space"]

DEBIAN = Path(__file__).parents[2] / "tools" / "kubectl" / "usr" / "bin" / "kubectl"
DEADLINE_S = 40  # for one command, on a machine that is busy with others


@cache
def minor_version(binary: Path) -> int:
    """The second part of a kubectl's version, 20 for v1.20.2."""
    told = subprocess.run([binary, "version", "--client"], capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"v1\.(\d+)\.", told.stdout)
    assert found, told.stdout
    return int(found[1])


def newer_kubectl() -> Path | None:
    """A kubectl that reads OpenAPI 3.0 and has the server check fields; None when there is none here."""
    for name in (os.environ.get("ENMASSE_KUBECTL"), shutil.which("kubectl")):
        if name and minor_version(Path(name)) >= 27:
            return Path(name)
    return None


class Running:
    """A command that goes on."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self._process = process
        self._path = path

    def wait_for(self, text: str) -> None:
        """Wait until it has printed something."""

        def is_there() -> bool:
            # The end of the process is noticed before what it printed last is read.
            is_over = self._process.poll() is not None
            told = self._path.read_text()
            assert text in told or not is_over, told
            return text in told

        until(is_there, self._path.read_text)

    def end(self) -> int:
        """Wait until it ends by itself; its exit code."""
        return self._process.wait(DEADLINE_S)


class Kubectl:
    """One kubectl, in a namespace of its own."""

    def __init__(self, binary: Path, config: Path, namespace: str, home: Path) -> None:
        self.binary = binary
        self.minor = minor_version(binary)
        self.namespace = namespace
        self.home = home
        shutil.copy(config, home / "config")
        self._command = [str(binary), "--namespace", namespace]

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> Done:
        """Run a command."""
        done = subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env=self._environment() | environment,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, stdin: str = "", **environment: str) -> str:
        """Run a command that must succeed; what it prints."""
        done = self.run(*arguments, stdin=stdin, **environment)
        assert done.code == 0, (arguments, done.out, done.err)
        return done.out

    def refused(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that must fail; what it complains of."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code != 0, (arguments, done.out, done.err)
        return done.err

    @contextmanager
    def running(self, *arguments: str) -> Iterator[Running]:
        """Have a command run beside the block, which goes on until the block ends."""
        path = self.home / f"{self.namespace}.out"
        with path.open("wb") as out:
            process = subprocess.Popen([*self._command, *arguments], stdout=out, stderr=out, env=self._environment())
        try:
            yield Running(process, path)
        finally:
            process.kill()
            process.wait()

    def document(self, *arguments: str) -> dict[str, Any]:
        """Run ``get`` and return what it answers as JSON."""
        found: dict[str, Any] = json.loads(self.ok("get", *arguments, "-o", "json"))
        return found

    def table(self, *arguments: str) -> list[list[str]]:
        """Run ``get`` and return what it prints, cell by cell."""
        lines = self.ok("get", *arguments).splitlines()
        return [re.split(r"\s{2,}", line.strip()) for line in lines]

    def apply(self, *documents: dict[str, Any], options: tuple[str, ...] = ()) -> str:
        """Apply objects."""
        return self.ok("apply", *options, "-f", "-", stdin=yaml.safe_dump_all(documents))

    def file(self, *documents: dict[str, Any]) -> str:
        """Write objects to a file; its name."""
        path = self.home / f"{self.namespace}.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return str(path)

    def _environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "KUBECONFIG": str(self.home / "config")}


def space(name: str = "shop", **spec: Any) -> dict[str, Any]:
    """A space."""
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": name},
        "spec": {"type": "standard", "plan": "standard-small"} | spec,
    }


def address(name: str = "shop.orders", **spec: Any) -> dict[str, Any]:
    """An address."""
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": name},
        "spec": {"address": name.partition(".")[2], "type": "queue", "plan": "standard-small-queue"} | spec,
    }
