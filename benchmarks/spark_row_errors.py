"""The cost of judging rows of which none fails: the same query as Spark takes it, and with ``onError: drop``.

    python -m benchmarks.spark_row_errors [--rows 2000000] [--rounds 5] [--case TEXT]

Both run in one Spark, in turns, over rows of its source ``rate-micro-batch``, into the sink noop. CPU is what
everything of Spark used for a row; the ratio is the median of those of the pairs.

    sql     a filter, arithmetic, casts and an element of an array
    python  the same, with a function of Python that is called for each row
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.accounting import cpu_seconds, descendants
from enmasse.model.kinds.pipelines.pipeline import Code
from enmasse.pipeline.running.steps.judged_functions import judged_functions
from enmasse.pipeline.running.steps.sql_functions import sql_functions
from enmasse.pipeline.running.steps.verdicts import Judging, Verdicts
from enmasse.pipeline.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CASES = {
    "sql": "SELECT id, a / b AS share, CAST(s AS INT) AS n, a + 1 AS more, element_at(parts, b) AS part "
    "FROM readings WHERE CAST(s AS DOUBLE) / b < 1000000",
    "python": "SELECT id, scaled(a / b) AS share, CAST(s AS INT) AS n, a + 1 AS more "
    "FROM readings WHERE CAST(s AS DOUBLE) / b < 1000000",
}
ROWS = (
    "value AS id, CAST(value % 1000 AS INT) AS a, CAST(value % 2 + 1 AS INT) AS b, CAST(value % 777 AS STRING) AS s, "
    "array(1, 2, 3) AS parts"
)
MODULES = {"own": "def scaled(value):\n    return None if value is None else 3.6 * value\n"}
BATCHES = 4


def run(frame: DataFrame, folder: Path, rows: int) -> float:
    """Run a query over all rows, and return its microseconds of CPU for a row."""
    before = cpu_seconds(descendants(os.getpid()))
    query = frame.writeStream.format("noop").option("checkpointLocation", str(folder))
    running = query.trigger(processingTime="0 seconds").start()
    while not (progress := running.lastProgress) or progress["batchId"] < BATCHES - 1:
        time.sleep(0.05)
    after = cpu_seconds(descendants(os.getpid()))
    running.stop()
    return (after - before) / (rows * BATCHES) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="in each of four batches")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=CASES)
    options = parser.parse_args()
    function = {"name": "scaled", "function": "own:scaled", "returns": "DOUBLE"}
    code = Code.model_validate({"configMap": "own", "functions": [function]})
    with tempfile.TemporaryDirectory(prefix="enmasse-spark-") as name:
        folder = Path(name)
        spark = start_session("row-errors", folder / "spark", cores=1)
        for called, udf in sql_functions(code, MODULES).items():
            spark.udf.register(called, udf)
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", options.rows)
        source.option("numPartitions", 1).load().selectExpr(*ROWS.split(", ", 4)).createTempView("readings")
        for case in [options.case] if options.case else CASES:
            plain = spark.sql(CASES[case])
            judged = Verdicts(Judging("judged", 0, is_null=False), judged_functions(code, MODULES)).over(plain)
            ratios = []
            for number in range(options.rounds + 1):  # the first warms up
                both = [
                    run(frame, folder / f"{case}-{number}-{kind}", options.rows)
                    for kind, frame in enumerate((plain, judged))
                ]
                if number:
                    ratios.append(both[1] / both[0])
                    print(f"{case}: {both[0]:.2f} µs a row, judged {both[1]:.2f}: {ratios[-1]:.2f}", flush=True)
            print(f"{case}: judged takes {statistics.median(ratios):.2f} times as much")
        spark.stop()


if __name__ == "__main__":
    main()
