"""Bounds what runners take: by their space's plan, the machine, their namespace's quota, and control groups.

A runner counts with what it is started with: the heap of its Java and the tasks that it runs at once.
Where a quota counts cores, a runner that does not ask for any has one, and otherwise those of the machine.

A control group (version 2) beside the host's own bounds all processes of a runner together:
1. It is made where the host may make one: as root, or in a part of the tree that was handed to its user.
2. What is bounded is what Java and Spark's workers are configured to take at most, with room for Java itself. So it
   stops only who goes around that; then the kernel ends the whole runner, and it is started again.

Without control groups the first process of a runner looks after its memory, and its cores are given to it
(``launch.py``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

from enmasse.model.kinds.pipelines.pipeline import DEFAULT_MEMORY, MIN_MEMORY, Pipeline
from enmasse.model.kinds.resource_quota import RUNNERS, in_words
from enmasse.model.schema.quantities import amount_of, in_short
from enmasse.pipeline.host.launch import PROCESSES
from enmasse.pipeline.host.verdict import Rule
from enmasse.pipeline.running.command import WORKER_GIB

_CGROUP = Path("/sys/fs/cgroup/memory.max")


class Needs(NamedTuple):
    """Memory and cores that one runner takes."""

    memory: Decimal
    cpu: Decimal
    is_elsewhere: bool = False
    """True where its cores are a cluster's."""


class Machine(NamedTuple):
    """Memory and cores that there are, for all or for who has a plan.

    Attributes:
        memory: bytes.
        cpu: cores.
        planned: those of both that a plan bounds, and not the machine.
    """

    memory: Decimal
    cpu: Decimal
    planned: frozenset[str] = frozenset()

    def within(self, memory: int | None, cores: int | None) -> Machine:
        """Return what of it a plan lets a runner have.

        Args:
            memory: bytes; None: the plan does not say.
            cores: None: the plan does not say.
        """
        found = self
        for name, most in (("memory", memory), ("cpu", cores)):
            if most is not None and most < getattr(self, name):
                found = found._replace(planned=found.planned | {name}, **{name: Decimal(most)})
        return found


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """The bounds of a quota for what runs, by name, and what its status says of them."""

    hard: Mapping[str, Decimal]
    used: Mapping[str, str]


def quota_facts(document: dict[str, Any]) -> QuotaFacts:
    """Return what counts of a stored quota."""
    hard = document.get("spec", {}).get("hard", {})
    used = document.get("status", {}).get("used", {})
    return QuotaFacts(
        {name: amount_of(most) for name, most in hard.items() if name in RUNNERS},
        {name: str(amount) for name, amount in used.items() if name in RUNNERS},
    )


