"""Pipelines in the console: created, seen to fill charts and tables, asked, paused; what they have learnt."""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from tests.console.node_packages import bring_packages
from tests.console.people import People
from tests.console.test_console_accessible import RUN
from tests.console.visit import IN_SPACE, declare_shop
from tests.support.foreign_tools import require
from tests.support.installation import Installation
from tests.support.polling import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

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
        start_spark(found)
        yield found
    finally:
        if found.is_running:
            found.stop()


def start_spark(installation: Installation) -> None:
    """Have the shop's Spark show its pages, and start while the browser does."""
    shop = f"{installation.url('api')}/apis/enmasse.io/v1beta1/namespaces/default/addressspaces/shop"
    with httpx.Client(headers=installation.proof, trust_env=False) as http:
        merge = {"content-type": "application/merge-patch+json"}
        http.patch(shop, json={"spec": {"spark": {"ui": True}}}, headers=merge).raise_for_status()
        with suppress(httpx.ReadTimeout):
            http.post(f"{shop}/query", json={"sql": "SELECT 1"}, timeout=1)


def look_into_spark(page: Page, query: str) -> None:
    """Find a query on Spark's pages, which work, and reach neither the API nor its cookie."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    expect(page.get_by_role("heading", name="Spark Jobs")).to_be_visible()
    for link in ("SQL / DataFrame", "Structured Streaming"):
        page.get_by_role("link", name=link, exact=True).first.click()
        expect(page.get_by_text(query).first).to_be_visible()
    assert complaints == []
    # A page may hold what a tenant's code has put there.
    assert page.evaluate("self.origin") == "null"
    assert page.evaluate("fetch('/apis').then(() => 'answered', () => 'refused')") == "refused"
    assert "SecurityError" in page.evaluate("(() => {try {return document.cookie} catch (e) {return e.name}})()")


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
        page.get_by_role("img", name=re.compile(f"last_value \\(table\\) is made of last-value: {READINGS} rows"))
    ).to_be_visible()
    expect(visit.row("table").filter(has_text="Running")).to_be_visible()

    with page.expect_popup() as popup:
        page.get_by_role("link", name="Spark's pages").click()
    look_into_spark(popup.value, "shop.last-value/table")
    popup.value.close()

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
    query.fill("SELECT '=1+1' AS text, '-3' AS low, CAST(-1.5 AS DECIMAL(3, 1)) AS exact, -2 AS whole")
    query.press("Control+Enter")
    expect(visit.row("=1+1")).to_be_visible()
    with page.expect_download() as download:
        visit.press("Save as CSV")
    download.value.save_as(tmp_path / "texts.csv")
    assert (tmp_path / "texts.csv").read_bytes() == b"text,low,exact,whole\r\n'=1+1,'-3,-1.5,-2\r\n"
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


KEPT = {
    "sources": [
        {
            "name": "readings",
            "address": "telemetry",
            "format": "json",
            "schema": "device STRING, temperature DOUBLE",
            "badRecords": "warnings",
            "degradedAbove": 1,
            "expectations": [
                {"name": "cool", "condition": "temperature < 19"},
                {"name": "named", "condition": "device IS NOT NULL", "action": "drop"},
            ],
        }
    ],
    "steps": [{"name": "all", "sql": "SELECT device, temperature FROM readings"}],
    "sinks": [{"table": "kept", "trigger": "2s"}],
}
JOINED = {
    "sources": [
        {"name": "raw", "address": "telemetry", "format": "json", "schema": "device STRING"},
        {"name": "known", "table": "kept"},
    ],
    "steps": [{"name": "met", "sql": "SELECT raw.device FROM raw JOIN known ON raw.device = known.device"}],
    "sinks": [{"table": "met"}],
    "trigger": "availableNow",
    "schedule": "*/5 * * * * *",
}
TRAINED = {
    "model": "pumps",
    "table": "kept",
    "features": ["temperature"],
    "minRows": 20,
    "clusters": 2,
}


def doubled() -> bytes:
    """Return a model of ONNX: twice what it is given."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [[helper.make_tensor_value_info(name, kind, [None, 1])] for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "doubled", *ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    content: bytes = model.SerializeToString()
    return content


