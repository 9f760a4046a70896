"""The console's login at a real Keycloak, through its own pages in a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.console.people import People
from tests.console.visit import IN_SPACE, PATIENCE_MS, Visit, declare_shop, launch, new_window
from tests.support.foreign_tools import require
from tests.support.installation import Installation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.keycloak.conftest import Keycloak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("keycloak")]

CLIENT = "console"
AUDIENCE = "enmasse"
PASSWORD = "the horse of tina"


@pytest.fixture
def staffed(keycloak: Keycloak, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation whose API lets in the people of a realm of Keycloak's."""
    require("chromium")
    found = Installation(tmp_path_factory.mktemp("staffed") / "d")
    provider = f"--api-oidc-issuer={keycloak.url}/realms/people"
    try:
        found.start("--no-pipelines", provider, f"--api-oidc-audience={AUDIENCE}", f"--api-oidc-client={CLIENT}")
        audience = {"included.custom.audience": AUDIENCE, "access.token.claim": "true"}
        mapper = {"name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper"}
        tina = {"username": "tina", "enabled": True, "email": "tina@example.com", "emailVerified": True}
        realm = {
            "realm": "people",
            "enabled": True,
            "clients": [
                {
                    "clientId": CLIENT,
                    "publicClient": True,
                    "standardFlowEnabled": True,
                    "redirectUris": [f"{found.url('api')}/login/oidc/callback"],
                    "attributes": {"pkce.code.challenge.method": "S256"},
                    "protocolMappers": [mapper | {"config": audience}],
                }
            ],
            "users": [
                tina
                | {"firstName": "Tina", "lastName": "T", "credentials": [{"type": "password", "value": PASSWORD}]}
            ],
        }
        keycloak.admin("POST", "", realm)
        declare_shop(found, {"orders": "{type: queue}"})
        yield found
    finally:
        if found.is_running:
            found.stop()


def test_one_logs_in_at_the_providers_page_and_comes_back_to_where_one_was(staffed: Installation) -> None:
    people = People(staffed)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        context = new_window(browser)
        visit = Visit(context.new_page(), people.origin)
        page = visit.page
        visit.open(f"{IN_SPACE}/addresses?sort=-address")
        expect(visit.dialog()).to_contain_text("Sign in")
        # It leads to another place, and so is a link.
        visit.dialog().get_by_role("link", name="Sign in with 127.0.0.1").click()
        page.locator("#username").fill("tina")
        page.locator("#password").fill(PASSWORD)
        page.locator("#kc-login").click()
        expect(page).to_have_url(f"{people.origin}/console/{IN_SPACE}/addresses?sort=-address")
        expect(visit.button("Signed in as oidc:tina")).to_be_visible()
        expect(page.get_by_text("You do not have the right to do this")).to_be_visible()
        people.grant("oidc:tina", "tenant-edit")
        page.reload()
        expect(visit.row("orders")).to_be_visible()

        # The session ends while she writes; she comes back by another tab, and what she wrote is still here.
        visit.open(f"{IN_SPACE}/addresses/shop.orders/messages")
        page.locator("#try-body").fill("not lost")
        people.end_session(context.cookies())
        visit.press("Send")
        expect(visit.dialog()).to_contain_text("The session of oidc:tina is over")
        visit.press("Go on")
        expect(visit.dialog()).to_contain_text("Nobody has signed in yet.")
        with context.expect_page() as opened:
            visit.dialog().get_by_role("link", name="Sign in with 127.0.0.1").click()
        # Keycloak still knows her.
        expect(opened.value).to_have_url(re.compile("/console/$"))
        opened.value.close()
        visit.press("Go on")
        expect(page.get_by_text("The message was accepted.")).to_be_visible()
        expect(visit.row("not lost")).to_be_visible()

        # What outlasts the session asks her for the password, although Keycloak still knows her.
        visit.open(f"{IN_SPACE}/users")
        visit.press("Create a user")
        visit.fill("User name", "meter")
        visit.dialog().get_by_role("button", name="Create", exact=True).click()
        expect(visit.dialog().filter(has_text="Is it you?")).to_be_visible()
        with context.expect_page() as opened:
            visit.dialog().get_by_role("link", name="Sign in with 127.0.0.1").click()
        opened.value.locator("#password").fill(PASSWORD)
        opened.value.locator("#kc-login").click()
        expect(visit.row("meter")).to_be_visible()
        opened.value.close()
        assert visit.complaints == []
        browser.close()
    people.close()
