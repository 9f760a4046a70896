"""Following the store and locking directories."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from enmasse.control.errors import DirectoryInUseError, ExpiredVersionError
from enmasse.control.store.history import follow
from enmasse.control.store.store import ResourceStore
from enmasse.drivers.data_directory import DirectoryLock

if TYPE_CHECKING:
    from pathlib import Path


HOLDER = """
import sys, pathlib
from enmasse.drivers.data_directory import DirectoryLock
with DirectoryLock(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_follower_sees_what_was_there_and_what_comes(store: ResourceStore) -> None:
    def write(name: str) -> None:
        store.create({"kind": "Thing", "metadata": {"namespace": "default", "name": name}})

    async def body() -> list[str]:
        seen: list[str] = []
        async for changes in follow(store, 0, kinds=("Thing",)):
            seen += [change.document["metadata"]["name"] for change in changes]
            if len(seen) == 3:
                return seen
            asyncio.get_running_loop().call_soon(write, f"n{len(seen)}")
        return seen

    write("n0")
    assert asyncio.run(body()) == ["n0", "n1", "n2"]


def test_a_follower_that_fell_behind_is_told(tmp_path: Path) -> None:
    async def body(store: ResourceStore) -> None:
        async for _ in follow(store, 0):
            for number in range(1, 10):
                store.create({"kind": "Thing", "metadata": {"namespace": "d", "name": f"n{number}"}})

    with ResourceStore(tmp_path / "db", history=3) as store:
        store.create({"kind": "Thing", "metadata": {"namespace": "d", "name": "n0"}})
        with pytest.raises(ExpiredVersionError):
            asyncio.run(body(store))


def test_a_directory_is_locked_for_one_process_and_the_other_is_named(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "data")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert DirectoryLock(tmp_path / "data").is_held()
        with (
            pytest.raises(DirectoryInUseError, match=f"is in use by process {holder.pid}"),
            DirectoryLock(tmp_path / "data"),
        ):
            pass
        holder.kill()
        holder.wait()
        assert not DirectoryLock(tmp_path / "data").is_held()
        with DirectoryLock(tmp_path / "data"):
            pass
