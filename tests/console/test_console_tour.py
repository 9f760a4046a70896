"""The tour of a first visit: from a space to a message received, by the keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.polling import until

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.console.visit import Visit

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]


def press_by_keyboard(control: Locator) -> None:
    expect(control).to_be_enabled()
    control.focus()
    control.press("Enter")


def test_the_tour_ends_with_a_message_received(visit: Visit) -> None:
    page = visit.page
    tour = page.get_by_role("region", name="Tour")

    def points_at(control: Locator) -> None:
        expect(control).to_have_css("outline-style", "solid")
        # What it says hides nothing that it speaks of, once the page stands still.
        until(
            lambda: control.evaluate(
                "(it) => { const {left, top, width, height} = it.getBoundingClientRect();"
                " return it.contains(document.elementFromPoint(left + width / 2, top + height / 2)); }"
            )
        )

    expect(tour).to_contain_text("New here?")
    press_by_keyboard(visit.button("Take the tour"))
    expect(tour).to_contain_text("1 of 5")
    creation = visit.button("Create a space")
    points_at(creation)
    press_by_keyboard(creation)
    press_by_keyboard(visit.button("Next"))
    page.locator("#space-name").fill("welcome")
    press_by_keyboard(visit.button("Next"))
    press_by_keyboard(visit.button("Next"))
    press_by_keyboard(visit.button("Create"))
    expect(tour).to_contain_text("2 of 5")
    points_at(visit.button("Create an address"))
    press_by_keyboard(visit.button("Create an address"))
    expect(tour).to_contain_text("Leave it a queue")
    press_by_keyboard(visit.button("Next"))
    page.locator("#address").fill("hello")
    press_by_keyboard(visit.button("Next"))
    press_by_keyboard(visit.button("Next"))
    press_by_keyboard(visit.button("Create"))
    expect(tour).to_contain_text("3 of 5")
    expect(page.get_by_text("Active", exact=True)).to_be_visible()
    points_at(visit.button("Messages"))
    press_by_keyboard(visit.button("Messages"))
    page.locator("#try-body").fill("good morning")
    press_by_keyboard(visit.button("Send"))
    expect(tour).to_contain_text("4 of 5")
    press_by_keyboard(tour.get_by_role("link", name="Back to the address"))
    points_at(page.locator("[data-tour=stored]").filter(has_text="1"))
    press_by_keyboard(tour.get_by_role("button", name="I see it"))
    expect(tour).to_contain_text("5 of 5")
    # A page that is loaded anew goes on with it.
    page.reload()
    expect(tour).to_contain_text("5 of 5")
    press_by_keyboard(visit.button("Messages"))
    expect(visit.row("good morning")).to_be_visible()
    points_at(visit.button("Take one"))
    press_by_keyboard(visit.button("Take one"))
    expect(tour).to_contain_text("sent, stored, counted, received")
    press_by_keyboard(tour.get_by_role("button", name="Done"))
    expect(tour).to_have_count(0)


def test_the_tour_is_left_for_good_and_begun_again_from_the_help_menu(visit: Visit) -> None:
    tour = visit.page.get_by_role("region", name="Tour")
    visit.open("")
    expect(visit.heading("Start")).to_be_visible()
    expect(visit.page.get_by_role("link", name=re.compile("^[0-9]+$"))).to_be_visible()
    expect(tour).to_have_count(0)
    visit.press("Help")
    visit.page.get_by_role("menuitem", name="A tour of a minute").click()
    tour.get_by_role("link", name=re.compile("^Open ")).first.click()
    expect(tour).to_contain_text("2 of 5")
    visit.press("Leave the tour")
    expect(tour).to_have_count(0)
    visit.open("")
    expect(visit.page.get_by_role("link", name=re.compile("^[0-9]+$"))).to_be_visible()
    expect(tour).to_have_count(0)
