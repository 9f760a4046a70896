"""Ways with devices and webhooks: another tenant's devices, names and applications, and URLs that lead inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from enmasse.client.blocking import connect
from enmasse.client.message import Message
from enmasse.errors import EnmasseError, RemoteError
from tests.devices.stage import MqttDevice
from tests.support.polling import until
from tests.tenancy.refusals import Way, forbidden, not_attached
from tests.tenancy.tenants import DEVICE, PASSWORDS, document, path_of, tenant_of

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

__all__ = ["WAYS"]

RED, BLUE = tenant_of("red"), tenant_of("blue")
Attempt = Callable[["Tenants"], None]


def _http(tenants: Tenants, tenant: str, who: str, method: str, path: str, **more: Any) -> httpx.Response:
    """Ask as a device, with what somebody's device proves itself with; who guesses waits, and tries again."""
    url = f"http://127.0.0.1:{urlsplit(tenants.place.url('http')).port}"

    def asked() -> httpx.Response | None:
        credentials = (f"{DEVICE}@{tenant}", PASSWORDS[who])
        with httpx.Client(base_url=url, auth=credentials, trust_env=False, verify=False) as http:
            found = http.request(method, path, timeout=20, **more)
        return None if found.status_code in (429, 503) else found

    return until(asked, step=0.5)


def _mqtt(tenants: Tenants, tenant: str, who: str) -> MqttDevice:
    return MqttDevice(tenants.place.url("mqtt"), f"{DEVICE}@{tenant}", PASSWORDS[who], 5)


def _amqp(tenants: Tenants, tenant: str, who: str) -> Any:
    return connect(
        tenants.amqp,
        user=f"{DEVICE}@{tenant}",
        password=PASSWORDS[who],
        sasl=["PLAIN"],
        allow_insecure_plain=True,
        reconnect=False,
        timeout=20,
    )


# Coming in


def log_in_by_http(tenants: Tenants) -> None:
    forbidden(_http(tenants, BLUE, "red", "POST", "/event", content=b"x"), 401)
    assert _http(tenants, BLUE, "blue", "POST", "/event", params={"qos-level": "2"}, content=b"x").status_code == 400


def log_in_by_mqtt(tenants: Tenants) -> None:
    with _mqtt(tenants, BLUE, "red") as device:
        assert device.connected.is_failure
    with _mqtt(tenants, RED, "red") as own:
        assert not own.connected.is_failure


def log_in_by_amqp(tenants: Tenants) -> None:
    with pytest.raises(EnmasseError):
        _amqp(tenants, BLUE, "red").close()
    _amqp(tenants, RED, "red").close()


def _guessed(protocol: str, realm: str) -> Attempt:
    """Log in as a device of a tenant that is none, by any password."""

    def attempt(tenants: Tenants) -> None:
        if protocol == "HTTP":
            forbidden(_http(tenants, realm, "red", "POST", "/event", content=b"x"), 401)
        elif protocol == "MQTT":
            with _mqtt(tenants, realm, "red") as device:
                assert device.connected.is_failure
        else:
            with pytest.raises(EnmasseError):
                _amqp(tenants, realm, "red").close()

    return attempt


# As a device of red's own


def _requested(method: str, path: str) -> Attempt:
    def attempt(tenants: Tenants) -> None:
        forbidden(_http(tenants, RED, "red", method, path, content=b"x"), 400, 403, 404)

    return attempt


def _published(topic: str) -> Attempt:
    def attempt(tenants: Tenants) -> None:
        with _mqtt(tenants, RED, "red") as device:
            assert device.send(topic, b"x").is_failure

    return attempt


def _subscribed(topic: str) -> Attempt:
    def attempt(tenants: Tenants) -> None:
        with _mqtt(tenants, RED, "red") as device:
            assert device.subscribe(topic).is_failure

    return attempt


def _addressed(address: str) -> Attempt:
    def attempt(tenants: Tenants) -> None:
        with _amqp(tenants, RED, "red") as device:
            sender = device.sender(None)
            try:
                outcome = sender.send(Message(b"x", to=address))
            except RemoteError:
                return
            assert outcome.name == "rejected", outcome

    return attempt


def _received(address: str) -> Attempt:
    def attempt(tenants: Tenants) -> None:
        with _amqp(tenants, RED, "red") as device:
            not_attached(lambda: device.receiver(address))

    return attempt


# As an application in red's own space


def _applied(way: str, address: str) -> Attempt:
    def attempt(tenants: Tenants) -> None:
        with tenants.connect("red") as application:
            not_attached(lambda: getattr(application, way)(address))

    return attempt


def _commanded(tenants: Tenants) -> None:
    with tenants.connect("red") as application:
        sender = application.sender(f"command/{RED}")
        outcome = sender.send(Message(b"x", to=f"command/{BLUE}/{DEVICE}", subject="off"))
        assert outcome.name == "rejected", outcome


def _by_a_gateway(tenants: Tenants) -> None:
    """A device of red's that names blue's as its gateway, and the other way round, is nobody's bridge."""
    with tenants.http("red") as http:
        path = f"/registry/v1/devices/{RED}/bridge"
        assert http.post(path, json={"via": [f"{BLUE}/{DEVICE}", DEVICE]}).status_code in (201, 400)
        try:
            answer = _http(tenants, BLUE, "blue", "PUT", f"/event/{RED}/bridge", content=b"x")
            forbidden(answer, 403, 404)
        finally:
            http.delete(path)