def test_what_pipelines_have_learnt_is_shown_looked_back_at_and_taken_back(
    visit: Visit, api: httpx.Client, people: People, newcomer: Callable[[str], Visit]
) -> None:
    page = visit.page
    axe = (bring_packages() / "axe-core/axe.min.js").read_text()

    def send(*bodies: object) -> None:
        messages = [{"body": json.dumps(body), "contentType": "application/json"} for body in bodies]
        assert api.post("addresses/shop.telemetry/messages", json={"messages": messages}).status_code == 200

    def declare(name: str, spec: object) -> None:
        head = {"apiVersion": "enmasse.io/v1beta1", "kind": "Pipeline", "metadata": {"name": f"shop.{name}"}}
        assert api.post("pipelines", json=head | {"spec": spec}).status_code == 201

    def ask(sql: str) -> list[list[Any]]:
        answer = api.post("addressspaces/shop/query", json={"sql": sql})
        rows: list[list[Any]] = answer.json().get("rows") or []
        return rows

    def look() -> None:
        expect(page.get_by_role("status").filter(has_text="Asking.")).to_have_count(0)
        assert page.evaluate(RUN, ["main", False]) == []

    send(*({"device": f"pump-{number % 4}", "temperature": number / 2} for number in range(READINGS)))
    send({"device": "pump-1", "temperature": "<img src=x> warm"}, {"temperature": 3})
    declare("kept", KEPT)
    # Each query takes as much of Spark as a batch, so the status is asked.
    until(lambda: api.get("pipelines/shop.kept").json()["status"].get("rows", 0) > READINGS, seconds=LATE_MS / 1000)
    # With rows in the table both begin at once, and not when they look again.
    declare("met", JOINED)
    declare("train", {"builtin": {"name": "train", "parameters": TRAINED}})

    visit.open(f"{IN_SPACE}/pipelines/shop.kept?tab=quality")
    page.evaluate(axe)
    expect(visit.row("readings").filter(has_text="<img src=x> warm")).to_contain_text("temperature")
    expect(visit.row("<img")).to_contain_text("goes to warnings")
    assert page.locator("main img").count() == 0
    expect(visit.row("temperature < 19")).to_contain_text("keep: counted alone")
    expect(visit.row("device IS NOT NULL").get_by_role("img")).to_have_accessible_name(
        re.compile(r"^[1-9][\d.]* % of the rows did not meet it$")
    )
    look()
    visit.open(f"{IN_SPACE}/pipelines/shop.kept")
    expect(visit.row("table-kept")).to_contain_text("every 2s")
    expect(page.get_by_role("img", name=re.compile(r"all \(SQL\) is made of telemetry"))).to_be_visible()

    visit.open(f"{IN_SPACE}/pipelines/shop.met")
    expect(page.locator(figure("Next run"))).to_have_text(re.compile("second|now"), timeout=LATE_MS)
    ran = until(lambda: api.get("pipelines/shop.met").json()["status"].get("lastRun"))
    until(lambda: api.get("pipelines/shop.met").json()["status"].get("lastRun", "") > ran)
    expect(page.get_by_text("Ran last")).to_be_visible()
    expect(visit.row("with each batch")).to_contain_text(re.compile(r"kept\s*table-met\s*\d+"))
    look()

    send({"device": "pump-9", "temperature": 18.5})
    until(lambda: ask("SELECT 1 FROM kept WHERE device = 'pump-9'") != [], step=0.5)
    [[newest]] = ask("SELECT max(version) FROM `history:kept`")
    [[before]] = ask(f"SELECT count(*) FROM kept VERSION AS OF {newest - 1}")
    until(lambda: ask("SELECT 1 FROM `models:`") != [], seconds=LATE_MS / 1000, step=0.5)
    merge = {"content-type": "application/merge-patch+json"}
    for name in ("kept", "met", "train"):
        assert api.patch(f"pipelines/shop.{name}", json={"spec": {"paused": True}}, headers=merge).status_code == 200
    for name in ("kept", "met", "train"):
        until(lambda: api.get(f"pipelines/shop.{name}").json()["status"]["phase"] == "Paused")  # noqa: B023  # called at once
    visit.open(f"{IN_SPACE}/tables")
    visit.press("Start it and look")
    expect(visit.row("kept").filter(has_text="delta")).to_be_visible()
    expect(visit.row("kept").get_by_role("link", name="kept").nth(1)).to_have_attribute(
        "href", re.compile("/pipelines/shop.kept$")
    )
    look()
    visit.row("kept").get_by_role("link", name="kept").first.click()
    expect(page.locator(figure("Rows"))).to_have_text(str(before + 1))
    expect(visit.row("device")).to_contain_text(re.compile("pump-0.*pump-9"))
    page.get_by_role("tab", name="Versions").click()
    visit.press(f"Show rows of version {newest}")
    expect(visit.row("pump-9")).to_be_visible()
    visit.open(f"{IN_SPACE}/tables/kept?tab=versions")
    look()
    visit.press(f"Restore version {newest - 1}")
    expect(visit.dialog()).to_contain_text("What pipelines have written since is in it no more")
    visit.dialog().get_by_role("button", name="Restore").click()
    expect(page.get_by_text(f"Is as version {newest - 1} was")).to_be_visible()
    expect(page.locator(figure("Rows"))).to_have_text(str(before))
    assert ask("SELECT 1 FROM kept WHERE device = 'pump-9'") == []
    visit.press("Compact")
    page.locator("#compact-temperature").check()
    visit.dialog().get_by_role("button", name="Compact", exact=True).click()
    expect(page.get_by_text("were put in order")).to_be_visible()

    visit.open(f"{IN_SPACE}/models")
    expect(visit.heading("pumps")).to_be_visible()
    for content, said in ((b"no model", "expected a file of ONNX"), (doubled(), "")):
        visit.press("Import")
        page.locator("#import-file").set_input_files({"name": "Pumps.onnx", "mimeType": "", "buffer": content})
        expect(page.locator("#import-name")).to_have_value("pumps")
        page.locator("#import-features").fill("temperature")
        visit.dialog().get_by_role("button", name="Import", exact=True).click()
        if said:
            expect(visit.dialog()).to_contain_text(said)
            visit.dialog().get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Model pumps:")).to_be_visible()
    look()
    expect(visit.row("onnx")).to_contain_text("not measured")
    expect(visit.row("kmeans")).to_contain_text(re.compile(r"\d+ rows\d+ rows"))
    visit.press("Have it count: version 1 of pumps")
    visit.dialog().get_by_role("button", name="Have it count").click()
    expect(visit.row("kmeans")).to_contain_text("counts")
    expect(page.get_by_text("version 000001 counts")).to_be_visible()
    assert ask("SELECT version FROM `models:` WHERE counts") == [["000001"]]

    people.add("vic", "tenant-view")
    other = newcomer(people.origin)
    other.open(f"{IN_SPACE}/tables/kept")
    other.sign_in("vic", people.password("vic"))
    expect(other.row("temperature")).to_contain_text("double")
    expect(other.button("Compact")).to_be_disabled()
    other.page.get_by_role("tab", name="Versions").click()
    expect(other.page.get_by_text("You may not query this space")).to_be_visible()
