"""Authorities that vouch for devices: by the host that a client names, in the handshake and after it."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from enmasse.iot.certificates import facts_of
from enmasse.net import certificates
from enmasse.net.certificates import CLIENTS, CertificateStore
from enmasse.net.tls_names import ServerTls, presented_chain_of
from enmasse.node.devices.authorities import Authorities
from enmasse.node.devices.tenants import Tenant
from tests.devices.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Collection

RED, BLUE, GREEN = "a.red", "b.blue", "b.green"


class Scene:
    """A node's certificates and the authorities of its tenants, without a socket.

    Hosts that are called as a tenant's name name it, ``space`` names two of them, and ``empty`` a space without any.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tls = folder / "tls"
        self.tls.mkdir()
        server = Authority.new(folder, "server")
        certificate, key = server.pem("localhost").read_text().split("-----BEGIN PRIVATE")
        (self.tls / "default.crt").write_text(certificate)
        (self.tls / "default.key").write_text(f"-----BEGIN PRIVATE{key}")
        self.tenants: dict[str, Tenant] = {}
        self.authorities = Authorities(self.named, lambda act: act())
        self.store = CertificateStore(self.tls, self.authorities, folder / "authorities")

    def named(self, host: str | None) -> Collection[Tenant] | None:
        if host in self.tenants:
            return [self.tenants[host]]
        several = [self.tenants[name] for name in (BLUE, GREEN) if name in self.tenants]
        return {"space": several, "empty": []}.get(host or "")

    def trust(self, tenant: str, *trusted: Authority, counts: bool = False, **more: Any) -> None:
        anchors = []
        for one in trusted:
            facts = facts_of(one.anchor["cert"], "cert")
            times = {"not-before": facts.not_before, "not-after": facts.not_after}
            given = {"id": "1", "subject-dn": facts.subject, "public-key": facts.key, "algorithm": facts.algorithm}
            anchors.append(given | times | {"counts": counts, "auth-id-template": "{{subject-cn}}"} | more)
        self.tenants[tenant] = Tenant(tenant, "x/y", {"trusted-ca": anchors})
        self.authorities.put(tenant, self.tenants[tenant])

    def operators(self, *trusted: Authority) -> None:
        """Have authorities vouch for the operator's clients."""
        path = self.tls / CLIENTS
        path.write_bytes(b"".join(one.certificate.public_bytes(Encoding.PEM) for one in trusted))
        os.utime(path, ns=(0, len(trusted)))
        assert self.store.reload()

    def shake(self, client: ssl.SSLContext, host: str | None = None, **more: Any) -> tuple[Any, Any]:
        """Shake hands, and return both ends.

        Raises:
            ssl.SSLError: the server refuses the client.
        """
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        near = client.wrap_bio(to_client, to_server, server_hostname=host, **more)
        far = self.store.context(b"").wrap_bio(to_server, to_client, server_side=True)
        waiting = [near, far]
        for _ in range(10):
            for one in list(waiting):
                try:
                    one.do_handshake()
                    waiting.remove(one)
                except ssl.SSLWantReadError:
                    pass
        assert not waiting
        assert isinstance(far, ServerTls)
        far.forget_context()
        far.write(b"x")
        near.read(1)  # what follows a handshake is read with data
        return near, far

    def owner(self, client: ssl.SSLContext, host: str | None = None, **more: Any) -> str:
        """Return whose device a client is: a tenant's, ``operator`` for a user, empty for nobody's."""
        try:
            _, far = self.shake(client, host, **more)
        except ssl.SSLError:
            return ""
        return self.judge(presented_chain_of(far), host)

    def judge(self, chain: tuple[bytes, ...], host: str | None) -> str:
        shown = self.authorities.shown(chain, host)
        if shown is None:
            return "operator" if self.store.vouches(chain) else ""
        try:
            return shown.presented().tenant.id
        except ValueError:
            return "several"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_host_that_names_a_tenant_is_verified_by_its_authorities_alone(scene: Scene) -> None:
    red, blue = Authority.new(scene.folder, "red"), Authority.new(scene.folder, "blue")
    scene.trust(RED, red)
    scene.trust(BLUE, blue, counts=True)
    devices = {name: each.issue("d") for name, each in ((RED, red), (BLUE, blue))}
    owners = {(name, host): scene.owner(devices[name], host) for name in devices for host in (None, RED, BLUE, "x")}
    assert owners == {
        (RED, None): "", (RED, RED): RED, (RED, BLUE): "", (RED, "x"): "",
        (BLUE, None): BLUE, (BLUE, RED): "", (BLUE, BLUE): BLUE, (BLUE, "x"): BLUE,
    }  # fmt: skip
    assert scene.owner(devices[BLUE], "empty") == ""
    # As soon as it is proved, and as soon as it is gone.
    scene.trust(RED, red, counts=True)
    assert scene.owner(devices[RED]) == RED
    scene.trust(BLUE)
    assert scene.owner(devices[BLUE]) == scene.owner(devices[BLUE], BLUE) == ""
    assert scene.owner(devices[RED]) == RED