def this_machine() -> Machine:
    """Return the memory and the cores that there are for all."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # where there is none, or it is "max"
        memory = min(memory, int(_CGROUP.read_text()))
    return Machine(Decimal(memory), Decimal(os.cpu_count() or 1))


def needs_of(pipeline: Pipeline | None, quotas: Iterable[QuotaFacts], machine: Machine) -> Needs:
    """Return what the runner of a pipeline takes.

    Args:
        pipeline: with a session of its own; None: the runner is of a whole space.
        quotas: the quotas of the namespace.
        machine: the machine, within the plan of its space.
    """
    is_counted = any(RUNNERS[name] == "cpu" for quota in quotas for name in quota.hard)
    memory, cpu = Decimal(DEFAULT_MEMORY), Decimal(1) if is_counted else machine.cpu
    if "memory" in machine.planned:
        memory = max(Decimal(MIN_MEMORY), min(memory, machine.memory))
    if pipeline is None or pipeline.spec.resources is None:
        return Needs(memory, cpu)
    master = pipeline.spec.resources.master or ""
    if master == "local[*]":
        cpu = machine.cpu
    asks = pipeline.asks
    return Needs(asks.get("memory", memory), asks.get("cpu", cpu), bool(master) and not master.startswith("local"))


def check_capacity(
    needs: Needs, running: Iterable[Needs], quotas: Mapping[str, QuotaFacts], machine: Machine
) -> Rule:
    """Decide whether one more runner may start.

    Args:
        needs: the needs of the one.
        running: of those of the namespace that run.
        quotas: the quotas of the namespace, by their names.
        machine: the machine, within the plan of its space.
    """
    for what, field, is_there in (("memory", "memory", True), ("cores", "cpu", not needs.is_elsewhere)):
        asked, most = getattr(needs, field), getattr(machine, field)
        if is_there and asked > most:
            is_bytes = field == "memory"
            there = in_short(most // 2**20 * 2**20 if is_bytes else most, is_bytes=is_bytes)
            has = "the plan of its space allows" if field in machine.planned else "this machine has"
            remedy = f"ask for less in spec.resources.{'memory' if is_bytes else 'cores'}"
            if field in machine.planned:
                remedy += ", or for a larger plan"
            return Rule(
                False,
                "TooLarge",
                f"it asks for {in_short(asked, is_bytes=is_bytes)} of {what} and {has} {there}: {remedy}",
            )
    taken = list(running)
    for name, quota in sorted(quotas.items()):
        used, more = used_of(quota, taken), used_of(quota, [needs])
        over = sorted(item for item, most in quota.hard.items() if used[item] + more[item] > most)
        if over:
            amounts_of = (
                f"{what}: {','.join(f'{item}={in_words(item, amounts[item])}' for item in over)}"
                for what, amounts in (("requested", more), ("used", used), ("limited", quota.hard))
            )
            return Rule(
                False,
                "QuotaExceeded",
                f"exceeded quota: {name}, {', '.join(amounts_of)}; it starts when others of its namespace have ended",
            )
    return Rule(True, "Granted")


def used_of(quota: QuotaFacts, running: Iterable[Needs]) -> dict[str, Decimal]:
    """Return how much of what a quota bounds is used by runners."""
    taken = list(running)
    sums: dict[Literal["memory", "cpu", "sessions"], Decimal] = {
        "memory": sum((item.memory for item in taken), Decimal(0)),
        "cpu": sum((item.cpu for item in taken), Decimal(0)),
        "sessions": Decimal(len(taken)),
    }
    return {name: sums[RUNNERS[name]] for name in quota.hard}


_log = logging.getLogger(__name__)

_NAME = "enmasse-runner-"
_NEEDED = {"memory", "pids"}
_PERIOD_US = 100_000
_JAVA_BYTES = 1 << 30
"""Bytes for Java beside its heap and for what stands beside it: code, threads, buffers, the driver, the zygote."""


def memory_of(needs: Needs, machine: Machine) -> int:
    """Return the bytes that all processes of a runner have together.

    Args:
        needs: the needs of the runner.
        machine: the memory and cores for all.
    """
    workers = (WORKER_GIB << 30) * int(machine.cpu if needs.is_elsewhere else needs.cpu)
    return min(2 * int(needs.memory) + _JAVA_BYTES + workers, int(machine.memory))


def cores_of(needs: Needs, machine: Machine) -> int | None:
    """Return the cores that a runner has; None: all that there are."""
    return None if needs.is_elsewhere or needs.cpu >= machine.cpu else int(needs.cpu)


def amounts_of(needs: Needs, machine: Machine) -> dict[str, str]:
    """Return the bounds of a runner: what is written into which file of its group.

    Args:
        needs: the needs of the runner.
        machine: the memory and cores for all.
    """
    found = {
        "memory.max": str(memory_of(needs, machine)),
        "memory.oom.group": "1",
        "pids.max": str(PROCESSES),
    }
    cores = cores_of(needs, machine)
    if cores is not None:
        # One more than tasks at a time: Java compiles and collects beside them.
        found["cpu.max"] = f"{(cores + 1) * _PERIOD_US} {_PERIOD_US}"
    return found


class Cgroups:
    """The control groups of one host's runners.

    Args:
        root: the root of the tree.
        own: the file with the group that the host is in.
    """

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> None:
        self._parent: Path | None = None
        self.problem = ""
        """The reason why there can be none; empty: there can."""
        try:
            path = next((line[3:] for line in own.read_text().splitlines() if line.startswith("0::")), "")
            group = root / path.strip("/")
            parent = group if group == root else group.parent
            here = set((parent / "cgroup.subtree_control").read_text().split())
        except OSError as error:
            self.problem = f"{error.filename} cannot be read: {error.strerror}"
            return
        if missing := _NEEDED - here:
            self.problem = f"{parent} hands on no {' and no '.join(sorted(missing))}"
        elif not (os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK)):
            self.problem = f"{parent} belongs to somebody else"
        else:
            self._parent = parent
            for former in parent.glob(f"{_NAME}*"):
                self.remove(former, is_kept_if_used=True)

    def make(self, name: Sequence[str], amounts: Mapping[str, str]) -> Path | None:
        """Make a group; None if that cannot be.

        Args:
            name: the name of the runner, in parts.
            amounts: its bounds.
        """
        if self._parent is None:
            return None
        words = "_".join(part.replace("/", ".") for part in name if part)
        path = self._parent / f"{_NAME}{os.getpid()}-{words}"
        try:
            path.mkdir(exist_ok=True)
            for file, value in amounts.items():
                if file != "cpu.max" or (path / file).exists():
                    (path / file).write_text(value)
        except OSError as error:
            _log.warning("the memory of a runner is not bounded: %s: %s", error.filename, error.strerror)
            self.remove(path)
            return None
        return path

    def remove(self, path: Path | None, *, is_kept_if_used: bool = False) -> None:
        """Remove a group, and what may still run in it.

        Args:
            path: the path of the group; None: there is none.
            is_kept_if_used: whether it stays if something runs in it.
        """
        if path is not None:
            with suppress(OSError):
                if not is_kept_if_used:
                    (path / "cgroup.kill").write_text("1")
            with suppress(OSError):
                path.rmdir()
