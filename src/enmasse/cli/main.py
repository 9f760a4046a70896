"""The entry point of ``enmasse``."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    # What is loaded stays. To search it for cycles again and again takes a fifth of a start.
    gc.disable()
    # A node must be back at once when it was killed: nothing else is imported for it.
    if sys.argv[1:2] == ["node"]:
        from enmasse.cli.commands.run.node import run_node  # noqa: PLC0415

        sys.exit(run_node(sys.argv[2:]))
    from enmasse.cli.app import run_app  # noqa: PLC0415

    sys.exit(run_app())
