"""Lists of the console: sorted, filtered and cut by the API, acted on in bulk, without a mouse, and on a phone."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from enmasse.client.blocking import connect
from tests.console.visit import IN_SPACE, Visit, leave, new_window
from tests.support.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from playwright.sync_api import Browser, ViewportSize

    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]

PARTS = "spaces/default/parts/addresses"
CONNECTORS = "spaces/default/parts/connectors"


@pytest.fixture(scope="module", autouse=True)
def parts(api: httpx.Client) -> None:
    """A space of 24 addresses, the last four of them topics, with two connectors, of which one lacks its Secret."""
    version = {"apiVersion": "enmasse.io/v1beta1"}
    servers = {"endpointHosts": [{"host": "mq.example.com", "port": 5671}], "tls": {}}
    waiting = {"caCert": {"valueFromSecret": {"name": "mill"}}}
    connectors = [{"name": "barn", **servers}, {"name": "mill", **servers, "tls": waiting}]
    space = version | {"kind": "AddressSpace", "metadata": {"name": "parts"}, "spec": {"connectors": connectors}}
    assert api.post("addressspaces", json=space).status_code == 201
    for number in range(24):
        address = f"part-{number:02}"
        spec = {"address": address, "type": "queue" if number < 20 else "topic"}
        document = version | {"kind": "Address", "metadata": {"name": f"parts.{address}"}, "spec": spec}
        assert api.post("addresses", json=document).status_code == 201
    until(lambda: len(addresses(api)) == 24)


def addresses(api: httpx.Client) -> list[str]:
    rows = api.get("addressspaces/parts/rows/addresses?limit=100").json()
    return [row["address"] for row in rows["items"]]


def test_a_list_is_cut_sorted_and_filtered_and_the_link_says_how(visit: Visit) -> None:
    page = visit.page
    visit.open(f"{PARTS}?per=20")
    expect(visit.row("part-00")).to_be_visible()
    expect(visit.row("part-")).to_have_count(20)
    page.get_by_role("button", name="Go to next page").first.click()
    expect(visit.row("part-23")).to_be_visible()
    expect(visit.row("part-")).to_have_count(4)
    expect(page).to_have_url(re.compile(r"page=2"))
    page.get_by_role("columnheader", name="Address").get_by_role("button").click()
    expect(visit.row("part-").first).to_contain_text("part-23")
    expect(page).to_have_url(re.compile(r"sort=-address"))
    visit.press("Type")
    page.get_by_role("option", name="topic").click()
    expect(visit.row("part-")).to_have_count(4)
    page.get_by_label("Find addresses").fill("22")
    expect(visit.row("part-")).to_have_count(1)
    # Who is given the link sees the same.
    visit.page.reload()
    expect(visit.row("part-22")).to_be_visible()
    expect(visit.row("part-")).to_have_count(1)
    page.get_by_label("Find addresses").fill("none of them")
    visit.press("Show all")
    expect(visit.row("part-")).to_have_count(20)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("connections", "The space has more than 20,000 connections."),
        ("addresses", "A node tells the figures of 20,000 addresses."),
    ],
)
def test_a_list_says_that_something_is_left_out(visit: Visit, table: str, said: str) -> None:
    answer = {"kind": "RowList", "metadata": {}, "total": 0, "items": [], "truncatedAt": 20_000}
    asked = re.compile(rf"/shop/rows/{table}\?")
    visit.open(f"{IN_SPACE}/endpoints")
    visit.page.route(asked, lambda route: route.fulfill(body=json.dumps(answer) + "\n"))
    visit.open(f"{IN_SPACE}/{table}")
    expect(visit.page.get_by_text(said)).to_be_visible()
    visit.page.unroute(asked)
    visit.open(f"{IN_SPACE}/endpoints")
    visit.open(f"{IN_SPACE}/{table}")
    expect(visit.page.locator("h1")).to_be_visible()
    expect(visit.page.get_by_text(said)).to_have_count(0)


def test_what_is_chosen_is_deleted_at_once_also_when_a_part_has_gone_before(visit: Visit, api: httpx.Client) -> None:
    visit.open(f"{PARTS}?type=topic")
    expect(visit.row("part-")).to_have_count(4)
    visit.page.get_by_role("checkbox", name="Choose all rows").or_(
        visit.page.get_by_role("columnheader", name="Choose all rows").get_by_role("checkbox")
    ).first.check()
    expect(visit.page.get_by_text("4 chosen")).to_be_visible()
    visit.press("Delete")
    for number in range(20, 24):
        expect(visit.dialog()).to_contain_text(f"part-{number}")
    # Somebody else is faster.
    assert api.delete("addresses/parts.part-20").status_code == 200
    visit.dialog().get_by_role("button", name="Delete", exact=True).click()
    expect(visit.page.get_by_text("Nothing matches.")).to_be_visible()
    expect(visit.page.get_by_text("chosen")).to_have_count(0)
    assert addresses(api) == [f"part-{number:02}" for number in range(20)]


def test_a_few_letters_lead_anywhere_and_menus_need_no_mouse(visit: Visit) -> None:
    page = visit.page
    visit.open(PARTS)
    expect(visit.row("part-07")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("part-07")
    page.keyboard.press("Enter")
    expect(visit.heading("part-07")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("addr")
    expect(page.get_by_role("option", name="Addresses of parts")).to_be_visible()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Escape")
    expect(visit.dialog()).to_have_count(0)
    visit.open(PARTS)
    menu = visit.row("part-07").get_by_role("button", name="Actions of parts.part-07")
    menu.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Edit")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(menu).to_be_focused()
    page.keyboard.press("Enter")
    for item in ("Edit", "Purge", "Delete"):
        expect(page.get_by_role("menuitem", name=item)).to_be_focused()
        if item != "Delete":
            page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(visit.dialog()).to_contain_text("Delete the address part-07?")
    page.keyboard.press("Escape")
    expect(visit.dialog()).to_have_count(0)


@pytest.fixture
def phone(browser: Browser, link: str) -> Iterator[Visit]:
    size: ViewportSize = {"width": 390, "height": 844}
    with new_window(browser, viewport=size, has_touch=True, is_mobile=True) as window:
        visit = Visit(window.new_page(), link)
        visit.page.goto(link)
        yield visit
        leave(visit)


def test_a_stream_has_its_partitions_and_a_link_its_client(visit: Visit, installation: Installation) -> None:
    page = visit.page
    visit.open(f"{IN_SPACE}/addresses?sort=-partitions")
    expect(page.get_by_role("grid").get_by_role("row").nth(1)).to_contain_text("clicks")
    expect(visit.row("clicks").locator("[data-label=Partitions]")).to_have_text("1")
    expect(visit.row("orders").locator("[data-label=Partitions]")).to_have_text("")
    with (
        connect(installation.url("amqp"), hostname="shop.default", container_id="till-7") as connection,
        connection.receiver("others"),
    ):
        visit.open(f"{IN_SPACE}/addresses/shop.others?tab=links")
        expect(visit.row("till-7")).to_contain_text("receiver")
        visit.row("till-7").get_by_role("link", name=re.compile("^connection ")).click()
        expect(visit.heading("till-7")).to_be_visible()
        expect(page.locator("dl", has_text="Container ID").first).to_contain_text("till-7")
        expect(page.get_by_role("grid", name="Links")).to_contain_text("others")


def test_connectors_are_shown_with_their_state_problem_and_figures(visit: Visit) -> None:
    visit.open(CONNECTORS)
    mill, barn = visit.row("mill"), visit.row("barn")
    expect(mill).to_contain_text("it waits: there is no Secret default/mill")
    expect(mill.locator("[data-label=State]")).to_contain_text("Failed")
    expect(barn).to_contain_text("mq.example.com:5671 · TLS")
    expect(barn.locator("[data-label=State]")).to_contain_text("Ready")
    expect(barn.locator("[data-label=Senders]")).to_contain_text("0 credit")
    expect(barn.locator("[data-label=Connections]")).to_contain_text("0 lost")


def test_a_phone_shows_all_of_it(phone: Visit) -> None:
    visit, page = phone, phone.page
    too_wide = {}
    for path, text in (
        ("", "Nodes"),
        ("spaces", "parts"),
        ("new-space", "Next"),
        (f"{IN_SPACE}/new-address", "How should messages travel?"),
        (f"{IN_SPACE}/addresses/shop.orders", "messages a second"),
        (f"{IN_SPACE}/addresses/shop.orders?tab=settings", "Attempts to deliver"),
        (f"{IN_SPACE}/addresses/shop.orders/messages", "Try it"),
        (f"{IN_SPACE}/endpoints", "Send and receive a message"),
        (CONNECTORS, "it waits: there is no Secret default/mill"),
        (f"{IN_SPACE}/quota", "Used of its limits"),
        ("plans", "Of spaces"),
        ("audit", "Who changed what"),
        (PARTS, "part-07"),
    ):
        visit.open(path)
        expect(page.locator("main").get_by_text(text).first).to_be_visible()
        width = page.evaluate(
            "Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth)"
        )
        if width > 390:
            too_wide[path] = width
    assert too_wide == {}
    row = visit.row("part-07")
    expect(row.locator("[data-label=Status]")).to_contain_text("Active")
    expect(row.locator("[data-label=Stored]")).to_have_css("display", "grid")
    row.get_by_role("button", name="Actions of parts.part-07").tap()
    page.get_by_role("menuitem", name="Edit").tap()
    expect(page.get_by_text("Attempts to deliver")).to_be_visible()
    users = page.get_by_role("navigation").get_by_role("link", name="Users")
    expect(users).not_to_be_in_viewport()
    # What is above every page stands in one row, and nothing of it is cut off.
    mark = page.get_by_role("banner").get_by_role("img", name="EnMasse")
    expect(page.get_by_role("banner").get_by_role("link", name="EnMasse")).to_have_css("text-decoration-line", "none")
    controls = (visit.button("Navigation"), visit.button("Dark colours"), visit.button("Help"), mark)
    for control in controls:
        expect(control).to_be_in_viewport(ratio=1)
    middles = [box["y"] + box["height"] / 2 for control in controls if (box := control.bounding_box())]
    assert len(middles) == len(controls)
    assert max(middles) - min(middles) < 8, middles
    visit.button("Navigation").tap()
    users.tap()
    expect(visit.heading("No user yet")).to_be_visible()
    expect(users).not_to_be_in_viewport()
