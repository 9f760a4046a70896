"""How many files small batches leave in a table, and how long questions about a small one take.

    python -m benchmarks.spark_tables [--batches 1000] [--questions 5]

A runner cuts a stream into as many batches of ten rows, into a table on a disk and, where `make test-tools` has
brought an S3 server, into one in a bucket. Then an installation with a space, a stream and a pipeline is started
anew, and ``enmasse pipeline query`` is timed as its user waits for it: the first at once, Spark starts meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.spark_place import Columns, Runner, fill, node_in_folder
from enmasse.client.blocking import Message, connect
from enmasse.demo.service import Service
from enmasse.errors import EnmasseError
from tests.support.foreign_tools import HERE
from tests.support.object_storage import BUCKET, ObjectStorage

BATCH_ROWS = 10

OBJECTS = """
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: shop}
spec: {type: standard}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.telemetry}
spec: {address: telemetry, type: stream, partitions: 1}
---
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {name: shop.keep}
spec:
  sources: [{name: readings, address: telemetry, format: json, schema: "n INT"}]
  steps: [{name: numbers, sql: "SELECT n FROM readings"}]
  sinks: [{table: numbers}]
"""
QUESTION = "SELECT count(*) AS n FROM numbers"


def numbers(of: range) -> Columns:
    """Rows of JSON."""
    return Columns([1_700_000_000_000_000 + n for n in of], [b"k"] * len(of), [b'{"n": %d}' % n for n in of])


def write(batches: int, storage: ObjectStorage | None) -> str:
    """Write so many batches, and return what they left and how long they took."""
    with node_in_folder() as (node, folder):
        rows = batches * BATCH_ROWS
        fill(node, "telemetry", [range(rows)], numbers)
        space = folder / "space"
        (space / "credentials").mkdir(parents=True)
        table, options = str(space / "lake" / "numbers"), None
        if storage is not None:
            os.environ["ENMASSE_CREDENTIALS"] = str(space / "credentials")
            storage.write_settings(space / "credentials", prefix="lake")
            table, options = f"s3://{BUCKET}/lake/numbers", storage.options()
        source = {"name": "readings", "address": "telemetry", "format": "json", "schema": "n INT"}
        spec = {
            "sources": [source | {"maxRowsPerBatch": BATCH_ROWS}],
            "steps": [{"name": "numbers", "sql": "SELECT n FROM readings"}],
            "sinks": [{"table": "numbers"}],
            "trigger": "availableNow",
        }
        began = time.monotonic()
        runner = Runner(node.url, space)
        try:
            runner.put("keep", spec, "telemetry")
            while runner.rows.get("bench.keep", 0) < rows:
                runner.next_status()
        finally:
            runner.stop()
        took = time.monotonic() - began
        found = DeltaTable(table, storage_options=options)
        assert found.count() == rows
        return f"{batches} batches: {len(found.file_uris()):3} active files, {took / batches * 1000:.0f} ms a batch"


async def ask(folder: Path, questions: int) -> list[float]:
    """Return how long each question took, the first right after the start; seconds."""
    service = Service(folder / "data", folder / "up.log")
    (folder / "objects.yaml").write_text(OBJECTS)

    async def question() -> int:
        told = json.loads(await service.run("pipeline", "query", QUESTION, "--space", "shop", "-o", "json"))
        return int(told[0]["n"])

    await service.start()
    try:
        await service.run("apply", "-f", str(folder / "objects.yaml"))
        await service.run("status", "--wait", "120")
        with connect(str(service.url("amqp"))) as connection:
            outcomes = connection.sender("telemetry").send_all([Message(b'{"n": %d}' % n) for n in range(100)])
        assert {str(outcome) for outcome in outcomes} == {"accepted"}
        count = 0
        while count < len(outcomes):
            with suppress(EnmasseError):  # the table is not there yet
                count = await question()
    finally:
        await service.stop()
    took = []
    await service.start()
    try:
        for _ in range(1 + questions):
            began = time.monotonic()
            assert await question() == count
            took.append(time.monotonic() - began)
    finally:
        await service.stop()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=5, help="after the first")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="enmasse-tables-")))
        folder.chmod(0o755)
        print(f"on a disk   {write(options.batches, None)}", flush=True)
        if (HERE / "versitygw").exists():
            storage = stack.enter_context(ObjectStorage(folder / "storage"))
            print(f"in a bucket {write(options.batches, storage)}", flush=True)
        first, *further = asyncio.run(ask(folder, options.questions))
        print(f"the first question after the start {first:.1f} s, further ones at most {max(further):.1f} s")


if __name__ == "__main__":
    main()
