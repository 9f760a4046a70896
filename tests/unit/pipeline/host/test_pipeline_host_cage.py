"""What a confined process may do all the same, in a process of its own: no way leads back."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from enmasse.drivers.data_directory import Layout, make_private
from enmasse.pipeline.host.separation import Confines, clean_environment, launch_command
from enmasse.pipeline.host.space_folders import USERS, SpaceFolder

CONFINED = """
import os, sys
from enmasse.pipeline.host.cage import confine
confine({ports})
os.rename(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("ports", [None, [443]])
def test_whoever_is_confined_moves_a_folder_into_another(ports: list[int] | None, tmp_path: Path) -> None:
    (tmp_path / "aside" / "batch").mkdir(parents=True)
    (tmp_path / "table").mkdir()
    move = [str(tmp_path / "aside" / "batch"), str(tmp_path / "table" / "batch")]
    done = subprocess.run(
        [sys.executable, "-c", CONFINED.format(ports=ports), *move], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "table" / "batch").is_dir()


PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
"""One that other users may start."""

REACH = """\
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    sys.exit(type(error).__name__)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can keep processes of spaces apart")
@pytest.mark.parametrize("is_caged", [True, False])
def test_the_sockets_by_which_nodes_reach_each_other_are_closed_to_users_code(is_caged: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        layout = Layout(Path(place) / "data")
        make_private(layout.peers)
        layout.data.chmod(0o755)
        layout.pipelines.mkdir(0o755)
        peer = str(layout.peers / "node-1.sock")
        folder = SpaceFolder(layout.pipelines / "default.shop", USERS.start)
        folder.make()
        with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as ours:
            listening.bind(peer)
            listening.listen()
            Path(peer).chmod(0o600)
            ours.connect(peer)
            confines = Confines(is_caged=is_caged, is_everywhere=not is_caged)
            command = launch_command(folder, [PYTHON, "-c", REACH, peer], layout.data, confines)
            done = subprocess.run(
                command, env=clean_environment(folder), capture_output=True, text=True, timeout=60, check=False
            )
            wanted = "FileNotFoundError" if is_caged else "PermissionError"
            assert (done.returncode, done.stderr.strip()) == (1, wanted)
