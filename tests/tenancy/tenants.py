"""Two tenants in one installation: red, who attacks, and blue, who must not notice."""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from enmasse.client import TlsOptions
from enmasse.client.blocking import Connection, connect
from enmasse.client.message import Message
from tests.support.installation import Installation
from tests.support.polling import until

SECRET = "the formula of blue"
PASSWORDS = {"red": "red as a beet at noon", "blue": "blue as the sea at dawn"}
NAMESPACES = {"red": "team-a", "blue": "team-b"}
DEVICE = "lamp"
"""A device that each of them has."""
EVERYTHING = ["send", "recv", "view", "manage"]
TYPES = {
    "vault": "queue", "history": "stream", "news": "topic", "asking": "anycast", "telling": "multicast",
    "graves": "deadletter", "telling-log": "stream",
}  # fmt: skip
KINDS = {
    "addressspaces": ("enmasse.io/v1beta1", "AddressSpace"),
    "addresses": ("enmasse.io/v1beta1", "Address"),
    "messagingusers": ("user.enmasse.io/v1beta1", "MessagingUser"),
    "configmaps": ("v1", "ConfigMap"),
    "secrets": ("v1", "Secret"),
    "iotprojects": ("iot.enmasse.io/v1alpha1", "IoTProject"),
    "webhooks": ("enmasse.io/v1beta1", "Webhook"),
    "rolebindings": ("rbac.authorization.k8s.io/v1", "RoleBinding"),
}


def tenant_of(who: str) -> str:
    """The tenant of the device registry."""
    return f"{NAMESPACES[who]}.plant"


def path_of(plural: str, namespace: str | None, name: str = "") -> str:
    version = KINDS[plural][0] if plural in KINDS else "v1"
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{place}/{plural}" + (f"/{name}" if name else "")


def document(plural: str, namespace: str, name: str, **rest: Any) -> dict[str, Any]:
    version, kind = KINDS[plural]
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **rest}


@dataclass
class Tenants:
    """Both tenants' ways into one installation."""

    place: Installation
    amqp: str
    amqps: str
    api: str
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.place.data

    def http(self, who: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who in self.tokens else {}
        # It speaks no TLS: to read all authorities each time would take longer than to ask.
        return httpx.Client(base_url=self.api, headers=headers, trust_env=False, timeout=30, verify=False)

    def connect(self, who: str = "red", **more: Any) -> Connection:
        """Connect as the tenant's user, whose name is the same in both spaces."""
        given: dict[str, Any] = {
            # Whose password is guessed must wait, and nobody else.
            "user": "app" if who == "red" else "keeper",
            "password": PASSWORDS[who],
            "hostname": f"{who}.{NAMESPACES[who]}",
            "reconnect": False,
            "timeout": 20,
        }
        return connect(self.amqp, **(given | more))

    def tls(self, server_name: str) -> TlsOptions:
        return TlsOptions(ca_file=str(self.data / "tls" / "authority" / "ca.crt"), server_name=server_name)

    def state_of_blue(self) -> dict[str, Any]:
        """All that blue has and is told: what must be the same after every attempt."""
        with self.watch_blue() as state:
            return state()

    @contextmanager
    def watch_blue(self) -> Iterator[Callable[[], dict[str, Any]]]:
        """``state_of_blue`` for as often as wanted, by connections of blue that nobody may cut."""
        # Another user than the one whose password is guessed.
        with self.http("blue") as http, self.connect("blue", user="keeper") as connection:
            manager = connection.management()

            def state() -> dict[str, Any]:
                found: dict[str, Any] = {}
                for plural in (plural for plural in KINDS if plural != "rolebindings"):  # tenants do not read those
                    items = http.get(path_of(plural, "team-b")).raise_for_status().json()["items"]
                    found[plural] = {item["metadata"]["name"]: _declared(item) for item in items}
                for what in ("tenants", "devices", "credentials"):
                    path = f"/registry/v1/{what}/{tenant_of('blue')}"
                    found[what] = http.get(path if what == "tenants" else f"{path}/{DEVICE}").json()
                    # Blue's own attempts to show that it may: when it was seen.
                    found[what] = {"devices": found[what].get("via")} if what == "devices" else found[what]
                for address in manager.query("io.enmasse.address", ("address", "messagesStored", "bytesStored")):
                    # Blue itself writes there.
                    if address["address"] != "telling-log":
                        found[address.pop("address")] = address
                return found

            yield state


def _declared(item: dict[str, Any]) -> Any:
    metadata = item["metadata"]
    return metadata["uid"], metadata.get("deletionTimestamp"), item.get("spec"), item.get("data")


def declare(tenants: Tenants, who: str, namespace: str) -> None:
    with tenants.http(who) as http:

        def create(plural: str, name: str, **rest: Any) -> None:
            http.post(path_of(plural, namespace), json=document(plural, namespace, name, **rest)).raise_for_status()

        spec = {"type": "standard", "plan": "standard-unlimited", "authenticationService": {"type": "standard"}}
        create("addressspaces", who, spec=spec | {"spark": {"ui": True}})
        for address, kind in TYPES.items():
            create("addresses", f"{who}.{address}", spec={"address": address, "type": kind})
        subscription = {"address": "reader", "type": "subscription", "topic": "news"}
        create("addresses", f"{who}.reader", spec=subscription)
        # Only blue has these names.
        if who == "blue":
            create("addresses", "blue.private", spec={"address": "private", "type": "queue"})
        password = base64.b64encode(PASSWORDS[who].encode()).decode()
        user = {
            "username": "app",
            "authentication": {"type": "password", "password": password},
            "authorization": [{"operations": EVERYTHING, "addresses": ["#"]}],
        }
        create("messagingusers", f"{who}.app", spec=user)
        create("messagingusers", f"{who}.keeper", spec=user | {"username": "keeper"})
        space = {"namespace": namespace, "addressSpaceName": who}
        create("iotprojects", "plant", spec={"downstreamStrategy": {"providedStrategy": space}})
        hook = {"address": "graves", "url": "https://hooks.example/", "paused": True}
        create("webhooks", f"{who}.hook", spec=hook)
        secret = base64.b64encode(f"{SECRET} {who}".encode()).decode()
        create("secrets", "keys", data={"key": secret})
        create("configmaps", "facts", data={"fact": f"{SECRET} {who}"})

        def waiting() -> list[Any]:
            items = [
                *http.get(path_of("addresses", namespace)).json()["items"],
                *http.get(path_of("messagingusers", namespace)).json()["items"],
            ]
            return [item for item in items if item.get("status", {}).get("phase") != "Active"]

        until(lambda: not waiting(), waiting)
        registry, tenant = "/registry/v1", tenant_of(who)
        until(lambda: http.post(f"{registry}/devices/{tenant}/{DEVICE}").status_code == 201)
        login = {"type": "hashed-password", "auth-id": DEVICE, "secrets": [{"pwd-plain": PASSWORDS[who]}]}
        http.put(f"{registry}/credentials/{tenant}/{DEVICE}", json=[login]).raise_for_status()


def fill(tenants: Tenants) -> None:
    with tenants.connect("blue") as connection:
        for address in ("vault", "private", "history", "news"):
            for number in range(3):
                connection.sender(address).send(Message(f"{SECRET} {number}", durable=True))


def answer_to(url: str, data: bytes) -> bytes:
    """Send bytes to a port; what comes back until it is closed."""
    host, _, port = url.rpartition("//")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        sock.sendall(data)
        found = b""
        while part := sock.recv(65536):
            found += part
    return found
