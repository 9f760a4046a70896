"""The ``enmasse`` command: finds the subcommand and runs it."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line; returns its exit code."""
    if sys.argv[1:2] == ["node"]:
        from enmasse.cli.node import main as node  # noqa: PLC0415  the others import more than a node needs

        return node(sys.argv[2:])
    print("enmasse: the subcommands are: node", file=sys.stderr)  # noqa: T201
    return 2
