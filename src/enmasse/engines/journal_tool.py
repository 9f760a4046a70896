"""The journal's tools in a process of their own, which damage may end without harm to ours."""

from __future__ import annotations

import signal
import subprocess
import sys

from enmasse.errors import LocalError

__all__ = ["JournalToolError", "run_journal_tool"]


class JournalToolError(LocalError):
    """The process of a tool was ended by a signal that nobody here has sent."""


def run_journal_tool(*arguments: str) -> int:
    """Run one of ``python -m enmasse.storage.tools``; what it says goes to our own output.

    Args:
        arguments: of its command line: the tool's name, then the journal's directory.

    Returns:
        Its exit code; ``-signal.SIGINT`` if Ctrl-C ended it.

    Raises:
        JournalToolError: another signal ended it.
    """
    process = subprocess.Popen([sys.executable, "-m", "enmasse.storage.tools", *arguments])
    try:
        code = process.wait()
    except KeyboardInterrupt:
        code = process.wait()
    if code < 0 and code != -signal.SIGINT:
        raise JournalToolError(
            f"the tool that read {arguments[1]} was ended by {signal.Signals(-code).name}. If that is not what "
            "somebody did to it, the disk or file system could not read a page: see the kernel's log"
        )
    return code
