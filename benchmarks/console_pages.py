"""The list of ten thousand addresses in a headless Chromium: how soon it is there, and answers a keystroke."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.consoles import declare
from benchmarks.control import Installation, create_space
from benchmarks.measurement import Line, Measurement, Setting
from enmasse.drivers.data_directory import Layout

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, CDPSession

__all__ = ["MEASUREMENTS"]

ADDRESSES = 10_000
CHROMIUM = "chromium"
VISITS = 5
WORDS = ("1", "12", "123", "12", "1", "", "9", "99", "999", "99", "9", "")
"""What stands in the field after each keystroke."""

ROUNDS = 3
MAX_PAINT_MS = 1_000
MAX_ANSWER_MS = 200
PATIENCE_MS = 60_000
PAGE = "/console/spaces/default/bench/addresses"

_SEE_ROWS = """
window.rows = new Promise((resolve) => {
  const observer = new MutationObserver(() => {
    if (!document.querySelector("tbody a")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
  });
  observer.observe(document, {childList: true, subtree: true});
});
"""
_AWAIT_TOTAL = """
(total) => {
  window.answered = new Promise((resolve) => {
    let began;
    addEventListener("input", (event) => { began = event.timeStamp; }, {capture: true, once: true});
    const observer = new MutationObserver(() => {
      const shown = document.querySelector(".em-toolbar .pf-v6-c-pagination")?.textContent ?? "";
      if (began === undefined || !new RegExp(` of ${total}(?!\\d)`).test(shown)) return;
      observer.disconnect();
      requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began)));
    });
    observer.observe(document.body, {childList: true, subtree: true, characterData: true});
  });
}
"""


def missing_browser() -> str:
    """What is needed and is not here."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright, which `make test` installs"
    return "" if shutil.which(CHROMIUM) else "Chromium: apt-get install chromium"


def pages(setting: Setting) -> Iterator[Line]:
    """Visit the list with an empty cache and with a full one, then type into its filter."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only this needs it

    count = setting.count(ADDRESSES)
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="run-", dir=setting.directory)))
        site = stack.enter_context(Installation(data))
        create_space(site.api(), "bench")
        declare(site, count)
        setting.patience.wait()
        url = f"http://127.0.0.1:{site.api_port}"
        link = f"{url}/login?token={Layout(data).operator_token.read_text()}"
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=shutil.which(CHROMIUM), args=["--no-sandbox"])
        stack.callback(browser.close)
        first = [_visit(_enter(browser, link), url + PAGE) for _ in range(VISITS)]
        context = _enter(browser, link)
        again = [_visit(context, url + PAGE) for _ in range(VISITS + 1)][1:]
        for name, visits in (("empty cache", first), ("full cache", again)):
            yield Line(f"first paint, {name}", median(visit["paint"] for visit in visits), "ms", target=MAX_PAINT_MS)
            yield Line(f"rows are there, {name}", median(visit["rows"] for visit in visits), "ms")
            yield Line(f"the page's CPU until then, {name}", median(visit["cpu"] for visit in visits), "ms")
        yield Line("bytes for it, packed", first[0]["bytes"] / 1e3, "kB")
        yield from _type(context, site, url + PAGE, count)


def _enter(browser: Browser, link: str) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(_SEE_ROWS)
    context.request.get(link, max_redirects=0)
    return context


def _visit(context: BrowserContext, url: str) -> dict[str, float]:
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(url)
    found: dict[str, float] = page.evaluate(
        """async () => ({
            rows: await window.rows,
            paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
            bytes: performance.getEntries().reduce((sum, entry) => sum + (entry.transferSize ?? 0), 0),
        })"""
    )
    found["cpu"] = _spent(session)["TaskDuration"] * 1e3
    page.close()
    return found


def _spent(session: CDPSession) -> dict[str, float]:
    """Return the seconds that the page's thread has spent so far, by what for."""
    found: list[dict[str, Any]] = session.send("Performance.getMetrics")["metrics"]
    return {metric["name"]: metric["value"] for metric in found}


def _type(context: BrowserContext, site: Installation, url: str, count: int) -> Iterator[Line]:
    """Type and delete, and look how long the rows of each word take."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(url)
    page.evaluate("window.rows")
    field = page.get_by_label("Find addresses")
    field.click()
    took = []
    before, ran = _spent(session), site.cpu("control")
    for _ in range(ROUNDS):
        written = ""
        for word in WORDS:
            page.evaluate(_AWAIT_TOTAL, _matching(word, count))
            field.press(word[-1] if len(word) > len(written) else "Backspace")
            took.append(float(page.evaluate("window.answered")))
            written = word
    after, ran = _spent(session), site.cpu("control") - ran
    yield Line("rows of another filter are shown, p50", median(took), "ms", target=MAX_ANSWER_MS)
    yield Line("rows of another filter are shown, p90", sorted(took)[len(took) * 9 // 10], "ms", target=MAX_ANSWER_MS)
    yield Line("rows of another filter are shown, longest", max(took), "ms")
    yield Line("control's CPU for each", ran / len(took) * 1e3, "ms")
    for name, what in (
        ("TaskDuration", "all"),
        ("ScriptDuration", "scripts"),
        ("RecalcStyleDuration", "styles"),
        ("LayoutDuration", "layout"),
    ):
        yield Line(f"the page's CPU for each, {what}", (after[name] - before[name]) / len(took) * 1e3, "ms")


def _matching(word: str, count: int) -> int:
    """Return how many addresses have a word in their name."""
    return sum(word in f"plant/{number} bench.a{number:06}" for number in range(count))


MEASUREMENTS = (Measurement("The list of 10,000 addresses in Chromium", pages, missing_browser),)
