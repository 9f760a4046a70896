"""Authorities of tenants: whose they are, where they count, and what proves it."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from enmasse.databases.checksums import connect, protect
from enmasse.identity.authorities import AuthorityId, canonical_name, read_name
from enmasse.iot.documents import RegistryError
from enmasse.iot.lookups import Lookups
from enmasse.iot.possession import NONCE_S, Nonces, sign
from enmasse.iot.registry import DeviceRegistry
from enmasse.iot.store import DeviceStore
from enmasse.iot.tables import AUTHORITIES_UPDATE

if TYPE_CHECKING:
    from pathlib import Path

RED, BLUE, OTHER = "red.plant", "blue.plant", "red.other"
EC = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
ED = ed25519.Ed25519PrivateKey.generate()
RSA = rsa.generate_private_key(65537, 2048)


class Scene:
    """A registry whose clock stands still, and what tenants do with it."""

    def __init__(self, path: Path, *, grants_aliases: bool = False) -> None:
        self.store = DeviceStore(path / "devices.db")
        self.now = 1_000_000.0
        self.told: list[str] = []
        numbers = iter(range(1, 10_000))
        nonces = Nonces(b"a secret", lambda: f"{next(numbers)}", lambda: self.now)
        self.registry = DeviceRegistry(
            self.store,
            now=lambda: "2026-01-01T00:00:00Z",
            new_id=lambda: f"id-{next(numbers)}",
            new_version=lambda: f"v{next(numbers)}",
            nonces=nonces,
            grants_aliases=grants_aliases,
        )
        self.registry.changed = lambda tenant, _device: self.told.append(tenant)
        for tenant in (RED, BLUE, OTHER):
            if tenant not in [item["id"] for item in self.tenants()]:
                self.registry.create_tenant(tenant, {})

    def tenants(self) -> list[dict[str, Any]]:
        with self.store.reading() as tables:
            rows = [tables.tenant(tenant) for tenant in (RED, BLUE, OTHER)]
        return [{"id": row.id} for row in rows if row is not None]

    def trust(self, tenant: str, *anchors: dict[str, Any], **more: Any) -> None:
        self.registry.update_tenant(tenant, {"trusted-ca": list(anchors)} | more)

    def prove(self, tenant: str, key: Any, authority: str = "ca") -> None:
        nonce = self.registry.nonce(tenant, authority)["nonce"]
        given = {"nonce": nonce, "signature": b64encode(sign(key, nonce)).decode()}
        self.registry.prove_authority(tenant, authority, given)

    def counts(self, tenant: str) -> bool:
        """Whether nodes are told that the authority counts where no tenant is named."""
        document = Lookups(self.store).tenant(tenant)
        assert document is not None
        [anchor] = document["trusted-ca"]
        assert anchor["counts"] == self.registry.authorities(tenant)[0]["counts"]
        return bool(anchor["counts"])


@pytest.fixture
def scene(tmp_path: Path) -> Any:
    made = Scene(tmp_path)
    yield made
    made.store.close()


def anchor(key: Any, subject: str = "CN=root,O=Acme", **more: Any) -> dict[str, Any]:
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    times = {"not-before": "2026-01-01T00:00:00Z", "not-after": "2036-01-01T00:00:00Z"}
    return {"id": "ca", "subject-dn": subject, "public-key": b64encode(public).decode()} | times | more


def refused(code: int, act: Any) -> str:
    with pytest.raises(RegistryError) as caught:
        act()
    assert caught.value.code == code, caught.value
    return str(caught.value)


SAME = (
    "CN=root,O=Acme", "CN=ROOT,O=acme", "CN=\\ root \\ ,O=Acme", "CN=r\\6fot,O=Acme", "2.5.4.3=root,2.5.4.10=Acme",
    "CN=root,O=\uff21cme", "cn=root, o=Acme", " Cn = root , 2.5.4.10 = Acme",
)  # fmt: skip
OTHERS = (
    "O=Acme,CN=root", "CN=root\\,O=Acme", "CN=root+O=Acme", "CN=root,CN=root,O=Acme", "CN=root,O=Acme,O=Acme",
    "CN=root,O=Acme,C=DE", "CN=ro ot,O=Acme", "CN=root,OU=Acme", "CN=root\\, O=Acme", "CN=root\\\\,O=Acme",
    "emailAddress=me@acme.org,CN=root,O=Acme", "serialNumber=1,CN=root,O=Acme",
)  # fmt: skip


@pytest.mark.parametrize("other", SAME)
def test_names_are_the_same_whatever_their_spelling(other: str) -> None:
    name = canonical_name(read_name(SAME[0]))
    assert canonical_name(read_name(other)) == name


@pytest.mark.parametrize("other", OTHERS)
def test_names_that_look_alike_differ(other: str) -> None:
    name = canonical_name(read_name(SAME[0]))
    assert canonical_name(read_name(other)) != name


def test_no_name_and_no_key_is_no_authority() -> None:
    key = anchor(ED)["public-key"]
    assert AuthorityId.of("", key) is None
    assert AuthorityId.of("CN=x", "YQ==") is None
    assert AuthorityId.of("no name", key) is None


@pytest.mark.parametrize("key", [EC[0], ED, RSA], ids=["EC", "Ed25519", "RSA"])
def test_an_authority_counts_once_its_key_has_signed(scene: Scene, key: Any) -> None:
    scene.trust(RED, anchor(key))
    assert not scene.counts(RED)
    scene.prove(RED, key)
    assert scene.counts(RED)
    scene.trust(RED, anchor(key, "CN=another name"))  # the key is what is proved
    assert scene.counts(RED)
    scene.registry.delete_devices(RED)
    assert scene.counts(RED)
    scene.trust(RED)
    scene.trust(RED, anchor(key))
    assert not scene.counts(RED), "a proof goes with its key"


def test_a_nonce_is_for_one_key_of_one_tenant_and_ends(scene: Scene) -> None:
    scene.trust(RED, anchor(EC[0]))
    scene.trust(BLUE, anchor(EC[0]))
    nonce = scene.registry.nonce(RED, "ca")["nonce"]
    right = b64encode(sign(EC[0], nonce)).decode()
    other = b64encode(sign(EC[1], nonce)).decode()
    prove = scene.registry.prove_authority
    refused(400, lambda: prove(RED, "ca", {"nonce": nonce, "signature": other}))
    refused(400, lambda: prove(RED, "ca", {"nonce": nonce, "signature": "!"}))
    assert "another tenant" in refused(400, lambda: prove(BLUE, "ca", {"nonce": nonce, "signature": right}))
    forged = nonce.replace(RED, BLUE)
    signed = b64encode(sign(EC[0], forged)).decode()
    assert "none of this" in refused(400, lambda: prove(BLUE, "ca", {"nonce": forged, "signature": signed}))
    refused(404, lambda: prove(RED, "nothing", {"nonce": nonce, "signature": right}))
    scene.now += NONCE_S + 1
    assert "over" in refused(400, lambda: prove(RED, "ca", {"nonce": nonce, "signature": right}))
    assert not scene.counts(RED)
    assert not scene.counts(BLUE)


def test_what_is_only_written_down_is_no_obstacle(scene: Scene) -> None:
    """Whoever has the key is let in after one who has written it down, and comes before it."""
    scene.trust(RED, anchor(EC[0], "CN=Root,O=ACME"))
    scene.trust(BLUE, anchor(EC[0]))
    scene.told.clear()
    scene.prove(BLUE, EC[0])
    assert scene.counts(BLUE)
    assert not scene.counts(RED)
    assert set(scene.told) == {RED, BLUE}, "nodes are told of both"
    # Red may change the rest of its tenant, but nobody takes a key that is proved.
    scene.trust(RED, anchor(EC[0]), enabled=False)
    refused(409, lambda: scene.trust(OTHER, anchor(EC[0], "CN=x")))
    refused(409, lambda: scene.prove(RED, EC[0]))
    refused(409, lambda: scene.registry.vouch_for_authority(RED, "ca"))
    scene.told.clear()
    scene.registry.delete_tenant(BLUE)
    assert set(scene.told) == {RED, BLUE}
    scene.prove(RED, EC[0])
    assert scene.counts(RED)


def test_of_two_keys_with_one_name_the_later_one_counts_with_sni_alone(scene: Scene) -> None:
    scene.trust(RED, anchor(EC[0]))
    scene.registry.vouch_for_authority(RED, "ca")
    scene.trust(BLUE, anchor(EC[1], "CN=ROOT,O=\\ acme"))
    scene.prove(BLUE, EC[1])
    assert scene.counts(RED)
    assert not scene.counts(BLUE)
    assert "another tenant has proved" in scene.registry.authorities(BLUE)[0]["problem"]
    scene.trust(RED)
    assert scene.counts(BLUE)


def test_a_group_of_one_namespace_shares_a_key(scene: Scene) -> None:
    for tenant in (RED, OTHER):
        scene.trust(tenant, anchor(EC[0]), **{"trust-anchor-group": "g"})
        scene.prove(tenant, EC[0])
    assert scene.counts(RED)
    assert scene.counts(OTHER)
    # The name of a group is everybody's; the namespace is not.
    refused(409, lambda: scene.trust(BLUE, anchor(EC[0]), **{"trust-anchor-group": "g"}))


def test_what_one_tenant_alone_had_before_there_were_proofs_is_presumed(tmp_path: Path) -> None:
    first = Scene(tmp_path)
    first.trust(RED, anchor(EC[0]))
    first.trust(BLUE, anchor(EC[1], "CN=shared"))
    first.trust(OTHER, anchor(ED, "CN=SHARED"))
    first.registry.update_tenant(RED, {"alias": "paint", "trusted-ca": [anchor(EC[0])]})
    first.store.close()
    database = connect(tmp_path / "devices.db", timeout=1)
    database.execute("DROP TABLE authorities")
    database.execute("DROP TABLE proofs")
    database.execute("CREATE TABLE anchors (subject TEXT NOT NULL, tenant INTEGER NOT NULL)")
    protect(database)
    database.execute("PRAGMA user_version = 1")
    database.close()
    assert "anchors" in AUTHORITIES_UPDATE
    scene = Scene(tmp_path, grants_aliases=True)
    try:
        assert scene.registry.authorities(RED)[0]["proof"] == "presumed"
        assert scene.counts(RED)
        for tenant in (BLUE, OTHER):
            assert not scene.counts(tenant)
            assert "another tenant" in scene.registry.authorities(tenant)[0]["problem"]
        lookups = Lookups(scene.store)
        assert (lookups.tenant(RED) or {})["alias"] == "paint", "an alias that was there goes on"
        # What is presumed is no obstacle for who has the key, and gives way to it; a name alone takes nothing away.
        scene.trust(BLUE, anchor(EC[1]))
        scene.prove(BLUE, EC[1])
        assert scene.counts(RED)
        scene.trust(BLUE, anchor(EC[0], "CN=x"))
        scene.prove(BLUE, EC[0])
        assert scene.counts(BLUE)
        assert not scene.counts(RED)
        refused(409, lambda: scene.prove(RED, EC[0]))
    finally:
        scene.store.close()


def test_an_alias_counts_once_it_is_granted(tmp_path: Path) -> None:
    scene = Scene(tmp_path, grants_aliases=True)
    registry, lookups = scene.registry, Lookups(scene.store)

    def alias(tenant: str) -> object:
        return (lookups.tenant(tenant) or {})["alias"]

    try:
        for tenant in (RED, BLUE):
            registry.update_tenant(tenant, {"alias": "paint"})
            assert registry.tenant(tenant)[0]["alias"] == "paint"
            assert registry.waits_for_alias(tenant) == "paint"
            assert alias(tenant) is None
        assert registry.grant_alias(BLUE) == "paint"
        assert (alias(RED), alias(BLUE)) == (None, "paint")
        refused(409, lambda: registry.grant_alias(RED))
        refused(409, lambda: registry.update_tenant(RED, {"alias": "paint"}))
        registry.update_tenant(BLUE, {"alias": "paint", "enabled": False})
        assert alias(BLUE) == "paint"
        registry.update_tenant(BLUE, {"alias": "varnish"})
        assert alias(BLUE) is None
        assert registry.grant_alias(RED) == "paint"
        registry.update_tenant(OTHER, {"alias": "oil"}, is_granted=True)
        assert alias(OTHER) == "oil"
        refused(404, lambda: registry.grant_alias("red.nobody"))
    finally:
        scene.store.close()


def test_templates_of_ids_are_filled_at_once(scene: Scene) -> None:
    """A subject that looks like a placeholder is none."""
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name.from_rfc4514_string("CN={{subject-ou}}\\,x,OU=secret"))
        .issuer_name(x509.Name.from_rfc4514_string("CN=ROOT,O=acme"))
        .public_key(EC[1].public_key())
        .serial_number(1)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2036, 1, 1, tzinfo=UTC))
        .sign(EC[0], hashes.SHA256())
    )
    given = b64encode(made.public_bytes(Encoding.DER)).decode()
    scene.trust(RED, anchor(EC[0], **{"auth-id-template": "{{subject-cn}}"}))
    scene.registry.create_device(RED, "d", {}, "me")
    scene.registry.update_credentials(RED, "d", [{"type": "x509-cert", "cert": given}])
    [found], _ = scene.registry.credentials(RED, "d")
    assert found["auth-id"] == "{{subject-ou}},x"
