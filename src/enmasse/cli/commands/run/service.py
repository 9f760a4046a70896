"""``enmasse service``: ``enmasse up`` as a service of systemd, of the machine or of a user.

Rules:
1. A service of the machine runs as a user that systemd makes for it, with its data in systemd's folder for that. It
   sees the machine read-only, and has none of root's capabilities.
2. A unit ends with the processes that it started, the supervisor first, in its order.
3. A unit that was changed by hand is neither overwritten nor removed, unless asked for with ``--force``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

import enmasse
from enmasse.cli.commands.run.up import up
from enmasse.cli.errors import CliError, NotFoundError, UsageError
from enmasse.cli.node_options import written
from enmasse.cli.output import Writer
from enmasse.drivers.data_directory import replace_file

SYSTEM_UNITS: Final = Path("/etc/systemd/system")
UNIT: Final = "enmasse.service"
_SYSTEM_DATA: Final = Path("/var/lib/enmasse")
_SEAL: Final = "# Written by `enmasse service install`; changes belong into `systemctl edit enmasse`. sha256 "
_HOMES: Final = (Path("/home"), Path("/root"), Path("/run/user"))

service = typer.Typer(
    no_args_is_help=True, help="Run `enmasse up` as a service of systemd, of this machine or of a user."
)


class Scope(StrEnum):
    """The owner of the service."""

    SYSTEM = "system"
    USER = "user"


ScopeChoice = Annotated[
    Scope | None,
    typer.Option("--scope", help="A service of the machine, or of the user; by default of the machine for root."),
]
Force = Annotated[bool, typer.Option("--force", help="Also if the unit was changed by hand.")]

_UNIT_TEXT: Final = """\
[Unit]
Description=EnMasse, messaging as a service
After=network.target

[Service]
Type=exec
ExecStart={command}
Restart=on-failure
RestartSec=2
KillMode=mixed
TimeoutStopSec=90
LimitNOFILE=65536
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
{hardening}
[Install]
WantedBy={target}
"""

# Runners of pipelines make namespaces of their own, in which they mount /proc: so none that hides parts of it.
_HARDENING: Final = """\
DynamicUser=yes
StateDirectory=enmasse
StateDirectoryMode=0700
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome={home}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectKernelModules=yes
RemoveIPC=yes
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
"""


@service.command()
def install(
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTION...]", help="What `enmasse up` is to be given.")
    ] = None,
    scope: ScopeChoice = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="Data directory of a user's service; else ~/.local/share/enmasse."
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Write the unit, and say how it is started.

    What follows two dashes is for `enmasse up`, as in `enmasse service install -- --ports auto`. Run again, it brings
    the unit up to date.
    """
    scope = _scope(scope)
    if scope is Scope.SYSTEM:
        if data is not None:
            raise UsageError(f"--data: a service of the machine has its data in {_SYSTEM_DATA}")
        _require_readable(Path(sys.executable), Path(enmasse.__file__))
    folder = _data_of(scope) if data is None else data.absolute()
    command = [sys.executable, "-m", "enmasse", "up", "--data", str(folder), *_up_options(options or ())]
    path, text = _path(scope), _unit_text(scope, command)
    _require_own(path, force=force)
    replace_file(path, text.encode(), mode=0o644)
    systemctl = _systemctl(scope)
    writer = Writer()
    writer.say(f"{path} is written; its data is in {folder}.")
    writer.say(f"Start it, now and with the machine: {systemctl} daemon-reload && {systemctl} enable --now enmasse")
    if scope is Scope.USER:
        writer.say("So that it runs while you are not logged in, too: loginctl enable-linger")
    writer.say(f"See what it says: journalctl {'--user ' * (scope is Scope.USER)}--unit enmasse")


