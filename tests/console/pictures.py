"""Pictures of the console for its how-to, which ``make screenshots`` takes anew.

They show the examples of the repository, with devices that send and payments that nobody can process.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

from enmasse.client import Message
from enmasse.client.blocking import connect
from enmasse.demo.devices import FLEET, make_fleet
from tests.console.visit import Visit, launch, new_window
from tests.support.installation import EXAMPLES, Installation

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from enmasse.client.blocking import Receiver, Sender

IMAGES = Path(__file__).parents[2] / "docs/howto/images"
SPACE = "spaces/default/demo"

_DESK = (1440, 900)
_PHONE = (390, 844)
_ROUND_S = 0.5
_PATIENCE_S = 30.0
_ATTEMPTS = 3  # as examples/04-dead-letters.yaml has it


def _show_rates(visit: Visit) -> None:
    """Wait until messages have been counted twice: there are rates then."""
    expect(visit.row("telemetry").locator("svg.em-spark").first).to_be_visible()


def _draw_address(visit: Visit) -> None:
    expect(visit.heading("telemetry")).to_be_visible()
    expect(visit.page.locator(".em-chart canvas").first).to_be_visible()


def _open_dead_letter(visit: Visit) -> None:
    row = visit.row("invoice").first
    for _ in range(10):
        try:
            expect(row).to_be_visible(timeout=3_000)
            break
        except AssertionError:
            # The page looks once, and may have done so before the first message had failed.
            visit.page.reload()
    row.get_by_role("button", name="Details").click()
    expect(visit.page.locator("pre").first).to_be_visible()


def _choose_type(visit: Visit) -> None:
    visit.page.locator("#type-queue").check(force=True)


def _show_devices(visit: Visit) -> None:
    expect(visit.row("sim-00007")).to_be_visible()


def _nothing_more(visit: Visit) -> None:
    expect(visit.page.get_by_role("heading", level=1)).to_be_visible()


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture.

    Attributes:
        name: of the file, without its end.
        path: of the page, below ``/console/``.
        prepare: does on the page what the picture is to show, and waits for it.
        size: of the window.
        is_dark: whether it shows the dark colours.
    """

    name: str
    path: str
    prepare: Callable[[Visit], None] = _nothing_more
    size: tuple[int, int] = _DESK
    is_dark: bool = False


PICTURES = (
    Picture("console-start", ""),
    Picture("console-new-address", f"{SPACE}/new-address", _choose_type),
    Picture("console-addresses", f"{SPACE}/addresses?sort=-messagesIn", _show_rates),
    Picture("console-address", f"{SPACE}/addresses/demo.telemetry", _draw_address),
    Picture("console-dead-letters", f"{SPACE}/addresses/demo.failed-payments/messages", _open_dead_letter),
    Picture("console-devices", "spaces/default/plant/projects/plant", _show_devices),
    Picture("console-phone", f"{SPACE}/addresses/demo.telemetry", _draw_address, _PHONE, is_dark=True),
)


def declare(installation: Installation) -> None:
    """Declare what the pictures show."""
    installation.ok("apply", "-f", str(EXAMPLES))
    installation.ok("status", "--wait", "150")
    installation.ok("wait", "iotproject", "plant", "--timeout", "60")
    fleet = ("iot", "simulate", "default.plant", "-n", "8", "--period", "1", "--seconds", "2")
    with ThreadPoolExecutor(1) as executor:  # a browser's event loop is this thread's
        executor.submit(installation.ok, *fleet).result()


@contextmanager
def traffic(url: str) -> Iterator[None]:
    """Have messages flow meanwhile."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        flowing = executor.submit(_flow, url, over)
        try:
            yield
        finally:
            over.set()
        flowing.result()


def _flow(url: str, over: threading.Event) -> None:
    fleet = make_fleet(FLEET)
    with connect(url, hostname="demo.default") as connection:
        telemetry, orders, payments = (connection.sender(name) for name in ("telemetry", "orders", "payments"))
        with connection.receiver("payments") as bills:
            _fail_payments(payments, bills)
        waiter = connection.receiver("orders", credit=1)
        number = 0
        while not over.wait(_ROUND_S):
            number += 1
            for device in fleet:
                telemetry.send(Message(device.measure(time.time()), durable=True, group_id=device.name))
            orders.send(Message(f"order {number}", durable=True))
            if number % 3 and (taken := waiter.receive(timeout=_PATIENCE_S)):
                taken.accept()


def _fail_payments(payments: Sender, bills: Receiver) -> None:
    """Leave payments that were refused as often as they may be, and so are dead letters."""
    for number, region in enumerate(("north", "south", "north")):
        body = json.dumps({"invoice": 1040 + number, "amount": 19.9 + number, "region": region})
        payments.send(Message(body, content_type="application/json", properties={"region": region}, durable=True))
        for _ in range(_ATTEMPTS):
            delivery = bills.receive(timeout=_PATIENCE_S)
            assert delivery is not None
            delivery.reject("shop:card-expired", "the card has expired")


def take(browser: Browser, link: str, to: Path) -> list[Path]:
    """Take all pictures and return their files.

    Args:
        browser: a Chromium.
        link: that logs in.
        to: the directory for them.
    """
    to.mkdir(parents=True, exist_ok=True)
    made = []
    with new_window(browser, locale="en-GB") as window:
        visit = Visit(window.new_page(), link)
        visit.page.goto(link)
        for picture in PICTURES:
            width, height = picture.size
            visit.page.set_viewport_size({"width": width, "height": height})
            visit.page.emulate_media(color_scheme="dark" if picture.is_dark else "light")
            visit.open(picture.path)
            picture.prepare(visit)
            file = to / f"{picture.name}.png"
            visit.page.screenshot(path=file, animations="disabled")
            made.append(file)
        assert visit.complaints == []
    return made


def main() -> None:
    """Start an installation, let messages flow for a while, and take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.console.pictures", description=__doc__)
    parser.add_argument("--to", type=Path, default=IMAGES, help="where pictures go (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=90, help="how long messages flow before (default: %(default)s)"
    )
    given = parser.parse_args()
    with TemporaryDirectory(prefix="pictures-") as directory:
        installation = Installation(Path(directory) / "d")
        try:
            installation.start("--no-pipelines")
            declare(installation)
            link = installation.ok("console", "--print").strip()
            with traffic(installation.url("amqp")), sync_playwright() as playwright:
                time.sleep(given.seconds)
                for file in take(launch(playwright), link, given.to):
                    sys.stdout.write(f"{file}  {file.stat().st_size / 1000:.0f} kB\n")
        finally:
            if installation.is_running:
                installation.stop()


if __name__ == "__main__":
    main()
