"""The commands of the page on backup and repair do what it says, in its order, and nothing else is done for it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enmasse.storage.pages import PageFile
from tests.support.installation import Installation
from tests.support.polling import until
from tests.support.ready_commands import command_path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "back-up-and-repair.md"
UP = "enmasse up --ports auto --no-pipelines"
NODE_LOG = ".enmasse/logs/node-0.log"
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```sh\n(.*?)```", re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

BLOCKS: dict[str, str] = dict(BLOCK.findall(PAGE.read_text()))


class Shell:
    """Runs commands in a directory of their own, as a person would."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "PATH": command_path()}
        self.environment.pop("ENMASSE_DATA", None)

    def run(self, script: str, code: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-euc", script],
            env=self.environment, cwd=self.directory, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def platform(self, command: str = UP, data: str = ".enmasse") -> Iterator[None]:
        process = subprocess.Popen(
            command.split(), env=self.environment, cwd=self.directory, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            endpoints = self.directory / data / "endpoints.json"
            until(lambda: endpoints.exists() or process.poll() is not None)
            assert process.poll() is None
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(150)

    def ok(self, command: str, data: str = ".enmasse") -> str:
        """Run a command that is none of the page's, in this process."""
        done = Installation(self.directory / data).run(*shlex.split(command))
        assert done.code == 0, (command, done)
        return done.out

    def bodies(self, data: str = ".enmasse") -> list[str]:
        return self.ok("receive orders --space shop --count 1 --timeout 20", data).splitlines()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("repair"))


def test_the_page_from_backup_to_repair(shell: Shell) -> None:
    with shell.platform():
        shell.ok("create space shop")
        shell.ok("create address orders --type queue --space shop")
        shell.ok("create space till --authentication standard")
        shell.ok("status --wait 150")
        shell.ok("send orders --space shop --durable 'two coffee'")
        shell.run(BLOCKS["everything"])
        shell.run(BLOCKS["backup"])
        assert "no damage" in shell.run(BLOCKS["check"])
        assert "two coffee" in shell.run(BLOCKS["dump"])
        assert shell.bodies() == ["two coffee"]

    shell.run(BLOCKS["again"])
    with shell.platform(f"{UP} --data again", "again"):
        shell.ok("status --wait 150", "again")
        assert shell.bodies("again") == ["two coffee"]

    restore, up = BLOCKS["restore"].splitlines()
    shell.run(restore)
    assert up.endswith(" &")
    with shell.platform(up.removesuffix(" &"), "restored"):
        shell.ok("status --wait 150", "restored")
        assert shell.bodies("restored") == ["two coffee"]

    journal = shell.directory / ".enmasse/nodes/node-0/journal"
    backup = next((shell.directory / "backups").iterdir())
    shutil.copy(backup / "data.mdb", journal / "data.mdb")
    file = PageFile(str(journal / "data.mdb"))
    free_root = file.metas[0].free.root
    main_root = file.metas[0].main.root
    file.close()
    assert main_root != free_root
    with (journal / "data.mdb").open("r+b") as raw:
        raw.seek(main_root * 4096)
        raw.write(b"\0" * 16)
    assert f"damaged: page {main_root} " in shell.run(BLOCKS["damaged"])
    assert f"lost: page {main_root}" in shell.run(BLOCKS["salvage"])
    shutil.rmtree(shell.directory / "salvaged")
    shutil.copytree(backup, shell.directory / "salvaged")
    shell.run(BLOCKS["replace"])
    assert "bytes before" in shell.run(BLOCKS["compact"])
    with shell.platform():
        shell.ok("status --wait 150")
        assert shell.bodies() == ["two coffee"]
        shell.ok("send orders --space shop --durable 'a tea'")
        (journal / "data.mdb").unlink()
        until(lambda: f"the journal in {journal} is lost" in (shell.directory / NODE_LOG).read_text())
        shell.run(BLOCKS["save"])

    assert "`enmasse journal init" in shell.run("enmasse up --ports auto", code=1)
    shell.run(BLOCKS["saved"])
    with shell.platform():
        shell.ok("status --wait 150")
        assert shell.bodies() == ["a tea"]

    assert "holds a journal already" in shell.run(BLOCKS["anew"], code=1)
    (journal / "data.mdb").unlink()
    shell.run(BLOCKS["anew"])
    assert "no damage" in shell.run("enmasse journal check")


def test_a_journal_of_another_installation_is_taken_in_by_command(shell: Shell) -> None:
    other = Shell(shell.directory / "other")
    other.directory.mkdir()
    with other.platform():
        other.ok("create space till --wait 150")
    other.run("enmasse journal restore ../backups/* --force")
    with other.platform():
        until(lambda: "belongs to installation" in other.run("enmasse status --wait 1", code=4))
        told = other.run(BLOCKS["foreign"])
        assert "2 spaces, 1 addresses, 1 messages" in told
        assert "with --yes" in told
        assert "belongs to this installation now" in other.run(BLOCKS["adopt"])
        # One space has the name twice, and says so; all else is there.
        assert other.bodies() == ["two coffee"]
        assert "which was not deleted" in other.run("enmasse status", code=1)
        other.run("enmasse delete space till && enmasse status --wait 150")
        assert "standard" in other.run("enmasse get space till -o yaml | grep -A1 authenticationService")


def test_every_command_of_the_page_is_run() -> None:
    journal = {"foreign", "adopt", "backup", "check", "dump", "restore", "damaged", "salvage", "replace", "compact"}
    journal |= {"anew", "save", "saved"}
    assert BLOCKS.keys() == journal | {"everything", "again"}
    assert PAGE.read_text().count("```sh") == len(BLOCKS)
