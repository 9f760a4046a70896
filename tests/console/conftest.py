"""One installation for the run; for each module one browser, and a page that the installation's link has let in.

The browser ends with its module: its event loop is the thread's while it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.console.people import People
from tests.console.visit import Visit, launch
from tests.support.foreign_tools import require
from tests.support.installation import Installation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser

PATIENCE_MS = 30_000
"""For whatever a page is to show, on a machine that does a lot of other things."""

SPACE = """
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: shop}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.orders}
spec: {address: orders, type: queue, deadletter: failed, messageRedelivery: {maximumDeliveryAttempts: 1}}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.others}
spec: {address: others, type: queue}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.failed}
spec: {address: failed, type: deadletter}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.clicks}
spec: {address: clicks, type: stream, partitions: 1}
---
apiVersion: enmasse.io/v1beta1
kind: Address
metadata: {name: shop.news}
spec: {address: news, type: topic}
"""


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    require("chromium")
    found = Installation(tmp_path_factory.mktemp("console") / "d")
    try:
        found.start("--no-pipelines")
        found.ok("apply", "-f", "-", stdin=SPACE)
        found.ok("status", "--wait", "150")
        yield found
    finally:
        if found.is_running:
            found.stop()


@pytest.fixture(scope="module")
def link(installation: Installation) -> str:
    """What lets in. It is asked for before the browser starts, whose event loop is the thread's."""
    return installation.ok("console", "--print").strip()


@pytest.fixture(scope="module")
def browser(link: str) -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def api(installation: Installation) -> Iterator[httpx.Client]:
    base = f"{installation.url('api')}/apis/enmasse.io/v1beta1/namespaces/default/"
    with httpx.Client(base_url=base, headers=installation.proof, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def visit(browser: Browser, link: str) -> Iterator[Visit]:
    """A browser's window that is logged in, for all tests of a module: each opens the page it needs."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    visit = Visit(page, link)
    page.goto(link)
    yield visit
    context.close()
    assert visit.complaints == []


@pytest.fixture(scope="module")
def people(installation: Installation) -> Iterator[People]:
    people = People(installation)
    yield people
    people.close()


@pytest.fixture
def newcomer(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens windows of people who have not logged in yet, by the origin of the console."""
    visits: list[Visit] = []

    def open_window(origin: str, **options: Any) -> Visit:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        context.set_default_timeout(PATIENCE_MS)
        visits.append(Visit(context.new_page(), origin))
        return visits[-1]

    yield open_window
    for visit in visits:
        visit.page.context.close()
        assert visit.complaints == []
