"""The how-tos of reading streams and of writing to addresses, block by block, in the session of the tests."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.pipeline import session
from tests.scenario.howto_place import Place, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.installation import Installation

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

PAGE = blocks("read-a-stream-in-spark.md")


def test_a_stream_is_read_as_the_page_says(
    spark: SparkSession,
    own: Installation,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    def command(block: str) -> None:
        for line in PAGE[block][0].splitlines():
            written, _, file = line.partition(" > ")
            enmasse, *arguments = shlex.split(written)
            assert enmasse == "enmasse"
            out = own.ok(*arguments)
            if file:
                Path(file).write_text(out)

    command("stream")
    names: dict[str, Any] = {"spark": spark}

    def run(block: str) -> str:
        code = PAGE[block][0]
        for scheme in ("amqp", "amqps"):
            code = code.replace(f"{scheme}://127.0.0.1:5672", own.url(scheme))
        for relative in ("checkpoint", "tables/telemetry"):
            code = code.replace(f'"{relative}"', f'"{tmp_path / relative}"')
        capfd.readouterr()
        exec(compile(code, block, "exec"), names)
        return capfd.readouterr().out

    run("shell")
    names["query"].processAllAvailable()
    names["query"].stop()
    assert names["query"].exception() is None
    assert re.search(r"boiler-1\s*\|21\.5", run("batch"))
    run("hour")
    assert names["recent"].load("telemetry").count() == 2
    assert "content_type" in run("properties")
    assert re.search(r"boiler-1.*\|double\|80\.5 ", run("headers"))
    run("copy")
    assert names["typed"].load("telemetry-copy").count() == 2
    told = subprocess.run(
        [sys.executable, "-c", PAGE["notebook"][0]],
        env=os.environ | {"ENMASSE_DATA": str(own.data)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert told.stdout == "2 readings, tables: []\n"
    run("checkpoint")
    assert names["query"].exception() is None
    assert spark.read.parquet(str(tmp_path / "tables/telemetry")).count() == 2
    command("certificate")
    assert run("secure") == "0 rows\n"


def test_results_are_written_as_the_page_says(
    spark: SparkSession, own: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = Place(tmp_path, ())
    place.environment["ENMASSE_DATA"] = str(own.data)
    found = {name: commands for name, (commands, _) in blocks("write-results-to-an-address.md").items()}
    assert list(found) == ["prepare", "write", "read", "refused"]
    place.run(found["prepare"])
    started = []

    def start(name: str, work: Path, *, quick: bool) -> SparkSession:
        started.append((name, work, quick))
        return spark

    # The session of the run has been started as the program starts its own, and goes on.
    monkeypatch.setattr(session, "start_session", start)
    monkeypatch.setattr(spark, "stop", lambda: None)
    program = found["write"].replace("amqp://127.0.0.1:5672", own.url("amqp"))
    program = program.replace('"checkpoint"', f'"{tmp_path / "checkpoint"}"')  # Java's directory is another
    exec(compile(program, "write", "exec"), {})
    assert started == [("alerts", Path("work"), True)]
    told = place.run(found["read"])
    assert told.count("boiler-1") >= 2
    assert "95.0" in told
    assert "97.0" in told
    assert place.run(found["refused"]).endswith("nothing was refused\n")