# Webhooks


def _hooked(name: str, wanted: str, **spec: Any) -> Attempt:
    """A webhook in red's own namespace; nothing is posted, and its status says what is wrong."""

    def attempt(tenants: Tenants) -> None:
        given = {key: value(tenants) if callable(value) else value for key, value in spec.items()}
        with tenants.http("red") as http:
            body = document("webhooks", "team-a", name, spec=given)
            created = http.post(path_of("webhooks", "team-a"), json=body)
            if created.status_code in (400, 403, 404, 422):
                return
            assert created.status_code == 201, created.text
            try:
                if given["address"] == "vault":
                    with tenants.connect("red") as connection:
                        connection.sender("vault").send(Message(b"x", durable=True))

                def told() -> bool:
                    status = http.get(path_of("webhooks", "team-a", name)).json()["status"]
                    assert not status.get("delivered")
                    return wanted in str(status.get("lastError")) + str(status.get("conditions"))

                until(told)
            finally:
                http.delete(path_of("webhooks", "team-a", name))

    return attempt


def _port(url: str) -> str:
    return f"127.0.0.1:{urlsplit(url).port}"


def _all() -> Iterator[Way]:
    for protocol, attempt in (("HTTP", log_in_by_http), ("MQTT", log_in_by_mqtt), ("AMQP", log_in_by_amqp)):
        yield Way(f"log in as blue's device over {protocol}, with the password of red's of the same name", attempt)
    for protocol in ("HTTP", "MQTT", "AMQP"):
        for words, realm in (("an unknown tenant", "team-b.nosuch"), ("a tenant called as blue's", BLUE.upper())):
            yield Way(f"log in as a device of {words} over {protocol}", _guessed(protocol, realm))
    for kind in ("telemetry", "event"):
        for words, path in (("blue's device", f"{BLUE}/{DEVICE}"), ("a device of its own in blue's", f"{BLUE}/new")):
            yield Way(f"send {kind} of {words} over HTTP", _requested("PUT", f"/{kind}/{path}"))
            yield Way(f"send {kind} of {words} over MQTT", _published(f"{kind}/{path}"))
            yield Way(f"send {kind} of {words} over AMQP", _addressed(f"{kind}/{path}"))
    answer = f"command/{BLUE}/{DEVICE}/res/AAAA/200"
    yield Way("answer a command of blue's over HTTP", _requested("PUT", f"/{answer.replace('/200', '')}"))
    yield Way("answer a command of blue's over MQTT", _published(answer))
    yield Way("answer a command of blue's over AMQP", _addressed(f"command_response/{BLUE}/{DEVICE}/AAAA"))
    for topic in (
        f"command/{BLUE}/{DEVICE}/req/#",
        f"command/{BLUE}/+/req/#",
        f"telemetry/{BLUE}",
        "#",
        "+/+",
        "$SYS/#",
    ):
        yield Way(f"subscribe to {topic} as a device", _subscribed(topic))
    for topic in (f"event/{BLUE}", "vault", f"../{BLUE}/event"):
        yield Way(f"publish to {topic} as a device", _published(topic))
    for address in (f"command/{BLUE}/{DEVICE}", f"event/{BLUE}", f"telemetry/{RED}", "vault"):
        yield Way(f"receive from {address} as a device", _received(address))
    for way, address in (
        ("receiver", f"telemetry/{BLUE}"),
        ("receiver", f"event/{BLUE}"),
        ("receiver", f"command_response/{BLUE}/app"),
        ("receiver", f"command/{BLUE}"),
        ("sender", f"command/{BLUE}"),
        ("sender", f"command/{BLUE}/{DEVICE}"),
        ("sender", f"event/{BLUE}"),
    ):
        verb = "receive from" if way == "receiver" else "send to"
        yield Way(f"{verb} {address} as an application", _applied(way, address))
    yield Way("command blue's device by an address of one's own", _commanded)
    yield Way("have blue's device act for one's own", _by_a_gateway)
    inside = {"address": "vault", "timeout": "2s"}
    yield Way(
        "have a webhook post to the platform's own API",
        _hooked(
            "red.h1", "not public", url=lambda tenants: f"http://{_port(tenants.api)}/api/v1/namespaces", **inside
        ),
    )
    yield Way(
        "have a webhook post to a node",
        _hooked("red.h2", "not public", url=lambda tenants: f"http://{_port(tenants.amqp)}/", **inside),
    )
    for number, host in enumerate(("169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "localhost"), 3):
        yield Way(
            f"have a webhook post to {host}", _hooked(f"red.h{number}", "not public", url=f"http://{host}/", **inside)
        )
    hook = {"url": "https://hooks.example/", "paused": True}
    yield Way("have a webhook take what blue stored", _hooked("blue.mine", "AddressMissing", address="vault", **hook))
    yield Way(
        "name blue's space in a webhook", _hooked("red.h8", "AddressMissing", address="blue.team-b/private", **hook)
    )
    yield Way(
        "sign with blue's secret", _hooked("red.h9", "Secret", address="graves", signingSecret="team-b/keys", **hook)
    )


WAYS = tuple(_all())
