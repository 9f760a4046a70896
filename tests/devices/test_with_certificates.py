"""Devices that prove who they are by certificates of their tenant's own authority.

It comes last here: it fails to log in as often as a host may in a while, and others would have to wait.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from enmasse.client.blocking import Message, connect
from enmasse.client.errors import ConnectionDeniedError
from enmasse.client.options import TlsOptions
from enmasse.iot.possession import sign
from tests.devices.authority import Authority
from tests.devices.stage import BLUE, GREEN, eventually
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.devices.stage import Listening, Stage

pytestmark = pytest.mark.slow


def trust(stage: Stage, tenant: str, **more: Any) -> None:
    """Have a tenant trust authorities, by their parameters."""
    document = stage.registry.get(f"/tenants/{tenant}").raise_for_status().json()
    stage.registry.put(f"/tenants/{tenant}", json=document | more).raise_for_status()


def prove(stage: Stage, tenant: str, authority: Authority) -> None:
    """Prove that a tenant has the key of an authority."""
    path = f"/tenants/{tenant}/authorities"
    known = stage.registry.get(path).raise_for_status().json()["authorities"]
    found = next(one for one in known if one["key"] == authority.key_digest)
    nonce = stage.registry.post(f"{path}/{found['id']}/nonce").raise_for_status().json()["nonce"]
    given = {"nonce": nonce, "signature": b64encode(sign(authority.key, nonce)).decode()}
    stage.registry.post(f"{path}/{found['id']}/proof", json=given).raise_for_status()


@pytest.fixture(scope="module")
def green(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """The authority of one tenant: devices are called by their common names, and register themselves as gadgets."""
    authority = Authority.new(tmp_path_factory.mktemp("green"), "green root")
    trust(stage, GREEN, **{"trusted-ca": [authority.anchor | {"auth-id-template": "{{subject-cn}}"}]})
    prove(stage, GREEN, authority)
    yield authority
    trust(stage, GREEN, **{"trusted-ca": []})


@pytest.fixture(scope="module")
def blue(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    key = rsa.generate_private_key(65537, 2048)
    authority = Authority.new(tmp_path_factory.mktemp("blue"), "blue root", key=key)
    anchor = authority.anchor | {
        "auto-provisioning-enabled": True,
        "auto-provisioning-device-id-template": "gadget-{{subject-cn}}",
    }
    trust(stage, BLUE, **{"trusted-ca": [anchor]})
    prove(stage, BLUE, authority)
    yield authority
    trust(stage, BLUE, **{"trusted-ca": []})


def device_of(stage: Stage, tenant: str, name: str, **document: Any) -> str:
    """Register a device whose certificate has a name."""
    stage.registry.post(f"/devices/{tenant}/{name}", json=document).raise_for_status()
    given = [{"type": "x509-cert", "auth-id": name, "secrets": [{}]}]
    stage.registry.put(f"/credentials/{tenant}/{name}", json=given).raise_for_status()
    return name


def posted(stage: Stage, context: ssl.SSLContext, **options: Any) -> int:
    """Send telemetry over HTTP with a certificate, and return the status."""
    with httpx.Client(base_url=stage.url("https"), verify=context, trust_env=False, timeout=30, **options) as client:
        return client.post("/event", content=b"x").status_code


def comes_in(stage: Stage, context: ssl.SSLContext) -> None:
    """Wait until a device is let in: the node takes a tenant's authority a moment after it is told of it."""

    def look() -> bool:
        try:
            return posted(stage, context) == 202
        except httpx.TransportError:
            return False

    eventually(look)


def came_by(events: Listening, device: str, adapter: str) -> None:
    """Take events of a device until one came by an adapter."""
    while events.next(device).properties["orig_adapter"] != adapter:
        pass


