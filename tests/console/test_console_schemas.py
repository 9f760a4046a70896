"""The schema registry in the console: checked first, refused with reasons, compared, deleted, and only for some."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.visit import IN_SPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.console.people import People
    from tests.console.visit import Visit
    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]


@pytest.fixture
def registry(installation: Installation) -> Iterator[httpx.Client]:
    """The space's registry, which is empty before and afterwards."""
    base = f"{installation.url('api')}/schemas/v1/spaces/default/shop/"
    with httpx.Client(base_url=base, headers=installation.proof, trust_env=False, timeout=60) as client:
        yield client
        for subject in client.get("subjects").json():
            assert client.delete(f"subjects/{subject}").status_code == 200
        for subject in client.get("subjects?deleted=true").json():
            assert client.delete(f"subjects/{subject}?permanent=true").status_code == 200
        client.delete("config").raise_for_status()


def reading(**more: object) -> str:
    fields = [{"name": "device", "type": "string"}, {"name": "temperature", "type": "double"}]
    return json.dumps({"type": "record", "name": "Reading", "fields": [*fields, *([more] if more else [])]})


def test_a_schema_is_checked_registered_compared_and_refused(visit: Visit, registry: httpx.Client) -> None:
    page = visit.page
    visit.open(f"{IN_SPACE}/schemas")
    expect(visit.heading("No schema yet")).to_be_visible()
    visit.press("Register a schema")
    expect(visit.button("Check")).to_be_disabled()
    page.locator("#subject").fill("readings-value")
    expect(visit.button("Register")).to_be_disabled()
    visit.press("Check")
    expect(page.get_by_text("It is compatible: it can be registered")).to_be_visible()
    # What was checked is another text now.
    page.locator("#schema-text").fill("{")
    expect(visit.button("Register")).to_be_disabled()
    visit.press("Check")
    expect(page.get_by_text("This is no schema that can be registered")).to_be_visible()
    page.locator("#schema-text").fill(reading())
    visit.press("Check")
    visit.press("Register")
    expect(visit.heading("readings-value")).to_be_visible()
    [first] = registry.get("schemas").json()
    assert (first["subject"], first["version"]) == ("readings-value", 1)
    expect(page.locator("code").filter(has_text='"name": "temperature"')).to_be_visible()

    visit.press("Register a version")
    page.locator("#schema-text").fill(reading(name="site", type="string"))
    visit.press("Check")
    expect(page.get_by_text("It is not compatible")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="site").first).to_be_visible()
    expect(visit.button("Register")).to_be_disabled()
    page.locator("#schema-text").fill(reading(name="site", type="string", default="<b>north</b>"))
    visit.press("Check")
    expect(page.locator(".em-diff-added").filter(has_text='"name": "site"')).to_be_visible()
    visit.press("Register")
    expect(visit.heading("Version 2")).to_be_visible()

    visit.press("What changed in version 2")
    expect(page.locator(".em-diff-added").filter(has_text="<b>north</b>")).to_be_visible()
    expect(page.locator(".em-diff-added").filter(has_text="temperature")).to_have_count(0)
    assert page.locator(".em-diff b").count() == 0
    expect(page.locator("#against")).to_have_value("1")
    visit.press("Show version 1")
    expect(visit.heading("Version 1")).to_be_visible()

    expect(page.locator("#level")).to_have_value("")
    page.locator("#level").select_option("FULL")
    expect(page.locator("#level")).to_have_value("FULL")
    assert registry.get("config/readings-value").json() == {"compatibilityLevel": "FULL"}
    page.locator("#level").select_option("")
    expect(page.locator("#level")).to_have_value("")
    visit.open(f"{IN_SPACE}/schemas")
    page.locator("#level").select_option("NONE")
    expect(page.locator("#level")).to_have_value("NONE")
    assert registry.get("config").json() == {"compatibilityLevel": "NONE"}
    page.get_by_label("Find a subject").fill("reading")
    expect(visit.row("readings-value")).to_contain_text("AVRO")
    page.get_by_label("Find a subject").fill("nothing")
    expect(page.get_by_text("No subject is called so.")).to_be_visible()

    visit.open(f"{IN_SPACE}/schemas/readings-value?version=1")
    delete(visit, "Delete version 1", "Delete version 1 of readings-value?")
    expect(visit.heading("Version 2")).to_be_visible()
    expect(visit.button("Show version 1")).to_have_count(0)
    assert registry.get("subjects/readings-value/versions").json() == [2]
    visit.press("Actions")
    expect(page.get_by_role("menuitem", name="Delete version 2")).to_be_disabled()
    page.keyboard.press("Escape")
    delete(visit, "Delete the subject", "Delete readings-value?")
    expect(visit.heading("No schema yet")).to_be_visible()
    assert registry.get("subjects").json() == []
    assert registry.get(f"schemas/ids/{first['id']}").status_code == 200


def delete(visit: Visit, action: str, question: str) -> None:
    """Delete something of a schema, after the question was answered once with no."""
    for answer in ("Keep it", "Delete"):
        visit.press("Actions")
        visit.page.get_by_role("menuitem", name=action).click()
        expect(visit.dialog()).to_contain_text(question)
        visit.dialog().get_by_role("button", name=answer, exact=True).click()
        expect(visit.dialog()).to_have_count(0)


def test_who_may_only_look_registers_nothing(
    newcomer: Callable[[str], Visit], people: People, registry: httpx.Client
) -> None:
    assert registry.post("subjects/seen-value/versions", json={"schema": reading()}).status_code == 200
    people.add("reader", "tenant-view")
    visit = newcomer(people.origin)
    visit.open(f"{IN_SPACE}/schemas/seen-value")
    visit.sign_in("reader", people.password("reader"))
    expect(visit.heading("Version 1")).to_be_visible()
    expect(visit.page.locator("#level")).to_be_disabled()
    expect(visit.button("Register a version")).to_be_disabled()
    visit.press("Actions")
    expect(visit.page.get_by_role("menuitem", name="Delete the subject")).to_be_disabled()
    visit.page.keyboard.press("Escape")
    navigation = visit.page.get_by_role("navigation", name="Pages")
    expect(navigation.get_by_role("link", name="Schemas")).to_be_visible()
    expect(navigation.get_by_role("link", name="Models")).to_have_count(0)
    # The page of the form itself, by its address: it may check, and not register.
    visit.open(f"{IN_SPACE}/new-schema?subject=seen-value")
    visit.press("Check")
    expect(visit.page.get_by_text("It is compatible")).to_be_visible()
    expect(visit.button("Register")).to_be_disabled()
