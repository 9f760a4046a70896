"""Another user of the same laptop: without the token of ``enmasse up`` nothing but its health is theirs."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from enmasse.drivers.data_directory import DEFAULT_NODE, Layout
from tests.interop.browser import Site, browse
from tests.support.foreign_tools import as_nobody
from tests.support.installation import Installation
from tests.support.relay import Relay
from tests.tenancy.tenants import document, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

CODE = document("configmaps", "default", "attack", data={"attack.py": "import os; os.system('id')"})
PIPELINE = {
    "apiVersion": "enmasse.io/v1beta1",
    "kind": "Pipeline",
    "metadata": {"name": "shop.attack"},
    "spec": {
        "sources": [{"name": "rows", "address": "in"}],
        "steps": [{"name": "run", "function": "attack:run", "schema": "text STRING"}],
        "sinks": [{"input": "run", "table": "run"}],
        "code": {"configMap": "attack"},
    },
}
PIPELINES = "/apis/enmasse.io/v1beta1/namespaces/default/pipelines"
SPACES = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"
WAYS: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("GET", SPACES, None),
    ("GET", f"{SPACES}?watch=true", None),
    ("POST", SPACES, document("addressspaces", "default", "mine", spec={"type": "standard"})),
    ("POST", path_of("configmaps", "default"), CODE),
    ("POST", PIPELINES, PIPELINE),
    ("POST", f"{SPACES}/shop/query", {"sql": "SELECT 1"}),
    ("DELETE", SPACES, None),
    ("GET", path_of("secrets", "default"), None),
    ("GET", "/metrics", None),
    ("GET", "/readyz?verbose", None),
    ("GET", "/whoami", None),
    ("GET", "/version", None),
    ("GET", "/openapi/v2", None),
    ("GET", "/osbapi/v2/catalog", None),
    ("GET", "/registry/v1/tenants", None),
    ("POST", "/registry/v1/tenants/default.plant", {}),
    ("GET", "/schemas/v1/spaces/default/plant/subjects", None),
    ("PUT", "/schemas/v1/spaces/default/plant/config", {"compatibility": "NONE"}),
    ("GET", f"/nodes/{DEFAULT_NODE}/journal", None),
    ("POST", "/apis/access.enmasse.io/v1beta1/accounts", {"username": "me", "groups": ["system:masters"]}),
    ("POST", "/apis/access.enmasse.io/v1beta1/tokens", {"account": "system:operator"}),
    ("POST", "/login", {"username": "system:operator", "password": ""}),
    ("GET", "/login?token=", None),
    ("GET", "/nothing/is/here", None),
)


class Laptop(Installation):
    """One person's installation."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self._clients: dict[str, httpx.Client] = {}
        self.shown = ""

    @contextmanager
    def up(self, *arguments: str) -> Iterator[Self]:
        """Start it at a terminal, of which we keep the other end."""
        self.terminal, terminal = os.openpty()
        try:
            self.start(*arguments, stdout=terminal)
            yield self
        finally:
            os.close(terminal)
            os.close(self.terminal)
            for client in self._clients.values():
                client.close()
            assert self.stop() == 0, self.log.read_text()

    def read_terminal(self) -> str:
        """Return what it has shown until it was ready."""
        while "Everything runs" not in self.shown:
            self.shown += os.read(self.terminal, 65536).decode()
        return self.shown

    @property
    def layout(self) -> Layout:
        return Layout(self.data)

    @property
    def token(self) -> str:
        return self.layout.operator_token.read_text()

    def ask(self, method: str, path: str, body: Any = None, *, over: str = "api", **headers: str) -> httpx.Response:
        if over not in self._clients:
            trusted = ssl.create_default_context(cafile=str(self.layout.tls / "authority" / "ca.crt"))
            self._clients[over] = httpx.Client(base_url=self.url(over), trust_env=False, timeout=30, verify=trusted)
        self._clients[over].cookies.clear()  # what a request proves, it says itself
        return self._clients[over].request(method, path, json=body, headers=headers)


