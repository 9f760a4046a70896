"""Projects, devices and commands on the console's pages, with a device that speaks MQTT meanwhile."""

from __future__ import annotations

import queue
import re
from base64 import b64encode
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import expect

from enmasse.iot.possession import sign
from tests.console.visit import IN_SPACE
from tests.devices.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.console.people import People
    from tests.console.visit import Visit
    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]

TENANT = "default.plant"
PROJECT = f"{IN_SPACE}/projects/plant"
PASSWORD = "opensesame"  # of tests


@pytest.fixture(scope="module")
def registry(installation: Installation) -> Iterator[httpx.Client]:
    base = f"{installation.url('api')}/registry/v1/"
    with httpx.Client(base_url=base, headers=installation.proof, trust_env=False, timeout=60) as client:
        yield client


@contextmanager
def connected(installation: Installation, device: str) -> Iterator[tuple[Client, queue.Queue[str]]]:
    """Have a device listen for its commands; those that come are in the queue."""
    told: queue.Queue[str] = queue.Queue()
    client = Client(CallbackAPIVersion.VERSION2, device)
    client.username_pw_set(f"{device}@{TENANT}", PASSWORD)
    client.on_message = lambda _client, _data, message: told.put(f"{message.topic} {message.payload.decode()}")
    ready: queue.Queue[bool] = queue.Queue()
    client.on_subscribe = lambda *_arguments: ready.put(True)
    client.connect("127.0.0.1", urlsplit(installation.url("mqtt")).port or 0)
    client.loop_start()
    try:
        client.subscribe("command///req/#", 1)
        ready.get(timeout=30)
        yield client, told
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.fixture(scope="module", autouse=True)
def plant(visit: Visit, registry: httpx.Client) -> None:
    """A project that is made on its page, and devices."""
    visit.open(f"{IN_SPACE}/projects")
    expect(visit.heading("No project yet")).to_be_visible()
    visit.press("Create a project")
    visit.fill("Name", "plant")
    expect(visit.dialog()).to_contain_text("addressSpace:")
    visit.dialog().get_by_role("button", name="Create", exact=True).click()
    expect(visit.page.locator(".em-title .em-phase").first).to_have_text("Active")
    expect(visit.heading("No device yet")).to_be_visible()
    for number in range(25):
        assert registry.post(f"devices/{TENANT}/gauge-{number:02}", json={}).status_code == 201


def test_a_device_is_registered_seen_commanded_and_disabled(visit: Visit, installation: Installation) -> None:
    page = visit.page
    visit.open(PROJECT)
    visit.press("Register a device")
    page.locator("#device-id").fill("boiler")
    page.locator("#device-password").fill(PASSWORD)
    expect(visit.dialog()).to_contain_text("enmasse iot device create default.plant boiler")
    assert PASSWORD not in visit.dialog().inner_text()
    visit.dialog().get_by_role("button", name="Register", exact=True).click()
    expect(visit.heading("boiler")).to_be_visible()
    expect(visit.row("password")).to_contain_text("boiler")
    with connected(installation, "boiler") as (_, told):
        expect(page.locator(".em-title .em-phase")).to_have_text("connected")
        expect(page.get_by_role("grid", name="Connections")).to_contain_text("connected")
        page.get_by_role("button", name="Send a command").first.click()
        page.locator("#command-name").fill("blink")
        visit.dialog().get_by_label("Payload").fill("3 times")
        visit.dialog().get_by_role("button", name="Send", exact=True).click()
        expect(visit.dialog().get_by_role("status")).to_contain_text("It waits for the device")
        assert told.get(timeout=30).endswith("blink 3 times")
        visit.press("Done")
        expect(visit.row("blink")).to_contain_text("accepted")
        visit.press("Actions")
        page.get_by_role("menuitem", name="Disable").click()
        visit.dialog().get_by_role("button", name="Disable", exact=True).click()
        expect(page.locator(".em-title .em-phase")).to_have_text("disabled")
    visit.press("Actions")
    page.get_by_role("menuitem", name="Delete").click()
    visit.dialog().get_by_role("button", name="Delete", exact=True).click()
    expect(visit.heading("plant")).to_be_visible()
    expect(visit.row("boiler")).to_have_count(0)


def test_devices_are_found_commanded_and_disabled_together(visit: Visit, registry: httpx.Client) -> None:
    page = visit.page
    visit.open(PROJECT)
    expect(visit.row("gauge-")).to_have_count(20)
    page.get_by_role("button", name="Go to next page").first.click()
    expect(visit.row("gauge-")).to_have_count(5)
    page.get_by_label("Find devices").fill("-1")
    expect(visit.row("gauge-")).to_have_count(10)
    for device in ("gauge-11", "gauge-12"):
        visit.row(device).get_by_role("checkbox").check()
    page.get_by_role("button", name="Send a command").first.click()
    page.locator("#command-name").fill("reboot")
    visit.dialog().get_by_role("button", name="Send", exact=True).click()
    expect(visit.dialog().get_by_role("status")).to_contain_text("It waits for 2 devices")
    visit.press("Done")
    visit.press("Disable")
    visit.dialog().get_by_role("button", name="Disable", exact=True).click()
    expect(visit.row("gauge-11")).to_contain_text("disabled")
    assert registry.get(f"devices/{TENANT}/gauge-12").json()["enabled"] is False
    visit.open(f"{PROJECT}?tab=commands")
    expect(visit.row("reboot")).to_have_count(2)
    row = visit.row("gauge-12")
    row.get_by_role("button", name="Actions of").click()
    page.get_by_role("menuitem", name="Cancel").click()
    visit.dialog().get_by_role("button", name="Cancel them").click()
    expect(row).to_contain_text("cancelled by")
    page.get_by_role("button", name="State").click()
    page.get_by_role("option", name="queued").click()
    expect(visit.row("reboot")).to_have_count(1)


