"""A person's visit to the console: the page, and what the browser complains of meanwhile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Locator, Page, Playwright

    from tests.support.installation import Installation

PATIENCE_MS = 30_000
"""For whatever a page is to show, on a machine that does a lot of other things."""

IN_SPACE = "spaces/default/shop"

GO = """(path) => {
  for (const heading of document.querySelectorAll('h1')) heading.dataset.former = '';
  history.pushState(null, '', '/console/' + path);
  dispatchEvent(new PopStateEvent('popstate'));
}"""
"""To another page as a link leads there, without loading everything anew, which takes a second's work."""

NOWHERE = "no/such/page"


def declare_shop(installation: Installation, addresses: Mapping[str, str]) -> None:
    """Declare the space ``shop`` with addresses, each with its specification in YAML, and wait until all is ready."""
    version = "apiVersion: enmasse.io/v1beta1\n"
    documents = [f"{version}kind: AddressSpace\nmetadata: {{name: shop}}\n"]
    for name, spec in addresses.items():
        whole = spec.replace("{", f"{{address: {name}, ", 1)
        documents.append(f"{version}kind: Address\nmetadata: {{name: shop.{name}}}\nspec: {whole}\n")
    installation.ok("apply", "-f", "-", stdin="---\n".join(documents))
    installation.ok("status", "--wait", "150")


def launch(playwright: Playwright) -> Browser:
    """Start the Chromium of this machine."""
    return playwright.chromium.launch(
        executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    )


def new_window(browser: Browser, **options: Any) -> BrowserContext:
    given: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
    context = browser.new_context(**given | options)
    context.set_default_timeout(PATIENCE_MS)
    return context


class Visit:
    """A page of the console, and what is done on it.

    Args:
        page: of the browser.
        link: what was followed to get in, or any other URL of the console.

    Attributes:
        complaints: errors of scripts, and what the Content-Security-Policy refused: none are expected.
    """

    def __init__(self, page: Page, link: str) -> None:
        self.page = page
        parts = urlsplit(link)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._listen)
        page.on("dialog", self._dismiss)

    def _listen(self, message: ConsoleMessage) -> None:
        # What the API refuses is shown by pages, and by Chromium here too.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def _dismiss(self, dialog: Dialog) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, path: str) -> None:
        """Go to a page, which begins anew: by way of one that is none."""
        heading = self.page.locator("h1:not([data-former])")
        if not self.page.url.startswith(f"{self.origin}/console/"):
            self.page.goto(f"{self.origin}/console/{path}")
            return
        for place in (NOWHERE, path):
            expect(self.page.locator("h1")).to_be_attached()
            self.page.evaluate(GO, place)
            expect(heading).to_be_attached()

    def sign_in(self, name: str, password: str) -> None:
        self.page.locator("#login-name").fill(name)
        self.page.locator("#login-password").fill(password)
        self.page.get_by_role("dialog").filter(has_text="Sign in").get_by_role(
            "button", name="Sign in", exact=True
        ).click()
        expect(self.page.locator("#login-name")).to_have_count(0)

    def press(self, name: str) -> None:
        self.button(name).click()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def fill(self, label: str, text: str) -> None:
        self.page.get_by_label(re.compile(rf"^{re.escape(label)}")).fill(text)

    def heading(self, name: str) -> Locator:
        return self.page.get_by_role("heading", name=name, exact=True)

    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def row(self, text: str) -> Locator:
        return self.page.get_by_role("row").filter(has_text=text)


def leave(visit: Visit) -> None:
    """Have the next one find nothing of a visit, and see that nothing was complained of."""
    visit.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
    visit.page.close()
    assert visit.complaints == [], visit.complaints
