"""A Keycloak and an installation, one of each for all tests here."""

from __future__ import annotations

import base64
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.client import Message, Outcome, TlsOptions, blocking
from enmasse.client.errors import LinkRefusedError
from enmasse.drivers.data_directory import Layout
from tests.support.foreign_tools import HERE as TOOLS
from tests.support.foreign_tools import require
from tests.support.keycloak_process import KeycloakProcess
from tests.support.polling import until
from tests.support.ready_processes import ReadyPopen
from tests.support.relay import Relay

HOME = TOOLS / "keycloak"
TOKEN_S = 30.0
"""How long an administrator's token is used: half as long as it is good for, as a password costs Keycloak much."""

PATHS = {
    "AddressSpace": "apis/enmasse.io/v1beta1/namespaces/default/addressspaces",
    "Address": "apis/enmasse.io/v1beta1/namespaces/default/addresses",
    "MessagingUser": "apis/user.enmasse.io/v1beta1/namespaces/default/messagingusers",
    "AuthenticationService": "apis/admin.enmasse.io/v1beta1/namespaces/enmasse-infra/authenticationservices",
    "Secret": "api/v1/namespaces/enmasse-infra/secrets",
}
VERSIONS = {kind: "/".join(path.split("/")[1:3]) for kind, path in PATHS.items()} | {"Secret": "v1"}


