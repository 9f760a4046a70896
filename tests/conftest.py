"""What every test may rely on."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter

import pytest
from hypothesis import settings

from tests.foreign_tools import bring, missing_tool

# Examples are never timed, as the machine is shared. With CI=true they are fewer, and the same in
# every run.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")

# Java programs live for seconds here: compiling their code twice takes longer than it saves.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A shell has what it starts in the background ignore interrupts, and whatever that starts in its turn.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was not tested, and the command that changes it."""
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
