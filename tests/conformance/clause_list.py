"""The clauses of specifications that bind a node, and the tests that carry their numbers.

A specification has a folder of ``clauses``, whose files say what each clause demands. A clause is named

* SECTION:KEY of AMQP 1.0, such as 2.6.7:drain,
* mqtt5:SECTION-NUMBER and mqtt3:SECTION-NUMBER of MQTT 5.0 and 3.1.1, such as mqtt5:3.1.2-22 for their normative
  statement [MQTT-3.1.2-22].

A test of any folder names the clauses that it shows by ``@clause("2.6.7:drain", ...)``. The tests are read, not run,
to find that out.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

__all__ = [
    "AMQP", "MQTT", "ROOT", "SPECIFICATIONS", "Clause", "Part", "Section", "Specification", "clause", "load_reasons",
    "load_sections", "load_tests",
]  # fmt: skip

ROOT = Path(__file__).parents[2]
CLAUSES = Path(__file__).parent / "clauses"

clause = pytest.mark.clause
"""Marks a test with the clauses that it shows to hold."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a specification, in a file of its own.

    Args:
        file: the file, without its ending.
        row: its name in the table of all parts.
        heading: its heading.
        prefix: what the names of its clauses begin with.
    """

    file: str
    row: str
    heading: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Specification:
    """A specification.

    Args:
        folder: the folder below ``clauses``.
        page: the page of the reference that is made of it.
        parts: its parts in order.
        separator: what is between section and key in the name of a clause.
    """

    folder: str
    page: Path
    parts: tuple[Part, ...]
    separator: str


_REFERENCE = ROOT / "docs" / "reference"

AMQP = Specification(
    "amqp",
    _REFERENCE / "amqp-conformance.md",
    (
        Part("part1_types", "1. Types", "Part 1: Types"),
        Part("part2_transport", "2. Transport", "Part 2: Transport"),
        Part("part3_messaging", "3. Messaging", "Part 3: Messaging"),
        Part("part4_transactions", "4. Transactions", "Part 4: Transactions"),
        Part("part5_security", "5. Security", "Part 5: Security"),
    ),
    ":",
)
MQTT = Specification(
    "mqtt",
    _REFERENCE / "mqtt-conformance.md",
    (
        Part("mqtt5", "MQTT 5.0", "MQTT 5.0", "mqtt5:"),
        Part("mqtt3", "MQTT 3.1.1", "MQTT 3.1.1", "mqtt3:"),
    ),
    "-",
)
SPECIFICATIONS = (AMQP, MQTT)


@dataclass(slots=True)
class Clause:
    """One rule."""

    name: str
    statement: str
    tests: list[str] = field(default_factory=list)
    """As PATH::NAME, from the root of the repository."""


@dataclass(slots=True)
class Section:
    """One section of a specification."""

    part: Part
    number: str
    title: str
    clauses: list[Clause]


def load_sections(specification: Specification) -> list[Section]:
    """Every section in order, with its clauses."""
    sections = []
    for part in specification.parts:
        path = CLAUSES / specification.folder / f"{part.file}.toml"
        for number, table in tomllib.loads(path.read_text()).items():
            title = table.pop("title")
            begin = f"{part.prefix}{number}{specification.separator}"
            clauses = [Clause(begin + key, statement) for key, statement in table.items()]
            sections.append(Section(part, number, title, clauses))
    return sections


def load_reasons(specification: Specification) -> dict[str, str]:
    """Why a clause has no test, by its name."""
    return tomllib.loads((CLAUSES / specification.folder / "without_test.toml").read_text())


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
