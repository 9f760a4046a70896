"""SQL written anew means in Spark what was written, and what is on the list is there in Spark."""
# ruff: noqa: E501, ISC004  many expressions in few queries: each query takes Spark a moment

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from enmasse.model.sql.functions import ALLOWED_FUNCTIONS, REASONS, TABLE_FUNCTIONS
from enmasse.model.sql.sql import checked_sql
from enmasse.pipeline.running.steps.verdicts import Judging, Verdicts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(500)]

_ROWS = (
    "SELECT * FROM VALUES "
    "('boiler-1', 21.5D, 3, timestamp'2026-01-31 12:00:00.25', array('a', 'b'), map('k', 1), "
    "named_struct('floor', 2, 'room', 'x'), '{\"a\": 1}', true, 12.50), "
    "('fan \\'2\\'', CAST(NULL AS DOUBLE), 7, timestamp'2026-02-28 23:59:59', array('c'), map(), "
    "named_struct('floor', 0, 'room', NULL), 'no json', false, -0.01) "
    "AS t(device, temperature, number, ts, tags, counts, room, text, flag, price)"
)

EXPRESSIONS = (
    "'a\\'b', 'a\\\\b', 'a\\nb', 'a\\tb', '\\u00e4', '\\%\\_', \"x'y\", r'\\d', 'ä 😀', '', 'a' 'b', '`', '--', '/* */'",
    "1, 1L, 1S, 1Y, 1.5, 1.50, 1.5D, 1.5F, 1.5BD, 1e3, .5, -1, - -1, X'1F', 12345678901, 0.1 + 0.2, 007",
    "DATE '2026-01-31', TIMESTAMP '2026-01-31 12:00:00', TIMESTAMP '2026-01-31 12:00:00+02:00', "
    "TIMESTAMP_NTZ '2026-01-31 12:00:00'",
    "ts + INTERVAL 10 SECONDS, ts - INTERVAL '1' HOUR, ts + INTERVAL '1 day 2 hours', ts - INTERVAL 3 MONTHS, "
    "ts + INTERVAL '1:30' MINUTE TO SECOND, INTERVAL 1 DAY 2 HOURS + ts",
    "dateadd(DAY, 1, ts), date_add(ts, 1), datediff(ts, DATE '2026-01-01'), timestampdiff(HOUR, ts, ts), "
    "date_diff(DAY, ts, ts), timestampadd(MINUTE, 5, ts), add_months(ts, 1), months_between(ts, ts)",
    "date_trunc('hour', ts), trunc(ts, 'MM'), to_date(ts), date(ts), hour(ts), day(ts), dayofweek(ts), weekofyear(ts), "
    "extract(HOUR FROM ts), extract(DOY FROM ts), extract(SECOND FROM ts), date_part('month', ts), last_day(ts)",
    "date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSS'), to_timestamp('2026-01-31'), to_timestamp('31.01.2026', 'dd.MM.yyyy'), "
    "to_date('2026-01', 'yyyy-MM'), unix_timestamp(ts), from_unixtime(0), unix_millis(ts), timestamp_millis(5), "
    "make_date(2026, 1, 31), from_utc_timestamp(ts, 'Europe/Berlin')",
    "CAST(number AS STRING), number::DOUBLE, TRY_CAST(text AS INT), string(number), int('5'), CAST(price AS DECIMAL(5,1)), "
    "CAST(tags AS STRING), CAST(ts AS DATE), CAST(ts AS BIGINT), CAST('1' AS TINYINT), CAST(device AS BINARY), "
    "CAST(room AS STRUCT<floor: STRING, room: STRING>), double('1.5'), boolean('true')",
    "number + 1 * 2, (number + 1) * 2, number / 2, number DIV 2, number % 2, mod(number, 2), -number, number - -1, "
    "number & 1, number | 8, number ^ 3, ~number, number << 2, number >> 1, shiftleft(number, 1), 7 - 3 - 2, 2 * (3 - 1)",
    "flag AND NOT flag OR true, NOT flag, !flag, flag = true, number <> 3, number != 3, number == 3, temperature <=> NULL, "
    "temperature IS NULL, temperature IS NOT NULL, flag IS TRUE, temperature IS DISTINCT FROM NULL, "
    "number BETWEEN 1 AND 5, number NOT BETWEEN 1 AND 5, number IN (3, 4), number NOT IN (3), 1 < 2 = true",
    "device LIKE 'b%', device NOT LIKE '%\\'%', device LIKE 'b!%' ESCAPE '!', device ILIKE 'BOIL%', device RLIKE '^b.*\\\\d$', "
    "regexp_like(device, 'b'), device LIKE '%-_'",
    "device || '-' || number, concat(device, 'x'), concat_ws(',', tags), upper(device), substring(device, 1, 3), "
    "substr(device, -2), substring(device FROM 2 FOR 3), left(device, 2), right(device, 1), position('o' IN device), "
    "locate('o', device), instr(device, 'o'), trim('  a '), trim(BOTH 'b' FROM device), trim(LEADING 'b' FROM device), "
    "ltrim(' a'), rtrim('a '), btrim('xax', 'x'), replace(device, 'o', '0'), split(device, '-'), lpad(device, 10, '*'), "
    "overlay(device PLACING 'XX' FROM 2), translate(device, 'bo', 'BO'), initcap(device), char(65), chr(66), ascii('A')",
    "regexp_replace(device, '([a-z])', '<$1>'), regexp_extract(device, '(\\\\d)', 1), length(device), reverse(device), "
    "repeat('a', 3), md5(device), sha2(device, 256), base64(CAST(device AS BINARY)), hex(number), decode(CAST('a' AS BINARY), "
    "'UTF-8'), decode(number, 3, 'three', 'other'), format_string('%s=%d', device, number), format_number(price, 2)",
    "CASE WHEN number > 5 THEN 'many' WHEN number > 2 THEN 'some' ELSE 'few' END, CASE number WHEN 3 THEN 'a' END, "
    "if(flag, 1, 2), nvl(temperature, 0), coalesce(temperature, number), ifnull(temperature, 1), nullif(number, 3), "
    "nvl2(temperature, 1, 2), nanvl(temperature, 0), greatest(1, number), least(1, number)",
    "tags[0], array(1, 2)[1], array(1, 2, 3), array_contains(tags, 'a'), size(tags), element_at(tags, -1), slice(tags, 1, 1), "
    "sort_array(tags, false), array_sort(tags), array_join(tags, '/'), flatten(array(tags, tags)), array_position(tags, 'b'), "
    "get(tags, 5), array_distinct(tags), array_union(tags, array('c')), sequence(1, 3), array_max(array(1, 2))",
    "counts['k'], map('a', 1)['a'], map_keys(counts), map_values(counts), element_at(counts, 'k'), map_from_arrays(array(1), "
    "array(2)), map_entries(counts), str_to_map('a:1,b:2', ',', ':'), map_concat(counts, map('z', 9))",
    "room.floor, room.room, struct(number, device), struct(number AS n, device).n, named_struct('a', 1).a, "
    "to_json(struct(number, room)), to_json(named_struct('x', number, 'y', tags)), struct(*)",
    "transform(tags, x -> upper(x)), transform(tags, (x, i) -> concat(x, i)), filter(tags, x -> x > 'a'), "
    "exists(tags, x -> x = 'a'), forall(tags, x -> x = 'a'), aggregate(array(1, 2), 0, (acc, x) -> acc + x), "
    "reduce(array(1, 2), 0, (acc, x) -> acc + x, acc -> acc * 10), zip_with(array(1), array(2), (a, b) -> a + b), "
    "map_filter(counts, (k, v) -> v > 0), transform_values(counts, (k, v) -> v + 1)",
    "from_json(text, 'a INT').a, get_json_object(text, '$.a'), json_array_length('[1]'), json_object_keys('{\"a\": 1}'), "
    "schema_of_json('{\"a\": 1}'), from_csv('1,2', 'a INT, b INT'), try_parse_json(text) IS NULL",
    "abs(-5), round(2.567, 1), bround(2.5), floor(-1.5), ceil(1.2), ceiling(1.2), floor(2.55, 1), pow(2, 3), sqrt(4), exp(0), "
    "ln(1), log(10), log(2, 8), log10(100), log2(8), sign(-3), pi(), e(), degrees(0), width_bucket(5.3, 0.2, 10.6, 5), "
    "conv('ff', 16, 10), bin(5), factorial(4), pmod(-7, 3), hypot(3, 4), cbrt(27)",
    "hash(device), xxhash64(device), crc32('a'), current_date() > DATE '2020-01-01', now() IS NOT NULL, "
    "current_timestamp() = now(), CURRENT_DATE = current_date(), typeof(number)",
)

