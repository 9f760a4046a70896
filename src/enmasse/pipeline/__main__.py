"""``python -m enmasse.pipeline COMMAND``: what runs beside control in processes of its own."""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import os
import sys
from collections.abc import Sequence

from enmasse.errors import ConfigError, EnmasseError
from enmasse.extras import remedy
from enmasse.pipeline.session import require_spark

_COMMANDS = {
    "check": ("check a pipeline as Spark does, without running it", "enmasse.pipeline.running.checking"),
    "host": ("run the pipelines of an installation, a runner for each space", "enmasse.pipeline.host.command"),
    "prepare": (
        "keep Spark's classes in one file, so that it starts in half the time",
        "enmasse.pipeline.running.class_archive",
    ),
    "run": ("run the pipelines of one space", "enmasse.pipeline.running.command"),
}
"""Each module has ``add_arguments(parser)`` and ``run(options, arguments)``; only the one asked for is loaded."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except EnmasseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except ModuleNotFoundError as error:
        if (text := remedy(error)) is None:
            raise
        sys.stderr.write(f"{text}\n")
        return 2


def _run(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m enmasse.pipeline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    chosen = None
    for name, (text, module) in _COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if given[:1] == [name]:
            chosen = importlib.import_module(module)
            chosen.add_arguments(command)
    options = parser.parse_args(given)
    assert chosen is not None
    if options.command != "run":  # which loads most of it later
        gc.freeze()
        gc.enable()
    if options.command != "host":  # which reports in a status what is missing
        require_spark()
    return int(chosen.run(options, given[1:]))


if __name__ == "__main__":
    # What is loaded stays. To search it for cycles again and again takes a fifth of a start.
    gc.disable()
    status = 1
    if sys.argv[1:2] == ["run"]:
        # Java may die amid a batch: threads in libraries' own code would crash a Python that takes itself down.
        # What is registered first comes last.
        atexit.register(lambda: os._exit(status))
    status = main()
    sys.exit(status)
