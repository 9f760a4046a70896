from __future__ import annotations

import json
import os

from enmasse.pipeline.running.command import Commands, EventWriter


def test_commands_come_in_order_until_the_end_and_noise_is_left_out() -> None:
    inlet, outlet = os.pipe()
    os.write(outlet, b'{"command": "a"}\nnoise\n[1]\n\n{"command": "b"}\n{"command": "half')
    os.close(outlet)
    assert [command["command"] for command in Commands(inlet)] == ["a", "b"]
    os.close(inlet)


def test_events_are_lines_and_a_reader_that_left_is_no_error() -> None:
    inlet, outlet = os.pipe()
    voice = EventWriter(outlet)
    voice("log", line="two\nlines")
    assert json.loads(os.read(inlet, 1000)) == {"event": "log", "line": "two\nlines"}
    os.close(inlet)
    voice("log", line="nobody")
    os.close(outlet)