QUERIES = (
    "SELECT device, number AS n FROM t WHERE temperature IS NULL OR number > 1 ORDER BY n DESC, device LIMIT 1",
    "SELECT flag, count(*) AS n, count(DISTINCT device) AS d, sum(number) AS s, avg(temperature) AS a, min(ts) AS l, "
    "max(ts) AS h, stddev(number) AS sd, variance(number) AS v, any_value(1) AS av, collect_list(number) AS c, "
    "first(number) AS f, percentile_approx(number, 0.5) AS p, percentile(number, array(0.25, 0.5)) AS q, "
    "max_by(device, ts) AS m, count_if(number > 3) AS ci, bool_or(flag) AS b, approx_count_distinct(device) AS ad, "
    "count(*) FILTER (WHERE number > 3) AS cf, corr(number, number) AS co, median(number) AS md, mode(number) AS mo, "
    "every(flag) AS e, some(flag) AS so, any(flag) AS an, array_agg(number) AS aa, skewness(number) AS sk "
    "FROM t GROUP BY flag HAVING count(*) > 0 ORDER BY flag",
    "SELECT window.start AS s, window.end AS e, count(*) AS n FROM t GROUP BY window(ts, '10 minutes') ORDER BY s",
    "SELECT window(ts, '1 hour', '30 minutes').start AS s, device FROM t ORDER BY s, device",
    "SELECT session_window.start AS s, count(*) AS n FROM t GROUP BY session_window(ts, '5 minutes'), device ORDER BY s",
    "SELECT device, row_number() OVER (PARTITION BY flag ORDER BY ts DESC) AS r, lag(number, 1) OVER (ORDER BY ts) AS l, "
    "sum(number) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS s, "
    "avg(number) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) AS a, "
    "first(temperature) IGNORE NULLS OVER (ORDER BY ts) AS f, ntile(2) OVER (ORDER BY ts) AS nt FROM t ORDER BY device",
    "WITH a AS (SELECT number FROM t), b(x) AS (SELECT number + 1 FROM a) SELECT * FROM a JOIN b ON a.number < b.x ORDER BY 1, 2",
    "WITH t AS (SELECT device FROM t WHERE number = 3) SELECT * FROM t",
    "SELECT device, tag FROM t LATERAL VIEW explode(tags) x AS tag ORDER BY tag",
    "SELECT device, p, tag FROM t LATERAL VIEW OUTER posexplode(filter(tags, g -> g < 'c')) x AS p, tag ORDER BY device, p",
    "SELECT explode(tags) AS tag FROM t ORDER BY tag",
    "SELECT a.device FROM t AS a LEFT ANTI JOIN t AS b ON a.number = b.number + 4 ORDER BY 1",
    "SELECT * FROM t LEFT SEMI JOIN (SELECT number FROM t WHERE flag) AS f USING (number)",
    "SELECT a.device, b.number FROM t a FULL OUTER JOIN t b ON a.number = b.number AND a.flag ORDER BY 1, 2",
    "SELECT device FROM t WHERE number IN (SELECT max(number) FROM t) AND EXISTS (SELECT 1 FROM t AS u WHERE u.flag)",
    "SELECT (SELECT max(number) FROM t) AS m, device FROM t ORDER BY device",
    "SELECT number FROM t UNION SELECT 9 UNION ALL SELECT 3 EXCEPT SELECT 7 ORDER BY number",
    "SELECT number FROM t INTERSECT SELECT 3",
    "SELECT * EXCEPT (ts, room, counts, tags) FROM t ORDER BY device",
    "SELECT DISTINCT flag FROM t ORDER BY flag NULLS LAST",
    "SELECT flag, device, grouping_id() AS g, sum(number) AS s FROM t GROUP BY CUBE (flag, device) ORDER BY 1, 2, 3",
    "SELECT flag, sum(number) AS s FROM t GROUP BY ROLLUP (flag) ORDER BY 1 NULLS FIRST",
    "SELECT flag, sum(number) AS s FROM t GROUP BY GROUPING SETS ((flag), ()) ORDER BY 1",
    "SELECT flag, sum(number) AS s FROM t GROUP BY ALL ORDER BY ALL",
    "SELECT a, b FROM VALUES (1, 'x'), (2, 'y') AS v(a, b) ORDER BY a",
    "SELECT id FROM range(3) ORDER BY id",
    "SELECT number + 1 AS m, m * 2 AS d FROM t ORDER BY m",
    "SELECT `device` AS `a``b c`, t.number AS `select` FROM t ORDER BY 1",
    "SELECT max(struct(ts, number)).number AS last FROM t",
    "SELECT d.state.at.`x.y`.room.floor, state.at.`x.y`.tags[0] AS tag, transform(state.list, i -> i.at.room.floor) AS f, "
    "state.at.* EXCEPT (n), d.state.at.`x.y`.room.* FROM (SELECT named_struct('at', named_struct('x.y', struct(room, tags), "
    "'n', number), 'list', array(named_struct('at', struct(room)))) AS state FROM t) d WHERE state.at.`x.y`.room.floor > 0",
    "SELECT t.room, t.room.floor FROM (SELECT struct(t.room) AS t, device FROM t) t",
)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> SparkSession:
    spark.sql(_ROWS).createOrReplaceTempView("t")
    return spark


