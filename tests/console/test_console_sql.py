"""The page of SQL where no Spark runs: names go on as they are written, and what is no SQL is told with its place."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.console.node_packages import bring_packages
from tests.console.test_console_accessible import RUN
from tests.console.visit import IN_SPACE

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from tests.console.visit import Visit

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]

COLUMNS = [{"name": "device", "type": "STRING"}, {"name": "degrees C", "type": "DOUBLE"}]
TOLD, DECLARED = re.compile("/addressspaces/shop/tables$"), re.compile("/addressspaces/shop/rows/pipelines[?]")
TABLES = {"columns": [], "rows": [["readings", COLUMNS, 3, 2048, "delta", 1]], "truncated": False}


def test_names_of_tables_addresses_and_columns_go_on_where_they_are_written(visit: Visit) -> None:
    page = visit.page

    def tables(route: Route) -> None:
        route.fulfill(json=TABLES)

    def pipelines(route: Route) -> None:
        row = {"name": "kept", "phase": "Running", "tables": ["readings"]}
        route.fulfill(body=json.dumps({"items": [row], "total": 1}) + "\n")

    page.route(TOLD, tables)
    page.route(DECLARED, pipelines)
    try:
        visit.open(f"{IN_SPACE}/sql")
        page.evaluate((bring_packages() / "axe-core/axe.min.js").read_text())
        expect(page.get_by_role("button", name="2 columns")).to_be_visible()
        box, names = page.get_by_label("Query", exact=True), page.get_by_role("option")
        box.fill("")
        box.press_sequentially("SELECT  FROM re")
        expect(names).to_have_text([re.compile("readings.*table")])
        assert page.evaluate(RUN, ["main", False]) == []
        box.press("Tab")
        expect(box).to_have_value("SELECT  FROM readings")
        expect(names).to_have_count(0)
        for _ in range(len(" FROM readings")):
            box.press("ArrowLeft")
        box.press("Control+ ")
        expect(names.first).to_have_text(re.compile("device.*string"))
        box.press("ArrowDown")
        box.press("Enter")
        expect(box).to_have_value("SELECT `degrees C` FROM readings")
        # Of an address the columns of its messages, by another name for it.
        box.fill("SELECT ")
        box.press("End")
        box.press_sequentially("c.pa FROM clicks c")
        for _ in range(len(" FROM clicks c")):
            box.press("ArrowLeft")
        box.press("Control+ ")
        expect(names).to_have_text([re.compile("partition.*int")])
        names.first.click()
        expect(box).to_have_value("SELECT c.partition FROM clicks c")
        # Not in texts, and not once Escape was pressed.
        box.fill("SELECT ")
        box.press("End")
        box.press_sequentially("'re")
        expect(names).to_have_count(0)
        box.press_sequentially("' AS a FROM r")
        expect(names).to_have_count(1)
        box.press("Escape")
        expect(names).to_have_count(0)
    finally:
        page.unroute(TOLD)
        page.unroute(DECLARED)


def test_what_is_no_sql_is_refused_with_its_place_though_no_spark_runs(visit: Visit) -> None:
    page = visit.page
    visit.open(f"{IN_SPACE}/sql")
    box = page.get_by_label("Query", exact=True)
    box.fill("SELECT key\nFROM clicks GRUP BY key")
    box.press("Control+Enter")
    expect(page.get_by_text("This is no query that can be run")).to_be_visible()
    expect(page.get_by_label("Line 2, column 18")).to_contain_text("▲")
    visit.press("Go to line 2, column 18")
    assert json.loads(page.evaluate("() => JSON.stringify(document.activeElement.selectionStart)")) == 28
    # What is some is for Spark, which is not there.
    box.fill("SHOW TABLES")
    box.press("Control+Enter")
    expect(page.get_by_text("This is no query that can be run")).to_have_count(0)
    expect(page.get_by_text(re.compile("no-pipelines|pipeline host|Spark"))).not_to_have_count(0)