def test_tenants_that_share_an_authority_are_told_apart_by_the_host(scene: Scene) -> None:
    shared = Authority.new(scene.folder, "shared")
    for tenant in (BLUE, GREEN):
        scene.trust(tenant, shared, counts=True)
    device = shared.below("between").issue("d")
    found = {host: scene.owner(device, host) for host in (None, BLUE, GREEN, "space")}
    assert found == {None: "several", BLUE: BLUE, GREEN: GREEN, "space": "several"}


def test_several_tenants_of_a_space_vouch_by_what_they_have_proved(scene: Scene) -> None:
    blue, green = Authority.new(scene.folder, "blue"), Authority.new(scene.folder, "green")
    scene.trust(BLUE, blue, counts=True)
    scene.trust(GREEN, blue, green)
    assert scene.owner(blue.issue("d"), "space") == BLUE
    assert scene.owner(green.issue("d"), "space") == ""


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
def test_what_has_name_or_key_of_the_operators_vouches_for_its_clients_alone(scene: Scene, *, is_first: bool) -> None:
    own = Authority.new(scene.folder, "Operator")
    named = Authority.new(scene.folder, "OPERATOR ")
    keyed = Authority.new(scene.folder, "other", key=own.key)
    if is_first:
        scene.operators(own)
    scene.trust(RED, named, keyed, own, counts=True)
    if not is_first:
        scene.operators(own)
    for host in (None, RED):
        assert scene.owner(own.issue("user"), host) == "operator"
        assert scene.owner(named.issue("user"), host) == ""
        assert scene.owner(keyed.issue("user"), host) == ""
    scene.operators(Authority.new(scene.folder, "somebody else"))
    assert scene.owner(own.issue("user"), RED) == RED


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_is_judged_by_the_host_and_the_authorities_of_now(
    scene: Scene, version: ssl.TLSVersion
) -> None:
    red, blue = Authority.new(scene.folder, "red"), Authority.new(scene.folder, "blue")
    scene.operators(Authority.new(scene.folder, "operator"))
    scene.trust(RED, red)
    scene.trust(BLUE, blue, counts=True)
    client = red.issue("d")
    client.maximum_version = version
    near, far = scene.shake(client, RED)
    assert scene.judge(presented_chain_of(far), RED) == RED
    session = near.session
    assert not session.has_ticket
    again, far = scene.shake(client, RED, session=session)
    # Without tickets, version 1.2 resumes by the id of the session; then nothing is verified in the handshake.
    assert again.session_reused == (version == ssl.TLSVersion.TLSv1_2)
    assert scene.judge(presented_chain_of(far), RED) == RED
    for host in (BLUE, None, "x", "empty"):
        assert scene.owner(client, host, session=session) == ""
    scene.trust(RED)
    assert scene.owner(client, RED, session=session) == ""


def test_clients_are_not_told_which_authorities_there_are(scene: Scene) -> None:
    red = Authority.new(scene.folder, "red unmistakable")
    scene.trust(RED, red, counts=True)
    for host in (None, RED):
        client = ssl.create_default_context()
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        client.maximum_version = ssl.TLSVersion.TLSv1_2  # where what the server says of it is to be read
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        near = client.wrap_bio(to_client, to_server, server_hostname=host)
        far = scene.store.context(b"").wrap_bio(to_server, to_client, server_side=True)
        for one in (near, far):
            with pytest.raises(ssl.SSLWantReadError):
                one.do_handshake()
        said = to_client.read()
        assert b"localhost" in said
        assert b"unmistakable" not in said


def test_contexts_of_hosts_are_bounded_and_not_kept_by_connections(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "MAX_CONTEXTS", 3)
    made = {f"t{number}": Authority.new(scene.folder, f"root {number}") for number in range(6)}
    for name, one in made.items():
        scene.trust(name, one)
    for _ in range(2):
        for name, one in made.items():
            _, far = scene.shake(one.issue("d"), name)
            assert far.context is scene.store.context(b"")
            assert scene.judge(presented_chain_of(far), name) == name
    assert len(scene.store._of_hosts) == 3


def test_a_key_that_fits_no_certificate_keeps_nobody_out(scene: Scene) -> None:
    red = Authority.new(scene.folder, "red")
    useless = {"subject-dn": "CN=useless", "public-key": "bm8ga2V5"}
    scene.trust(BLUE, red, counts=True, **useless)
    scene.trust(RED, red, counts=True)
    assert scene.owner(red.issue("d")) == RED
    assert scene.authorities.of_host(BLUE) == ()


def test_files_that_are_being_replaced_refuse_a_handshake_and_stay_as_they_were(scene: Scene) -> None:
    red = Authority.new(scene.folder, "red")
    scene.trust(RED, red, counts=True)
    key = (scene.tls / "default.key").read_bytes()
    other = Authority.new(scene.folder, "x").key
    (scene.tls / "default.key").write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert scene.owner(red.issue("d"), RED) == ""
    scene.trust(BLUE, Authority.new(scene.folder, "blue"), counts=True)
    scene.trust(BLUE)
    assert scene.owner(red.issue("d")) == RED
    (scene.tls / "default.key").write_bytes(key)
    assert scene.owner(red.issue("d"), RED) == RED
