"""A person's visit to the console: the page, and what the browser complains of meanwhile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Page, Playwright

IN_SPACE = "spaces/default/shop"


def launch(playwright: Playwright) -> Browser:
    """Start the Chromium of this machine."""
    return playwright.chromium.launch(
        executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"]
    )


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
        self.page.goto(f"{self.origin}/console/{path}")

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
