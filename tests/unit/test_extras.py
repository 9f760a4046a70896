"""Modules of extras: each import of one belongs to an extra, and says which where it is missing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest

from enmasse.cli import app
from enmasse.extras import extra_with, install_command, remedy
from tests.support import whole_package

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = re.compile(r"[\w.-]+")
IMPORT = re.compile(r"^ *(?:from (\w+)[\w.]* import |import (\w+)[\w.]*(?: as \w+)?(?: +#.*)?$)", re.MULTILINE)


def normal(distribution: str) -> str:
    return distribution.replace("_", "-").replace(".", "-").lower()


def foreign_modules() -> dict[str, str]:
    """Every module of others that some file imports at whatever time, with one of these files."""
    own = {"enmasse", *sys.stdlib_module_names}
    found: dict[str, str] = {}
    for file in (ROOT / "src").rglob("*.py"):
        found |= {module or other: file.name for module, other in IMPORT.findall(file.read_text())}
    return {module: file for module, file in found.items() if module not in own}


def core() -> set[str]:
    """The distributions that come with the package alone."""
    found: set[str] = set()
    ahead = [normal(NAME.match(text)[0]) for text in PROJECT["dependencies"]]  # type: ignore[index]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            try:
                texts = requires(name) or ()
            except PackageNotFoundError:  # of other systems or interpreters
                continue
            ahead += [normal(NAME.match(text)[0]) for text in texts if "extra ==" not in text]  # type: ignore[index]
    return found


@pytest.mark.slow
def test_every_module_that_is_imported_comes_with_the_core_or_with_an_extra_that_is_known() -> None:
    brought, by = core(), packages_distributions()
    modules = foreign_modules()
    assert {"h2", "pyspark", "sklearn", "proton", "psutil"} <= modules.keys(), "the right thing is looked for"
    for module, file in modules.items():
        if not any(normal(name) in brought for name in by.get(module, ())):
            assert extra_with(module), f"{file} imports {module}, which no extra brings"


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("pyspark", "spark"),
        ("psutil", "demo"),
        ("onnxruntime", "models"),
        ("sklearn", "convert"),
        ("proton", "proton"),
    ],
)
def test_the_smallest_extra_with_a_module_is_named(module: str, extra: str) -> None:
    assert extra_with(module) == extra
    assert PROJECT["optional-dependencies"][extra]


@pytest.mark.parametrize("name", ["nonsense", "pyspark.nonsense", None])
def test_what_belongs_to_no_extra_has_no_remedy(name: str | None) -> None:
    assert remedy(ModuleNotFoundError("no", name=name)) is None


@pytest.mark.parametrize(
    ("receipt", "command"),
    [
        ("nothing", "pip install"),
        ("uv-receipt.toml", "uv tool install --force"),
        ("pipx_metadata.json", "pipx install --force"),
    ],
)
def test_the_command_is_that_of_the_installer(
    receipt: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / receipt).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command("spark") == f"{command} 'enmasse[spark]'"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("pyspark", "error: pyspark is not installed here: pip install 'enmasse[spark]'\n"),
        ("zzz", "error: this is a bug"),
    ],
)
def test_a_command_that_misses_an_extra_ends_in_one_sentence_and_any_other_module_is_a_bug(
    module: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_named: object) -> Callable[..., Any]:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(app, "_make_app", fail)
    assert app.run_app() == 1
    assert capsys.readouterr().err.startswith(words)


@pytest.mark.slow
def test_with_the_extra_of_spark_alone_all_but_the_demonstration_is_imported() -> None:
    hidden = [module for module in foreign_modules() if extra_with(module) not in (None, "spark")]
    assert {"psutil", "matplotlib", "sklearn"} <= set(hidden)
    done = subprocess.run(
        [sys.executable, whole_package.__file__, *hidden], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    missing = json.loads(done.stdout)["missing"]
    assert missing["enmasse.demo.chart"] == "matplotlib is not installed here: pip install 'enmasse[demo]'"
    # pytest loads its plugin itself.
    assert [name for name in missing if not name.startswith("enmasse.demo.")] == ["enmasse.testing.pytest_plugin"]
