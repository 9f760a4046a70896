"""A program for any Python that has the package: it imports every module, shows every help, and says what is missing.

Its arguments are modules of others that it is to do without; then it shows no help. It prints JSON: the modules of
the package that could not be imported, each with the sentence that its user would read, and the commands whose help
was shown. Another error than a missing module of an extra ends it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import typer


def hide(modules: list[str]) -> None:
    """Have these modules not be found, as if they were not installed."""

    class Finder(PathFinder):
        @classmethod
        def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
            return None if fullname.partition(".")[0] in modules else super().find_spec(fullname, path, target)

    sys.meta_path[:] = [Finder if finder is PathFinder else finder for finder in sys.meta_path]


def import_everything() -> dict[str, str]:
    """Import every module; return what was said of those that need what is missing."""
    import enmasse
    from enmasse.extras import remedy

    root = Path(enmasse.__file__).parent
    said = {}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if parts[-1] == "__main__":
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (text := remedy(error)) is None:
                raise
            said[name] = text
    return said


def show_every_help() -> list[str]:
    """Show the help of every command, of a family after that of its parts; return their names."""
    from enmasse.cli.app import COMMANDS, _make_app

    shown = []
    for name in (None, *COMMANDS):
        application = typer.main.get_command(_make_app(name))
        for words in _below(application) if name else ([],):
            text = io.StringIO()
            # A node has a parser of its own, which ends the program.
            with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
                application.main([*words, "--help"], prog_name="enmasse", standalone_mode=False)
            assert "usage: enmasse" in text.getvalue().lower(), words
            shown.append(" ".join(words))
    return shown


def _below(command: Any) -> Iterator[list[str]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from ([name, *words] for words in _below(inner))
        yield [name]


if __name__ == "__main__":
    hide(hidden := sys.argv[1:])
    said = import_everything()
    sys.stdout.write(json.dumps({"missing": said, "helped": [] if hidden else show_every_help()}))
