"""Names of columns of any characters, in every field that names one."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.model.kinds.pipelines.partitions import partition_of
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.objects import decode
from enmasse.model.sql.asking import past_versions, read_asked
from enmasse.model.sql.ddl import DdlError, identifier_of, parse_ddl, quote_identifier, written
from enmasse.model.sql.sql import checked_sql
from tests.support.column_names import NAMES


def pipeline(name: str, at: str, said: str, said_at: str) -> dict[str, Any]:
    """A pipeline that names a column and a moment wherever that can be done.

    Args:
        name: as the schema has it.
        at: as the schema has it.
        said: as other fields say it.
        said_at: as other fields say it.
    """
    column, moment = quote_identifier(said), quote_identifier(said_at)
    source = {
        "name": "tags",
        "address": "tags",
        "format": "json",
        "schema": f"{quote_identifier(name)} STRING, {quote_identifier(at)} TIMESTAMP, device STRING",
        "watermark": {"column": said_at, "delay": "10s"},
        "expectations": [{"name": "has", "condition": f"{column} IS NOT NULL"}],
    }
    keyed = {"function": "m:f", "stateBy": said, "state": {"schema": "n INT", "orderBy": [said_at]}}
    upkeep = {"keepRows": {"column": said_at, "for": "9d"}}
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Pipeline",
        "metadata": {"name": "shop.tags"},
        "spec": {
            "sources": [source],
            "steps": [
                {"name": "once", "dropDuplicates": [said, said_at]},
                {"name": "said", "sql": f"SELECT {column}, o.{moment}.{column}.x, device FROM once o"},
                {"name": "kept", "input": "once", "schema": f"{quote_identifier(name)} INT", **keyed},
            ],
            "sinks": [
                {"input": "once", "table": "a", "partitionBy": [column, f"day({moment})", "bucket(4, device)"]},
                {
                    "input": "once",
                    "table": "b",
                    "mode": "update",
                    "keys": [said],
                    "orderBy": said_at,
                    "deleteWhen": f"{column} = 'x'",
                    "constraints": {"has": f"{column} IS NOT NULL"},
                    "maintenance": upkeep,
                },
                {"input": "kept", "table": "c", "mode": "update", "keys": [said]},
            ],
            "code": {"configMap": "m"},
        },
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_column_is_named_in_every_field_whatever_it_is_called(name: str) -> None:
    decode(pipeline(name, f"{name} at", name, f"{name} at"))
    assert parse_ddl(written(parse_ddl(f"{quote_identifier(name)} INT")))[0].name == name
    found = checked_sql(f"SELECT {quote_identifier(name)} FROM t", {"t": (name,)})
    assert found.columns == (name,)
    assert partition_of(quote_identifier(name)).name == name
    assert partition_of(f"day({quote_identifier(name)})").name == f"{name}_day"


def test_a_name_is_compared_exactly_in_every_field() -> None:
    with pytest.raises(InvalidResourceError) as caught:
        decode(pipeline("Tag", "At", "tag", "at"))
    found = {problem.path for problem in caught.value.problems}
    fields = {
        "sources[0].watermark.column",
        "steps[0].dropDuplicates[0]",
        "steps[0].dropDuplicates[1]",
        "steps[2].stateBy",
        "steps[2].state.orderBy[0]",
        *(f"sinks[0].partitionBy[{index}]" for index in range(2)),
        "sinks[1].keys[0]",
        "sinks[1].orderBy",
        "sinks[1].maintenance.keepRows.column",
        "sinks[2].keys[0]",
    }
    assert found == {f"spec.{field}" for field in fields}


def test_what_cannot_be_done_with_a_name_is_refused_with_the_way_out() -> None:
    for name, way in {"a.b": "`a.b` AS `a_b`", "1-0:1.8*255": "`1-0:1.8*255` AS `1-0:1_8*255`"}.items():
        document = pipeline(name, "at", name, "at")
        document["spec"]["sinks"][1]["maintenance"] = {"zOrderBy": ["device", name]}
        with pytest.raises(InvalidResourceError) as caught:
            decode(document)
        (problem,) = caught.value.problems
        assert problem.path == "spec.sinks[1].maintenance.zOrderBy[1]"
        assert problem.message.endswith(f"call it otherwise, as SELECT {way}")
        assert checked_sql(f"SELECT {way} FROM rows", {"rows": (name,)})
    for name in ("a\tb", "a\nb", "\u200b", "x" * 256):
        with pytest.raises(DdlError, match="character 1: expected a name of at most 255 printable characters"):
            parse_ddl(f"{quote_identifier(name)} INT")


SHADOW = "state STRUCT<reported: STRUCT<ts: TIMESTAMP, `x.y`: STRUCT<at: TIMESTAMP, n: INT>>>, id INT"


def windows(column: str, moment: str, schema: str = SHADOW) -> dict[str, Any]:
    """A pipeline with windows of a moment."""
    source = {"name": "rows", "address": "rows", "format": "json", "schema": schema}
    counts = f"SELECT count(*) AS n FROM rows GROUP BY window({moment}, '1 minute')"
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Pipeline",
        "metadata": {"name": "shop.windows"},
        "spec": {
            "sources": [source | {"watermark": {"column": column, "delay": "1m"}}],
            "steps": [{"name": "counts", "sql": counts}],
            "sinks": [{"table": "counts"}, {"input": "rows", "table": "rows", "partitionBy": [f"day({moment})"]}],
        },
    }


def test_a_watermark_is_of_a_moment_at_any_depth() -> None:
    decode(windows("state.reported.ts", "ts"))
    decode(windows("state.reported.`x.y`.at", "at"))
    decode(windows("state.reported.ts", "`state.reported.ts`", f"{SHADOW}, `state.reported.ts` TIMESTAMP"))


@pytest.mark.parametrize(
    ("column", "schema", "said"),
    [
        ("state.reported.tz", SHADOW, "there is no column 'state.reported.tz'; there are state, id, "),
        ("state.ts", SHADOW, "there is no column 'state.ts'; there are state, id, "),
        ("State.reported.ts", SHADOW, "there is no column 'State.reported.ts'; there are state, id, "),
        ("state..ts", SHADOW, "there is no column 'state..ts'; there are state, id, "),
        ("state.reported.`x.y`.n", SHADOW, "expected a TIMESTAMP, but 'state.reported.`x.y`.n' is INT"),
        (
            "state.reported.ts",
            f"{SHADOW}, TS STRING",
            "'state.reported.ts' makes the column ts, and the source has one: call that otherwise",
        ),
    ],
)
def test_a_watermark_of_no_moment_is_refused(column: str, schema: str, said: str) -> None:
    with pytest.raises(InvalidResourceError) as caught:
        decode(windows(column, "ts", schema))
    found = {problem.path: problem.message for problem in caught.value.problems}
    assert found["spec.sources[0].watermark.column"].startswith(said)


def test_a_name_in_backquotes_is_the_name_that_they_hold() -> None:
    assert [identifier_of(text) for text in ("a", "`a`", "`a``b`", "`", "``", "a`b`")] == [
        "a",
        "a",
        "a`b",
        "`",
        "``",
        "a`b`",
    ]
    assert read_asked("DESCRIBE `a``b`").sql == "SELECT * FROM `a``b`"
    assert past_versions("SELECT * FROM `a``b` VERSION AS OF 2") == (
        "SELECT * FROM `a``b@2`",
        {"a`b@2": ("a`b", 2)},
    )
