"""``enmasse node``: one data-plane process, as a supervisor or a container runs it.

Parsed by argparse and dispatched before anything else is imported, so that a node starts quickly.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run a node until it is told to stop; the exit code is 0 after an orderly stop."""
    parser = argparse.ArgumentParser(prog="enmasse node", description="Run one data-plane process.")
    parser.add_argument("--data", type=Path, default=Path(".enmasse"), help="the installation's directory")
    parser.add_argument("--name", default="node-0", help="the node's name")
    parser.add_argument("--listen", action="append", metavar="HOST:PORT", help="a port for clients; 0 takes a free one")
    parser.add_argument("--admin", type=Path, help="the administrator's socket")
    parser.add_argument("--supervised", action="store_true", help="talk with a supervisor on standard input and output")
    given = parser.parse_args(arguments)
    from enmasse.node.main import run  # noqa: PLC0415  only once the arguments are right

    return run(given.data, given.name, given.listen or ["127.0.0.1:5672"], given.admin, given.supervised)