@pytest.fixture(scope="module")
def laptop() -> Iterator[Laptop]:
    # Folders of pytest are closed to others, whatever we do with ours.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        data = Path(folder) / "data"
        data.mkdir()
        data.chmod(0o777)  # as a careless umask leaves it
        with Laptop(data).up("--no-pipelines") as found:
            yield found


def test_nothing_is_answered_without_the_token(laptop: Laptop) -> None:
    for over in ("api", "api-tls"):
        for method, path, body in WAYS:
            refused = laptop.ask(method, path, body, over=over)
            assert refused.status_code == 401, (over, method, path, refused.text)
            assert refused.json()["reason"] == "Unauthorized"
    assert "enmasse login" in laptop.ask("GET", SPACES).json()["message"]
    assert "control/operator.token" in laptop.ask("GET", SPACES).json()["message"]
    with_token = {"authorization": f"Bearer {laptop.token}"}
    assert laptop.ask("GET", SPACES, **with_token).json()["items"] == []
    assert laptop.ask("GET", path_of("configmaps", "default"), **with_token).json()["items"] == []
    assert laptop.ask("GET", "/whoami", over="api-tls", **with_token).json()["username"] == "system:operator"


def test_health_is_everybodys(laptop: Laptop) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert (laptop.ask("GET", path).status_code, laptop.ask("GET", path).text) == (200, "ok")


def test_a_wrong_token_and_the_right_one_in_a_wrong_place_are_refused(laptop: Laptop) -> None:
    token = laptop.token
    other = laptop.layout.pipelines_token.read_text()
    basic = base64.b64encode(f"system:operator:{token}".encode()).decode()
    for headers in (
        {"authorization": f"Bearer {token[:-1]}"},
        {"authorization": f"Bearer {token}x"},
        {"authorization": f"Bearer {token.swapcase()}"},
        {"authorization": "Bearer"},
        {"authorization": token},
        {"authorization": f"Basic {basic}"},
        {"authorization": f"Token {token}"},
        {"x-authorization": f"Bearer {token}"},
        {"cookie": f"enmasse_session={token}"},
        {"cookie": f"token={token}"},
    ):
        assert laptop.ask("GET", SPACES, **headers).status_code == 401, headers
    assert laptop.ask("GET", f"{SPACES}?token={token}").status_code == 401
    assert laptop.ask("GET", f"/login?token={token[:-1]}").status_code == 401
    assert laptop.ask("GET", f"/login?token={other}").status_code == 401
    assert laptop.ask("POST", "/login", {"username": "system:operator", "password": token}).status_code == 401


def test_a_browser_comes_in_by_the_link_and_a_page_of_another_site_does_not(laptop: Laptop) -> None:
    link = re.search(r"http://[^/\s]+/login\?token=\S+", laptop.read_terminal())
    assert link is not None
    assert link[0] == f"{laptop.url('api')}/login?token={laptop.token}"
    for over in ("api", "api-tls"):
        entered = laptop.ask("GET", f"/login?token={laptop.token}", over=over)
        place, _, proof = entered.headers["location"].partition("#proof=")
        assert (entered.status_code, place) == (303, "/console/")
        led = laptop.ask("GET", f"/login?token={laptop.token}&page=spaces/default/shop/addresses", over=over)
        assert led.headers["location"].partition("#")[0] == "/console/spaces/default/shop/addresses"
        for elsewhere in ("../logout", "x/../../api", "%252e%252e/api", "a%0d%0ab", "?q=1"):
            refused = laptop.ask("GET", f"/login?token={laptop.token}&page={elsewhere}", over=over)
            assert (refused.status_code, "set-cookie" in refused.headers) == (400, False)
        assert entered.headers["referrer-policy"] == "no-referrer"
        cookie = entered.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
        assert ("Secure" in cookie) == (over == "api-tls")
        assert laptop.token not in cookie
        assert proof
        assert proof not in cookie
        session = {"cookie": cookie.partition(";")[0]}
        assert laptop.ask("GET", SPACES, over=over, **session).status_code == 200
        rebound = laptop.ask("GET", SPACES, over=over, host="shop.example.org", **session)
        assert rebound.status_code == 403  # a name of theirs that leads here
        # Servers on other ports of this host are shown the cookie, and get nothing by it that stays.
        accounts = "/apis/access.enmasse.io/v1beta1/accounts"
        thief = {"username": f"thief-{over}", "groups": ["system:masters"]}
        assert laptop.ask("POST", accounts, thief, over=over, **session).status_code == 403
        proved = session | {"enmasse-proof": proof}
        assert laptop.ask("POST", accounts, thief, over=over, **proved).status_code == 201
        assert laptop.ask("DELETE", f"{accounts}/thief-{over}", over=over, **session).status_code == 200
        assert laptop.ask("POST", "/logout", over=over, **session).status_code == 200
        assert laptop.ask("GET", SPACES, over=over, **session).status_code == 401