class Installation:
    """One ``enmasse up``, used over HTTP and AMQP."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._log = data.with_name("up.log")
        self._process: subprocess.Popen[bytes] | None = None
        self.api = httpx.Client()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = ReadyPopen(
                [sys.executable, "-m", "enmasse", "up", "--data", str(self.data), "--ports", "auto"],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        until((self.data / "endpoints.json").exists, self._log.read_text)
        self.api.base_url = self.url("api")
        self.api.headers["authorization"] = f"Bearer {Layout(self.data).operator_token.read_text()}"
        until(lambda: self._answers("api"), self._log.read_text)

    def _answers(self, _protocol: str) -> bool:
        try:
            return self.api.get("readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        self.api.close()
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(40)

    def url(self, protocol: str) -> str:
        endpoints = json.loads((self.data / "endpoints.json").read_text())["endpoints"]
        return next(str(item["url"]) for item in endpoints if item["protocol"] == protocol)

    @property
    def authority(self) -> Path:
        """Whom to trust."""
        return self.data / "tls" / "authority" / "ca.crt"

    @property
    def logs(self) -> str:
        return self._log.read_text() + "".join(path.read_text() for path in (self.data / "logs").iterdir())

    # What is declared

    def declare(self, kind: str, name: str, spec: Any = None, **fields: Any) -> None:
        document = {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": {"name": name}, **fields}
        if spec is not None:
            document["spec"] = spec
        answer = self.api.post(PATHS[kind], json=document)
        if answer.status_code == 409:
            answer = self.api.patch(
                f"{PATHS[kind]}/{name}", json=document, headers={"Content-Type": "application/merge-patch+json"}
            )
        assert answer.is_success, answer.text

    def delete(self, kind: str, name: str) -> None:
        assert self.api.delete(f"{PATHS[kind]}/{name}").is_success

    def read(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"{PATHS[kind]}/{name}").json()
        return found

    def condition(self, kind: str, name: str, type_: str = "Ready") -> tuple[str, str, str]:
        """Status, reason and message."""
        found = self.read(kind, name).get("status", {}).get("conditions", ())
        return next(
            ((item["status"], item["reason"], item.get("message", "")) for item in found if item["type"] == type_),
            ("Unknown", "", ""),
        )

    def wait(self, kind: str, name: str, type_: str = "Ready", status: str = "True") -> tuple[str, str, str]:
        def holds() -> Any:
            found = self.condition(kind, name, type_)
            metadata = self.read(kind, name)["metadata"]
            seen = [
                item.get("observedGeneration", metadata["generation"])
                for item in self.read(kind, name).get("status", {}).get("conditions", ())
                if item["type"] == type_
            ]
            return found if found[0] == status and seen == [metadata["generation"]] else None

        found: tuple[str, str, str] = until(holds, lambda: (self.read(kind, name), self.logs[-5_000:]))
        return found

    def space(self, name: str, service: str, **more: Any) -> None:
        """Declare a space with a queue ``orders``, without waiting for them."""
        plan = {"type": "standard", "plan": "standard-small", "authenticationService": {"name": service, **more}}
        self.declare("AddressSpace", name, plan)
        queue = {"address": "orders", "type": "queue", "plan": "standard-small-queue"}
        self.declare("Address", f"{name}.orders", queue)

    def user(self, space: str, name: str, *addresses: str, password: str | None = None) -> None:
        """Declare a user; without a password, a federated one."""
        proof: dict[str, Any] = {"type": "federated"}
        if password is not None:
            proof = {"type": "password", "password": base64.b64encode(password.encode()).decode()}
        grants = [{"operations": ["send", "recv"], "addresses": list(addresses)}]
        spec = {"username": name, "authentication": proof, "authorization": grants}
        self.declare("MessagingUser", f"{space}.{name}", spec)

    # Clients

    def connect(self, space: str, **given: Any) -> Any:
        return blocking.connect(
            self.url("amqps"),
            hostname=f"{space}.default",
            tls=TlsOptions(ca_file=str(self.authority)),
            reconnect=False,
            **given,
        )


def sends(connection: Any, address: str = "orders") -> bool:
    """Whether a message is accepted there."""
    try:
        sender = connection.sender(address)
    except LinkRefusedError:
        return False
    found = sender.send(Message("hello")) == Outcome.ACCEPTED
    sender.close()
    return bool(found)


class Keycloak:
    """A Keycloak, with what an administrator and an application do there, and the way to it."""

    def __init__(self, process: KeycloakProcess) -> None:
        self.way = Relay(process.port)
        self.url = f"http://127.0.0.1:{self.way.port}"
        self.user, self.password = process.user, process.password
        self._admin = httpx.Client(base_url=f"{self.url}/admin/realms", timeout=120)
        self._signed_in_at = -math.inf

    def close(self) -> None:
        self._admin.close()
        self.way.cut()

    def until(self, holds: Callable[[], Any], what: Callable[[], Any] | str = "") -> None:
        """Wait for something that is asked of it; seldom, as each answer takes it a tenth of a second's work."""
        until(holds, what, step=0.25)

    def token(self, realm: str, user: str, password: str, client: str = "messaging", secret: str = "") -> str:
        answer = self._grant(realm, user, password, client, secret)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def knows(self, realm: str, user: str, password: str) -> bool:
        """Whether it lets somebody in."""
        return self._grant(realm, user, password, "messaging", "").status_code == 200

    def _grant(self, realm: str, user: str, password: str, client: str, secret: str) -> httpx.Response:
        form = {"grant_type": "password", "client_id": client, "username": user, "password": password}
        if secret:
            form["client_secret"] = secret
        return httpx.post(f"{self.url}/realms/{realm}/protocol/openid-connect/token", data=form, timeout=120)

    def admin(self, method: str, path: str, form: Any = None) -> Any:
        """Ask its administration."""
        if time.monotonic() - self._signed_in_at > TOKEN_S:
            token = self.token("master", self.user, self.password, "admin-cli")
            self._signed_in_at = time.monotonic()
            self._admin.headers["Authorization"] = f"Bearer {token}"
        answer = self._admin.request(method, path, json=form)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def realms(self) -> set[str]:
        return {realm["realm"] for realm in self.admin("GET", "?briefRepresentation=true")}

    def groups_of(self, realm: str, user: str) -> set[str]:
        """The groups of a user; none if there is no such user."""
        found = self.admin("GET", f"/{realm}/users?exact=true&username={user}")
        if not found:
            return set()
        answer = self._admin.get(f"/{realm}/users/{found[0]['id']}/groups")
        if answer.status_code == 404:
            return set()  # it went meanwhile
        assert answer.is_success, answer.text
        return {group["name"] for group in answer.json()}


@pytest.fixture(scope="session")
def keycloak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keycloak]:
    require("Keycloak")
    with KeycloakProcess(HOME, tmp_path_factory.mktemp("keycloak")) as process:
        keycloak = Keycloak(process)
        yield keycloak
        keycloak.close()


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    installation = Installation(tmp_path_factory.mktemp("installation") / "data")
    try:
        installation.start()
        yield installation
    finally:
        installation.stop()


__all__ = ["Installation", "Keycloak", "sends"]
