"""What every test may rely on."""

from __future__ import annotations

import compileall
import faulthandler
import functools
import gc
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from _pytest.faulthandler import fault_handler_stderr_fd_key
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from xdist import is_xdist_worker
from xdist.scheduler import LoadFileScheduling

from tests.support.chance import FEW_EXAMPLES, SEED
from tests.support.foreign_tools import bring, missing_tool

SLOWEST_FILES = 60
"""How many are named in CI."""

# Examples are never timed, as the machine is shared. Some are new in each run, also where CI=true.
settings.register_profile(
    "few",
    max_examples=FEW_EXAMPLES,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("few")
settings.register_profile("soak", max_examples=40 * FEW_EXAMPLES)

# Java programs live for seconds here: compiling their code twice takes longer than it saves.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
# Spark writes and compiles Java for each query, which for a handful of rows is a fifth of all that it does. As in
# production it does so in ``make soak`` and in a cluster.
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
IS_LONG = "ENMASSE_TEST_KILLS" in os.environ
os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA if IS_LONG else f"{QUICK_JAVA} {INTERPRETED}")

# A thousand processes are started: with this, each would compile the whole program anew, half of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Collecting makes many things that stay, and searches for cycles among them would take a third of its time.
gc.disable()

# A shell has what it starts in the background ignore interrupts, and whatever that starts in its turn.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have Hypothesis go by the run's seed, too."""
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = SEED


def pytest_sessionstart(session: pytest.Session) -> None:
    """Name the seed at once: a run that is ended has no summary."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"ENMASSE_TEST_SEED={SEED} repeats what goes by chance")
    if session.config.getoption("numprocesses", None):
        compile_all(session.config)


def compile_all(config: pytest.Config) -> None:
    """Compile what is new, with a process for each processor: each worker would do it for itself, all at once.

    What asserts say of a failure is compiled into tests, which takes twice as long as all else of finding them.
    """
    state = config.stash[rewrite.assertstate_key]
    files = sorted(config.rootpath.glob("tests/**/*.py"))
    processors = len(os.sched_getaffinity(0))
    children = []
    for number in range(processors):
        if (child := os.fork()) == 0:
            for path in files[number::processors]:
                if not path.name.startswith(("test_", "conftest.")):
                    compileall.compile_file(path, quiet=1)
                    continue
                kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
                if rewrite._read_pyc(path, kept) is None and rewrite.try_makedirs(kept.parent):
                    source, code = rewrite._rewrite_test(path, config)
                    rewrite._write_pyc(state, code, source, kept)
            if number == 0:
                compileall.compile_dir(config.rootpath / "src", quiet=1)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


@pytest.fixture
def story_chance(request: pytest.FixtureRequest) -> random.Random:
    """What a story does by chance: another one for each test, the same for the same seed."""
    return random.Random(f"{SEED} {request.node.name}")


@functools.cache
def shares_spark(path: Path) -> bool:
    """Whether tests of a file take the session ``spark``; the process that deals out files does not load them."""
    return "spark: SparkSession" in path.read_text()


@functools.cache
def group_of(path: Path) -> str | None:
    """Return the group that a file's mark names, if any."""
    found = re.search(r"xdist_group\(\"(\w+)\"\)", path.read_text())
    return found and found.group(1)


class GroupsOfFiles(LoadFileScheduling):  # type: ignore[misc]  # xdist tells no types
    """Has one worker run all files that share what takes long to start: Spark, or what their group's mark names."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        path = self.config.rootpath / file
        return "spark" if shares_spark(path) else group_of(path) or file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupsOfFiles | None:
    return GroupsOfFiles(config, log) if config.getoption("dist") == "loadfile" else None


ALL_SLOW = re.compile(r"^pytestmark = (\[[^]]*)?pytest\.mark\.slow", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file of slow tests unread where these are left out: each worker would import it first."""
    is_left_out = "not slow" in config.getoption("markexpr") and collection_path.name.startswith("test_")
    return (is_left_out and ALL_SLOW.search(collection_path.read_text()) is not None) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items.sort(key=lambda item: not shares_spark(item.path))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what was collected out of every search for cycles: it stays to the end, and is most of what there is."""
    gc.freeze()
    gc.enable()


os.umask(umask := os.umask(0o022))
"""A command that runs in a test's own process may change it, and later tests start others with it."""

SECONDS_OF: defaultdict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
"""How long the tests of each file took, with what they set up, and the processor: that is the same beside others."""

cpu_s = [0.0]
"""Of this process and of the processes that it has waited for, as of the last report."""

STUCK_S = 3700.0 if IS_LONG else 700.0
"""After which all ends, and says where all threads are: a time-out cannot interrupt a foreign client that hangs."""
WATCH_S = 60.0
"""Until it is counted anew: pytest's own way, for each test, takes as long as a quick test does."""
watched = [0.0]

QUICK_S = 0.005
"""A setup or teardown of less shows nowhere."""


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Have a worker report what somebody reads, and not how each quick test began and ended: there are 16,000."""
    os.umask(umask)
    if (now := time.monotonic()) > watched[0]:
        watched[0] = now + WATCH_S
        file = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(STUCK_S + WATCH_S, exit=True, file=file)
    if not is_xdist_worker(item.session):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.duration > QUICK_S:
            used = os.times()
            before, cpu_s[0] = cpu_s[0], used.user + used.system + used.children_user + used.children_system
            report.user_properties.append(("cpu_s", cpu_s[0] - before))
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_unconfigure() -> None:
    faulthandler.cancel_dump_traceback_later()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    file = report.nodeid.partition("::")[0]
    wall, cpu = SECONDS_OF[file]
    cpu += sum(float(str(value)) for name, value in report.user_properties if name == "cpu_s")
    SECONDS_OF[file] = wall + report.duration, cpu


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was not tested, and the command that changes it; in CI also the files that take longest."""
    if os.environ.get("CI") == "true" and SECONDS_OF:
        in_all = "{:,.0f} s in all, {:,.0f} s of processors".format(*map(sum, zip(*SECONDS_OF.values(), strict=True)))
        terminalreporter.section(f"slowest of {len(SECONDS_OF)} files: {in_all}")
        for file, (wall, cpu) in sorted(SECONDS_OF.items(), key=lambda item: -max(item[1]))[:SLOWEST_FILES]:
            terminalreporter.line(f"{wall:6.1f} s  {cpu:6.1f} s of processors  {file}")
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])
    )
    tools = {tool: count for reason, count in sorted(reasons.items()) if (tool := missing_tool(reason))}
    others = {reason: count for reason, count in sorted(reasons.items()) if not missing_tool(reason)}
    if tools:
        terminalreporter.section(f"{sum(tools.values())} skipped as tools are missing")
        for tool, count in tools.items():
            terminalreporter.line(f"{count:6}  {tool}")
        terminalreporter.line(f"`{bring(tools)}` brings them.")
    if others:
        terminalreporter.section(f"{sum(others.values())} skipped for other reasons")
        for reason, count in others.items():
            terminalreporter.line(f"{count:6}  {' '.join(reason.split())}")