def compare(spark: SparkSession, sql: str, canonical: str) -> None:
    """Have Spark give the same for both; a plan that it knows to be the same one is carried out once."""
    frame, other = spark.sql(canonical), spark.sql(sql)
    # An expression without a name is called after its text, which is another one then.
    types, others = ([field.dataType.simpleString() for field in one.schema.fields] for one in (frame, other))
    assert types == others
    rows = list(map(tuple, frame.collect()))
    assert frame.sameSemantics(other) or rows == list(map(tuple, other.collect()))


@pytest.mark.parametrize("expressions", EXPRESSIONS, ids=lambda text: text[:20])
def test_expressions_written_anew_are_worth_the_same(rows: SparkSession, expressions: str) -> None:
    sql = f"SELECT {expressions} FROM t ORDER BY device"
    canonical = checked_sql(sql, {"t": None}).canonical
    compare(rows, sql, canonical)


@pytest.mark.parametrize("sql", QUERIES, ids=lambda text: text[:30])
def test_queries_written_anew_give_the_same(rows: SparkSession, sql: str) -> None:
    checked = checked_sql(sql, {"t": None})
    compare(rows, sql, checked.canonical)
    if checked.columns is not None:
        assert list(checked.columns) == list(dict.fromkeys(rows.sql(sql).columns))


