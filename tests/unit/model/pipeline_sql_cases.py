"""Queries that are taken, with how they are written anew, and texts that are not, with what is said of them."""
# ruff: noqa: E501, RUF001  a query is best read in one line; letters that look alike are what is tried

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enmasse.model.sql.sql import Columns

__all__ = ["BAD", "GOOD", "RELATIONS"]

RELATIONS: dict[str, Columns] = {
    "readings": ("device", "temperature", "ts", "room", "list", "tags"),
    "devices": ("device", "place"),
    "raw": None,
}

GOOD: list[tuple[str, str, Columns]] = [
    (
        "SELECT device, temperature FROM readings WHERE temperature > 30",
        "SELECT `device`, `temperature` FROM `readings` WHERE `temperature` > 30",
        ("device", "temperature"),
    ),
    (
        "SELECT window.start, window.end, device, avg(temperature) AS mean, stddev(temperature) AS sd FROM readings GROUP BY window(ts, '10 seconds'), device",
        "SELECT `window`.`start`, `window`.`end`, `device`, avg(`temperature`) AS `mean`, stddev(`temperature`) AS `sd` FROM `readings` GROUP BY window(`ts`, '10 seconds'), `device`",
        ("start", "end", "device", "mean", "sd"),
    ),
    (
        "SELECT r.device, d.place FROM readings r JOIN devices d ON r.device = d.device",
        "SELECT `r`.`device`, `d`.`place` FROM `readings` AS `r` JOIN `devices` AS `d` ON `r`.`device` = `d`.`device`",
        ("device", "place"),
    ),
    (
        "SELECT * FROM readings JOIN devices USING (device)",
        "SELECT * FROM `readings` JOIN `devices` USING (`device`)",
        ("device", "temperature", "ts", "room", "list", "tags", "place"),
    ),
    (
        "WITH hot AS (SELECT * FROM readings WHERE temperature > 30) SELECT device, count(*) AS n FROM hot GROUP BY device HAVING n > 3",
        "WITH `hot` AS (SELECT * FROM `readings` WHERE `temperature` > 30) SELECT `device`, count(*) AS `n` FROM `hot` GROUP BY `device` HAVING `n` > 3",
        ("device", "n"),
    ),
    (
        "WITH readings AS (SELECT device FROM readings) SELECT * FROM readings",
        "WITH `readings` AS (SELECT `device` FROM `readings`) SELECT * FROM `readings`",
        ("device",),
    ),
    (
        "SELECT transform(tags, x -> upper(x)) AS t, tags[0] AS one, list[1] AS two FROM readings",
        "SELECT transform(`tags`, `x` -> upper(x)) AS `t`, `tags`[0] AS `one`, `list`[1] AS `two` FROM `readings`",
        ("t", "one", "two"),
    ),
    ("SELECT explode(tags) AS tag FROM readings", "SELECT explode(`tags`) AS `tag` FROM `readings`", ("tag",)),
    (
        "SELECT device, tag FROM readings LATERAL VIEW explode(tags) t AS tag",
        "SELECT `device`, `tag` FROM `readings` LATERAL VIEW explode(`tags`) t AS `tag`",
        ("device", "tag"),
    ),
    (
        "SELECT dateadd(DAY, 1, ts) AS t, timestampdiff(HOUR, ts, now()) AS h FROM readings",
        "SELECT dateadd(DAY, 1, `ts`) AS `t`, timestampdiff(HOUR, `ts`, now()) AS `h` FROM `readings`",
        ("t", "h"),
    ),
    (
        "SELECT CAST(value AS STRING) AS v, from_json(CAST(value AS STRING), 'a INT').a AS a FROM raw",
        "SELECT CAST(`value` AS STRING) AS `v`, from_json(CAST(`value` AS STRING), 'a INT').`a` AS `a` FROM `raw`",
        ("v", "a"),
    ),
    (
        "SELECT device FROM readings UNION ALL SELECT device FROM devices",
        "SELECT `device` FROM `readings` UNION ALL SELECT `device` FROM `devices`",
        ("device",),
    ),
    (
        "SELECT device, row_number() OVER (PARTITION BY device ORDER BY ts DESC) AS n FROM readings",
        "SELECT `device`, row_number() OVER (PARTITION BY `device` ORDER BY `ts` DESC) AS `n` FROM `readings`",
        ("device", "n"),
    ),
    (
        "SELECT CASE WHEN temperature > 30 THEN 'hot' ELSE 'cold' END AS state, temperature BETWEEN 1 AND 2 AS b, device IN ('a','b') AS i FROM readings",
        "SELECT CASE WHEN `temperature` > 30 THEN 'hot' ELSE 'cold' END AS `state`, `temperature` BETWEEN 1 AND 2 AS `b`, `device` IN ('a', 'b') AS `i` FROM `readings`",
        ("state", "b", "i"),
    ),
    (
        "SELECT device FROM readings WHERE EXISTS (SELECT 1 FROM devices WHERE devices.device = readings.device)",
        "SELECT `device` FROM `readings` WHERE EXISTS(SELECT 1 FROM `devices` WHERE `devices`.`device` = `readings`.`device`)",
        ("device",),
    ),
    (
        "SELECT to_json(struct(*)) AS value FROM readings",
        "SELECT to_json(struct(*)) AS `value` FROM `readings`",
        ("value",),
    ),
    (
        "SELECT (SELECT max(temperature) FROM readings) AS m FROM devices",
        "SELECT (SELECT max(`temperature`) FROM `readings`) AS `m` FROM `devices`",
        ("m",),
    ),
    ("SELECT room.floor FROM readings", "SELECT `room`.`floor` FROM `readings`", ("floor",)),
    (
        "SELECT room.a.b.c.d.e.f, r.room.a.b AS deep, r.room.`x.y`.`a``b` FROM readings r WHERE r.room.a.b.c IS NULL",
        "SELECT `room`.`a`.`b`.`c`.`d`.`e`.`f`, `r`.`room`.`a`.`b` AS `deep`, `r`.`room`.`x.y`.`a``b` FROM `readings` AS `r` WHERE `r`.`room`.`a`.`b`.`c` IS NULL",
        ("f", "deep", "a`b"),
    ),
    ("SELECT room.* FROM readings", "SELECT `room`.* FROM `readings`", None),
    (
        "SELECT room.a.b.* EXCEPT (c), readings.room.a.* FROM readings",
        "SELECT `room`.`a`.`b`.* EXCEPT (`c`), `readings`.`room`.`a`.* FROM `readings`",
        None,
    ),
    (
        "SELECT max(room.at.ts) AS last, count(room.at.*) AS n FROM readings GROUP BY window(room.at.ts, '1 minute'), list[0].at.x.y",
        "SELECT max(`room`.`at`.`ts`) AS `last`, count(`room`.`at`.*) AS `n` FROM `readings` GROUP BY window(`room`.`at`.`ts`, '1 minute'), `list`[0].`at`.`x`.`y`",
        ("last", "n"),
    ),
    (
        "SELECT tag.at.x.y, transform(list, i -> i.at.x.y) AS ys FROM readings LATERAL VIEW explode(room.at.tags) t AS tag",
        "SELECT `tag`.`at`.`x`.`y`, transform(`list`, `i` -> `i`.`at`.`x`.`y`) AS `ys` FROM `readings` LATERAL VIEW explode(`room`.`at`.`tags`) t AS `tag`",
        ("y", "ys"),
    ),
    (
        "SELECT a.room.at.x FROM readings a JOIN readings b ON a.room.at.x = b.room.at.x AND a.list[0].y.z = b.room.y.z",
        "SELECT `a`.`room`.`at`.`x` FROM `readings` AS `a` JOIN `readings` AS `b` ON `a`.`room`.`at`.`x` = `b`.`room`.`at`.`x` AND `a`.`list`[0].`y`.`z` = `b`.`room`.`y`.`z`",
        ("x",),
    ),
    (
        "SELECT room.floor, room.room.floor.at FROM (SELECT room FROM readings) room",
        "SELECT `room`.`floor`, `room`.`room`.`floor`.`at` FROM (SELECT `room` FROM `readings`) AS `room`",
        ("floor", "at"),
    ),
    ("SELECT a.b.c.d.e.f, a.b.c.* FROM raw", "SELECT `a`.`b`.`c`.`d`.`e`.`f`, `a`.`b`.`c`.* FROM `raw`", None),
    (
        "SELECT n + 1 AS m, temperature AS n FROM readings",
        "SELECT `n` + 1 AS `m`, `temperature` AS `n` FROM `readings`",
        ("m", "n"),
    ),
    (
        "SELECT temperature AS t FROM readings ORDER BY t",
        "SELECT `temperature` AS `t` FROM `readings` ORDER BY `t`",
        ("t",),
    ),
    (
        "SELECT * FROM (SELECT device AS d FROM readings) WHERE d = 'x'",
        "SELECT * FROM (SELECT `device` AS `d` FROM `readings`) WHERE `d` = 'x'",
        ("d",),
    ),
    (
        "SELECT x.* FROM (SELECT device AS d FROM readings) x",
        "SELECT `x`.* FROM (SELECT `device` AS `d` FROM `readings`) AS `x`",
        ("d",),
    ),
    (
        "SELECT * EXCEPT (ts) FROM readings",
        "SELECT * EXCEPT (`ts`) FROM `readings`",
        ("device", "temperature", "room", "list", "tags"),
    ),
    ("SELECT id FROM range(10)", "SELECT `id` FROM range(10)", ("id",)),
    (
        "SELECT count(DISTINCT device) FILTER (WHERE temperature > 1) AS c FROM readings",
        "SELECT count(DISTINCT `device`) FILTER(WHERE `temperature` > 1) AS `c` FROM `readings`",
        ("c",),
    ),
    ("(SELECT device FROM readings)", "(SELECT `device` FROM `readings`)", ("device",)),
    (
        "SELECT date '2020-01-01' AS d, INTERVAL '1' HOUR AS h",
        "SELECT CAST('2020-01-01' AS DATE) AS `d`, INTERVAL '1' HOUR AS `h`",
        ("d", "h"),
    ),
    ("SELECT named_struct('a', 1).a AS a", "SELECT named_struct('a', 1).`a` AS `a`", ("a",)),
    ("SELECT * FROM VALUES (1, 2) AS t(a, b)", "SELECT * FROM VALUES (1, 2) AS `t`(`a`, `b`)", ("a", "b")),
    (
        "SELECT session_window.start AS s, count(*) AS n FROM readings GROUP BY session_window(ts, '5 minutes'), device",
        "SELECT `session_window`.`start` AS `s`, count(*) AS `n` FROM `readings` GROUP BY session_window(`ts`, '5 minutes'), `device`",
        ("s", "n"),
    ),
    (
        "SELECT date(ts) AS day, hour(ts) AS h FROM Readings AS R WHERE r.TEMPERATURE IS NOT NULL",
        "SELECT date(`ts`) AS `day`, hour(`ts`) AS `h` FROM `readings` AS `R` WHERE NOT `r`.`TEMPERATURE` IS NULL",
        ("day", "h"),
    ),
    (
        "SELECT window(ts, '1 hour') AS w, w.start FROM readings",
        "SELECT window(`ts`, '1 hour') AS `w`, `w`.`start` FROM `readings`",
        ("w", "start"),
    ),
    (
        "SELECT max_by(struct(temperature, ts), ts) AS last FROM readings GROUP BY device",
        "SELECT max_by(struct(`temperature`, `ts`), `ts`) AS `last` FROM `readings` GROUP BY `device`",
        ("last",),
    ),
    (
        "SELECT device, try_cast(temperature AS INT) AS t, temperature::int AS u FROM readings LIMIT 10",
        "SELECT `device`, TRY_CAST(`temperature` AS INT) AS `t`, CAST(`temperature` AS INT) AS `u` FROM `readings` LIMIT 10",
        ("device", "t", "u"),
    ),
    (
        "SELECT aggregate(tags, 0, (acc, x) -> acc + length(x)) AS n FROM readings",
        "SELECT aggregate(`tags`, 0, (`acc`, `x`) -> `acc` + length(x)) AS `n` FROM `readings`",
        ("n",),
    ),
    (
        "SELECT device FROM readings WHERE ts > current_timestamp() - INTERVAL 5 MINUTES",
        "SELECT `device` FROM `readings` WHERE `ts` > current_timestamp() - INTERVAL '5' MINUTES",
        ("device",),
    ),
    (
        "SELECT device, sum(temperature) AS s FROM readings GROUP BY ALL",
        "SELECT `device`, sum(`temperature`) AS `s` FROM `readings` GROUP BY ALL",
        ("device", "s"),
    ),
    (
        "SELECT grouping(device) AS g, device FROM readings GROUP BY ROLLUP (device)",
        "SELECT grouping(`device`) AS `g`, `device` FROM `readings` GROUP BY ROLLUP (`device`)",
        ("g", "device"),
    ),
    (
        "SELECT position('a' IN device) AS p, trim(BOTH 'x' FROM device) AS t, substring(device FROM 1 FOR 2) AS s FROM readings",
        "SELECT LOCATE('a', `device`) AS `p`, TRIM(BOTH 'x' FROM `device`) AS `t`, SUBSTRING(`device`, 1, 2) AS `s` FROM `readings`",
        ("p", "t", "s"),
    ),
]

