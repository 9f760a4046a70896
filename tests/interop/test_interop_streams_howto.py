"""The how-to of streams does what it says, program by program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_process import NodeProcess

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "streams-read-and-keep.md"
BLOCK = re.compile(r"```python\n(.*?)```\s+```text\n(.*?)```", re.DOTALL)

pytestmark = pytest.mark.slow


def test_every_program_prints_what_the_howto_says(
    node: NodeProcess, addresses: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses.declare("stream", "readings", partitions=2)
    programs = BLOCK.findall(HOWTO.read_text())
    assert len(programs) == 3
    for program, expected in programs:
        exec(compile(program.replace("amqp://127.0.0.1:5672", node.url), str(HOWTO), "exec"), {})
        assert capsys.readouterr().out == expected
