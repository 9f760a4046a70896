"""The first steps of a person in the console: come in, make a space and an address, see messages arrive, delete."""

from __future__ import annotations

import base64
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.console.visit import IN_SPACE
from tests.support.foreign_tools import require
from tests.support.polling import until
from tests.unit.client.authorities import Authority

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import httpx

    from tests.console.visit import Visit
    from tests.support.installation import Installation

require("python-qpid-proton")
from proton import Delivery, Message
from proton.utils import BlockingConnection

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]


def test_the_link_lets_in_and_its_token_leaves_the_address(visit: Visit, link: str) -> None:
    assert "token=" in link
    expect(visit.page).to_have_url(f"{visit.origin}/console/")
    cookies = {cookie["name"]: cookie for cookie in visit.page.context.cookies()}
    cookie = cookies["enmasse_session"]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    expect(visit.page.get_by_role("heading", level=1)).to_be_visible()
    assert visit.page.evaluate("document.cookie") == ""


def test_without_the_link_one_is_asked_who_one_is(newcomer: Callable[[str], Visit], link: str) -> None:
    visit = newcomer(link)
    visit.open(f"{IN_SPACE}/addresses")
    expect(visit.dialog()).to_contain_text("Sign in")
    expect(visit.page.get_by_text("orders")).to_have_count(0)


def test_a_space_is_created_step_by_step(visit: Visit) -> None:
    visit.open("new-space")
    visit.press("Next")
    visit.page.locator("#space-name").fill("garden")
    visit.press("Next")
    visit.press("Next")
    expect(visit.page.get_by_text("kind: AddressSpace")).to_be_visible()
    visit.press("Create")
    expect(visit.page).to_have_url(re.compile("/spaces/default/garden/addresses$"))
    expect(visit.heading("No address yet")).to_be_visible()


def test_a_space_is_created_with_a_host_a_port_and_a_certificate_of_its_own(
    visit: Visit, api: httpx.Client, tmp_path: Path
) -> None:
    page = visit.page
    both = Authority(tmp_path, "orchard").sign("mq.orchard.example").read_text()
    certificate, begin, key = both.partition("-----BEGIN PRIVATE KEY")
    for name, text in (("tls.crt", certificate), ("tls.key", begin + key)):
        (tmp_path / name).write_text(text)
    visit.open("new-space")
    page.get_by_role("radio", name="Unlimited").check(force=True)
    visit.press("Next")
    page.locator("#space-name").fill("orchard")
    visit.press("Next")
    page.locator("#endpoints-own").check(force=True)
    page.get_by_role("checkbox", name="AMQP-WSS").uncheck()
    page.locator("#cert-certBundle").check(force=True)
    visit.press("Next")
    expect(visit.button("Next")).to_be_disabled()
    page.locator("#cert-file").set_input_files(tmp_path / "tls.crt")
    page.locator("#key-file").set_input_files(tmp_path / "tls.key")
    visit.press("Next")
    page.locator("#route-host").fill("mq.orchard.example")
    page.locator("#own-port").fill("70000")
    expect(visit.button("Next")).to_be_disabled()
    page.locator("#own-port").fill("31007")
    visit.press("Next")
    expect(page.get_by_text("routeTlsTermination: passthrough")).to_be_visible()
    expect(page.get_by_text(f"tlsKey: <private key, {len(begin + key)} bytes>")).to_be_visible()
    kept = base64.b64encode((begin + key).encode()).decode()
    assert kept not in page.content()
    page.get_by_role("tab", name="Command line").click()
    expect(page.get_by_text("enmasse apply -f manifest.yaml")).to_be_visible()
    assert kept not in page.content()
    visit.press("Create")
    expect(visit.heading("No address yet")).to_be_visible()

    def endpoint() -> Any:
        return next(iter(api.get("addressspaces/orchard").json().get("status", {}).get("endpointStatuses", [])), {})

    until(lambda: endpoint().get("externalHost") == "mq.orchard.example", endpoint)
    (spec,) = api.get("addressspaces/orchard").json()["spec"]["endpoints"]
    assert (spec["name"], spec["port"], spec["cert"]["provider"]) == ("messaging", 31007, "certBundle")
    assert spec["expose"] == {
        "type": "route",
        "routeHost": "mq.orchard.example",
        "routeServicePort": "amqps",
        "routeTlsTermination": "passthrough",
    }
    assert base64.b64decode(spec["cert"]["tlsCert"]).decode() == certificate
    assert "tlsKey" not in spec["cert"]
    assert key not in api.get("addressspaces/orchard").text
    visit.open("spaces/default/orchard/endpoints")
    expect(visit.row("mq.orchard.example")).to_be_visible()