# Comments, nested queries, shadowed names, quotes, letters that look alike, paths, variables, hints, other statements.
BAD = [
    ("SELECT devise FROM readings", "line 1, column 8: there is no column 'devise'; did you mean 'device'?"),
    (
        "SELECT r.x FROM readings r",
        "line 1, column 10: 'r' has no column 'x'; there are device, temperature, ts, room, list, tags",
    ),
    (
        "SELECT q.x FROM readings r",
        "line 1, column 8: there is no relation or column 'q'; there are device, temperature, ts, room, list, tags",
    ),
    (
        "SELECT * FROM reading",
        "line 1, column 15: there is no relation 'reading'; did you mean 'readings'? There are readings, devices, raw",
    ),
    ("SELECT * FROM csv.`/etc/passwd`", "line 1, column 19: expected the name of a relation, without a dot"),
    ("SELECT * FROM `csv.`", "line 1, column 15: there is no relation 'csv.'; there are readings, devices, raw"),
    ("SELECT * FROM a.b.c", "line 1, column 19: expected the name of a relation, without a dot"),
    (
        "SELECT reflect('java.lang.System','getenv','X')",
        "line 1, column 8: reflect() may not be called: it calls Java",
    ),
    ("SELECT `reflect`('a')", "line 1, column 8: the name of a function stands without quotes"),
    ("SELECT db.fn(1)", "line 1, column 8: behind a dot stands the name of a field"),
    ("SELECT device.reflect('x') FROM readings", "line 1, column 8: behind a dot stands the name of a field"),
    ("SELECT TRANSFORM(device) USING 'cat' FROM readings", "line 1, column 26: unexpected 'USING'"),
    ("SELECT TRANSFORM(device) USING 'cat' AS (a) FROM readings", "line 1, column 26: unexpected 'USING'"),
    ("FROM readings SELECT device", "line 1, column 1: expected SELECT or WITH, got 'FROM'"),
    (
        "FROM readings |> SELECT device",
        "line 1, column 15: the pipe syntax '|>' is not taken: write SELECT ... FROM ...",
    ),
    (
        "SELECT device FROM readings |> WHERE true",
        "line 1, column 29: the pipe syntax '|>' is not taken: write SELECT ... FROM ...",
    ),
    ("VALUES (1)", "line 1, column 1: expected SELECT or WITH, got 'VALUES'"),
    ("TABLE readings", "line 1, column 1: expected SELECT or WITH, got 'TABLE'"),
    (
        "SELECT * FROM IDENTIFIER('readings')",
        "line 1, column 15: identifier() is not among the functions that may be called",
    ),
    (
        "SELECT IDENTIFIER('device') FROM readings",
        "line 1, column 8: identifier() is not among the functions that may be called",
    ),
    ("EXECUTE IMMEDIATE 'SELECT 1'", "line 1, column 1: expected SELECT or WITH, got 'EXECUTE'"),
    ("SET x = 1", "line 1, column 1: expected SELECT or WITH, got 'SET'"),
    ("DROP TABLE readings", "line 1, column 1: expected SELECT or WITH, got 'DROP'"),
    ("SELECT 1; DROP TABLE x", "line 1, column 9: expected one query, got ';' and more"),
    ("SELECT :p", "line 1, column 1: parameters are not taken"),
    ("SELECT ?", "line 1, column 8: parameters are not taken"),
    ("SELECT @x", "line 1, column 8: variables are not taken"),
    ("SELECT ${x}", "line 1, column 8: variables are not taken"),
    ("SELECT /*+ BROADCAST(readings) */ device FROM readings", "line 1, column 8: hints are not taken"),
    (
        "SELECT device FROM readings TABLESAMPLE (10 PERCENT)",
        "line 1, column 42: TABLESAMPLE is not taken: it gives other rows each time",
    ),
    (
        "SELECT * FROM readings PIVOT (sum(temperature) FOR device IN ('a'))",
        "line 1, column 31: PIVOT and UNPIVOT are not taken: write max(v) FILTER (WHERE n = 'a') AS a for each column, or for rows LATERAL VIEW stack(2, 'a', a, 'b', b) t AS n, v",
    ),
    (
        "SELECT * FROM readings UNPIVOT (a FOR b IN (device))",
        "line 1, column 33: PIVOT and UNPIVOT are not taken: write max(v) FILTER (WHERE n = 'a') AS a for each column, or for rows LATERAL VIEW stack(2, 'a', a, 'b', b) t AS n, v",
    ),
    (
        "SELECT * FROM readings, LATERAL (SELECT 1)",
        "line 1, column 41: of LATERAL only LATERAL VIEW explode(...) and its like are taken",
    ),
    ("SELECT * FROM readings VERSION AS OF 1", "line 1, column 38: VERSION is not taken"),
    ("SELECT * FROM readings TIMESTAMP AS OF '2020'", "line 1, column 40: VERSION is not taken"),
    ("SELECT device INTO x FROM readings", "line 1, column 20: INTO is not taken: a sink says where the rows go"),
    ("INSERT INTO x SELECT 1", "line 1, column 1: expected SELECT or WITH, got 'INSERT'"),
    ("CREATE TABLE x AS SELECT 1", "line 1, column 1: expected SELECT or WITH, got 'CREATE'"),
    (
        "WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT * FROM x) SELECT * FROM x",
        "line 1, column 16: WITH RECURSIVE is not taken",
    ),
    (
        "SELECT * FROM (WITH x AS (SELECT 1 AS a) SELECT * FROM x) AS y, x",
        "line 1, column 65: there is no relation 'x'; there are readings, devices, raw",
    ),
    (
        "WITH a AS (SELECT * FROM b), b AS (SELECT 1 AS c) SELECT * FROM a",
        "line 1, column 26: there is no relation 'b'; there are readings, devices, raw",
    ),
    (
        "SELECT input_file_name() FROM readings",
        "line 1, column 8: input_file_name() may not be called: it tells of the machine or the session",
    ),
    (
        "SELECT current_user() FROM readings",
        "line 1, column 8: current_user() may not be called: it tells of the machine or the session",
    ),
    ("SELECT current_user FROM readings", "line 1, column 8: 'current_user' is not taken as a name"),
    ("SELECT version()", "line 1, column 8: version() may not be called: it tells of the machine or the session"),
    (
        "SELECT rand()",
        "line 1, column 8: rand() may not be called: it gives another answer when a batch is done again",
    ),
    ("SELECT read_files('/etc')", "line 1, column 8: read_files() is not among the functions that may be called"),
    (
        "SELECT * FROM read_files('/etc')",
        "line 1, column 15: read_files() is not among the functions that may be called",
    ),
    (
        "SELECT * FROM upper('x')",
        "line 1, column 15: upper() gives no relation; expected one of explode, explode_outer, inline, inline_outer, json_tuple, posexplode, posexplode_outer, range, stack",
    ),
    ("SELECT a -> 'b' FROM raw", "line 1, column 8: '->' is not taken here: use get_json_object or from_json"),
    ("SELECT a:b FROM raw", "line 1, column 8: parameters are not taken"),
    ("SELECT {fn now()}", "line 1, column 8: '{' has no meaning here"),
    (
        "SELECT device FROM readings SORT BY device",
        "line 1, column 37: SORT BY is not taken: ORDER BY orders all rows",
    ),
    (
        "SELECT device FROM readings QUALIFY row_number() OVER (ORDER BY ts) = 1",
        "line 1, column 71: QUALIFY is not taken: compute it in a subquery of FROM, and ask for it in WHERE",
    ),
    ("SELECT 'it''s'", "line 1, column 12: a quote in a text is written \\' here, not twice"),
    ("SELECT _metadata.file_path FROM raw", "line 1, column 8: '_metadata' is not taken as a name"),
    ("SELECT /* comment", "line 1, column 17: expected SQL, but a quote, a bracket or a comment in it has no end"),
    ("SELECT device -- x", "line 1, column 8: there is no column 'device'; there are none"),
    ("SELECT f(a => 1) FROM raw", "line 1, column 8: f() is not among the functions that may be called"),
    ("SELECT DISTINCT ON (device) device FROM readings", "line 1, column 21: ON is not taken"),
    (
        "SELECT * FROM STREAM readings",
        "line 1, column 15: there is no relation 'STREAM'; there are readings, devices, raw",
    ),
    ("SELECT * FROM STREAM(readings)", "line 1, column 15: stream() is not among the functions that may be called"),
    ("SELECT * REPLACE (1 AS device) FROM readings", "line 1, column 19: REPLACE is not taken"),
    ("SELECT", "line 1, column 1: something is missing after SELECT"),
    ("", "line 1, column 1: expected a query, got nothing"),
    ("SELECT * FROM readings FOR UPDATE", "line 1, column 8: LOCKS is not taken"),
    ("SELECT * FROM readings NATURAL JOIN (devices", "line 1, column 38: expecting )"),
    ("SELECT ai_query('x')", "line 1, column 8: ai_query() is not among the functions that may be called"),
    ("SELECT java_method('x')", "line 1, column 8: java_method() may not be called: it calls Java"),
    ("SELECT ʀeflect('x')", "line 1, column 8: ʀeflect() is not among the functions that may be called"),
    ("SELECT re\u200bflect('x')", "line 1, column 8: re\u200bflect() is not among the functions that may be called"),
    ("SELECT ｒeflect('x')", "line 1, column 8: ｒeflect() is not among the functions that may be called"),
    (
        "SELECT ⅽurrent_user() FROM raw",
        "line 1, column 8: ⅽurrent_user() is not among the functions that may be called",
    ),
    ("SELECT * FROM readings@v1", "line 1, column 23: variables are not taken"),
    ("SELECT session.x", "line 1, column 8: there is no relation or column 'session'; there are none"),
    (
        "SELECT system.session.x FROM readings",
        "line 1, column 8: there is no relation or column 'system'; there are device, temperature, ts, room, list, tags",
    ),
    (
        "SELECT room.at.x, r.rom.at.x FROM readings r",
        "line 1, column 21: 'r' has no column 'rom'; did you mean 'room'?",
    ),
    ("SELECT rom.at.* FROM readings", "line 1, column 8: there is no relation or column 'rom'; did you mean 'room'?"),
    ("SELECT rom.* FROM readings", "line 1, column 8: there is no relation or column 'rom'; did you mean 'room'?"),
    ("SELECT * EXCEPT (rom) FROM readings", "line 1, column 18: there is no column 'rom'; did you mean 'room'?"),
    ("SELECT room.at._metadata.x FROM readings", "line 1, column 16: '_metadata' is not taken as a name"),
    ("SELECT room.at.reflect('x') FROM readings", "line 1, column 16: behind a dot stands the name of a field"),
    ("SELECT * FROM global_temp.x", "line 1, column 27: expected the name of a relation, without a dot"),
    ("EXPLAIN SELECT 1", "line 1, column 1: expected SELECT or WITH, got 'EXPLAIN'"),
    ("DESCRIBE readings", "line 1, column 1: expected SELECT or WITH, got 'DESCRIBE'"),
    ("SHOW TABLES", "line 1, column 1: expected SELECT or WITH, got 'SHOW'"),
    ("CACHE TABLE readings", "line 1, column 1: expected SELECT or WITH, got 'CACHE'"),
    ("SELECT cast(1 AS foo)", "line 1, column 18: expected TYPE after CAST"),
    ("SELECT CONVERT(a USING utf8) FROM raw", "line 1, column 18: expecting )"),
    (
        "SELECT current_database(), current_catalog() FROM raw",
        "line 1, column 8: current_database() may not be called: it tells of the machine or the session",
    ),
    (
        "SELECT from_protobuf(value, 'a', '/etc/passwd') FROM raw",
        "line 1, column 8: from_protobuf() may not be called: it reads files",
    ),
    (
        "SELECT * FROM json_table('x','y')",
        "line 1, column 15: json_table() is not among the functions that may be called; did you mean json_tuple()?",
    ),
    ("SELECT try_reflect('x')", "line 1, column 8: try_reflect() may not be called: it calls Java"),
    ("SELECT * FROM TABLE(range(3))", "line 1, column 15: table() is not among the functions that may be called"),
    (
        "SELECT * FROM LATERAL explode(array(1))",
        "line 1, column 23: of LATERAL only LATERAL VIEW explode(...) and its like are taken",
    ),
    (
        "SELECT xpath_string('<a/>', 'a')",
        "line 1, column 8: xpath_string() is not among the functions that may be called",
    ),
    ("BEGIN SELECT 1; END", "line 1, column 15: expected one query, got ';' and more"),
    (
        "SELECT OVERLAY('a' PLACING 'b' FROM 1), XMLELEMENT(a)",
        "line 1, column 41: xmlelement() is not among the functions that may be called",
    ),
    ("SELECT x'zz'", "line 1, column 12: expected SQL, but a quote, a bracket or a comment in it has no end"),
    ("SELECT '\\u00", "line 1, column 12: expected SQL, but a quote, a bracket or a comment in it has no end"),
    ("SELECT `a", "line 1, column 9: expected SQL, but a quote, a bracket or a comment in it has no end"),
    ("SELECT * FROM `readings` `b` (`c`", "line 1, column 31: expecting )"),
    ("WITH x AS (DELETE FROM readings) SELECT * FROM x", "line 1, column 24: DELETE is not taken"),
    ("SELECT (INSERT INTO x SELECT 1)", "line 1, column 9: something is missing at 'INSERT'"),
    ("SELECT * FROM (DROP TABLE x)", "line 1, column 16: expected table name"),
    ("SELECT CASE FROM readings", "line 1, column 8: expected END after CASE"),
    (
        "SELECT * FROM (TABLE readings)",
        "line 1, column 16: there is no relation 'TABLE'; there are readings, devices, raw",
    ),
    ("SELECT BROADCAST(a) FROM raw", "line 1, column 8: broadcast() is not among the functions that may be called"),
    ("SELECT * FROM raw CROSS APPLY f(1)", "line 1, column 31: CROSS_APPLY is not taken"),
    (
        "SELECT count(*) OVER w FROM readings WINDOW w AS (PARTITION BY device)",
        "line 1, column 38: WINDOW clauses are not taken: write what is in its brackets after each OVER",
    ),
    (
        "SELECT device FROM readings FETCH FIRST 5 ROWS ONLY",
        "line 1, column 41: FETCH is not taken: LIMIT says the same",
    ),
    (
        "SELECT device FROM readings DISTRIBUTE BY device",
        "line 1, column 43: DISTRIBUTE BY is not taken: Spark lays rows out by itself, so leave it out",
    ),
    (
        "SELECT device FROM readings CLUSTER BY device",
        "line 1, column 40: CLUSTER BY is not taken: ORDER BY orders all rows",
    ),
    ("SELECT * FROM readings WHERE device = ANY (SELECT device FROM devices)", "line 1, column 51: ANY is not taken"),
    (
        "SELECT filter(tags, (`x), reflect(1), (y`) -> true) FROM readings",
        "line 1, column 22: expected a name of letters, digits and '_' before '->'",
    ),
    (
        "SELECT device FROM readings LATERAL VIEW explode(tags) `t AS x FROM q --` AS y",
        "line 1, column 42: expected a name of letters, digits and '_' for what LATERAL VIEW gives",
    ),
    (
        "SELECT datediff(reflect, ts, ts) FROM readings",
        "line 1, column 17: expected a unit such as DAY or HOUR in datediff()",
    ),
    (
        "SELECT * FROM readings LATERAL VIEW reflect('a') t AS x",
        "line 1, column 37: reflect() gives no rows; expected one of explode, explode_outer, inline, inline_outer, json_tuple, posexplode, posexplode_outer, stack",
    ),
    (
        "SELECT (((((((((((((((((((((((((((((((1)))))))))))))))))))))))))))))))",
        "line 1, column 38: expected at most 30 brackets in each other",
    ),
    (
        'SELECT "x" AS "y" FROM `readings`.`device`',
        "line 1, column 35: expected the name of a relation, without a dot",
    ),
    ("SELECT ALL FROM readings WHERE", "line 1, column 26: something is missing at 'WHERE'"),
    ("SELECT device AS `_metadata` FROM readings", "line 1, column 18: '_metadata' is not taken as a name"),
]
