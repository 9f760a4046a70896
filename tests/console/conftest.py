"""One installation and one browser for all tests here, which one worker runs: their mark names the group.

The browser ends with the last of them: its event loop is the thread's while it runs, where others want their own. It
keeps two windows, of the operator and of whoever comes: a page in a new one has all its scripts compiled anew, which
takes as long as three pages in one that knows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.console.people import People
from tests.console.visit import PATIENCE_MS, Visit, declare_shop, launch, leave, new_window
from tests.support.foreign_tools import require
from tests.support.installation import Installation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, BrowserContext

SHOP = {
    "orders": "{type: queue, deadletter: failed, messageRedelivery: {maximumDeliveryAttempts: 1}}",
    "others": "{type: queue}",
    "failed": "{type: deadletter}",
    "clicks": "{type: stream, partitions: 1}",
    "news": "{type: topic}",
}
"""The addresses of the space that pages are looked at with."""


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    require("chromium")
    found = Installation(tmp_path_factory.mktemp("console") / "d")
    try:
        # A module's session lasts as long as its tests take on a machine that does a lot of other things.
        found.start("--no-pipelines", "--api-session-idle", "1800")
        declare_shop(found, SHOP)
        yield found
    finally:
        if found.is_running:
            found.stop()


@pytest.fixture(scope="module")
def link(installation: Installation) -> str:
    """What lets in."""
    return installation.ok("console", "--print").strip()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    require("chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def window(browser: Browser) -> BrowserContext:
    """The operator's."""
    return new_window(browser, accept_downloads=True)


@pytest.fixture(scope="package")
def window_of_others(browser: Browser) -> BrowserContext:
    """Of people who come one after the other, and leave nothing there."""
    return new_window(browser)


@pytest.fixture(scope="module")
def api(installation: Installation) -> Iterator[httpx.Client]:
    base = f"{installation.url('api')}/apis/enmasse.io/v1beta1/namespaces/default/"
    with httpx.Client(base_url=base, headers=installation.proof, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def visit(window: BrowserContext, link: str) -> Iterator[Visit]:
    """A page that the link has let in, for all tests of a module: each opens the place it needs."""
    visit = Visit(window.new_page(), link)
    visit.page.goto(link)
    yield visit
    leave(visit)


@pytest.fixture(scope="module")
def people(installation: Installation) -> Iterator[People]:
    people = People(installation)
    yield people
    people.close()


@pytest.fixture
def newcomer(window_of_others: BrowserContext) -> Iterator[Callable[[str], Visit]]:
    """Opens pages of people who have not logged in yet, by the origin of the console."""
    visits: list[Visit] = []

    def open_page(origin: str) -> Visit:
        window_of_others.clear_cookies()
        visits.append(Visit(window_of_others.new_page(), origin))
        return visits[-1]

    yield open_page
    for visit in visits:
        leave(visit)
