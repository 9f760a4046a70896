"""The guard over users' SQL, with Spark's own parser and analyser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from enmasse.pipeline.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from enmasse.pipeline.running.planning.guard import Guard

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

COLUMNS = "device STRING, t DOUBLE, ts TIMESTAMP, tags ARRAY<STRING>, m MAP<STRING, INT>"


@pytest.fixture(scope="module")
def guard(spark: SparkSession) -> Guard:
    from enmasse.pipeline.running.planning.guard import Guard  # needs PySpark

    return Guard(spark)


@pytest.fixture(scope="module")
def relations(spark: SparkSession) -> dict[str, StructType]:
    schema = StructType.fromDDL(COLUMNS)
    assert isinstance(schema, StructType)
    return {"readings": schema, "devices": schema, "a/b.c": schema}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM readings",
        (
            "SELECT device, avg(t) AS mean, window(ts, '10 seconds') AS w FROM readings "
            "GROUP BY device, window(ts, '10 seconds')"
        ),
        (
            "WITH hot AS (SELECT * FROM readings WHERE t > 30) "
            "SELECT h.device, d.t FROM hot h JOIN devices d ON h.device = d.device"
        ),
        "WITH hot AS (SELECT * FROM readings) SELECT * FROM hot UNION ALL SELECT * FROM hot",
        "SELECT device FROM readings WHERE t IN (SELECT t FROM devices) AND device LIKE 'b%' AND NOT t IS NULL",
        (
            "SELECT CASE WHEN t BETWEEN 1 AND 2 THEN 'in' ELSE 'out' END AS c, CAST(t AS INT) % 3 AS r, -t AS n "
            "FROM readings"
        ),
        "SELECT device, tag FROM readings LATERAL VIEW explode(tags) AS tag",
        "SELECT m['x'] AS x, tags[0] AS first, device || '!' AS loud FROM readings",
        (
            "SELECT to_json(struct(device, t)) AS value, row_number() OVER (PARTITION BY device ORDER BY ts) AS n "
            "FROM readings"
        ),
        "SELECT count(DISTINCT device) AS n, stddev(t) AS s FROM `a/b.c`",
        "SELECT * FROM range(3)",
        "SELECT 1 AS one",
        # Each has another node of Spark's at the top, some of them of what is not analysed yet.
        "SELECT device, count(*) AS n FROM readings GROUP BY device HAVING count(*) > 3",
        "SELECT device, count(*) AS n FROM readings GROUP BY device, window(ts, '10 seconds') HAVING max(t) > 1",
        "SELECT device, count(*) AS n FROM readings GROUP BY ROLLUP (device) HAVING count(*) > 3",
        "SELECT count(*) AS n FROM readings HAVING count(*) > 3",
        "SELECT DISTINCT device FROM readings",
        "SELECT device FROM readings ORDER BY device",
        "SELECT device FROM readings LIMIT 3",
        "SELECT device FROM readings OFFSET 3",
        "(SELECT device FROM readings)",
        "SELECT device FROM readings INTERSECT SELECT device FROM devices",
        "SELECT device FROM readings EXCEPT SELECT device FROM devices",
        "WITH hot AS (SELECT device FROM readings) SELECT device FROM hot GROUP BY device HAVING count(*) > 3",
        "SELECT a FROM VALUES (1), (2) AS v(a)",
        "SELECT device FROM readings NATURAL JOIN (SELECT device FROM devices)",
    ],
)
def test_queries_that_only_compute_are_let_through(guard: Guard, relations: dict[str, StructType], sql: str) -> None:
    assert guard.check("spec.steps[0].sql", sql, relations)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM nothing",
        "SELECT nothing FROM readings",
        "SELECT reflect('java.lang.System', 'getenv', 'HOME')",
        "SELECT java_method('java.lang.System', 'exit', 1)",
        "SELECT try_reflect('java.lang.System', 'getenv', 'HOME')",
        "SELECT current_user()",
        "SELECT * FROM parquet.`/tmp`",
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT TRANSFORM(device) USING 'cat' AS x FROM readings",
        "DROP TABLE readings",
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO readings SELECT * FROM devices",
        "SET spark.sql.runSQLOnFiles=true",
        "SHOW TABLES",
        "SELECT 1; SELECT 2",
        "ADD JAR '/tmp/x.jar'",
        "SELECT input_file_name() FROM readings",
        "",
    ],
)
def test_all_else_is_refused_with_the_place(guard: Guard, relations: dict[str, StructType], sql: str) -> None:
    with pytest.raises(PlanError, match=r"spec\.steps\[0\]\.sql: "):
        guard.check("spec.steps[0].sql", sql, relations)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT reflect('java.lang.System', 'getenv', 'HOME')",
        "SELECT system.builtin.reflect('java.lang.System', 'getenv', 'HOME')",
        "SELECT rand()",
    ],
)
def test_sparks_registry_itself_lacks_what_is_not_listed(guard: Guard, sql: str) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException):
        guard._session.sql(sql)
