"""Describes what went wrong, in one sentence: the cause at the bottom of Java's and Python's stacks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from enmasse.pipeline.errors import CheckpointDamagedError, TableDamagedError
from enmasse.pipeline.lake.objects import storage_failure

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST: Final = 500
"""Characters of a sentence; a status is read in a table."""

_OURS = re.compile(r"enmasse\.(?:[a-z_]+\.)*errors\.(\w+Error): ((?:.|\n)*?)(?=\n\s*\n|\n\s+at |\n\tat |\nJVM|$)")
"""An error of this package, wherever in the stacks it is."""
_PYTHON = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Warning|Interrupt|Exit)): (.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)*([\w$]+): (.+)$", re.MULTILINE)
"""Separates Java's exceptions; the outermost that Py4J reports has a colon alone."""
_ROOT = re.compile(r"^(?:Caused by)?: ((?:[\w$]+\.)+[\w$]+)(?::|$)", re.MULTILINE)
"""The whole name of an exception of Java's, which may come without words."""
_STATE = re.compile(
    r"java\.lang\.(?:\w+Error|ClassCastException|IllegalStateException|(?:\w+)?IndexOutOfBoundsException"
    r"|NullPointerException)"
    r"|java\.util\.(?:ConcurrentModificationException|NoSuchElementException)"
    r"|java\.io\.(?:InvalidClass|NotSerializable|OptionalData|StreamCorrupted)Exception"
    r"|scala\.\w+Error"
)
"""Exceptions of Java's own state, not of a row, a file or a node."""
_CLASS = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_TAIL = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_STATE_CODE = re.compile(r"(?:\s*SQLSTATE: \w{5})+\s*$")
"""The code that Spark appends to an error that was raised in Python."""
_JAVAS = "Py4JJavaError"
"""Python's name for an error of Java's, which comes after it."""
_CRASHED = "Python worker exited unexpectedly"
_SLOW = "waiting for the Python worker to connect back"
_NO_SPACE = "No space left on device"
_FILE = re.compile(r"(?<![\w.:/])/[^\s:'\"()]+")
_CHANGED = re.compile(r"Checksum error: (?:file:)?(/.+?) at \d+ exp: ")
"""The words of Hadoop about a file."""
_GONE = re.compile(r"File (?:file:)?(/\S+/checkpoints/.+?) does not exist")
_IN_LAKE = re.compile(r"(.+/lake)/([^/]+)")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+|$)", re.MULTILINE)
"""The words of an error that our frame has Spark raise: a constraint, an expectation, a message that does not fit."""
_COMPUTED = re.compile(
    r"\[[A-Z][A-Z0-9_.]+\] (?P<words>[^\n]+?)\s*SQLSTATE: 22\w{3}(?P<place>[^\n]*\n(?:[^\n]*\n){0,8})?"
)
"""An expression that cannot be computed: its class of SQLSTATE is "data exception". Its place may follow."""
_PLACE = re.compile(r"== SQL .*==\n(?P<line>[^\n]*)\n(?P<marks> *\^+)")
_SETTING = re.compile(r"\s*If necessary,? set [^.]*(?:\.[^.\s][^.]*)*\.?")
"""The words of Spark about a setting that no user has."""
REMEDY_OF_EXPRESSIONS: Final = (
    "write it in its try_ form, as try_divide or try_cast, or compute it of single rows in a step whose onError says "
    "what becomes of one that fails"
)
_OVERFLOW = re.compile(r"overflow", re.IGNORECASE)
REMEDY_OF_SUMS: Final = (
    "write try_sum or try_avg, which are NULL then, or have them of a wider type, as sum(CAST(n AS DECIMAL(38, 0)))"
)
_HEADER = re.compile(r"[^\n:]*CSV header(?:.|\n)*?CSV file: \S+")


