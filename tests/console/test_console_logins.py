"""Logins to the console by password, and what tenants see of each other: nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.visit import IN_SPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import BrowserContext

    from tests.console.people import People
    from tests.console.visit import Visit
    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]

OF_THE_SHOP = ("orders", "others", "clicks", "failed")


def test_one_comes_in_by_password_and_goes_without_a_trace(newcomer: Callable[..., Visit], people: People) -> None:
    people.add("nina")
    visit = newcomer(people.origin)
    visit.open(f"{IN_SPACE}/addresses")
    expect(visit.dialog()).to_contain_text("Sign in")
    visit.page.locator("#login-name").fill("nina")
    visit.page.locator("#login-password").fill("the horse of somebody else")
    visit.dialog().get_by_role("button", name="Sign in", exact=True).click()
    expect(visit.dialog()).to_contain_text("The name or the password is not right.")
    visit.sign_in("nina", people.password("nina"))
    expect(visit.row("orders")).to_be_visible()
    [cookie] = visit.page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("enmasse_session", True, "Strict")
    visit.press("Signed in as nina")
    visit.page.get_by_role("menuitem", name="Sign out").click()
    expect(visit.dialog()).to_contain_text("Sign in")
    expect(visit.page.get_by_text("orders")).to_have_count(0)
    assert visit.page.context.cookies() == []
    old = httpx.get(f"{people.origin}/whoami", cookies={"enmasse_session": str(cookie["value"])}, trust_env=False)
    assert old.status_code == 401
    visit.page.go_back()
    expect(visit.dialog()).to_contain_text("Sign in")
    expect(visit.row("orders")).to_have_count(0)


def test_another_tenants_pages_show_nothing_of_theirs(newcomer: Callable[..., Visit], people: People) -> None:
    people.add_namespace("garden")
    people.add("tom", "tenant-edit", "garden")
    visit = newcomer(people.origin)
    visit.open("spaces")
    visit.sign_in("tom", people.password("tom"))
    expect(visit.heading("No space yet")).to_be_visible()
    for path in (
        f"{IN_SPACE}/addresses",
        f"{IN_SPACE}/addresses/shop.clicks",
        f"{IN_SPACE}/addresses/shop.clicks/messages",
        f"{IN_SPACE}/connections",
        f"{IN_SPACE}/connectors",
        f"{IN_SPACE}/endpoints",
        f"{IN_SPACE}/users",
        f"{IN_SPACE}/quota",
        f"{IN_SPACE}/events",
    ):
        visit.open(path)
        expect(visit.page.get_by_text("You do not have the right to do this").first).to_be_visible()
        shown = visit.page.locator("main").inner_text().replace("shop.clicks", "")
        assert not any(word in shown for word in OF_THE_SHOP), path
    # What is asked for by hand is refused as well.
    assert (
        visit.page.evaluate(
            "fetch('/apis/enmasse.io/v1beta1/namespaces/default/addresses').then(({status}) => status)"
        )
        == 403
    )
    visit.open("spaces/garden/shed/addresses")
    expect(visit.page.get_by_text("There is no such thing (any more)").first).to_be_visible()
    visit.open("new-space")
    visit.press("Next")
    visit.page.locator("#space-name").fill("shed")
    expect(visit.page.get_by_text("You may not create spaces in the namespace default.")).to_be_visible()
    expect(visit.button("Next")).to_be_disabled()
    visit.page.locator("#namespace").fill("garden")
    visit.press("Next")
    visit.press("Next")
    visit.press("Create")
    expect(visit.heading("No address yet")).to_be_visible()


def test_what_outlasts_a_session_asks_anew_who_is_there(newcomer: Callable[..., Visit], people: People) -> None:
    """The cookie alone, as a thief has it, makes no token; with the password it does, and for ten minutes more."""
    people.add("paula")
    visit = newcomer(people.origin)
    visit.open("account")
    visit.sign_in("paula", people.password("paula"))
    visit.page.evaluate("() => sessionStorage.clear()")
    expect(visit.row("this one")).to_contain_text("127.0.0.1")
    expect(visit.page.get_by_text("You have none. Programs use the API with one.")).to_be_visible()
    visit.press("Make a token")
    visit.fill("What it is for", "nightly build")
    visit.press("Make it")
    asking = visit.dialog().filter(has_text="Is it you?")
    asking.get_by_role("button", name="Cancel").click()
    expect(visit.dialog()).to_contain_text("asks for a fresh proof")
    visit.press("Make it")
    visit.page.locator("#proof-password").fill("the horse of somebody else")
    visit.press("Go on")
    expect(asking).to_contain_text("The password is not right.")
    visit.page.locator("#proof-password").fill(people.password("paula"))
    visit.press("Go on")
    expect(visit.dialog()).to_contain_text("enm_")
    expect(visit.dialog()).to_contain_text("It ends at")
    visit.press("Done")
    expect(visit.row("nightly build")).to_contain_text("in 90 days")
    visit.press("Make a token")
    visit.fill("What it is for", "weekly report")
    visit.page.get_by_label("Good for").select_option("0")
    visit.press("Make it")
    expect(visit.dialog()).to_contain_text("It does not end until it is revoked.")
    visit.press("Done")
    visit.press("Change the password")
    visit.page.get_by_role("checkbox", name="weekly report").uncheck()
    visit.fill("Present password", "the horse of somebody else")
    for field in ("#changed", "#again"):
        visit.page.locator(field).fill("another horse of paula")
    visit.press("Change it")
    expect(visit.dialog()).to_contain_text("The present password is not right.")
    visit.fill("Present password", people.password("paula"))
    visit.press("Change it")
    expect(visit.row("nightly build")).to_have_count(0)
    expect(visit.row("weekly report")).to_contain_text("never")
    visit.press("Sign out everywhere")
    visit.dialog().get_by_role("button", name="Sign out everywhere").click()
    visit.sign_in("paula", "another horse of paula")
    visit.open("account")
    expect(visit.page.get_by_text("You have none. Programs use the API with one.")).to_be_visible()


def test_a_link_that_is_opened_anew_proves_who_is_there(
    window: BrowserContext, visit: Visit, link: str, installation: Installation
) -> None:
    visit.open(f"{IN_SPACE}/users")
    visit.page.evaluate("() => sessionStorage.clear()")
    visit.press("Create a user")
    visit.fill("User name", "late")
    visit.dialog().get_by_role("button", name="Create", exact=True).click()
    expect(visit.dialog().filter(has_text="Is it you?")).to_contain_text("enmasse console")
    another = window.new_page()
    another.goto(link)
    expect(another).to_have_url(f"{visit.origin}/console/")  # the proof is no longer in the address
    expect(visit.dialog()).to_have_count(0)
    another.close()
    assert "late" in installation.ok("get", "users", "--space", "shop")
