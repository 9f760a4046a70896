from __future__ import annotations

import pytest

from enmasse.pipeline.errors import CheckpointDamagedError, TableDamagedError
from enmasse.pipeline.running.failures import (
    LONGEST,
    REMEDY_OF_EXPRESSIONS,
    REMEDY_OF_SUMS,
    is_of_java,
    sentence_of,
)
from enmasse.pipeline.running.logical_plans import sums_in

WORKER = """\
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
{}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""

BATCH = """\
Caused by: py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: \
Traceback (most recent call last):
  File "delta.py", line 1, in append
    frame.collect()
py4j.protocol.Py4JJavaError: An error occurred while calling o12.collectToPython.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.rdd.RDD.collect(RDD.scala:1)
{}\t... 28 more
"""


SETTING = 'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error.'
PLACE = "== SQL (line 1, position 8) ==\nSELECT 1 / `b` FROM t\n       ^^^^^^^\n"
QUERY = "[STREAM_FAILED] Query [id = 1-a, runId = 2-b] terminated with exception: "
DIVISION = f"Caused by: a.B: {QUERY}[DIVIDE_BY_ZERO] Division by zero. Use `x`. {SETTING} SQLSTATE: 22012\n{PLACE}"
OVERFLOW = f"Caused by: a.B: [ARITHMETIC_OVERFLOW] long overflow. {SETTING} SQLSTATE: 22003"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (WORKER.format("enmasse.pipeline.errors.FunctionError: function a:b: boom"), "function a:b: boom"),
        (WORKER.format("enmasse.pipeline.errors.RefusedError: no such\n  address"), "no such address"),
        (WORKER.format("enmasse.pipeline.errors.RefusedError: may not send SQLSTATE: 38000"), "may not send"),
        (WORKER.format("ValueError: bad thing"), "ValueError: bad thing"),
        (
            "[UNRESOLVED_COLUMN] A column `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Project",
            "A column `x` cannot be resolved.",
        ),
        (
            "Caused by: org.apache.hadoop.fs.X: Checksum error: file:/a b/lake/t/x at 0 exp: -1 got: 2",
            f"/a b/lake/t/x is not as it was written: its checksum is of something else; {TableDamagedError.REMEDY}",
        ),
        (
            "[X] terminated with exception: Checksum error: file:/a/checkpoints/p/offsets/1 at 512 exp: 1 got: 2 SQL",
            "/a/checkpoints/p/offsets/1 is not as it was written: its checksum is of something else; "
            + CheckpointDamagedError.REMEDY,
        ),
        (
            "java.io.FileNotFoundException: File file:/a/checkpoints/p/state/0/3.changelog does not exist",
            f"the checkpoint lacks /a/checkpoints/p/state/0/3.changelog; {CheckpointDamagedError.REMEDY}",
        ),
        (
            "Caused by: a.B: no\nCaused by: java.io.IOException: No space left on device (/data/lake/t/x)",
            "No space left on device: /data/lake/t/x (table t of the lake /data/lake; free some and it goes on)",
        ),
        (
            (
                "Caused by: a.B: Query terminated with exception: java.io.IOException: No space left on device\n"
                "Identifier: bakery.burnt/to-burnt [id = 5]\nLogical Plan:\n+- Project\n"
                "Caused by: java.io.IOException: No space left on device"
            ),
            "No space left on device: the disk with the space's pipelines is full; free some and it goes on",
        ),
        (
            WORKER.replace("worker.py", "/opt/enmasse/pipeline/lake/maintenance.py").format(
                "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"
            ),
            "No space left on device: the disk with the space's pipelines is full; free some and it goes on",
        ),
        (
            WORKER.format("OSError: [Errno 28] No space left on device: '/data/lake/t/x'"),
            "No space left on device: /data/lake/t/x (table t of the lake /data/lake; free some and it goes on)",
        ),
        (
            "Caused by: a.b.Outer: no\nCaused by: java.io.FileNotFoundException: /x (gone)",
            "FileNotFoundException: /x (gone)",
        ),
        (BATCH.format(""), "SparkException: Job aborted"),
        (DIVISION, f"the expression 1 / b cannot be computed: Division by zero. Use `x`; {REMEDY_OF_EXPRESSIONS}"),
        (OVERFLOW, f"an expression cannot be computed: long overflow; {REMEDY_OF_EXPRESSIONS}"),
        (BATCH.format("Caused by: java.io.IOException: disk is gone\n"), "IOException: disk is gone"),
        (
            "SparkRuntimeException: [USER_RAISED_EXCEPTION] the table t has a constraint SQLSTATE: P0001\n\tat a.b",
            "the table t has a constraint",
        ),
        (
            (
                "Caused by: a.B: CSV header does not conform to the schema.\n Header: n, id\n Schema: id, n\n"
                "Expected: id but found: n\nCSV file: file:///lake/files/a.csv\n\tat a.b"
            ),
            (
                "CSV header does not conform to the schema. Header: n, id Schema: id, n Expected: id but found: n "
                "CSV file: file:///lake/files/a.csv; correct the file in its place"
            ),
        ),
        ("plain words\n\tat java.Thing.run(Thing.java:1)", "plain words"),
    ],
)
def test_the_cause_is_told_in_one_sentence(text: str, sentence: str) -> None:
    assert sentence_of(text) == sentence


STATE_SUM = (
    "Caused by: a.B: [ARITHMETIC_OVERFLOW] overflow. Use 'try_add' to tolerate overflow and return NULL instead. "
    f"{SETTING} SQLSTATE: 22003"
)
DECIMAL_SUM = f"Caused by: a.B: [ARITHMETIC_OVERFLOW] Overflow in sum of decimals. {SETTING} SQLSTATE: 22003"


@pytest.mark.parametrize("text", [STATE_SUM, DECIMAL_SUM, OVERFLOW])
def test_an_overflow_without_a_place_is_that_of_the_sums_of_the_query(text: str) -> None:
    one, both = sentence_of(text, ["sum(a)"]), sentence_of(text, ["sum(a)", "avg((b + 1))"])
    assert one == f"the sum of a group, sum(a), is more than its type holds; {REMEDY_OF_SUMS}"
    assert both == f"the sum of a group, one of sum(a), avg((b + 1)), is more than its type holds; {REMEDY_OF_SUMS}"


def test_what_has_a_place_is_no_sum() -> None:
    assert sentence_of(DIVISION, ["sum(a)"]) == sentence_of(DIVISION)


def test_sums_are_found_in_what_is_known_of_a_query() -> None:
    assert sums_in(
        [
            "source readings",
            "Aggregate by device of device, sum(litres) AS s, avg((a + abs(b))) AS m, count(1) AS n -> s",
            "Join sum(x) = y -> struct<s:bigint>",
            "Aggregate by device of sum(litres) AS s, sum(sum(n)) AS t -> struct<s:bigint>",
        ]
    ) == ["sum(litres)", "avg((a + abs(b)))", "sum(sum(n))", "sum(n)"]


def test_a_worker_that_died_is_told_so() -> None:
    assert "Python worker died" in sentence_of("SparkException: Python worker exited unexpectedly (crashed)")


def test_a_busy_machine_is_told_so() -> None:
    assert "too busy" in sentence_of("Timed out while waiting for the Python worker to connect back")


def test_an_exception_without_words_has_its_name() -> None:
    assert sentence_of(KeyError()) == "KeyError"


def test_a_sentence_is_bounded() -> None:
    assert len(sentence_of("x" * 10_000)) == LONGEST


SPOILT = "Caused by: java.lang.IllegalStateException: Illegal size 5 of collection, expected 8\n"


@pytest.mark.parametrize(
    "text",
    [
        BATCH.format(SPOILT),
        "Caused by: a.b.Outer: no\nCaused by: java.lang.NullPointerException: null",
        "Caused by: a.b.Outer: no\nCaused by: java.lang.NullPointerException",
        "Caused by: java.lang.OutOfMemoryError: Java heap space",
        "Caused by: java.util.ConcurrentModificationException: null",
        "Caused by: java.io.StreamCorruptedException: invalid type code: 00",
    ],
)
def test_an_error_of_java_itself_is_known(text: str) -> None:
    assert is_of_java(text)


@pytest.mark.parametrize(
    "text",
    [
        WORKER.format("ValueError: bad thing"),
        BATCH.format(""),
        BATCH.format("Caused by: java.io.IOException: disk is gone\n"),
        "Caused by: java.lang.NumberFormatException: For input string: x",
        f"{SPOILT}Caused by: enmasse.pipeline.errors.StreamUnavailableError: gave up after 60 s",
        "java.lang.IllegalStateException is only named here",
    ],
)
def test_an_error_of_a_row_a_file_or_a_node_is_none_of_java(text: str) -> None:
    assert not is_of_java(text)
