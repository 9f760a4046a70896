"""The clauses of AMQP 1.0 that bind a container such as ours, and the tests that carry their numbers.

A clause is named SECTION:KEY, such as 2.6.7:drain; ``clauses/*.toml`` says what each demands. A test names
the clauses that it shows by ``@clause("2.6.7:drain", ...)``. The tests are read, not run, to find that out.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

__all__ = ["CLAUSES", "ROOT", "Clause", "Section", "clause", "load_reasons", "load_sections", "load_tests"]

ROOT = Path(__file__).parents[2]
CLAUSES = Path(__file__).parent / "clauses"

clause = pytest.mark.clause
"""Marks a test with the clauses that it shows to hold."""


@dataclass(slots=True)
class Clause:
    """One rule."""

    name: str
    statement: str
    tests: list[str] = field(default_factory=list)
    """As PATH::NAME, from the root of the repository."""


@dataclass(slots=True)
class Section:
    """One section of the specification."""

    part: int
    number: str
    title: str
    clauses: list[Clause]


def load_sections() -> list[Section]:
    """Every section in order, with its clauses."""
    sections = []
    for path in sorted(CLAUSES.glob("part*.toml")):
        for number, table in tomllib.loads(path.read_text()).items():
            title = table.pop("title")
            clauses = [Clause(f"{number}:{key}", statement) for key, statement in table.items()]
            sections.append(Section(int(number[0]), number, title, clauses))
    return sections


def load_reasons() -> dict[str, str]:
    """Why a clause has no test, by its name."""
    return tomllib.loads((CLAUSES / "without_test.toml").read_text())


def load_tests() -> dict[str, list[str]]:
    """The tests of each clause that any test names."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if "clause(" not in text:
            continue
        for name, test in _marked(ast.parse(text)):
            found.setdefault(name, []).append(f"{path.relative_to(ROOT)}::{test}")
    return found


def _marked(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Clause and test, for every mark on a test or on one of its parameters."""
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names: dict[object, None] = {}
        for decorator in function.decorator_list:
            for node in ast.walk(decorator):
                if isinstance(node, ast.Call) and _is_clause(node.func):
                    names.update({a.value: None for a in node.args if isinstance(a, ast.Constant)})
        for name in names:
            yield str(name), function.name


def _is_clause(called: ast.expr) -> bool:
    return (isinstance(called, ast.Name) and called.id == "clause") or (
        isinstance(called, ast.Attribute) and called.attr == "clause"
    )