def test_another_user_reads_no_file_and_reaches_no_socket(laptop: Laptop) -> None:
    assert laptop.data.stat().st_mode & 0o777 == 0o700
    attempt = """
import json, os, socket, sys
done = []
for path in sys.argv[1:]:
    for way in (os.listdir, open, lambda p: socket.socket(socket.AF_UNIX).connect(p)):
        try:
            way(path)
            done.append(path)
        except OSError:
            pass
print(json.dumps(done))
"""
    sockets = laptop.layout.admin_socket(DEFAULT_NODE), laptop.layout.pipelines_socket
    wanted = [laptop.data, *laptop.data.rglob("*"), *sockets]
    nobody = as_nobody()
    command = [*nobody, sys.executable, "-I", "-c", attempt, *map(str, wanted)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == []
    said = subprocess.run(
        [*nobody, sys.executable, "-m", "enmasse", "get", "spaces", "--data", str(laptop.data)],
        capture_output=True, text=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (4, "", 1)
    assert re.search(r"another user's.*`enmasse login", said.stderr)


def test_kubectl_is_told_where_the_token_is_and_whom_to_trust(
    laptop: Laptop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setenv("ENMASSE_CONFIG", str(tmp_path / "config"))
    assert "nobody can or need log in here" in laptop.ok("login")
    assert not file.exists()
    laptop.ok("login", "--kubeconfig")
    assert laptop.token not in file.read_text()
    config = yaml.safe_load(file.read_text())
    user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
    assert user == {"tokenFile": str(laptop.layout.operator_token)}
    trusted = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    server = urlsplit(cluster["server"])
    assert server.scheme == "https"
    api = http.client.HTTPSConnection(server.hostname or "", server.port, context=trusted, timeout=30)
    api.request("GET", "/whoami", headers={"authorization": f"Bearer {Path(user['tokenFile']).read_text()}"})
    assert json.loads(api.getresponse().read())["username"] == "system:operator"
    api.close()
    assert not (tmp_path / "config").exists()


def test_no_log_and_no_list_of_processes_tells_the_token(laptop: Laptop) -> None:
    laptop.ask("GET", f"/login?token={laptop.token}")
    told = [laptop.log, *laptop.data.rglob("*.log"), laptop.layout.endpoints]
    for item in laptop.endpoints()["processes"]:
        told += [Path(f"/proc/{item['pid']}/cmdline"), Path(f"/proc/{item['pid']}/environ")]
    for path in told:
        assert laptop.token not in path.read_text(errors="replace"), path
    laptop.read_terminal()
    assert "every user of this machine may send and receive" in laptop.log.read_text()


def test_no_other_name_is_served_whoever_asks(laptop: Laptop) -> None:
    proof = {"authorization": f"Bearer {laptop.token}"}
    health = [("GET", path, None) for path in ("/healthz", "/livez", "/readyz", "/console/", "/console/config.json")]
    for over in ("api", "api-tls"):
        for method, path, body in (*WAYS, *health):
            for host in ("evil.example", "x.localhost", "2130706433", "localhost."):
                refused = laptop.ask(method, path, body, over=over, host=host, **proof)
                assert refused.status_code == 403, (over, method, path, host, refused.text)
                assert re.search("--http-name|expected one name", refused.json()["message"])
        assert laptop.ask("GET", "/healthz", over=over, host=socket.gethostname()).status_code == 200, "certified"
    for over in ("http", "https", "amqp", "mqtt", "stomp"):
        port = urlsplit(laptop.url(over)).port
        trusted = ssl.create_default_context(cafile=str(laptop.data / "tls" / "authority" / "ca.crt"))
        with httpx.Client(trust_env=False, verify=trusted) as http:
            for path in ("/healthz", "/readyz", "/v1/openapi.json", "/", "/telemetry"):
                url = f"{'https' if over == 'https' else 'http'}://localhost:{port}{path}"
                assert http.get(url, headers={"Host": "evil.example"}).status_code == 403, (over, path)
                assert http.get(url).status_code != 403, (over, path)


ATTACK = """(async () => {
const page = location.origin, orders = "/v1/spaces/shop.default/addresses/orders", {node, api, spaces} = asked;
await fetch(asked.tell, {method: "POST", mode: "no-cors", body: '{"stage": "loaded"}'});
while (!(await fetch(page + "/?" + Math.random(), {cache: "no-store"})).headers.get("x-content-type-options"))
  await new Promise((done) => setTimeout(done, 100));
// The same name and port is another server now: for the browser nothing has changed.
const found = {}, ask = async (name, url, options) => {
  try { found[name] = (await fetch(url, options)).status } catch (error) { found[name] = "failed" }
};
const listen = (name, url) => new Promise((done) => {
  const source = new EventSource(url);
  source.onmessage = () => { found[name] = "message"; source.close(); done() };
  source.onerror = () => { found[name] ??= "failed"; source.close(); done() };
});
const open = (name, url) => new Promise((done) => {
  const socket = new WebSocket(url, "amqp");
  socket.onopen = () => { found[name] = "open"; done() };
  socket.onerror = () => { found[name] ??= "failed"; done() };
});
const load = (tag, url) => new Promise((done) => {
  const element = document.createElement(tag);
  element.onload = element.onerror = done;
  element[tag === "object" ? "data" : tag === "link" ? "href" : "src"] = url;
  if (tag === "link") element.rel = "stylesheet";
  document.body.append(element);
  setTimeout(done, 1000);
});
const send = (name, url, method) => new Promise((done) => {
  const frame = document.createElement("iframe"), form = document.createElement("form");
  frame.name = form.target = name;
  frame.onload = done;
  form.action = url; form.method = method; form.enctype = "text/plain";
  document.body.append(frame, form);
  form.submit();
  setTimeout(done, 1000);
});
for (const path of ["/healthz", "/readyz?verbose", "/metrics", "/console/config.json", spaces, orders + "/messages"])
  await ask("GET " + path, page + path);
for (const path of [orders + "/receive?auto=true", orders + "/messages", "/telemetry", spaces])
  await ask("POST " + path, page + path, {method: "POST", body: "forged", headers: {"Content-Type": "text/plain"}});
await listen("events", page + orders + "/events");
await open("socket", page.replace("http", "ws") + "/");
await Promise.all([page, ...node].flatMap((to, number) => [
  ...["img", "script", "link", "iframe", "object", "video"].map((tag) => load(tag, to + orders + "/events")),
  ...["/messages", "/receive?auto=true"].map((path) => send("post" + number + path, to + orders + path, "post")),
  send("get" + number, to + orders + "/events", "get"),
]));
await Promise.all(node.flatMap((to) => [
  ask("no-cors " + to, to + orders + "/events", {mode: "no-cors", signal: AbortSignal.timeout(1000)}),
  listen("events of " + to, to + orders + "/events"),
  open("socket of " + to, to.replace("http", "ws") + "/"),
  navigator.sendBeacon(to + orders + "/receive?auto=true", "x"),
]));
await fetch(asked.tell, {method: "POST", mode: "no-cors", body: JSON.stringify(found)});
})()"""


THERE = "127.0.0.1", "localhost", "shop.default.enmasse.local"
"""Names that a page knows of the node, the last of which browsers take for another machine's."""


def attack(laptop: Laptop, over: str, folder: Path) -> dict[str, Any]:
    """Have a page attack a port, whose own name is turned to it; return what became of its attempts."""
    relay = Relay(urlsplit(laptop.url(over)).port or 0)
    port = urlsplit(laptop.url("http")).port
    with Site({}, ATTACK) as site:
        site.asked = {
            "tell": f"http://127.0.0.1:{site.server_address[1]}/report",
            "node": [f"http://{host}:{port}" for host in THERE] if over == "http" else [],
            "spaces": SPACES,
        }
        # Its page knows what it is to do: a request for that may reach the other server.
        told = json.dumps(site.asked)
        page = site.files["/"][1].replace(
            b'fetch("/asked").then((answer) => answer.json())', f"Promise.resolve({told})".encode()
        )
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        relay.answer = head % len(page) + page

        def turned(report: dict[str, Any]) -> bool:
            if report == {"stage": "loaded"}:
                relay.answer = b""
                return False
            return True

        try:
            return browse(site, folder / f"profile-{over}", host="evil.example", port=relay.port, is_last=turned)
        finally:
            relay.cut()


@pytest.fixture(scope="module")
def friend() -> Iterator[Site]:
    """A site whose pages the operator lets in."""
    with Site({}, "new EventSource(asked).onmessage = (event) => tell(JSON.parse(event.data))") as site:
        yield site


@pytest.fixture(scope="module")
def open_laptop(friend: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    found = Laptop(tmp_path_factory.mktemp("open") / "data")
    token = found.layout.operator_token
    token.parent.mkdir(parents=True)
    token.write_text("enm_known to others")
    token.chmod(0o644)
    origin = f"http://shop.example:{friend.server_address[1]}"
    with found.up("--api-auth", "open", "--no-pipelines", "--web-origin", origin):
        yield found


def test_an_open_api_says_so_and_is_for_this_machine_alone(open_laptop: Laptop) -> None:
    found, token = open_laptop, open_laptop.layout.operator_token
    assert "warning: the API is open: every user" in found.log.read_text()
    assert "token=" not in found.read_terminal()
    assert f"{token} could be read or changed by others" in found.log.read_text()
    assert "enm_known" not in found.token
    protocols = [item["protocol"] for item in found.endpoints()["endpoints"]]
    of_clients = ["amqp", "amqps", "stomp", "stomps", "mqtt", "mqtts", "http", "https"]
    assert protocols == [*of_clients, "api", "console", "registry", "schemas"]
    assert found.ask("GET", SPACES, host="shop.example.org").status_code == 403
    assert found.ask("POST", SPACES, document("addressspaces", "default", "own")).status_code == 201


def test_a_page_whose_name_is_turned_to_this_machine_reads_and_takes_nothing(
    open_laptop: Laptop, friend: Site, tmp_path: Path
) -> None:
    found = open_laptop
    found.ok("create", "space", "shop")
    found.ok("create", "address", "orders", "--space", "shop", "--type", "queue")
    found.ok("status", "--wait", "30")
    found.ok("send", "orders", "a first message", "--space", "shop")
    spaces = found.ask("GET", SPACES).json()["items"]
    for over in ("http", "api"):
        became = attack(found, over, tmp_path)
        assert set(became.values()) == {403, "failed"}, became
        messages = "/v1/spaces/shop.default/addresses/orders/messages"
        with httpx.Client(base_url=found.url("http"), trust_env=False) as http:
            (message,) = http.get(messages).json()["messages"]
            assert (message["body"], message.get("deliveryCount", 0)) == ("a first message", 0)
    assert len(found.ask("GET", SPACES).json()["items"]) == len(spaces)
    friend.asked = f"{found.url('http')}/v1/spaces/shop.default/addresses/orders/events"
    assert browse(friend, tmp_path / "profile", host="shop.example")["body"] == "a first message"
