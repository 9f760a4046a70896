"""``enmasse service``: units that systemd takes, and that nobody's changes are lost in."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.cli.commands.run import service
from enmasse.cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Callable

    Cli = Callable[..., Any]

SCOPES = ("system", "user")


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Where the unit of each scope is; nothing of this machine is touched."""
    monkeypatch.setattr(service, "SYSTEM_UNITS", tmp_path / "system")
    monkeypatch.setattr(service, "_require_readable", lambda *_paths: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data home"))
    # It would stop a service of this machine's.
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    return {
        "system": tmp_path / "system" / "enmasse.service",
        "user": tmp_path / "config" / "systemd" / "user" / "enmasse.service",
    }


def command_in(unit: Path) -> list[str]:
    line = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.removeprefix("ExecStart="))]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_unit_runs_up_with_its_options_whose_paths_are_absolute(
    cli: Cli, units: dict[str, Path], scope: str, tmp_path: Path
) -> None:
    further = ["--no-pipelines", "--port", "mqtt=1884", "--port", "http=81"]
    options = ["--users", "my $users 100%.json", *further]
    done = cli("service", "install", "--scope", scope, "--", *options)
    assert done.code == 0, done.err
    assert "daemon-reload" in done.out
    data = {"system": "/var/lib/enmasse", "user": f"{tmp_path}/data home/enmasse"}[scope]
    assert command_in(units[scope])[:6] == [sys.executable, "-m", "enmasse", "up", "--data", data]
    users = ["--users", str(Path("my $users 100%.json").absolute())]
    assert sorted(command_in(units[scope])[6:]) == sorted([*users, *further])
    assert units[scope].stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--", "--nonsense"], "no such option"),
        (["--", "--data", "x"], "--data belongs before the two dashes"),
        (["--scope", "system", "--data", "x"], "has its data in /var/lib/enmasse"),
    ],
)
def test_options_that_up_would_not_take_are_refused_and_nothing_is_written(
    cli: Cli, units: dict[str, Path], words: list[str], told: str
) -> None:
    done = cli("service", "install", *words)
    assert (done.code, told in done.err.lower() or told in done.err) == (2, True), done.err
    assert not units["system"].exists()


@pytest.mark.parametrize("scope", SCOPES)
def test_a_changed_unit_is_neither_overwritten_nor_removed_and_one_of_ours_is(
    cli: Cli, units: dict[str, Path], scope: str
) -> None:
    unit = units[scope]
    assert cli("service", "install", "--scope", scope).code == 0
    assert cli("service", "install", "--scope", scope, "--", "--ports", "auto").code == 0
    assert "auto" in command_in(unit)

    changed = unit.read_text().replace("RestartSec=2", "RestartSec=5")
    unit.write_text(changed)
    for command in ("install", "remove"):
        done = cli("service", command, "--scope", scope)
        assert (done.code, "changed by hand" in done.err) == (1, True)
        assert unit.read_text() == changed
    assert cli("service", "install", "--scope", scope, "--force").code == 0
    assert "RestartSec=2" in unit.read_text()

    done = cli("service", "remove", "--scope", scope)
    assert (done.code, "rm -rf " in done.out) == (0, True)
    assert not unit.exists()
    assert cli("service", "remove", "--scope", scope).code == 3


def test_a_service_of_the_machine_is_for_root(
    cli: Cli, units: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = cli("service", "install", "--scope", "system")
    assert (done.code, "sudo" in done.err) == (1, True)
    assert cli("service", "install").code == 0
    assert units["user"].exists()


def test_a_program_that_the_services_user_could_not_start_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "closed" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.touch()
    program.parents[1].chmod(0o700)
    with pytest.raises(CliError, match=r"other users may not enter.*/opt/enmasse"):
        service._require_readable(program)


@pytest.mark.slow
@pytest.mark.parametrize("scope", SCOPES)
def test_systemd_takes_the_unit_and_finds_that_of_the_machine_hardened(
    cli: Cli, units: dict[str, Path], scope: str, tmp_path: Path
) -> None:
    if not Path("/usr/bin/systemd-analyze").exists():
        pytest.skip("systemd-analyze is not here")
    assert cli("service", "install", "--scope", scope).code == 0
    words = ["systemd-analyze", f"--{scope}"]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}

    def analyze(*more: str) -> str:
        done = subprocess.run([*words, *more], capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert analyze("verify", "--man=no", str(units[scope])) == ""
    if scope == "system":
        analyze("security", "--offline=true", "--threshold=40", str(units[scope]))