@service.command()
def remove(scope: ScopeChoice = None, force: Force = False) -> None:
    """Stop the service and remove its unit; its data stays."""
    scope = _scope(scope)
    path, writer = _path(scope), Writer()
    if not path.exists():
        raise NotFoundError(f"{path} is not there: no service was installed")
    _require_own(path, force=force)
    words = _systemctl(scope).split()
    if there := shutil.which("systemctl") is not None:
        done = subprocess.run([*words, "disable", "--now", UNIT], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            writer.warn(f"systemctl has not stopped it: {done.stderr.strip()}")
    try:
        path.unlink()
    except OSError as error:
        raise CliError(f"{path} cannot be removed: {error.strerror}") from None
    if there:
        subprocess.run([*words, "daemon-reload"], capture_output=True, check=False)
    # With a user that systemd makes, the folder is elsewhere, and what it is known by a link.
    data = f"/var/lib/private/enmasse {_SYSTEM_DATA}" if scope is Scope.SYSTEM else _data_of(scope)
    writer.say(f"{path} is removed. The data stays; to delete it, too: rm -rf {data}")


def _scope(asked: Scope | None) -> Scope:
    if asked is None:
        return Scope.SYSTEM if os.geteuid() == 0 else Scope.USER
    if asked is Scope.SYSTEM and os.geteuid() != 0:
        raise CliError("a service of the machine is installed and removed by root: use sudo, or --scope user")
    return asked


def _path(scope: Scope) -> Path:
    if scope is Scope.SYSTEM:
        return SYSTEM_UNITS / UNIT
    return _home_folder("XDG_CONFIG_HOME", ".config") / "systemd" / "user" / UNIT


def _data_of(scope: Scope) -> Path:
    return _SYSTEM_DATA if scope is Scope.SYSTEM else _home_folder("XDG_DATA_HOME", ".local/share") / "enmasse"


def _home_folder(variable: str, otherwise: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / otherwise).absolute()


def _systemctl(scope: Scope) -> str:
    return "systemctl" if scope is Scope.SYSTEM else "systemctl --user"


def _require_readable(*paths: Path) -> None:
    """Make sure that the user whom systemd makes can start this program.

    Raises:
        CliError: other users cannot read it.
    """
    for path in (found for one in paths for found in (one, one.resolve())):
        for folder in path.parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                raise CliError(
                    f"{path} is below {folder}, which other users may not enter, and the service is another user: "
                    "install EnMasse where they may, as by python3 -m venv /opt/enmasse"
                )


def _up_options(options: list[str] | tuple[str, ...]) -> list[str]:
    """Return options of ``enmasse up`` as it will take them anywhere: the paths in them are absolute."""
    application = typer.Typer()
    application.command("up")(up)
    found: list[str] = []
    with typer.main.get_command(application).make_context("enmasse up", list(options)) as context:
        for parameter in context.command.params:
            source, name = context.get_parameter_source(parameter.name or ""), parameter.name
            if source is None or source.name != "COMMANDLINE":
                continue
            if name == "data":
                raise UsageError("--data belongs before the two dashes")
            value = context.params[name or ""]
            if parameter.type.name == "path":
                value = Path(value)
            if value is False:
                found.append(parameter.secondary_opts[0])
            else:
                found += written(parameter.opts[0], value)
    return found


def _unit_text(scope: Scope, command: list[str]) -> str:
    hardening, target = "", "default.target"
    if scope is Scope.SYSTEM:
        in_home = any(Path(word).resolve().is_relative_to(home) for home in _HOMES for word in command[:1])
        hardening, target = _HARDENING.format(home="read-only" if in_home else "yes"), "multi-user.target"
    text = _UNIT_TEXT.format(command=" ".join(map(_quoted, command)), hardening=hardening, target=target)
    return f"{_SEAL}{_sum(text)}\n{text}"


def _quoted(word: str) -> str:
    """Return a word of a command line as systemd reads it [systemd.service, COMMAND LINES]."""
    for letter, written_as in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("%", "%%"), ("$", "$$")):
        word = word.replace(letter, written_as)
    return f'"{word}"'


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _require_own(path: Path, *, force: bool) -> None:
    """Make sure that a unit is as it was written, or that there is none.

    Raises:
        CliError: it was changed, or cannot be read.
    """
    try:
        seal, _, text = path.read_text().partition("\n")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}") from None
    if seal != f"{_SEAL}{_sum(text)}" and not force:
        raise CliError(
            f"{path} was changed by hand, or written by somebody else, and is left as it is: move the changes into "
            "`systemctl edit enmasse`, which keeps them in a file of their own, and give --force"
        )