def test_an_address_is_created_counts_what_is_sent_and_is_deleted(
    visit: Visit, installation: Installation, api: httpx.Client
) -> None:
    visit.open(f"{IN_SPACE}/new-address")
    visit.page.locator("#type-queue").check(force=True)
    visit.press("Next")
    visit.page.locator("#address").fill("seeds")
    visit.press("Next")
    visit.press("Next")
    expect(visit.page.get_by_text("There is room for it")).to_be_visible()
    visit.press("Create")
    expect(visit.heading("seeds")).to_be_visible()
    expect(visit.page.get_by_text("Active", exact=True)).to_be_visible()

    stored = visit.page.locator(".em-figures > *").filter(has_text="Stored").locator(".em-figure")
    expect(stored).to_have_text("0")
    connection = BlockingConnection(installation.url("amqp"), virtual_host="shop.default", timeout=30)
    sender = connection.create_sender("seeds")
    for number in range(7):
        assert sender.send(Message(body=f"seed {number}")).remote_state == Delivery.ACCEPTED
    connection.close()
    expect(stored).to_have_text("7")

    visit.press("Actions")
    visit.page.get_by_role("menuitem", name="Delete").click()
    expect(visit.dialog()).to_contain_text("7 stored messages")
    deletion = visit.dialog().get_by_role("button", name="Delete", exact=True)
    expect(deletion).to_be_disabled()
    visit.dialog().get_by_label(re.compile("Type seeds")).fill("seeds")
    deletion.click()
    expect(visit.page).to_have_url(re.compile("/addresses$"))
    expect(visit.row("orders")).to_be_visible()
    expect(visit.row("seeds")).to_have_count(0)
    assert api.get("addresses/shop.seeds").status_code == 404


def test_endpoints_are_listed_for_http_with_commands_that_send_and_receive(visit: Visit, tmp_path: Path) -> None:
    require("curl")
    visit.open(f"{IN_SPACE}/endpoints?address=others")
    for protocol in ("HTTP", "HTTPS"):
        expect(visit.page.locator(f"td[data-label={protocol}]").first).to_have_text(re.compile(r"^\d+$"))
    visit.page.get_by_role("tab", name="HTTP", exact=True).click()
    code = visit.page.locator("main code").filter(has_text="ADDRESS=")
    expect(code).to_contain_text("/v1/spaces/shop.default/addresses/others")
    done = subprocess.run(
        ["bash", "-c", code.inner_text()], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert '"body": "hello"' in done.stdout, done
    assert '{"outcome": "accepted"}' in done.stdout, done
    visit.page.get_by_text("TLS", exact=True).click()
    expect(code).to_contain_text("ADDRESS='https://")
    expect(code).to_contain_text("--cacert ca.crt")


def test_a_filter_is_in_the_address_of_the_page_and_answered_by_the_server(visit: Visit) -> None:
    visit.open(f"{IN_SPACE}/addresses?q=oth")
    expect(visit.row("others")).to_be_visible()
    expect(visit.row("orders")).to_have_count(0)
    visit.page.get_by_label("Find addresses").fill("ord")
    expect(visit.row("orders")).to_be_visible()
    expect(visit.page).to_have_url(re.compile(r"q=ord"))


ODD = 'it\'s-"quoted"/<b>שלום</b>/\U0001f680'


def test_a_name_of_quotes_tags_right_to_left_and_emoji_is_a_name_like_others(visit: Visit, api: httpx.Client) -> None:
    visit.open(f"{IN_SPACE}/new-address")
    visit.press("Next")
    visit.page.locator("#address").fill(ODD)
    visit.press("Next")
    visit.press("Next")
    expect(visit.page.get_by_text("There is room for it")).to_be_visible()
    visit.press("Create")
    expect(visit.heading(ODD)).to_be_visible()
    visit.press("Messages")
    visit.page.locator("#try-body").fill("to whom it may concern")
    visit.press("Send")
    expect(visit.row("to whom it may concern")).to_be_visible()
    visit.open(f"{IN_SPACE}/addresses?q=%F0%9F%9A%80")
    expect(visit.row("shop.")).to_have_count(0)
    row = visit.row(ODD)
    expect(row).to_contain_text("Active")
    row.get_by_role("button", name=re.compile("^Actions of ")).click()
    visit.page.get_by_role("menuitem", name="Delete").click()
    expect(visit.dialog()).to_contain_text("1 stored message is deleted")
    visit.dialog().get_by_role("textbox").fill(ODD)
    visit.dialog().get_by_role("button", name="Delete", exact=True).click()
    expect(visit.page.get_by_text("Nothing matches.")).to_be_visible()
    names = [item["spec"]["address"] for item in api.get("addresses").json()["items"]]
    assert ODD not in names
    assert "orders" in names
