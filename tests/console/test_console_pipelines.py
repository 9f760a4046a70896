"""A pipeline in the console: created, seen to fill its charts and its table, asked, paused and resumed."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from tests.console.people import People
from tests.console.visit import IN_SPACE, declare_shop
from tests.support.foreign_tools import require
from tests.support.installation import Installation
from tests.support.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from tests.console.visit import Visit

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

LATE_MS = 120_000
"""Spark starts meanwhile, on a machine that does a lot of other things."""
READINGS = 40


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One with pipelines, for this module alone."""
    require("chromium")
    require("Java 17 for Spark")
    found = Installation(tmp_path_factory.mktemp("console") / "p")
    try:
        found.start()
        declare_shop(found, {"telemetry": "{type: stream, partitions: 1}", "warnings": "{type: queue}"})
        yield found
    finally:
        if found.is_running:
            found.stop()


def figure(title: str) -> str:
    return f".em-figures > *:has-text('{title}') .em-figure"


def come_back(visit: Visit, link: str) -> None:
    """Sign in again by the link, as in another tab."""
    visit.page.context.request.get(link, max_redirects=0)
    visit.press("Go on")
    expect(visit.dialog()).to_have_count(0)


def test_examples_are_pipelines_and_the_view_of_devices_teaches_to_make_one(visit: Visit) -> None:
    visit.open(f"{IN_SPACE}/new-pipeline?as=yaml")
    for title in ("Windows", "Alerts", "Stream to table"):
        visit.press(title)
        expect(visit.page.get_by_text("This would be accepted")).to_be_visible()
    editor = visit.page.get_by_label("The pipeline as YAML")
    editor.fill(editor.input_value().replace("table: readings", "tabel: readings"))
    expect(visit.page.get_by_text("It is not complete yet")).to_be_visible()
    expect(visit.button("Create")).to_be_disabled()
    visit.open(f"{IN_SPACE}/readings")
    visit.press("Keep last values")
    expect(visit.page).to_have_url(re.compile(r"/new-pipeline\?builtin=last-value$"))


def test_a_pipeline_is_created_fills_its_chart_is_asked_paused_and_resumed(
    visit: Visit, api: httpx.Client, installation: Installation, link: str, tmp_path: Path
) -> None:
    page = visit.page
    visit.open(f"{IN_SPACE}/pipelines")
    expect(visit.heading("No pipeline yet")).to_be_visible()
    visit.press("Create a pipeline")
    page.locator("#builtin-last-value").click(force=True)
    expect(page.locator("#parameter-address")).to_have_value("telemetry")
    page.locator("#parameter-metrics").fill("temperature, load")
    page.get_by_role("tab", name="Command line").click()
    expect(page.get_by_text("--set metrics=temperature,load")).to_be_visible()
    expect(page.get_by_text("This would be accepted")).to_be_visible()
    visit.press("Create")
    expect(visit.heading("last-value")).to_be_visible()

    readings = [{"device": f"pump-{number % 4}", "temperature": number / 2} for number in range(READINGS)]
    body = {"messages": [{"body": json.dumps(reading), "contentType": "application/json"} for reading in readings]}
    assert api.post("addresses/shop.telemetry/messages", json=body).status_code == 200
    expect(page.locator(figure("Rows")).first).to_have_text(str(READINGS), timeout=LATE_MS)
    expect(page.get_by_role("img", name=re.compile(f"^Rows read over time; now rows {READINGS}$"))).to_be_visible()
    expect(
        page.get_by_role("img", name=re.compile(f"last_value is made of last-value: {READINGS} rows"))
    ).to_be_visible()
    expect(visit.row("table").filter(has_text="Running")).to_be_visible()

    visit.press("Ask its table")
    query = page.get_by_label("Query", exact=True)
    query.fill("SELECT device, max(value) AS top FROM last_value GROUP BY device ORDER BY device")
    query.press("Control+Enter")
    expect(visit.row("pump-3")).to_contain_text("19.5")
    with page.expect_download() as download:
        visit.press("Save as CSV")
    download.value.save_as(tmp_path / "shop.csv")
    lines = (tmp_path / "shop.csv").read_bytes().decode().split("\r\n")
    assert lines == ["device,top", "pump-0,18", "pump-1,18.5", "pump-2,19", "pump-3,19.5", ""]
    # The session ends meanwhile; who comes back by the link gets the file.
    People(installation).end_session(page.context.cookies())
    visit.press("Save as Parquet")
    expect(visit.dialog()).to_contain_text("is over")
    with page.expect_download() as download:
        come_back(visit, link)
    download.value.save_as(tmp_path / "shop.parquet")
    table = pq.read_table(io.BytesIO((tmp_path / "shop.parquet").read_bytes()))
    assert table.to_pydict() == {"device": [f"pump-{n}" for n in range(4)], "top": [18.0, 18.5, 19.0, 19.5]}
    visit.press("Chart")
    expect(page.get_by_text("top by device")).to_be_visible()
    expect(page.get_by_text("4 rows, ")).to_be_visible()  # of the table, as the lake tells it
    query.fill("SELECT device\nFROM last_valeu")
    visit.press("Run")
    expect(page.get_by_label("Line 2, column 6")).to_have_text("FROM last_valeu\n     ▲")
    visit.press("Go to line 2, column 6")
    until(lambda: page.evaluate("document.getSelection().toString()") == "last_valeu")

    visit.open(f"{IN_SPACE}/readings?device=pump-2")
    expect(page.locator(figure("temperature"))).to_have_text("19")
    expect(visit.heading("No alerts are kept")).to_be_visible()

    visit.open(f"{IN_SPACE}/pipelines")
    expect(visit.row("last-value")).to_contain_text("Running")
    # The same with what is done to all that are chosen.
    visit.row("last-value").get_by_role("checkbox").check()
    People(installation).end_session(page.context.cookies())
    visit.press("Pause")
    expect(visit.dialog()).to_contain_text("is over")
    assert not api.get("pipelines/shop.last-value").json()["spec"].get("paused")
    come_back(visit, link)
    expect(visit.row("last-value")).to_contain_text("Paused", timeout=LATE_MS)
    visit.row("last-value").get_by_role("checkbox").check()
    visit.press("Resume")
    expect(visit.row("last-value")).to_contain_text("Running", timeout=LATE_MS)
    page.get_by_role("link", name="last-value", exact=True).click()
    for action, phase in (("Pause", "Paused"), ("Resume", "Running")):
        visit.press("Actions")
        page.get_by_role("menuitem", name=action).click()
        expect(page.locator(".em-title .em-phase")).to_have_text(phase, timeout=LATE_MS)
    visit.press("Actions")
    page.get_by_role("menuitem", name="Delete").click()
    expect(visit.dialog()).to_contain_text("The table last_value and messages that were sent stay")
    visit.dialog().get_by_role("button", name="Delete", exact=True).click()
    expect(visit.heading("No pipeline yet")).to_be_visible(timeout=LATE_MS)
    assert api.get("pipelines/shop.last-value").status_code == 404
