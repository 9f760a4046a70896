"""Which files import which: none in a circle while the program runs, and for types only where a comment says why."""

from __future__ import annotations

import ast
import functools
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
DEFENCE = "know each other"


def modules() -> dict[str, Path]:
    """Every module by its name."""
    found = {path.relative_to(SOURCE).with_suffix(""): path for path in (SOURCE / "enmasse").rglob("*.py")}
    return {".".join(p.parent.parts if p.name == "__init__" else p.parts): path for p, path in found.items()}


def imports(tree: ast.AST, *, with_types: bool) -> set[str]:
    """Names that a file imports; without types, those that it imports when it is loaded."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module, *(f"{module}.{name.name}" for name in names)}
            case ast.Import(names=names):
                found |= {name.name for name in names}
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.FunctionDef() | ast.AsyncFunctionDef():
                found |= imports(node, with_types=True) if with_types else set()
            case ast.expr():
                pass  # most of a file, and none of its imports
            case _:
                found |= imports(node, with_types=with_types)
    return found


@functools.cache
def trees() -> dict[str, ast.AST]:
    """Every module's syntax."""
    return {name: ast.parse(path.read_text()) for name, path in modules().items()}


def graph(*, with_types: bool) -> dict[str, set[str]]:
    known = trees()
    return {name: imports(tree, with_types=with_types) & known.keys() - {name} for name, tree in known.items()}


@pytest.mark.slow
def test_no_files_import_each_other_while_they_are_loaded() -> None:
    TopologicalSorter(graph(with_types=False)).prepare()


def circles(others: dict[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of files of which each leads to each other."""

    def reached(name: str) -> set[str]:
        found: set[str] = set()
        ahead = [name]
        while ahead:
            news = others[ahead.pop()] - found
            found |= news
            ahead += news
        return found

    reach = {name: reached(name) for name in others}
    return {frozenset(end for end in ends if name in reach[end]) for name, ends in reach.items() if name in ends}


@pytest.mark.slow
def test_files_that_import_each_other_for_types_say_why() -> None:
    texts = {name: path.read_text() for name, path in modules().items()}
    found = circles(graph(with_types=True))
    assert found, "there are some, so that this looks for the right thing"
    assert [sorted(circle) for circle in found if not any(DEFENCE in texts[name] for name in circle)] == []