def sentence_of(error: BaseException | str, sums: Sequence[str] = ()) -> str:
    """Return what people need of an error of Spark.

    Args:
        error: an exception, or its text.
        sums: those of groups that the query computes. Spark does not say which one overflows.
    """
    text = str(error)
    if ours := _OURS.findall(text):
        return _short(_STATE_CODE.sub("", ours[-1][1]))
    if raised := _RAISED.search(text):
        return _short(raised[1])
    if computed := _COMPUTED.search(text):
        return _short(_about_expression(computed, sums))
    if header := _HEADER.search(text):
        return _short(f"{header[0].strip()}; correct the file in its place")
    if storage := storage_failure(text):
        return _short(f"the lake: {storage}")
    if changed := _CHANGED.search(text):
        kind = CheckpointDamagedError if "/checkpoints/" in changed[1] else TableDamagedError
        return _short(f"{changed[1]} is not as it was written: its checksum is of something else; {kind.REMEDY}")
    if gone := _GONE.search(text):
        return _short(f"the checkpoint lacks {gone[1]}; {CheckpointDamagedError.REMEDY}")
    if _NO_SPACE in text:
        return _short(f"{_NO_SPACE}: {_where_full(text)}")
    if _CRASHED in text:
        return (
            "a Python worker died: it needed more memory than it may have, took too long in a C library, or was "
            "killed; the runner's log says more"
        )
    if _SLOW in text:
        return "this machine is too busy: a Python process did not start within Spark's ten seconds"
    if "Traceback (most recent call last)" in text and (python := _PYTHON.findall(text)):
        name, message = python[-1]
        if name != _JAVAS:
            return _short(f"{name}: {message}")
    if causes := _CAUSE.findall(text):
        name, message = causes[-1]
        return _short(f"{name}: {_plain(message)}")
    return _short(_plain(text)) or type(error).__name__


def is_of_expression(error: BaseException | str) -> bool:
    """Return whether an expression could not be computed.

    Args:
        error: an exception, or its text.
    """
    return bool(_COMPUTED.search(str(error))) and not _OURS.search(str(error))


def _about_expression(found: re.Match[str], sums: Sequence[str]) -> str:
    # What fails with it, as the query, has a class of its own before.
    words = re.sub(r"^.*\[[A-Z][A-Z0-9_.]*\] ", "", _SETTING.sub("", found["words"])).strip().rstrip(".")
    place = _PLACE.search(found["place"] or "")
    if place is None and sums and _OVERFLOW.search(words):
        one = sums[0] if len(sums) == 1 else f"one of {', '.join(sums)}"
        return f"the sum of a group, {one}, is more than its type holds; {REMEDY_OF_SUMS}"
    if place is None:
        return f"an expression cannot be computed: {words}; {REMEDY_OF_EXPRESSIONS}"
    start, end = place["marks"].index("^"), len(place["marks"])
    # What is run has all names in backticks.
    fragment = place["line"][start:end].replace("`", "")
    return f"the expression {fragment} cannot be computed: {words}; {REMEDY_OF_EXPRESSIONS}"


def is_of_java(error: BaseException | str) -> bool:
    """Return whether the cause is an error of Java, as when what its queries share is spoilt or memory is gone.

    Args:
        error: an exception, or its text.
    """
    text = str(error)
    roots = _ROOT.findall(text)
    return bool(roots and _STATE.fullmatch(roots[-1]) and not _OURS.search(text))


def _where_full(text: str) -> str:
    """Return what is full: the file that the error names, or the disk of the space, for most errors name none.

    A stack and a query's plan have other paths; the file is in a line that says what is wrong.
    """
    files = [file[0] for line in text.splitlines() if _NO_SPACE in line and (file := _FILE.search(line))]
    if not files:
        return "the disk with the space's pipelines is full; free some and it goes on"
    table = _IN_LAKE.match(files[0])
    return f"{files[0]} (table {table[2]} of the lake {table[1]}; free some and it goes on)" if table else files[0]


def _plain(text: str) -> str:
    first = text.strip().partition("\n\tat ")[0].partition("\nJVM stacktrace")[0]
    return _TAIL.sub("", _CLASS.sub("", first))


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 1] + "…"
