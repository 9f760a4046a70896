"""The messages of an address in the console: sent, looked at, followed, taken, purged; never more than text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from enmasse.client import Message
from enmasse.client.blocking import connect
from tests.console.visit import IN_SPACE
from tests.support.polling import until
from tests.support.sparkplug_payloads import SESSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from tests.console.visit import Visit
    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]

HOSTILE = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<svg onload=alert(1)>",
    "\"><iframe srcdoc='<script>parent.document.title=1</script>'></iframe>",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    'it\'s "quoted" \u202e\u0623\u0628 \U0001f680',
)


@pytest.fixture(autouse=True)
def nothing_stored(api: httpx.Client) -> Iterator[None]:
    yield
    for address in ("orders", "others"):
        assert api.post(f"addresses/shop.{address}/purge", json={}).status_code == 200


def send(api: httpx.Client, address: str, *messages: object) -> None:
    answer = api.post(f"addresses/shop.{address}/messages", json={"messages": messages})
    assert [item["outcome"] for item in answer.json()["items"]] == ["accepted"] * len(messages), answer.text


def open_messages(visit: Visit, address: str, query: str = "") -> None:
    visit.open(f"{IN_SPACE}/addresses/shop.{address}/messages{query}")
    expect(visit.heading(f"Messages of {address}")).to_be_visible()


def test_a_message_is_sent_looked_at_and_taken(visit: Visit) -> None:
    open_messages(visit, "orders")
    expect(visit.heading("No message here")).to_be_visible()
    visit.page.locator("#try-body").fill('{"item": "tulip"}')
    visit.page.locator("#try-type").fill("application/json")
    visit.press("Send")
    expect(visit.page.get_by_text("The message was accepted.")).to_be_visible()
    expect(visit.row("tulip")).to_contain_text("json")
    visit.row("tulip").get_by_role("button", name="Details").click()
    expect(visit.page.locator("pre")).to_contain_text('"item": "tulip"')
    visit.press("Take one")
    expect(visit.heading("No message here")).to_be_visible()
    expect(visit.row("tulip")).to_be_visible()


def test_payloads_of_sparkplug_are_shown_by_the_names_of_their_metrics(visit: Visit, api: httpx.Client) -> None:
    send(api, "orders", *({"to": name, "hex": body.hex()} for name, body in SESSION.items()))
    open_messages(visit, "orders")
    expect(visit.row('"type": "DDATA"')).to_contain_text("sparkplug")
    visit.row('"type": "NDATA"').get_by_role("button", name="Details").click()
    shown = visit.page.locator("pre")
    expect(shown).to_contain_text('"name": "Temperature",\n      "value": 22.25')
    expect(shown).to_contain_text('"name": "Offset",\n      "value": -128')


def test_what_is_chosen_is_purged_after_it_was_counted(visit: Visit, api: httpx.Client) -> None:
    send(api, "orders", {"body": "rose"}, {"body": "weed"})
    open_messages(visit, "orders")
    visit.row("weed").get_by_role("checkbox").check()
    visit.press("Actions")
    visit.page.get_by_role("menuitem", name="Purge the 1 chosen").click()
    expect(visit.dialog()).to_contain_text("1 message of orders are deleted")
    visit.dialog().get_by_role("button", name="Purge", exact=True).click()
    expect(visit.row("weed")).to_have_count(0)
    expect(visit.row("rose")).to_be_visible()


def test_a_text_filter_chooses_what_is_purged_too(visit: Visit, api: httpx.Client) -> None:
    send(api, "orders", {"body": "ivy"}, {"body": "moss"})
    open_messages(visit, "orders", "?search=IVY")
    expect(visit.row("ivy")).to_be_visible()
    visit.press("Actions")
    visit.page.get_by_role("menuitem", name="Purge what the filter leaves").click()
    expect(visit.dialog()).to_contain_text("1 message of orders")
    visit.dialog().get_by_role("button", name="Purge", exact=True).click()
    expect(visit.heading("No message here")).to_be_visible()
    left = api.get("addresses/shop.orders/messages").json()["items"]
    assert [item["body"]["text"] for item in left] == ["moss"]
    api.post("addresses/shop.orders/purge", json={})


def test_messages_are_moved_to_another_address(visit: Visit, api: httpx.Client) -> None:
    send(api, "orders", {"body": "fern"})
    open_messages(visit, "orders", "?to=others")
    visit.press("Actions")
    visit.page.get_by_role("menuitem", name="Move all").click()
    visit.dialog().get_by_role("button", name="Move", exact=True).click()
    expect(visit.heading("No message here")).to_be_visible()
    moved = api.get("addresses/shop.others/messages").json()["items"]
    assert [item["body"]["text"] for item in moved] == ["fern"]


def test_a_dead_letter_says_why_it_is_one_and_is_replayed(
    visit: Visit, api: httpx.Client, installation: Installation
) -> None:
    send(api, "orders", {"body": "wilted"})
    with (
        connect(installation.url("amqp"), hostname="shop.default") as connection,
        connection.receiver("orders") as receiver,
    ):
        delivery = receiver.receive(30)
        assert delivery is not None
        delivery.reject(description="no petals")
    until(lambda: api.get("addresses/shop.failed/messages").json()["items"])
    open_messages(visit, "failed")
    expect(visit.row("wilted")).to_contain_text("no petals, from orders")
    visit.press("Actions")
    visit.page.get_by_role("menuitem", name="Replay all").click()
    expect(visit.dialog()).to_contain_text("1 message of failed are sent back")
    visit.dialog().get_by_role("button", name="Replay", exact=True).click()
    expect(visit.heading("No message here")).to_be_visible()
    back = api.get("addresses/shop.orders/messages").json()["items"]
    assert [item["body"]["text"] for item in back] == ["wilted"]


def test_a_stream_is_followed_and_read_from_an_offset(visit: Visit, api: httpx.Client) -> None:
    open_messages(visit, "clicks", "?follow=1")
    expect(visit.page.get_by_text(re.compile("^Following"))).to_be_visible()
    send(api, "clicks", *({"body": f"click {number}"} for number in range(3)))
    expect(visit.row("click 2")).to_be_visible()
    open_messages(visit, "clicks", "?offset=1")
    expect(visit.row("click 1")).to_be_visible()
    expect(visit.row("click 0")).to_have_count(0)


def test_hostile_bodies_and_names_are_text(visit: Visit, api: httpx.Client) -> None:
    send(api, "orders", *({"body": text, "subject": text, "applicationProperties": {text: text}} for text in HOSTILE))
    open_messages(visit, "orders")
    for text in HOSTILE:
        row = visit.row(text)
        expect(row).to_be_visible()
        row.get_by_role("button", name="Details").click()
        expect(visit.page.locator("pre")).to_have_text(text)
        row.get_by_role("button", name="Details").click()
    expect(visit.page).to_have_title("Messages of orders · EnMasse")
    assert visit.page.locator("#root").locator("script, iframe, img[src=x]").count() == 0
    assert visit.complaints == []


def test_a_mebibyte_of_json_and_bytes_of_every_value_are_shown(visit: Visit, installation: Installation) -> None:
    end = '"the last of all"]'
    large = "[" + '"sixteen bytes", ' * ((2**20 - len(end) - 1) // 17)
    large += " " * (2**20 - len(large) - len(end)) + end
    assert len(large) == 2**20
    with (
        connect(installation.url("amqp"), hostname="shop.default") as connection,
        connection.sender("orders") as sender,
    ):
        assert sender.send(Message(large, content_type="application/json")).name == "accepted"
        assert sender.send(Message(bytes(range(256)))).name == "accepted"
    open_messages(visit, "orders")
    row = visit.row("sixteen bytes")
    expect(row).to_contain_text("1.0 MiB")
    row.get_by_role("button", name="Details").click()
    expect(visit.page.get_by_text("The first part of 1.0 MiB")).to_be_visible()
    visit.press("Show more")
    expect(visit.page.locator("pre")).to_contain_text("the last of all")
    row.get_by_role("button", name="Details").click()
    row = visit.row("binary")
    row.get_by_role("button", name="Details").click()
    expect(visit.page.locator("pre")).to_contain_text("000000f0  f0 f1 f2")
    expect(visit.page.locator("pre")).to_contain_text("0123456789")


def test_a_message_that_is_too_large_to_send_is_refused_and_stays_to_be_cut(visit: Visit) -> None:
    open_messages(visit, "orders")
    visit.page.locator("#try-body").fill("x" * 2**20)
    visit.press("Send")
    expect(visit.page.get_by_text("larger than 1024 KiB")).to_be_visible()
    visit.page.locator("#try-body").fill("x")
    visit.press("Send")
    expect(visit.page.get_by_text("The message was accepted.")).to_be_visible()
