"""Formats log lines as text or JSON, one for each event, and limits their rate.

Rules:
1. An event has a name and fields (``log_event``); any other line is a message. Both end up as one line,
   whatever a client has put into a name: what cannot be printed is escaped, what is long is cut.
2. Lines are limited by kind, so that nobody floods the log and nobody's flood hides other kinds. A kind is
   an event's name, or a message without its arguments. What was left out is counted in the next line of
   its kind, or in a line of its own once the flood is over.
"""

from __future__ import annotations

import json
import logging
import sys
import textwrap
import time
import unicodedata
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, TextIO

FORMATS = ("text", "json")

BURST = 100
"""Lines of one kind that may come at once: a hundred clients that connect anew are worth reading."""

PER_SECOND = 2.0
"""Lines of one kind in the long run: some 20 MB a day if somebody floods on purpose."""

QUIET_S = 10.0
"""Seconds after a flood until the number of its lines is logged."""

MAX_KINDS = 1_000
"""Kinds that are accounted for; our own programs have far fewer."""

MAX_CHARACTERS = 256
"""Of one field: names of links and containers are the clients' own, and have no length."""


def log_event(logger: logging.Logger, level: int, event: str, **fields: Any) -> None:
    """Log an event.

    Args:
        logger: the logger of the module.
        level: the level as ``logging`` has them.
        event: its name, in words joined by hyphens.
        fields: the facts that it is about; those that are ``None`` are left out.
    """
    if logger.isEnabledFor(level) and not _is_left_out(event, level):
        given = {key: value for key, value in fields.items() if value is not None}
        logger.log(level, event, extra={"event": event, "fields": given})


def _is_left_out(event: str, level: int) -> bool:
    """Return true if the line of an event is left out, which is counted: of a flood most are not even made."""
    handlers = logging.root.handlers
    return len(handlers) == 1 and type(handlers[0]) is LimitedHandler and handlers[0].leaves_out(event, level)


def _cut(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "..."


def printable(text: str, keep: str = "") -> str:
    """Return a text with codes in the place of letters that act on terminals, end lines, or hide or turn others.

    Args:
        text: whoever made it.
        keep: letters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(letter if _is_harmless(letter) or letter in keep else repr(letter)[1:-1] for letter in text)


def _is_harmless(letter: str) -> bool:
    # Spaces of other widths, and letters that are newer than Python's tables or somebody's own.
    return letter.isprintable() or unicodedata.category(letter) in ("Zs", "Cn", "Co")


def _as_text(value: Any) -> str:
    cut = _cut(value)
    if not isinstance(cut, str):
        return json.dumps(cut)
    if cut and cut.isprintable() and not any(letter in cut for letter in ' "='):
        return cut
    return json.dumps(cut, ensure_ascii=not cut.isprintable())


class TextFormatter(logging.Formatter):
    """Lines for people: time, level, where, and the event with ``key=value``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line; the trace of an exception follows it."""
        fields = getattr(record, "fields", None)
        message = printable(record.getMessage())
        if fields:
            message += "".join(f" {key}={_as_text(value)}" for key, value in fields.items())
        left_out = getattr(record, "left_out", 0)
        if left_out:
            message += f" left_out={left_out}"
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {message}"
        if record.exc_info:
            # An error may quote what a client has sent: no line of it looks like one of ours.
            trace = printable(self.formatException(record.exc_info), keep="\n")
            line += "\n" + textwrap.indent(trace, "  ")
        return line


class JsonFormatter(logging.Formatter):
    """Lines for programs: one JSON object each, the trace of an exception in it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        event = getattr(record, "event", None)
        if event is None:
            line["message"] = record.getMessage()
        else:
            line["event"] = event
            line |= {key: _cut(value) for key, value in getattr(record, "fields", {}).items()}
        left_out = getattr(record, "left_out", 0)
        if left_out:
            line["left_out"] = left_out
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False, default=str)
        # Some letters end a line for those who read it, and are left alone by JSON.
        return text if text.isprintable() else json.dumps(line, default=str)


class _Allowance:
    """The lines that one kind may still log."""

    __slots__ = ("at", "dropped_at", "left", "left_out", "level")

    def __init__(self, at: float) -> None:
        self.at = at
        self.left = float(BURST)
        self.left_out = 0
        self.dropped_at = 0.0
        self.level = logging.INFO


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines, of each kind as many as ``BURST`` and ``PER_SECOND`` allow.

    Args:
        stream: the stream to write to.
        clock: gives the time in seconds, monotonic.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._kinds: dict[str, _Allowance] = {}
        self._flooded: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless its kind has exceeded its limit."""
        kind = getattr(record, "event", None) or f"{record.name}: {record.msg}"
        if self.leaves_out(kind, record.levelno):
            return
        allowance = self._kinds[kind]
        allowance.left -= 1
        if allowance.left_out:
            record.left_out = allowance.left_out
            allowance.left_out = 0
            self._flooded.discard(kind)
        super().emit(record)

    def leaves_out(self, kind: str, level: int) -> bool:
        """Return true, and count it, if a line would exceed the limit of its kind now."""
        now = self._clock()
        if self._flooded:
            self._report_floods(now)
        allowance = self._allowance(kind, now)
        allowance.left = min(float(BURST), allowance.left + (now - allowance.at) * PER_SECOND)
        allowance.at = now
        if allowance.left >= 1:
            return False
        allowance.left_out += 1
        allowance.dropped_at = now
        allowance.level = level
        self._flooded.add(kind)
        return True

    def _allowance(self, kind: str, now: float) -> _Allowance:
        allowance = self._kinds.get(kind)
        if allowance is None:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
                self._flooded.clear()
            allowance = self._kinds[kind] = _Allowance(now)
        return allowance

    def _report_floods(self, now: float) -> None:
        for kind in [kind for kind in self._flooded if now - self._kinds[kind].dropped_at >= QUIET_S]:
            allowance = self._kinds[kind]
            self._flooded.discard(kind)
            record = logging.LogRecord(
                "enmasse.logs", allowance.level, __file__, 0, "lines-left-out", None, None, "_report_floods"
            )
            record.event = "lines-left-out"
            record.fields = {"kind": kind, "lines": allowance.left_out}
            allowance.left_out = 0
            with self.lock or nullcontext():
                super().emit(record)


def set_up_logging(form: str = "text", stream: TextIO | None = None) -> None:
    """Log everything to standard error, as ``text`` or ``json``."""
    # What no line shows is not looked up: a node logs each connection.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001  documented for this purpose
    handler = LimitedHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
