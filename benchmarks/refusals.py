"""What a refused password takes: the same for devices, users and accounts that there are, and for others."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from benchmarks.control import Installation, ask
from benchmarks.devices import PROJECTS
from benchmarks.measurement import Line, Measurement, Setting
from enmasse.control.access.accounts import Accounts, WebPasswords
from enmasse.drivers.data_directory import Layout
from enmasse.errors import UnavailableError

__all__ = ["MEASUREMENTS"]

LOGINS = 200
MAX_DIFFERENCE = 10.0
"""Percent of the median."""

PASSWORD = "a password of somebody"
PROJECT = {
    "apiVersion": "iot.enmasse.io/v1alpha1",
    "kind": "IoTProject",
    "metadata": {"name": "plant", "namespace": "default"},
    "spec": {"downstreamStrategy": {"managedStrategy": {"addressSpace": {"name": "farm"}}}},
}
OTHER = {
    "apiVersion": "iot.enmasse.io/v1alpha1",
    "kind": "IoTProject",
    "metadata": {"name": "off", "namespace": "default"},
    "spec": PROJECT["spec"],
}
USERS = "/apis/user.enmasse.io/v1beta1/namespaces/default/messagingusers"
USER = {
    "apiVersion": "user.enmasse.io/v1beta1",
    "kind": "MessagingUser",
    "metadata": {"name": "farm.jo", "namespace": "default"},
    "spec": {"username": "jo", "authentication": {"type": "password", "password": "YSBwYXNzd29yZA=="}},
}

Attempt = Callable[[str, str], Awaitable[None]]
"""Logs in by a name, from an address of the loopback interface, and is refused."""

DEVICES = {
    "a device": "lamp@default.plant",
    "an unknown device": "nobody@default.plant",
    "a disabled device": "off@default.plant",
    "a device with keys alone": "signer@default.plant",
    "a device of an unknown tenant": "lamp@default.nosuch",
    "a device of a disabled tenant": "lamp@default.off",
}
PEOPLE = {"a user": "jo@farm.default", "an unknown user": "nobody@farm.default"}
ACCOUNTS = {"an account": "ann", "an unknown account": "nobody"}

_numbers = count()


def refused(setting: Setting) -> Iterator[Line]:
    """Measure wrong passwords of who there is and of who there is not, in turn."""
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="run-", dir=setting.directory)))
        site = stack.enter_context(Installation(data))
        _declare(site, data)
        setting.patience.wait()
        over_mqtt, over_api = _over_mqtt(site.node_port), _over_api(site.api_port)
        yield from asyncio.run(_compare(DEVICES, over_mqtt))
        yield from asyncio.run(_compare(PEOPLE, over_mqtt))
        yield from asyncio.run(_compare(ACCOUNTS, over_api))


def _declare(site: Installation, data: Path) -> None:
    for project in (PROJECT, OTHER):
        ask(site.api(), "POST", PROJECTS, project)
    ask(site.api(), "POST", USERS, USER)
    accounts = Accounts(Layout(data).accounts, now=time.time)
    accounts.add("ann", password_hash=WebPasswords().hash(PASSWORD))
    accounts.close()
    headers = {"authorization": f"Bearer {Layout(data).operator_token.read_text()}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{site.api_port}", headers=headers, timeout=30) as client:
        until = time.monotonic() + 30
        while client.get("/registry/v1/tenants/default.off").status_code != 200 and time.monotonic() < until:
            time.sleep(0.1)
        password = [{"type": "hashed-password", "secrets": [{"pwd-plain": PASSWORD}]}]
        form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        key = b64encode(ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(*form)).decode()
        proofs = {"lamp": password, "off": password, "signer": [{"type": "rpk", "secrets": [{"key": key}]}]}
        for tenant, names in (("default.plant", proofs), ("default.off", {"lamp": password})):
            for name, given in names.items():
                path = f"{tenant}/{name}"
                document = {"enabled": name != "off"}
                client.post(f"/registry/v1/devices/{path}", json=document).raise_for_status()
                listed: list[dict[str, Any]] = [item | {"auth-id": name} for item in given]
                client.put(f"/registry/v1/credentials/{path}", json=listed).raise_for_status()
        client.put("/registry/v1/tenants/default.off", json={"enabled": False}).raise_for_status()


async def _compare(names: dict[str, str], attempt: Attempt) -> list[Line]:
    """Measure each in turn, so that what else the machine does falls on all."""
    took: dict[str, list[float]] = {words: [] for words in names}
    for number in range(LOGINS + 5):
        for words, name in names.items():
            here = next(_numbers)
            began = time.perf_counter()
            # Who fails too often from one address is told to wait.
            await attempt(name, f"127.{1 + (here >> 16)}.{here >> 8 & 255}.{here & 255}")
            if number >= 5:  # the first ones start a process, and fill caches
                took[words].append(time.perf_counter() - began)
    medians = {words: statistics.median(found) for words, found in took.items()}
    (first, usual), *others = medians.items()
    lines = [Line(f"wrong password of {first}, median", usual * 1000, "ms")]
    for words, median in others:
        difference = abs(median / usual - 1) * 100
        lines.append(Line(f"of {words}, median", median * 1000, "ms"))
        lines.append(Line(f"how much {words} differs from {first}", difference, "%", MAX_DIFFERENCE))
    return lines


def _over_mqtt(port: int) -> Attempt:
    async def attempt(name: str, here: str) -> None:
        user, proof = name.encode(), b"wrong, as nobody's is"
        rest = b"\0\4MQTT\4\xc2\0\x1e" + b"\0\0"
        rest += len(user).to_bytes(2, "big") + user + len(proof).to_bytes(2, "big") + proof
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(here, 0))
        writer.write(bytes((0x10, len(rest))) + rest)
        answer = (await reader.readexactly(4))[3]
        writer.transport.abort()
        if answer not in (4, 5):
            raise UnavailableError(f"{name} was answered with {answer}, and should have been refused")

    return attempt


def _over_api(port: int) -> Attempt:
    async def attempt(name: str, here: str) -> None:
        body = json.dumps({"username": name, "password": "wrong, as nobody's is"}).encode()
        head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(here, 0))
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readline()
        writer.transport.abort()
        if b" 401 " not in answer:
            raise UnavailableError(f"{name} was answered with {answer!r}, and should have been refused")

    return attempt


MEASUREMENTS = (Measurement("Refused passwords", refused),)
