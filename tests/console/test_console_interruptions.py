"""What comes between a person and what they were doing: the end of a session, an API that is away, others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.console.people import People
from tests.console.visit import IN_SPACE
from tests.support.installation import Installation
from tests.support.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from tests.console.visit import Visit

LATE_MS = 120_000

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]


@pytest.fixture(scope="module")
def accounts(people: People) -> People:
    people.add("ida")
    people.add("bea")
    return people


@pytest.fixture
def doomed(api: httpx.Client) -> Iterator[str]:
    document = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Address",
        "metadata": {"name": "shop.doomed"},
        "spec": {"address": "doomed", "type": "queue"},
    }
    assert api.post("addresses", json=document).status_code == 201
    yield "addresses/shop.doomed"
    api.delete("addresses/shop.doomed")


def ask_to_delete(visit: Visit) -> None:
    visit.open(f"{IN_SPACE}/addresses/shop.doomed")
    visit.sign_in("ida", "the horse of ida")
    visit.press("Actions")
    visit.page.get_by_role("menuitem", name="Delete").click()
    expect(visit.dialog()).to_contain_text("Delete the address doomed?")


def test_what_the_end_of_a_session_interrupts_goes_on_after_the_login(
    newcomer: Callable[..., Visit], accounts: People, api: httpx.Client, doomed: str
) -> None:
    visit = newcomer(accounts.origin)
    ask_to_delete(visit)
    accounts.end_session(visit.page.context.cookies())
    visit.dialog().get_by_role("button", name="Delete", exact=True).click()
    expect(visit.dialog().filter(has_text="Sign in again")).to_contain_text("The session of ida is over")
    assert api.get(doomed).status_code == 200
    visit.sign_in("ida", accounts.password("ida"))
    expect(visit.page).to_have_url(re.compile("/addresses$"))
    assert api.get(doomed).status_code == 404


def test_somebody_else_does_not_go_on_with_it(
    newcomer: Callable[..., Visit], accounts: People, api: httpx.Client, doomed: str
) -> None:
    visit = newcomer(accounts.origin)
    ask_to_delete(visit)
    accounts.end_session(visit.page.context.cookies())
    visit.dialog().get_by_role("button", name="Delete", exact=True).click()
    visit.sign_in("bea", accounts.password("bea"))
    expect(visit.button("Signed in as bea")).to_be_visible()
    expect(visit.heading("doomed")).to_be_visible()
    expect(visit.dialog()).to_have_count(0)
    assert api.get(doomed).status_code == 200


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Installation]:
    """An installation whose sessions end when they are left alone for a moment."""
    found = Installation(tmp_path / "d")
    try:
        found.start("--no-pipelines", "--api-session-idle", "20")
        yield found
    finally:
        if found.is_running:
            found.stop()


def test_a_session_that_is_left_alone_ends_though_its_page_is_open(
    newcomer: Callable[..., Visit], impatient: Installation
) -> None:
    people = People(impatient)
    people.add("ida")
    visit = newcomer(people.origin)
    visit.open("spaces")
    visit.sign_in("ida", people.password("ida"))
    expect(visit.heading("No space yet")).to_be_visible()
    # Nobody touches it: its stream, which has nothing to tell, does not keep it alive, and ends with it.
    again = visit.dialog().filter(has_text="Sign in again")
    expect(again).to_contain_text("The session of ida is over", timeout=LATE_MS)
    visit.sign_in("ida", people.password("ida"))
    expect(again).to_have_count(0)
    expect(visit.heading("No space yet")).to_be_visible()
    people.close()


def test_an_api_that_was_away_is_taken_up_again(
    newcomer: Callable[..., Visit], accounts: People, doomed: str, api: httpx.Client
) -> None:
    port = urlsplit(accounts.origin).port
    assert port is not None
    way = Relay(port)
    visit = newcomer(f"http://127.0.0.1:{way.port}")
    visit.open(f"{IN_SPACE}/addresses")
    visit.sign_in("ida", accounts.password("ida"))
    expect(visit.row("doomed")).to_be_visible()
    way.cut()
    banner = visit.page.get_by_text("The API does not answer; trying again")
    expect(banner).to_be_visible()
    expect(visit.row("doomed")).to_be_visible()
    # A page that was never shown has to be loaded first.
    visit.page.get_by_role("navigation").get_by_role("link", name="Endpoints").click()
    assert api.delete(doomed).status_code == 200
    way.mend()
    expect(banner).to_have_count(0)
    expect(visit.page.get_by_role("grid", name="Endpoints")).to_be_visible()
    visit.page.get_by_role("navigation").get_by_role("link", name="Addresses").click()
    expect(visit.row("orders")).to_be_visible()
    expect(visit.row("doomed")).to_have_count(0)
    way.cut()


def test_two_people_who_edit_the_same_see_both_versions(visit: Visit, api: httpx.Client, doomed: str) -> None:
    visit.open(f"{IN_SPACE}/addresses/shop.doomed?tab=settings")
    visit.page.get_by_role("spinbutton", name="Attempts to deliver").fill("3")
    merge = {"Content-Type": "application/merge-patch+json"}
    assert api.patch(doomed, headers=merge, json={"spec": {"messageTtl": {"maximum": 60000}}}).status_code == 200
    visit.press("Save")
    warning = visit.page.get_by_text("Somebody else changed it while you were editing")
    expect(warning).to_be_visible()
    versions = visit.page.locator("pre").filter(has_text="kind: Address")
    expect(versions).to_have_count(2)
    mine, theirs = versions.all()
    expect(mine).to_contain_text("maximumDeliveryAttempts: 3")
    expect(theirs).to_contain_text("maximum: 60000")
    assert "messageRedelivery" not in api.get(doomed).json()["spec"]
    visit.press("Put mine over theirs")
    expect(visit.page.get_by_text("Saved")).to_be_visible()
    spec = api.get(doomed).json()["spec"]
    assert (spec["messageRedelivery"], "messageTtl" in spec) == ({"maximumDeliveryAttempts": 3}, False)


def test_rights_that_are_lost_are_told_and_nothing_is_shown_any_more(
    newcomer: Callable[..., Visit], accounts: People
) -> None:
    visit = newcomer(accounts.origin)
    visit.open(f"{IN_SPACE}/addresses")
    visit.sign_in("bea", accounts.password("bea"))
    expect(visit.row("orders")).to_be_visible()
    accounts.revoke("bea", "tenant-edit")
    expect(visit.page.get_by_text("You do not have the right to do this")).to_be_visible()
    expect(visit.row("orders")).to_have_count(0)
    visit.page.get_by_role("navigation").get_by_role("link", name="Service broker").click()
    expect(visit.heading("Service broker")).to_be_visible()
    accounts.grant("bea", "tenant-view")
    visit.open(f"{IN_SPACE}/addresses")
    expect(visit.row("orders")).to_be_visible()
    expect(visit.button("Create an address")).to_be_disabled()
