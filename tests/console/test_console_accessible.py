"""Every page in both colours, by the rules of axe-core: what keeps people out who do not see, or use no mouse."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.console.node_packages import SOURCE, bring_packages
from tests.console.visit import IN_SPACE
from tests.support.polling import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from tests.console.visit import Visit
    from tests.support.installation import Installation

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]

PLACES = {
    "${SPACE}": f"/{IN_SPACE}",
    ":name": "shop.orders",
}


def paths() -> list[str]:
    """Return an address of each page that the console has."""
    entries = re.findall(
        r"""path: (?:"|`)(.*?)(?:"|`).*import\("(.*?)"\)""", (SOURCE / "src/app/pages.ts").read_text()
    )
    assert len(entries) > 15
    found = list({module: path for path, module in reversed(entries)}.values())
    for name, place in PLACES.items():
        found = [path.replace(name, place) for path in found]
    # What else has to be named is not there, and the page says so.
    return [re.sub(":[a-z]+", "nothing", path).lstrip("/") for path in found]


OTHERS = (
    (f"{IN_SPACE}/addresses/shop.news?tab=subscriptions", "No declared subscription"),
    (f"{IN_SPACE}/addresses/shop.news?tab=retained", "No retained values"),
    (f"{IN_SPACE}/addresses/shop.news?tab=links", "Nobody uses it at the moment"),
    (f"{IN_SPACE}/addresses/shop.news?tab=settings", "Save"),
    (f"{IN_SPACE}/addresses/shop.clicks/messages", "Try it"),
    (f"{IN_SPACE}/projects", "default.site"),
    (f"{IN_SPACE}/projects/site", "lamp"),
    (f"{IN_SPACE}/projects/site?tab=commands", "No command yet"),
    (f"{IN_SPACE}/projects/site?tab=settings", "Save"),
    (f"{IN_SPACE}/projects/site/devices/lamp", "How it connects"),
    (f"{IN_SPACE}/schemas", "lamps-value"),
    (f"{IN_SPACE}/schemas/lamps-value?version=2&against=1", "Compared with"),
    (f"{IN_SPACE}/new-schema?subject=lamps-value", "Cancel"),
)
"""Parts of pages, and what one knows them by."""

RUN = """async ([place, colours]) => {
  // A colour that is on its way to another is neither.
  await Promise.allSettled(document.getAnimations().map((it) => it.playState === 'running' &&
    it.effect.getComputedTiming().iterations < 10 ? it.finished : undefined));
  const rules = colours ? {runOnly: ['color-contrast']} : {};
  const {violations} = await axe.run(
    place, {resultTypes: ['violations'], preload: false, iframes: false, ...rules});
  const weight = (node) => node.html.slice(0, 200) + ' ' + (node.any[0]?.message ?? '');
  return violations.filter(({impact}) => impact === 'serious' || impact === 'critical')
    .map(({id, nodes}) => [id, ...nodes.slice(0, 3).map(weight)]);
}"""


@pytest.fixture(scope="module")
def axe() -> str:
    return (bring_packages() / "axe-core/axe.min.js").read_text()


@pytest.fixture
def message(api: httpx.Client) -> Iterator[None]:
    """One message of the queue, for as long as it is looked at: other tests begin with none."""
    messages = {"messages": [{"body": '{"item": "tulip"}', "contentType": "application/json"}]}
    assert api.post("addresses/shop.orders/messages", json=messages).status_code == 200
    yield
    assert api.post("addresses/shop.orders/purge", json={}).status_code == 200


@pytest.fixture
def site(installation: Installation, api: httpx.Client) -> Iterator[None]:
    """A project of the space, and a device; later there is none again."""
    projects = "/apis/iot.enmasse.io/v1alpha1/namespaces/default/iotprojects"
    spec = {"downstreamStrategy": {"managedStrategy": {"addressSpace": {"name": "shop"}}}}
    document = {
        "apiVersion": "iot.enmasse.io/v1alpha1",
        "kind": "IoTProject",
        "metadata": {"name": "site"},
        "spec": spec,
    }
    base = installation.url("api")
    assert api.post(f"{base}{projects}", json=document).status_code == 201
    installation.ok("wait", "iotproject", "site", "--timeout", "60")
    assert api.post(f"{base}/registry/v1/devices/default.site/lamp", json={}).status_code == 201
    yield
    assert api.delete(f"{base}{projects}/site").status_code == 200
    until(lambda: api.get(f"{base}{projects}/site").status_code == 404)


@pytest.fixture
def subject(installation: Installation, api: httpx.Client) -> Iterator[None]:
    """A subject with two versions; later there is none again."""
    registry = f"{installation.url('api')}/schemas/v1/spaces/default/shop/subjects/lamps-value"
    for names in (["lit"], ["lit", "hue"]):
        schema = {"type": "object", "properties": {name: {} for name in names}, "additionalProperties": False}
        body = {"schema": json.dumps(schema), "schemaType": "JSON"}
        assert api.post(f"{registry}/versions", json=body).status_code == 200
    yield
    for query in ("", "?permanent=true"):
        assert api.delete(f"{registry}{query}").status_code == 200


def findings(visit: Visit, place: str = "html", *, colours: bool = False) -> Any:
    return visit.page.evaluate(RUN, [place, colours])


def bring_axe(visit: Visit, axe: str) -> None:
    # It comes through the debugger, which the page's policy leaves alone.
    visit.page.evaluate(axe)


@pytest.mark.timeout(400)
def test_every_page_is_accessible_in_light_and_in_dark(
    newcomer: Callable[..., Visit], link: str, axe: str, message: None, site: None, subject: None
) -> None:
    visit = newcomer(link)
    visit.page.emulate_media(color_scheme="light")
    visit.page.goto(link)
    expect(visit.page.get_by_role("heading", level=1)).to_be_visible()
    bring_axe(visit, axe)
    found = {}
    frames = set()

    def look(path: str) -> None:
        expect(visit.page.get_by_text("Loading")).to_have_count(0)
        if there := findings(visit):
            found[path, "light"] = there
        visit.page.emulate_media(color_scheme="dark")
        expect(visit.button("Light colours")).to_be_visible()
        # What is around all pages, and around those of a space, is looked at once in these colours.
        frame = path.startswith("spaces/")
        if there := findings(visit, "main" if frame in frames else "html", colours=True):
            found[path, "dark"] = there
        frames.add(frame)
        visit.page.emulate_media(color_scheme="light")
        expect(visit.button("Dark colours")).to_be_visible()

    for path in paths():
        visit.open(path)
        look(path)
    for path, text in OTHERS:
        visit.open(path)
        expect(visit.page.get_by_text(text, exact=True)).to_be_visible()
        look(path)
    assert found == {}


def test_dialogs_and_menus_are_accessible(newcomer: Callable[..., Visit], link: str, axe: str) -> None:
    visit = newcomer(link)
    visit.open("spaces")
    expect(visit.dialog()).to_contain_text("Sign in")
    bring_axe(visit, axe)
    assert findings(visit) == []
    visit.page.goto(link)
    visit.open(f"{IN_SPACE}/addresses")
    bring_axe(visit, axe)
    visit.row("orders").get_by_role("button", name="Actions of shop.orders").click()
    expect(visit.page.get_by_role("menu")).to_be_visible()
    assert findings(visit) == []
    visit.page.get_by_role("menuitem", name="Delete").click()
    expect(visit.dialog()).to_contain_text("Delete the address orders?")
    assert findings(visit) == []
    visit.page.keyboard.press("Escape")
    visit.page.keyboard.press("Control+k")
    expect(visit.dialog().get_by_role("option").first).to_be_visible()
    assert findings(visit) == []
