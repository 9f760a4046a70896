"""The programs of the page *Endpoints* as they are copied: each sends a message to an address, and receives it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import expect

from tests.support.foreign_tools import HERE as TOOLS
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.console.visit import Visit
    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]

GO_MODULE = TOOLS.parent / "interop/go"
PASSWORD = "open sesame"
PATIENCE_S = 120


def run(directory: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=os.environ | {"no_proxy": "*", "GOFLAGS": "-mod=mod", "GOPROXY": "off"},
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def in_java(directory: Path) -> str:
    if (directory / "ca.crt").exists():
        # As a comment of the program says.
        words = "-importcert -noprompt -alias enmasse -file ca.crt -keystore ca.p12 -storepass changeit"
        run(directory, "keytool", *words.split())
    return run(directory, "java", "-cp", f"{TOOLS / 'java'}/*", "Hello.java")


def in_javascript(directory: Path) -> str:
    (directory / "node_modules").symlink_to(TOOLS / "node_modules")
    return run(directory, "node", "hello.mjs")


def in_go(directory: Path) -> str:
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO_MODULE / name, directory)
    return run(directory, "go", "run", "-buildvcs=false", ".")


def in_cpp(directory: Path) -> str:
    run(directory, "g++", "-O0", "hello.cpp", "-o", "hello", "-lqpid-proton-cpp")
    return run(directory, "./hello")


class Language(NamedTuple):
    file: str
    play: Callable[[Path], str]
    tools: tuple[str, ...] = ()


LANGUAGES = {
    "Python": Language(
        "hello.py", lambda at: run(at, sys.executable, "hello.py"), ("python-qpid-proton with SASL and TLS",)
    ),
    "Java": Language("Hello.java", in_java, ("a JDK", "Qpid JMS and ProtonJ2")),
    "JavaScript": Language("hello.mjs", in_javascript, ("rhea",)),
    "Go": Language("main.go", in_go, ("go-amqp",)),
    "C++": Language("hello.cpp", in_cpp, ("Proton for C++",)),
    "MQTT": Language("hello.sh", lambda at: run(at, "sh", "hello.sh"), ("mosquitto_pub and mosquitto_sub",)),
    "HTTP": Language("hello.sh", lambda at: run(at, "sh", "hello.sh"), ("curl",)),
}


@pytest.fixture(scope="module")
def guarded(installation: Installation) -> str:
    """The space ``guarded`` with a user, beside another one."""
    installation.ok("create", "space", "guarded", "--authentication", "standard", "--wait", "60")
    installation.ok("create", "address", "parcels", "--type", "queue", "--space", "guarded", "--wait", "60")
    grants = ("--send", "#", "--recv", "#")
    installation.ok("create", "user", "jo", "--space", "guarded", *grants, "--wait", "60", stdin=f"{PASSWORD}\n")
    return "spaces/default/guarded"


# In the clear only those that log in by SCRAM are let in.
@pytest.mark.parametrize(
    ("language", "is_secure"), [*((language, True) for language in LANGUAGES), ("Python", False)]
)
def test_a_program_runs_as_it_is_copied(
    visit: Visit, guarded: str, tmp_path: Path, language: str, is_secure: bool
) -> None:
    page, file, play = visit.page, LANGUAGES[language].file, LANGUAGES[language].play
    require(*LANGUAGES[language].tools)
    visit.open(f"{guarded}/endpoints")
    expect(page.locator("#snippet-address")).to_have_value("parcels")
    if not is_secure:
        page.locator("#snippet-tls").uncheck(force=True)
    else:
        with page.expect_download() as bundle:
            visit.press("Download ca.crt")
        bundle.value.save_as(tmp_path / "ca.crt")
    page.get_by_role("tab", name=language, exact=True).click()
    with page.expect_download() as program:
        visit.press(f"Download {file}")
    program.value.save_as(tmp_path / file)
    text = (tmp_path / file).read_text()
    assert page.locator("pre code").inner_text().strip() == text.strip()
    (tmp_path / file).write_text(text.replace("USER", "jo").replace("PASSWORD", PASSWORD))
    assert "hello" in play(tmp_path)
