"""Lines of a log: readable, on one line whatever clients say, and not too many."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from enmasse.net.logs import BURST, MAX_CHARACTERS, QUIET_S, JsonFormatter, LimitedHandler, TextFormatter, log_event


class Scene:
    """A logger of its own with a clock that the test moves."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.now = 0.0
        self.stream = io.StringIO()
        handler = LimitedHandler(self.stream, lambda: self.now)
        handler.setFormatter(formatter)
        self.logger = logging.Logger("enmasse.scene", logging.INFO)  # noqa: LOG001  nobody else sees it
        self.logger.addHandler(handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def text() -> Scene:
    return Scene(TextFormatter())


@pytest.fixture
def structured() -> Scene:
    return Scene(JsonFormatter())


def test_an_event_is_a_line_of_text_with_its_fields(text: Scene) -> None:
    log_event(text.logger, logging.WARNING, "link-refused", space="ns/shop", container="a b", credit=3, user=None)
    (line,) = text.lines
    assert line.endswith('WARNING enmasse.scene: link-refused space=ns/shop container="a b" credit=3')


def test_an_event_is_one_json_object(structured: Scene) -> None:
    log_event(structured.logger, logging.INFO, "link-attached", space="ns/shop", link="übrig", credit=3)
    (told,) = structured.told
    assert told.pop("time").endswith("+00:00")
    assert told == {
        "level": "info", "logger": "enmasse.scene", "event": "link-attached",
        "space": "ns/shop", "link": "übrig", "credit": 3,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["a\nERROR forged", "a\x1b[31m", "a\u2028b", 'a" user=root', "\x00"])
def test_a_client_cannot_forge_lines_or_fields(name: str) -> None:
    for formatter in (TextFormatter(), JsonFormatter()):
        scene = Scene(formatter)
        log_event(scene.logger, logging.INFO, "link-attached", link=name)
        scene.logger.info("a message about %s", name)
        assert len(scene.lines) == 2
        assert all(line.isprintable() for line in scene.lines)
        assert " user=root" not in scene.lines[0].replace('\\" user=root', "")


def test_long_names_are_cut(structured: Scene) -> None:
    log_event(structured.logger, logging.INFO, "link-attached", link="x" * 100_000)
    assert len(structured.told[0]["link"]) == MAX_CHARACTERS + 3


def test_an_exception_stays_within_its_json_line(structured: Scene) -> None:
    try:
        int("of the test")
    except ValueError:
        structured.logger.exception("it failed at %s", "x")
    (told,) = structured.told
    assert told["message"] == "it failed at x"
    assert "ValueError: invalid literal" in told["exception"]


def refuse(name: str) -> None:
    raise ValueError(name)


def test_an_exception_that_quotes_a_client_forges_no_line_of_text() -> None:
    scene = Scene(TextFormatter())
    try:
        refuse("bad name: \x1b[2J\n2026-01-01 00:00:00 INFO all is well\u2028")
    except ValueError:
        scene.logger.exception("it failed")
    head, *trace = "\n".join(scene.lines).split("\n")
    assert head.endswith("it failed")
    assert all(line.startswith("  ") and line.isprintable() for line in trace)
    assert any("all is well\\u2028" in line for line in trace)


def test_a_flood_of_one_kind_leaves_others_alone_and_is_counted(structured: Scene) -> None:
    for number in range(10 * BURST):
        log_event(structured.logger, logging.INFO, "connection-opened", container=f"c{number}")
    log_event(structured.logger, logging.INFO, "link-refused", link="l")
    kinds = [told["event"] for told in structured.told]
    assert (kinds.count("connection-opened"), kinds.count("link-refused")) == (BURST, 1)
    structured.now += 1
    log_event(structured.logger, logging.INFO, "connection-opened", container="late")
    assert structured.told[-1]["left_out"] == 9 * BURST


def test_a_flood_that_is_over_is_told_with_the_next_line(text: Scene) -> None:
    for number in range(BURST + 5):
        text.logger.warning("odd bytes from %d", number)
    text.now += QUIET_S
    text.logger.info("something else")
    assert text.lines[-2].endswith('lines-left-out kind="enmasse.scene: odd bytes from %d" lines=5')
    assert text.lines[-1].endswith("something else")
