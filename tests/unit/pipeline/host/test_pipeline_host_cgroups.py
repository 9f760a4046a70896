"""Control groups are files: what is read of them and written into them. Whether the kernel heeds it is its own."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from enmasse.pipeline.host.capacity import Cgroups, Machine, Needs, amounts_of

GIB = 1 << 30
SHARED = Needs(Decimal(640 << 20), Decimal(4))
BOUNDS = amounts_of(SHARED, Machine(Decimal(8 * GIB), Decimal(4)))


def tree(folder: Path, controllers: str) -> Cgroups:
    """A tree with the group of a service, and what it hands on."""
    (folder / "system.slice" / "enmasse.service").mkdir(parents=True)
    (folder / "system.slice" / "cgroup.subtree_control").write_text(controllers)
    (folder / "system.slice" / "cgroup.procs").write_text("")
    own = folder / "own"
    own.write_text("4:memory:/elsewhere\n0::/system.slice/enmasse.service\n")
    return Cgroups(folder, own)


def test_a_runner_has_what_java_and_its_workers_are_told_to_take_and_room_for_java() -> None:
    machine = Machine(Decimal(64 * GIB), Decimal(4))
    assert amounts_of(Needs(Decimal(2 * GIB), Decimal(2)), machine) == {
        "memory.max": str(4 * GIB + GIB + 2 * 4 * GIB),
        "memory.oom.group": "1",
        "pids.max": "4096",
        "cpu.max": "300000 100000",
    }
    shared = amounts_of(SHARED, machine)
    assert int(shared["memory.max"]) == 2 * (640 << 20) + GIB + 4 * 4 * GIB
    assert "cpu.max" not in shared
    assert amounts_of(SHARED, Machine(Decimal(8 * GIB), Decimal(4)))["memory.max"] == str(8 * GIB), "there is no more"


def test_a_runner_has_a_group_beside_the_host_with_its_bounds(tmp_path: Path) -> None:
    group = tree(tmp_path, "cpu memory pids").make(("team-a/red", "red.probe"), {"memory.max": "7", "pids.max": "8"})
    assert group == tmp_path / "system.slice" / f"enmasse-runner-{os.getpid()}-team-a.red_red.probe"
    assert {path.name: path.read_text() for path in group.iterdir()} == {"memory.max": "7", "pids.max": "8"}


def test_groups_that_a_killed_host_left_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "system.slice" / "enmasse-runner-1-team-a.red"
    left.mkdir(parents=True)
    other = tmp_path / "system.slice" / "other.service"
    other.mkdir()
    tree(tmp_path, "memory pids")
    assert not left.exists()
    assert other.exists()


@pytest.mark.parametrize(
    ("controllers", "problem"), [("cpu pids", "hands on no memory"), ("", "hands on no memory and no pids")]
)
def test_without_a_controller_there_is_no_group_and_the_reason_is_told(
    tmp_path: Path, controllers: str, problem: str
) -> None:
    groups = tree(tmp_path, controllers)
    assert groups.problem.endswith(problem)
    assert groups.make(("team-a/red",), BOUNDS) is None


def test_the_kernel_bounds_processes_where_it_hands_on_what_that_needs() -> None:
    groups = Cgroups()
    if groups.problem:
        pytest.skip(f"no control groups: {groups.problem}")
    group = groups.make(("tests/bounded",), BOUNDS)
    try:
        assert group is not None
        assert (group / "memory.max").read_text().strip() == BOUNDS["memory.max"]
        assert (group / "pids.max").read_text().strip() == "4096"
    finally:
        groups.remove(group)
    assert not group.exists()