# Of constants as they are: Spark asks for such in some places.
OF_CONSTANTS = (
    "SELECT device, percentile_approx(number / 1, 0.5) AS a, percentile_approx(number, array(0.5, 0.9), 100) AS b, "
    "approx_count_distinct(number, 0.05) AS c, sum(number / 2 + 1.5) AS d FROM t GROUP BY device ORDER BY device",
    "SELECT a.device, nullif(a.number, 3) AS n FROM t AS a LEFT JOIN t AS b ON nullif(a.number, 7) BETWEEN b.number AND "
    "b.number / 1 AND a.ts BETWEEN b.ts AND b.ts + INTERVAL 30 DAYS ORDER BY 1",
)


# Each takes Spark a second: some of all.
JUDGED = (*OF_CONSTANTS, *(f"SELECT {one} FROM t ORDER BY device" for one in EXPRESSIONS[3::8]), *QUERIES[::5])


@pytest.mark.parametrize("is_null", [False, True])
def test_queries_of_which_nothing_fails_give_the_same_when_their_rows_are_judged(
    rows: SparkSession, is_null: bool
) -> None:
    verdicts = Verdicts(Judging("t", 1, is_null), {})
    for sql in JUDGED[:: 3 if is_null else 1]:
        plain = rows.sql(sql)
        judged = verdicts.over(plain)
        # Spark does not see that nothing fails: columns that are never NULL may be so to it.
        assert judged.schema.simpleString() == plain.schema.simpleString(), sql
        assert repr(judged.collect()) == repr(plain.collect()), sql


def test_functions_on_the_list_are_those_of_spark(spark: SparkSession) -> None:
    there = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert sorted(ALLOWED_FUNCTIONS - there) == []
    assert sorted(TABLE_FUNCTIONS - there) == []
    assert sorted(set(REASONS) - there) == []