def test_a_device_comes_in_by_its_certificate_over_each_protocol(stage: Stage, green: Authority) -> None:
    require("paho-mqtt", "python-qpid-proton")
    device = device_of(stage, GREEN, "lathe")
    context = green.issue("lathe")
    with stage.application().listen("event") as events:
        comes_in(stage, context)
        assert events.next(device).properties["orig_adapter"] == "hono-http"
        assert posted(stage, context, http2=True, http1=False) == 202
        with stage.mqtt(device, context=context) as client:
            assert not client.send("event", b"hot").is_failure
            came_by(events, device, "hono-mqtt")
        tls = TlsOptions(certificate=green.pem("lathe"), verify=False)
        with connect(stage.url("amqps"), tls=tls) as connection:
            connection.sender(None).send(Message(b"bent", to="event"))
        came_by(events, device, "hono-amqp")
    # An authority below that of the tenant vouches for devices, too.
    assert posted(stage, green.below("green shop floor").issue("lathe")) == 202


def test_strangers_and_what_has_ended_stay_out(
    stage: Stage, green: Authority, blue: Authority, tmp_path: Path
) -> None:
    device_of(stage, GREEN, "drill")
    comes_in(stage, green.issue("drill"))
    assert posted(stage, green.issue("nobody")) == 401
    # Who is called as an authority that is trusted is not that one.
    for other in (Authority.new(tmp_path, "green root"), Authority.new(tmp_path, "evil")):
        with pytest.raises(httpx.TransportError):
            posted(stage, other.issue("drill"))
    with pytest.raises(httpx.TransportError):
        posted(stage, green.issue("drill", days=-1))
    stage.change("drill", {"enabled": False})
    eventually(lambda: posted(stage, green.issue("drill")) == 401)


def test_an_authority_that_is_of_no_use_keeps_no_others_out(stage: Stage, green: Authority, blue: Authority) -> None:
    device_of(stage, GREEN, "mixer")
    document = stage.registry.get(f"/tenants/{BLUE}").raise_for_status().json()
    useless = {
        "subject-dn": "CN=useless",
        "public-key": b64encode(b"no key at all").decode(),
        "algorithm": "EC",
        "not-before": "2026-01-01T00:00:00Z",
        "not-after": "2036-01-01T00:00:00Z",
    }
    trust(stage, BLUE, **{"trusted-ca": [useless, *document["trusted-ca"]]})
    try:
        comes_in(stage, green.issue("mixer"))
        comes_in(stage, blue.issue("eight"))
    finally:
        trust(stage, BLUE, **{"trusted-ca": document["trusted-ca"]})


def test_a_device_is_registered_as_it_comes_where_its_authority_may_do_that(stage: Stage, blue: Authority) -> None:
    context = blue.issue("seven")
    comes_in(stage, context)
    found = stage.registry.get(f"/devices/{BLUE}/gadget-seven").raise_for_status().json()
    assert found["status"]["auto-provisioned"] is True
    assert "ext" not in found
    [credentials] = stage.registry.get(f"/credentials/{BLUE}/gadget-seven").json()
    assert (credentials["type"], credentials["auth-id"]) == ("x509-cert", "O=Grün & Co,CN=seven")
    assert posted(stage, context) == 202
    # Whoever was shut out does not come in as another one.
    stage.registry.put(f"/devices/{BLUE}/gadget-seven", json={"enabled": False}).raise_for_status()
    eventually(lambda: posted(stage, context) == 401)
    assert stage.registry.get(f"/devices/{BLUE}?pageSize=100").json()["total"] >= 1


def test_a_tenants_authority_makes_no_users_of_spaces(stage: Stage, green: Authority) -> None:
    """A certificate with the name of somebody else's user, or of the control process, is a device's or nobody's."""
    installation = stage.installation
    installation.ok("create", "space", "vault", "--authentication", "standard", "--wait", "60")
    installation.ok("create", "address", "gold", "--type", "queue", "--space", "vault", "--wait", "60")
    installation.ok("create", "user", "keeper", "--space", "vault", "--certificate", "keeper", "--send", "gold")
    for name in ("keeper", "system:control"):
        tls = TlsOptions(certificate=green.pem(name), verify=False)
        with (
            pytest.raises(ConnectionDeniedError),
            connect(stage.url("amqps"), tls=tls, hostname="vault.default") as connection,
        ):
            connection.sender("gold").send(Message(b"x"))