def test_many_devices_come_by_a_file_and_go_into_one(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    file = tmp_path / "more.csv"
    file.write_text("id,enabled\nmeter-1,true\nmeter-2,perhaps\n")
    visit.open(PROJECT)
    page.get_by_label("File of devices").set_input_files(file)
    expect(page.get_by_role("status").filter(has_text="1 device registered")).to_contain_text("Line 3")
    # More than one request takes.
    many = tmp_path / "many.jsonl"
    many.write_text("".join(f'{{"id": "zz-{number:04}"}}\n' for number in range(1100)) + "nothing\n")
    page.get_by_label("File of devices").set_input_files(many)
    expect(page.get_by_role("status").filter(has_text="1,100 devices registered")).to_contain_text("Line 1101")
    page.get_by_label("Find devices").fill("meter")
    expect(visit.row("meter-1")).to_be_visible()
    with page.expect_download() as download:
        visit.press("Export")
    download.value.save_as(tmp_path / "all.jsonl")
    assert '{"id":"meter-1"' in (tmp_path / "all.jsonl").read_text().replace(" ", "")


def test_credentials_are_changed_and_two_people_do_not_undo_each_other(visit: Visit, registry: httpx.Client) -> None:
    page = visit.page
    registry.post(f"devices/{TENANT}/lock", json={})
    given = [{"type": "hashed-password", "auth-id": "lock", "secrets": [{"pwd-plain": PASSWORD}]}]
    assert registry.put(f"credentials/{TENANT}/lock", json=given).status_code == 204
    visit.open(f"{PROJECT}/devices/lock")
    expect(visit.row("password")).to_be_visible()
    # Somebody else was faster.
    other = registry.get(f"credentials/{TENANT}/lock").json()
    assert registry.put(f"credentials/{TENANT}/lock", json=other).status_code == 204
    visit.press("Change")
    page.get_by_role("menuitem", name="Take away").click()
    visit.dialog().get_by_role("button", name="Take away", exact=True).click()
    expect(visit.dialog()).to_contain_text("version is another")
    visit.press("Keep it")
    assert len(registry.get(f"credentials/{TENANT}/lock").json()) == 1
    visit.open(f"{PROJECT}/devices/lock")
    visit.press("Add")
    visit.dialog().get_by_label("Proved by").select_option("x509-cert")
    visit.dialog().get_by_label("Subject of the certificate").fill("CN=lock,O=Plant")
    visit.dialog().get_by_role("button", name="Save", exact=True).click()
    expect(visit.row("client certificate")).to_contain_text("CN=lock,O=Plant")
    kinds = {one["type"] for one in registry.get(f"credentials/{TENANT}/lock").json()}
    assert kinds == {"hashed-password", "x509-cert"}


def test_an_authority_is_proved_by_a_signature_of_its_nonce(
    visit: Visit, registry: httpx.Client, tmp_path: Path
) -> None:
    authority, page = Authority.new(tmp_path, "Plant Root"), visit.page
    trusted = [authority.anchor | {"auth-id-template": "{{subject-cn}}"}]
    registry.put(f"tenants/{TENANT}", json={"trusted-ca": trusted}).raise_for_status()
    visit.open(f"{PROJECT}?tab=authorities")
    row = visit.row("Plant Root")
    expect(row).to_contain_text("where a device names the tenant (SNI)")
    row.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name="Prove").click()
    nonce = page.locator("#prove-nonce")
    expect(nonce).to_have_value(re.compile(f"tenant: {TENANT}"))
    for key, is_right in ((Authority.new(tmp_path, "x").key, False), (authority.key, True)):
        page.locator("#prove-signature").fill(b64encode(sign(key, nonce.input_value())).decode())
        visit.dialog().get_by_role("button", name="Prove", exact=True).click()
        if not is_right:
            expect(visit.dialog()).to_contain_text("it is not that of the nonce")
    expect(row).to_contain_text("everywhere")
    registry.put(f"tenants/{TENANT}", json={}).raise_for_status()


def test_who_may_only_look_is_offered_no_change(people: People, newcomer: Callable[[str], Visit]) -> None:
    people.add("vera", "tenant-view")
    visit = newcomer(f"{people.origin}/console/{PROJECT}")
    visit.page.goto(f"{people.origin}/console/{PROJECT}")
    visit.sign_in("vera", people.password("vera"))
    expect(visit.row("gauge-03")).to_be_visible()
    expect(visit.button("Register a device")).to_have_attribute("aria-disabled", "true")
    visit.row("gauge-03").get_by_role("link").click()
    expect(visit.heading("gauge-03")).to_be_visible()
    expect(visit.page.get_by_text("You may not see which there are.")).to_be_visible()
    expect(visit.heading("Commands")).to_have_count(0)
