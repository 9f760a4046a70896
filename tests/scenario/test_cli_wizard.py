"""Somebody at a terminal is asked for what they have not said."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.installation import Installation

pytestmark = pytest.mark.slow


class Terminal:
    """Runs a command at a terminal of its own and answers its questions."""

    def __init__(self, *arguments: str) -> None:
        ours, theirs = pty.openpty()
        self._fd = ours
        self.process = subprocess.Popen(
            [sys.executable, "-m", "enmasse", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env=os.environ | {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "120"},
        )  # fmt: skip
        os.close(theirs)
        self.said = ""

    def expect(self, text: str, seconds: float = 30) -> None:
        """Read until the command has said this."""
        deadline = time.monotonic() + seconds
        while text not in self.said:
            assert time.monotonic() < deadline, self.said
            if select.select([self._fd], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self._fd, 4096).decode()
                except OSError:
                    break
        before, found, self.said = self.said.partition(text)
        assert found, before

    def answer(self, text: str) -> None:
        os.write(self._fd, f"{text}\n".encode())

    def end(self) -> int:
        code = self.process.wait(150)
        os.close(self._fd)
        return code


def test_a_space_and_an_address_are_made_by_answering(own: Installation) -> None:
    terminal = Terminal("create", "space", "--data", str(own.data))
    for question, answer in (
        ("Name of the space", "shop"), ("Type [standard]", ""), ("Plan [", "free"),
        ("Authentication service [", "none-authservice"),
        ("Declare the topic #", "y"),
        ("enmasse create space shop --type standard --plan free", ""), ("--any-name", ""), ("Create it?", "y"),
    ):  # fmt: skip
        terminal.expect(question)
        if answer or not question.startswith(("enmasse", "--")):
            terminal.answer(answer)
    terminal.expect("addressspace/shop created")
    assert terminal.end() == 0

    terminal = Terminal("create", "address", "--data", str(own.data))
    for question, answer in (("Address", "orders"), ("Type [", "queue"), ("Plan [", "nonsense"), ("Plan [", "1")):
        terminal.expect(question)
        terminal.answer(answer)
    terminal.expect("Create it?")
    terminal.answer("")
    terminal.expect("address/shop.orders created")
    assert terminal.end() == 0
    assert "Active" in own.ok("get", "address", "orders")


def test_nobody_at_a_terminal_is_nobody_to_ask(own: Installation) -> None:
    refused = own.run("create", "space")
    assert (refused.code, "the name of the space is missing" in refused.err) == (2, True)
    refused = own.run("create", "address", "orders")
    assert (refused.code, "what type is orders?" in refused.err) == (2, True)
