"""Which queries keep the order of their rows on several machines, by what Spark understood of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


@pytest.fixture(scope="module")
def readings(spark: SparkSession) -> DataFrame:
    rows = spark.readStream.format("rate").load()
    frame = rows.selectExpr("CAST(value AS STRING) AS device", "CAST(value AS DOUBLE) AS t", "timestamp AS ts")
    frame.createOrReplaceTempView("ordered_readings")
    spark.createDataFrame([("d", 1.0)], "device STRING, allowed DOUBLE").createOrReplaceTempView("ordered_limits")
    return frame


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT device, t FROM ordered_readings WHERE t > 30",
        "SELECT device, tag FROM ordered_readings LATERAL VIEW explode(array(device, 'x')) AS tag",
        "SELECT device FROM ordered_readings WHERE t > 1 UNION ALL SELECT device FROM ordered_readings WHERE t < 0",
    ],
)
def test_what_takes_one_row_after_the_other_keeps_their_order(
    spark: SparkSession, readings: DataFrame, sql: str
) -> None:
    from enmasse.pipeline.running.logical_plans import has_fixed_order  # needs PySpark

    assert readings.isStreaming
    assert has_fixed_order(spark.sql(sql), on_one_machine=False)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT device, count(*) AS n FROM ordered_readings GROUP BY device",
        "SELECT r.device FROM ordered_readings r JOIN ordered_limits l ON r.device = l.device AND r.t > l.allowed",
        "SELECT device FROM ordered_readings WHERE device IN (SELECT device FROM ordered_limits)",
        "SELECT DISTINCT device FROM ordered_readings",
        "SELECT /*+ REPARTITION(3, device) */ device FROM ordered_readings",
    ],
)
def test_what_is_shuffled_keeps_its_order_on_one_machine_alone(
    spark: SparkSession, readings: DataFrame, sql: str
) -> None:
    from enmasse.pipeline.running.logical_plans import has_fixed_order  # needs PySpark

    assert readings.isStreaming
    frame = spark.sql(sql)
    assert not has_fixed_order(frame, on_one_machine=False)
    assert has_fixed_order(frame, on_one_machine=True)


def test_rows_that_a_python_function_makes_keep_their_order(spark: SparkSession, readings: DataFrame) -> None:
    from enmasse.pipeline.decoding import decode, good  # needs PySpark
    from enmasse.pipeline.running.logical_plans import has_fixed_order

    mapped = readings.mapInPandas(lambda frames: frames, "device STRING, t DOUBLE, ts TIMESTAMP")
    assert has_fixed_order(mapped, on_one_machine=False)
    raw = readings.selectExpr("CAST(device AS BINARY) AS value", "ts AS timestamp", "device AS address")
    decoded = good(decode(raw, format="cbor", schema="device STRING"))
    assert has_fixed_order(decoded, on_one_machine=False)


SEVEN = "SELECT window(at, '7 minutes') AS w, count(*) AS n FROM watched GROUP BY window(at, '7 minutes')"


@pytest.mark.parametrize(
    ("sql", "seconds"),
    [
        (SEVEN, 420),
        ("SELECT window.end FROM watched GROUP BY WINDOW( at , '1 hour 30 minutes', '7 minutes')", 5400),
        ("SELECT 1 FROM watched GROUP BY window(to_timestamp(at), '1 hour'), window(at, '10 minutes')", 4200),
        ("SELECT 1 FROM watched GROUP BY window(CAST(at AS TIMESTAMP_NTZ), 'interval 2 days')", 172_800),
        (f"SELECT window(w, '1 hour') AS o, sum(n) FROM ({SEVEN}) GROUP BY o", 4020),
        (f"{SEVEN} UNION ALL {SEVEN.replace('7', '8')} -- window(at, '1 day')", 480),
        ("SELECT 1 FROM watched GROUP BY session_window(at, '5 minutes')", math.inf),
        ("SELECT named_struct('start', at, 'end', at) AS window FROM watched GROUP BY at", 0),
    ],
)
def test_windows_are_as_long_as_spark_understood_them(
    spark: SparkSession, readings: DataFrame, sql: str, seconds: float
) -> None:
    from enmasse.pipeline.running.logical_plans import seconds_of_windows  # needs PySpark

    readings.selectExpr("*", "ts AS at").withWatermark("at", "1 minute").createOrReplaceTempView("watched")
    assert seconds_of_windows(spark.sql(sql)) == seconds
