"""Eclipse Hono's own client of applications, as it comes from Maven Central, on the application's side."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.devices.stage import GREEN, SPACES, eventually, login_of
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.devices.stage import Stage

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
JARS = HERE.parent / "tools" / "hono"


class Application:
    """The program of ``hono/HonoClient.java``."""

    def __init__(self, url: str, tenant: str, authority: Path, log: Path) -> None:
        place = urlsplit(url)
        where = [str(place.hostname), str(place.port), SPACES[tenant]]
        arguments = [*where, tenant, *login_of(tenant), str(authority)]
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                ["java", "-cp", f"{JARS}/*", str(HERE / "hono/HonoClient.java"), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.heard: queue.Queue[str] = queue.Queue()
        self.done: queue.Queue[str] = queue.Queue()
        self._log = log
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                kind, _, rest = line.rstrip("\n").partition(" ")
                if kind == "done":
                    self.done.put(rest)
                else:
                    self.heard.put(line.rstrip("\n"))
        self.heard.put("ended")

    def until(self, wanted: str) -> None:
        while (line := self.heard.get(timeout=60)) != wanted:
            assert line != "ended", self._log.read_text()

    def command(self, way: str, device: str, name: str, payload: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{way}\t{device}\t{name}\t{payload}\n")
        self._process.stdin.flush()
        return self.done.get(timeout=60)

    def close(self) -> None:
        self._process.kill()
        self._thread.join()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="module")
def hono(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    require("a JDK", "Eclipse Hono's client", "paho-mqtt")
    folder = tmp_path_factory.mktemp("hono")
    authority = folder / "ca.pem"
    authority.write_text(stage.installation.ok("ca"))
    application = Application(stage.url("amqps"), GREEN, authority, folder / "log")
    try:
        application.until("ready")
        yield application
    finally:
        application.close()


def test_the_howto_shows_what_is_tried_here() -> None:
    shown = (HERE.parents[1] / "docs/howto/move-from-hono.md").read_text()
    [block] = re.findall(r"```java\n(.*?)```", shown, re.DOTALL)
    source = {line.strip() for line in (HERE / "hono/HonoClient.java").read_text().splitlines()}
    assert {line.strip() for line in block.splitlines()} <= source


def test_it_receives_what_devices_send_by_mqtt_and_http(stage: Stage, hono: Application) -> None:
    device = stage.device()
    with stage.mqtt(device) as client:
        assert not client.send("telemetry/?content-type=text%2Fplain", b"21.5").is_failure
        assert not client.send("event", b"hot").is_failure
    hono.until(f"telemetry {device} text/plain 21.5")
    hono.until(f"event {device} application/octet-stream hot")
    answer = stage.http(device).post("/event", content=b'{"door": 1}', headers={"content-type": "application/json"})
    assert answer.status_code == 202
    hono.until(f'event {device} application/json {{"door": 1}}')


def test_its_commands_reach_devices_and_are_answered(stage: Stage, hono: Application) -> None:
    device = stage.device()
    assert hono.command("tell", device, "blink", "x") == "error 503"
    with stage.mqtt(device) as client:
        client.subscribe("command///req/#")
        eventually(lambda: hono.command("tell", device, "blink", "twice") == "accepted")
        message = client.next()
        assert (message.topic, message.payload) == ("command///req//blink", b"twice")
        asked: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: asked.put(hono.command("ask", device, "state", "?"))).start()
        while (message := client.next()).topic.endswith("blink"):
            pass
        identity = message.topic.split("/")[4]
        assert not client.send(f"command///res/{identity}/200", b"on").is_failure
        assert asked.get(timeout=60) == "200 on"
    assert hono.command("ask", device, "state", "?") == "error 503"
    assert hono.command("tell", "nobody", "blink", "x").startswith("error ")
