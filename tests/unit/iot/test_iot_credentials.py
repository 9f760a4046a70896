"""Credentials of devices: what is taken, kept and shown, and how secrets are changed one by one."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import bcrypt
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import CertificateBuilder, Name, NameAttribute, random_serial_number
from cryptography.x509.oid import NameOID

from enmasse.databases.checksums import connect, protect
from enmasse.iot.bulk import read_json_lines
from enmasse.iot.lookups import Lookups
from enmasse.iot.store import DeviceStore
from enmasse.iot.tenant_registry import Expected
from tests.unit.iot.conftest import PLANT
from tests.unit.iot.test_iot_registry import refused

if TYPE_CHECKING:
    from pathlib import Path

    from enmasse.iot.registry import DeviceRegistry

PASSWORD = "correct horse"
KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = b64encode(KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()
WELL_HASHED = bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()


def certificate(subject: str, issuer: str) -> str:
    """DER in base64."""

    def name(common: str) -> Name:
        return Name([NameAttribute(NameOID.ORGANIZATION_NAME, "Acme"), NameAttribute(NameOID.COMMON_NAME, common)])

    begin = datetime(2026, 1, 1, tzinfo=UTC)
    made = (
        CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(KEY.public_key())
        .serial_number(random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=3650))
        .sign(KEY, hashes.SHA256())
    )
    return b64encode(made.public_bytes(Encoding.DER)).decode()


def password(name: str, *secrets: dict[str, Any]) -> dict[str, Any]:
    return {"type": "hashed-password", "auth-id": name, "secrets": list(secrets)}


@pytest.fixture
def sensor(registry: DeviceRegistry) -> DeviceRegistry:
    registry.create_device(PLANT, "s-1", {}, "me")
    return registry


def kept(store: DeviceStore) -> list[dict[str, Any]]:
    """What is in the file."""
    with store.reading() as tables:
        tenant = tables.tenant(PLANT)
        assert tenant is not None
        found: list[dict[str, Any]] = json.loads(tables.credentials(tenant.number, "s-1") or "[]")
        return found


def test_a_device_begins_without_credentials(sensor: DeviceRegistry) -> None:
    found, version = sensor.credentials(PLANT, "s-1")
    assert found == []
    sensor.update_device(PLANT, "s-1", {"enabled": False}, "me")
    assert sensor.credentials(PLANT, "s-1") == ([], version)


def test_a_plain_password_is_hashed_and_nothing_of_it_shown(sensor: DeviceRegistry, store: DeviceStore) -> None:
    sensor.update_credentials(PLANT, "s-1", [password("s", {"pwd-plain": PASSWORD, "comment": "first"})])
    found, _ = sensor.credentials(PLANT, "s-1")
    assert found == [password("s", {"comment": "first", "id": "id-1"})]
    (secret,) = kept(store)[0]["secrets"]
    assert secret["hash-function"] == "bcrypt"
    assert bcrypt.checkpw(PASSWORD.encode(), secret["pwd-hash"].encode())
    assert PASSWORD not in json.dumps(kept(store))


def test_a_plain_password_that_is_given_once_more_is_the_same_secret(
    sensor: DeviceRegistry, store: DeviceStore
) -> None:
    # So connections that came in by it go on, when a former one is taken away and when a fleet is imported again.
    def hashes_kept() -> list[str]:
        return [secret["pwd-hash"] for secret in kept(store)[0]["secrets"]]

    first, second = {"pwd-plain": PASSWORD}, {"pwd-plain": "another"}
    sensor.update_credentials(PLANT, "s-1", [password("s", first)])
    (of_first,) = hashes_kept()
    sensor.update_credentials(PLANT, "s-1", [password("s", {"id": "id-1"}, second)])
    assert hashes_kept()[0] == of_first
    of_second = hashes_kept()[1]
    sensor.update_credentials(PLANT, "s-1", [password("s", second, first)])
    assert hashes_kept() == [of_second, of_first]
    line = {"id": "s-1", "credentials": [password("s", second)]}
    sensor.import_devices(PLANT, read_json_lines(json.dumps(line)), "replace", "me")
    assert hashes_kept() == [of_second]
    sensor.update_credentials(PLANT, "s-1", [password("s", first)])
    assert hashes_kept() != [of_second]


def test_what_a_wrong_password_costs_follows_what_is_registered(sensor: DeviceRegistry, store: DeviceStore) -> None:
    lookups = Lookups(store)

    def hashed(cost: int) -> dict[str, Any]:
        digest = bcrypt.hashpw(b"x", bcrypt.gensalt(cost if cost < 10 else 4)).decode()
        return {"hash-function": "bcrypt", "pwd-hash": digest[:4] + f"{cost:02}" + digest[6:]}

    quick = {"hash-function": "sha-256", "pwd-hash": b64encode(bytes(32)).decode()}
    rpk = {"type": "rpk", "auth-id": "k", "secrets": [{"key": PUBLIC}]}
    assert lookups.password_cost(PLANT) == lookups.password_cost("no.such") == 0
    for given, cost in (
        ([password("s", quick), rpk], 0),
        ([password("s", hashed(4)), password("t", hashed(6)), rpk], 1 << 6),
        ([password("s", hashed(4), hashed(5), quick), password("t", hashed(4))], (1 << 4) + (1 << 5)),
        ([password("s", {"pwd-plain": PASSWORD})], 1 << 10),
        ([], 0),
    ):
        sensor.update_credentials(PLANT, "s-1", given)
        assert lookups.password_cost(PLANT) == cost
    lines = [json.dumps({"id": f"i-{n}", "credentials": [password(f"i-{n}", hashed(12 - n))]}) for n in range(3)]
    sensor.import_devices(PLANT, read_json_lines("\n".join(lines)), "fail", "me")
    assert lookups.password_cost(PLANT) == 1 << 12
    sensor.delete_device(PLANT, "i-0")
    assert lookups.password_cost(PLANT) == 1 << 11
    sensor.create_tenant("blue.other", {})
    assert lookups.password_cost("blue.other") == 0


def test_it_is_counted_anew_in_a_file_of_an_older_version(
    sensor: DeviceRegistry, store: DeviceStore, tmp_path: Path
) -> None:
    sensor.update_credentials(PLANT, "s-1", [password("s", {"hash-function": "bcrypt", "pwd-hash": WELL_HASHED})])
    sensor.create_device(PLANT, "s-2", {}, "me")
    store.close()
    with closing(connect(tmp_path / "devices.db", timeout=1)) as database:
        database.executescript("DROP TRIGGER credentials_added; DROP TRIGGER credentials_removed; DROP TABLE costs;")
        protect(database)
    with DeviceStore(tmp_path / "devices.db") as again:
        assert Lookups(again).password_cost(PLANT) == 1 << 4


def test_secrets_are_changed_one_by_one(sensor: DeviceRegistry, store: DeviceStore) -> None:
    sensor.update_credentials(PLANT, "s-1", [password("s", {"hash-function": "bcrypt", "pwd-hash": WELL_HASHED})])
    (found,), version = sensor.credentials(PLANT, "s-1")
    old = found["secrets"][0] | {"not-after": "2026-02-01T00:00:00Z"}
    digest = b64encode(sha256(b"saltnew").digest()).decode()
    new = {"hash-function": "sha-256", "pwd-hash": digest, "salt": b64encode(b"salt").decode()}
    sensor.update_credentials(PLANT, "s-1", [password("s", old, new)], Expected((version,)))
    first, second = kept(store)[0]["secrets"]
    assert first == {
        "id": old["id"],
        "not-after": "2026-02-01T00:00:00Z",
        "hash-function": "bcrypt",
        "pwd-hash": WELL_HASHED,
    }
    assert second == new | {"id": "id-2"}
    refused(412, lambda: sensor.update_credentials(PLANT, "s-1", [], Expected((version,))))
    refused(400, lambda: sensor.update_credentials(PLANT, "s-1", [password("s", {"id": "id-9"})]))
    refused(400, lambda: sensor.update_credentials(PLANT, "s-1", [password("other", {"id": "id-1"})]))
    sensor.update_credentials(PLANT, "s-1", [password("s", {"id": "id-2"})])
    assert kept(store)[0]["secrets"] == [new | {"id": "id-2"}]


def test_an_import_keeps_secrets_by_their_ids_too(sensor: DeviceRegistry, store: DeviceStore) -> None:
    sensor.update_credentials(PLANT, "s-1", [password("s", {"hash-function": "bcrypt", "pwd-hash": WELL_HASHED})])
    line = json.dumps({"id": "s-1", "credentials": [password("s", {"id": "id-1", "enabled": False})]})
    assert sensor.import_devices(PLANT, read_json_lines(line), "replace", "me").updated == 1
    (secret,) = kept(store)[0]["secrets"]
    assert secret == {"id": "id-1", "enabled": False, "hash-function": "bcrypt", "pwd-hash": WELL_HASHED}


def test_each_type_keeps_what_it_needs_and_shows_what_is_no_secret(
    sensor: DeviceRegistry, store: DeviceStore
) -> None:
    template = {"subject-dn": "CN=ca,O=Acme", "public-key": PUBLIC, "auth-id-template": "{{subject-cn}}.acme"}
    times = {"not-before": "2026-01-01T00:00:00Z", "not-after": "2035-12-30T00:00:00Z"}
    sensor.update_tenant(PLANT, {"trusted-ca": [template | times]})
    sensor.update_credentials(
        PLANT,
        "s-1",
        [
            {"type": "psk", "auth-id": "s", "secrets": [{"key": "YQ=="}]},
            {"type": "rpk", "auth-id": "s", "secrets": [{"key": PUBLIC}, {"cert": certificate("s", "s")}]},
            {"type": "x509-cert", "cert": certificate("s-1", "ca")},
            {"type": "x509-cert", "cert": certificate("s-1", "another")},
            {"type": "x509-cert", "auth-id": "CN=by-name", "secrets": [{}], "ext": {"a": None}},
        ],
    )
    psk, rpk, by_template, by_subject, by_name = sensor.credentials(PLANT, "s-1")[0]
    assert psk["secrets"] == [{"id": "id-2"}]
    assert rpk["secrets"] == [
        {"key": PUBLIC, "algorithm": "EC", "id": "id-3"},
        {"key": PUBLIC, "algorithm": "EC", "id": "id-4"} | times,
    ]
    assert by_template == {"type": "x509-cert", "auth-id": "s-1.acme", "secrets": [times | {"id": "id-5"}]}
    assert by_subject["auth-id"] == "CN=s-1,O=Acme"
    assert by_name["ext"] == {"a": None}
    assert kept(store)[0]["secrets"] == [{"key": "YQ==", "id": "id-2"}]


def test_an_auth_id_is_one_devices(sensor: DeviceRegistry) -> None:
    sensor.create_device(PLANT, "s-2", {}, "me")
    psk = {"type": "psk", "auth-id": "s", "secrets": [{"key": "YQ=="}]}
    sensor.update_credentials(PLANT, "s-1", [psk])
    sensor.update_credentials(PLANT, "s-1", [psk | {"enabled": False}])
    assert "another device" in refused(409, lambda: sensor.update_credentials(PLANT, "s-2", [psk]))
    sensor.delete_device(PLANT, "s-1")
    sensor.update_credentials(PLANT, "s-2", [psk])


@pytest.mark.parametrize(
    "given",
    [
        {},
        [1],
        [{"type": "token"}],
        [{"type": ["psk"]}],
        [{"type": "psk", "secrets": [{"key": "YQ=="}]}],
        [{"type": "psk", "auth-id": "s", "secrets": []}],
        [{"type": "psk", "auth-id": "s", "secrets": [{"key": ""}]}],
        [{"type": "psk", "auth-id": "s", "secrets": [{"key": "not base64"}]}],
        [{"type": "psk", "auth-id": "s", "secrets": [{"key": "YQ=="}] * 21}],
        [{"type": "psk", "auth-id": "a\nb", "secrets": [{"key": "YQ=="}]}],
        [{"type": "psk", "auth-id": "s", "secrets": [{"key": "YQ==", "not-before": "soon"}]}],
        [{"type": "psk", "auth-id": "s", "secrets": [{"id": "a", "key": "YQ=="}, {"id": "a", "key": "YQ=="}]}],
        [{"type": "psk", "auth-id": "s", "secrets": [{"key": "YQ=="}]}] * 2,
        [{"type": "psk", "auth-id": str(n), "secrets": [{"key": "YQ=="}]} for n in range(51)],
        [password("s", {})],
        [password("s", {"pwd-plain": "a" * 73})],
        [password("s", {"pwd-plain": "a\0b"})],
        [password("s", {"hash-function": "md5", "pwd-hash": "YQ=="})],
        [password("s", {"hash-function": "sha-256", "pwd-hash": "YQ=="})],
        [password("s", {"hash-function": "bcrypt", "pwd-hash": "YQ=="})],
        [password("s", {"hash-function": "bcrypt", "pwd-hash": WELL_HASHED.replace("$04$", "$31$")})],
        [password("s", {"pwd-hash": "YQ=="})],
        [{"type": "rpk", "auth-id": "s", "secrets": [{"key": "YQ=="}]}],
        [{"type": "rpk", "auth-id": "s", "secrets": [{"key": PUBLIC, "algorithm": "RSA"}]}],
        [{"type": "x509-cert", "auth-id": "s"}],
        [{"type": "x509-cert", "cert": "YQ=="}],
        [
            {
                "type": "psk",
                "auth-id": "s",
                "secrets": [
                    {"key": "YQ==", "not-before": "2027-01-01T00:00:00Z", "not-after": "2026-01-01T00:00:00+01:00"}
                ],
            }
        ],
    ],
)
def test_credentials_that_are_wrong_are_refused_and_no_secret_is_quoted(sensor: DeviceRegistry, given: Any) -> None:
    said = refused(400, lambda: sensor.update_credentials(PLANT, "s-1", given))
    for secret in ("a" * 73, "YQ==", "not base64", PUBLIC):
        assert secret not in said
    assert sensor.credentials(PLANT, "s-1")[0] == []


def test_so_many_passwords_are_hashed_at_once_and_no_more(sensor: DeviceRegistry) -> None:
    lines = [
        json.dumps({"id": f"d-{n}", "credentials": [password(f"d-{n}", {"pwd-plain": "x"})]}) for n in range(101)
    ]
    assert "hash" in refused(
        413, lambda: sensor.import_devices(PLANT, read_json_lines("\n".join(lines)), "fail", "me")
    )
