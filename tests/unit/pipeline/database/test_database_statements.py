from __future__ import annotations

from functools import reduce

import pytest

from enmasse.pipeline.database.statements import Merge, batches_of, making_batches, noting_batch, qualified, quoted
from enmasse.pipeline.lake.partial_updates import SET_AT

EVIL = 'x"; DROP TABLE users; --'
QUOTED = '"x""; DROP TABLE users; --"'


def test_a_name_cannot_leave_its_quotes() -> None:
    assert quoted("Machines") == '"Machines"'
    assert quoted(EVIL) == QUOTED
    assert qualified("machines") == '"public"."machines"'
    assert qualified(f"plant.{EVIL}") == f'"plant".{QUOTED}'
    assert batches_of(f"{EVIL}.machines") == f'{QUOTED}."enmasse_batches"'


@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize("place", ["table", "schema", "column", "key", "order"])
def test_no_name_of_a_tenant_stands_unquoted_in_a_statement(place: str, is_partial: bool) -> None:
    names = {"table": "machines", "schema": "plant", "column": "n", "key": "id", "order": "at"} | {place: EVIL}
    merge = Merge(
        f"{names['schema']}.{names['table']}",
        {names["key"]: "text", names["order"]: "bigint", names["column"]: "text", SET_AT: "jsonb"},
        keys=(names["key"],),
        order_by=names["order"],
        is_deleting=True,
        is_partial=is_partial,
    )
    made = [*merge.statements(), making_batches(merge.table), noting_batch(merge.table)]
    for statement in made:
        within = [QUOTED, f"'{EVIL}'", *(quoted(f"__enmasse_{of}_{EVIL}") for of in ("at", "set"))]
        assert "DROP TABLE" not in reduce(lambda text, one: text.replace(one, ""), within, statement)
    assert any(QUOTED in statement for statement in made)


def test_rows_are_added_or_put_in_the_place_of_older_ones() -> None:
    types = {"id": "text", "n": "numeric", "tags": "text[]"}
    tags = 'ARRAY(SELECT jsonb_array_elements_text(r."tags"::jsonb))'
    tags = f'CASE WHEN r."tags" IS NOT NULL THEN CAST({tags} AS text[]) END'
    values = f'CAST(r."id" AS text), CAST(r."n" AS numeric), {tags}'
    insert = f'INSERT INTO "public"."t" AS t ("id", "n", "tags") SELECT {values} FROM pg_temp.enmasse_rows r'
    assert Merge("t", types).statements() == [insert]
    conflict = f'{insert} ON CONFLICT ("id") DO UPDATE SET'
    assert Merge("t", types, keys=("id",)).statements() == [
        f'{conflict} "n" = EXCLUDED."n", "tags" = EXCLUDED."tags"'
    ]
    (partial,) = Merge("t", types, keys=("id",), is_partial=True).statements()
    assert f'CASE WHEN r."__enmasse_set_tags" THEN {tags} ELSE o."tags" END FROM pg_temp.enmasse_rows r' in partial
    assert partial.endswith(' ON CONFLICT ("id") DO UPDATE SET "n" = EXCLUDED."n", "tags" = EXCLUDED."tags"')
    (ordered,) = Merge("t", types, keys=("id",), is_partial=True, order_by="n").statements()
    # Of a batch's changes those count that are not older than what is there.
    known = '(CASE WHEN o."tags" IS NOT NULL THEN o."n" END)'
    newer = f'{known} IS NULL OR CAST(r."__enmasse_at_tags" AS numeric) >= {known}'
    assert f'CASE WHEN (r."__enmasse_set_tags" AND ({newer})) THEN {tags} ELSE o."tags" END FROM' in ordered
    (nothing,) = Merge("t", {"id": "text"}, keys=("id",)).statements()
    assert nothing.endswith('ON CONFLICT ("id") DO NOTHING')


def test_a_row_deletes_what_is_not_newer() -> None:
    merge = Merge("t", {"id": "text", "n": "bigint"}, keys=("id",), order_by="n", is_deleting=True)
    deletion, insertion = merge.statements()
    assert deletion == (
        'DELETE FROM "public"."t" t USING pg_temp.enmasse_rows r WHERE r."__enmasse_deleted" '
        'AND t."id" = CAST(r."id" AS text) AND (t."n" IS NULL OR CAST(r."n" AS bigint) >= t."n")'
    )
    assert ' WHERE NOT r."__enmasse_deleted" ON CONFLICT' in insertion
