"""The journal's tools, as a process of their own.

    python -m enmasse.storage.tools check|dump|salvage|compact|backup|restore|init ...

``enmasse journal`` starts it: should damage end it after all, somebody is left to say so. Results go to
standard output, progress and errors to standard error. With ``--in-step`` a backup closes the descriptor when the
commit that it copies is fixed, and copies it once it is sent a line.

Exit code 0: done and all sound; 1: damage, which was named; 3: the tool could not do what was asked; 4: a node uses
the journal.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.errors import EnmasseError
from enmasse.storage.errors import JournalLockedError
from enmasse.storage.progress import Progress
from enmasse.storage.tools_check import check, dump
from enmasse.storage.tools_copy import backup, compact, init, restore, salvage

if TYPE_CHECKING:
    from collections.abc import Sequence

SOUND = 0
DAMAGED = 1
CANNOT = 3
IN_USE = 4


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m enmasse.storage.tools")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "dump", "salvage", "compact", "backup", "restore", "init"):
        command = commands.add_parser(name)
        command.add_argument("directory", type=Path)
        if name in ("salvage", "backup", "restore"):
            command.add_argument("other", type=Path)
        if name == "dump":
            command.add_argument("--messages", action="store_true")
        if name == "backup":
            command.add_argument("--in-step", type=int, metavar="DESCRIPTOR")
        if name == "restore":
            command.add_argument("--force", action="store_true")
    return parser


def _run(options: argparse.Namespace) -> int:
    directory: Path = options.directory
    if options.command == "check":
        return check(directory, Progress("checked"))
    if options.command == "dump":
        return dump(directory, Progress("read"), messages=options.messages)
    if options.command == "salvage":
        return salvage(directory, options.other, Progress("kept"))
    if options.command == "compact":
        return compact(directory, Progress("copied"))
    if options.command == "backup":
        step = options.in_step
        return backup(directory, options.other, Progress("copied"), lambda: step is None or _in_step(step))
    if options.command == "init":
        return init(directory)
    return restore(options.other, directory, Progress("copied"), force=options.force)


def _in_step(descriptor: int) -> bool:
    """Say that the commit is fixed which is copied, and wait for a line, as others fix theirs; False: none comes."""
    os.close(descriptor)  # the other end learns of it
    return bool(sys.stdin.readline())


def main(arguments: Sequence[str]) -> int:
    """Run one tool; return the exit code."""
    try:
        code = _run(_parser().parse_args(arguments))
        sys.stdout.flush()
    except JournalLockedError as error:
        sys.stderr.write(f"error: {error}\n")
        return IN_USE
    except EnmasseError as error:
        sys.stderr.write(f"error: {error}\n")
        return CANNOT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SOUND
    except OSError as error:
        sys.stderr.write(f"error: {error}\n")
        return CANNOT
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
