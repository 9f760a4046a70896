"""The device registry by commands, over a real port; passwords come from a file or standard input alone."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Cli = Callable[..., Any]

PLANT = "team-a.plant"
WITH_LIMITS = b"""
apiVersion: iot.enmasse.io/v1alpha1
kind: IoTProject
metadata: {name: plant}
spec:
  downstreamStrategy: {providedStrategy: {addressSpaceName: demo}}
  configuration: {minimumMessageSize: 10}
"""


@pytest.fixture
def plant(cli: Cli, api: str) -> Cli:
    result = cli("iot", "tenant", "create", PLANT)
    assert (result.code, result.out) == (0, f"tenant {PLANT} created\n"), result.err
    return cli


def test_tenants_come_change_and_go(plant: Cli, tmp_path: Path) -> None:
    assert plant("iot", "tenant", "create", PLANT).code == 1
    (tmp_path / "tenant.yaml").write_text("enabled: false\nalias: plant\n")
    assert plant("iot", "tenant", "update", PLANT, "-f", str(tmp_path / "tenant.yaml")).code == 0
    assert plant("iot", "tenant", "list").out.split() == ["ID", "ENABLED", "ALIAS", PLANT, "no", "plant"]
    assert json.loads(plant("iot", "tenant", "show", PLANT, "-o", "json").out) == {"enabled": False, "alias": "plant"}
    assert plant("iot", "tenant", "update", PLANT).code == 2
    assert plant("iot", "tenant", "update", PLANT, "-f", str(tmp_path / "none.yaml")).code == 3
    assert plant("iot", "tenant", "delete", PLANT).code == 0
    gone = plant("iot", "tenant", "show", PLANT)
    assert (gone.code, gone.err) == (3, f"error: there is no tenant '{PLANT}'\n")
    assert plant("iot", "tenant", "list").err == "there are no tenants\n"


def test_devices_are_found_changed_and_deleted(plant: Cli) -> None:
    assert (
        plant("iot", "device", "create", PLANT, "s-1", "--via", "gw", "--via", "gw-2").out == "device s-1 created\n"
    )
    document = b'{"ext": {"n": 1, "brand": "Acme"}}'
    assert plant("iot", "device", "create", PLANT, "s-2", "--disabled", "-f", "-", stdin=document).code == 0
    assert "device id-" in plant("iot", "device", "create", PLANT).out
    rows = [line.split() for line in plant("iot", "device", "list", PLANT, "--filter", "/id=s-*").out.splitlines()]
    assert rows == [["ID", "ENABLED", "VIA"], ["s-1", "yes", "gw", "gw-2"], ["s-2", "no", "-"]]
    for options in (("--via", "gw-2"), ("--enabled", "--filter", "/id=s-*"), ("--filter", "/via=gw")):
        assert plant("iot", "device", "list", PLANT, *options).out.split()[3] == "s-1"
    assert plant("iot", "device", "list", PLANT, "--filter", "/ext/n=1").out.split()[3] == "s-2"
    assert plant("iot", "device", "list", PLANT, "--filter", "n=1").code == 2
    assert "these are 2 of 3" in plant("iot", "device", "list", PLANT, "--count", "2").err
    assert plant("iot", "device", "update", PLANT, "s-2", "--enabled").code == 0
    shown = json.loads(plant("iot", "device", "show", PLANT, "s-2", "-o", "json").out)
    assert (shown["enabled"], shown["ext"]["brand"]) == (True, "Acme")
    assert plant("iot", "device", "update", PLANT, "s-2").code == 2
    assert plant("iot", "device", "delete", PLANT).code == 2
    assert plant("iot", "device", "delete", PLANT, "s-1", "s-1").code == 3
    assert plant("iot", "device", "delete", PLANT, "--all").code == 0
    assert plant("iot", "device", "list", PLANT).err == "there are no devices\n"


def test_many_devices_go_through_files(plant: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    csv = tmp_path / "devices.csv"
    csv.write_text("id,enabled,via\n" + "".join(f"d-{n:04},true,gw-{n % 7}\n" for n in range(2_500)) + "a b,,\n")
    done = plant("iot", "device", "import", PLANT, str(csv))
    assert (done.code, done.out) == (1, "devices: 2500 created\n")
    assert done.err.splitlines()[0].startswith("line 2502: id: expected")
    exported = plant("iot", "device", "export", PLANT).out
    assert len(exported.splitlines()) == 2_500
    done = plant("iot", "device", "import", PLANT, "-", "--existing", "skip", stdin=exported.encode())
    assert (done.code, done.out) == (0, "devices: 0 created, 2500 skipped\n")
    assert plant("iot", "device", "export", PLANT, "--format", "csv").out == csv.read_text().removesuffix("a b,,\n")
    monkeypatch.setenv("FORCE_COLOR", "1")  # to rich it is a terminal then
    told = plant("iot", "device", "import", PLANT, "-", "--existing", "skip", stdin=exported.encode()).err
    assert "1,000 devices so far" in told
    assert "2,000 devices so far" in told
    monkeypatch.delenv("FORCE_COLOR")
    lines = "".join(
        json.dumps(
            {
                "id": f"d-{n:04}",
                "credentials": [{"type": "psk", "auth-id": "s", "secrets": [{"key": "c2VjcmV0"}]}],
            }
        )
        + "\n"
        for n in range(1_001)
    )
    (tmp_path / "more.json").write_text(lines)
    done = plant("iot", "device", "import", PLANT, str(tmp_path / "more.json"), "--existing", "replace")
    assert (done.code, done.out) == (1, "devices: 0 created, 1 updated\n")
    assert done.err.splitlines()[999].startswith("line 1001: auth-id 's'")
    assert "c2VjcmV0" not in done.err


def test_a_password_is_given_changed_and_taken_away(plant: Cli, tmp_path: Path) -> None:
    plant("iot", "device", "create", PLANT, "s-1")
    told = plant("iot", "credentials", "create", PLANT, "s-1", stdin=b"correct horse\n")
    assert (told.code, told.out) == (0, f"device s-1 logs in as s-1@{PLANT}\n")
    (tmp_path / "password").write_text("another horse\n")
    file = ("--password-file", str(tmp_path / "password"))
    assert plant("iot", "credentials", "create", PLANT, "s-1", "--keep", *file).code == 0
    assert plant("iot", "credentials", "create", PLANT, "s-1", "--auth-id", "other", *file).code == 0
    rows = [line.split() for line in plant("iot", "credentials", "list", PLANT, "s-1").out.splitlines()]
    assert rows[1:] == [["s-1", "hashed-password", "yes", "2", "-"], ["other", "hashed-password", "yes", "1", "-"]]
    shown = plant("iot", "credentials", "show", PLANT, "s-1").out
    assert "horse" not in shown
    assert "$2a$" not in shown
    assert plant("iot", "credentials", "update", PLANT, "s-1", "-f", "-", stdin=shown.encode()).code == 0
    assert plant("iot", "credentials", "delete", PLANT, "s-1", "--auth-id", "none").code == 3
    deleted = plant("iot", "credentials", "delete", PLANT, "s-1", "--auth-id", "other")
    assert deleted.out == "1 credentials of device s-1 deleted\n"
    assert plant("iot", "credentials", "delete", PLANT, "s-1").code == 0
    assert plant("iot", "credentials", "list", PLANT, "s-1").err == "there are no credentials\n"
    assert plant("iot", "credentials", "create", PLANT, "s-1", "--password", "x", stdin=b"y\n").code == 2
    assert plant("iot", "credentials", "create", PLANT, "s-1", stdin=b"\n").code == 1


def test_authorities_are_proved_here_or_elsewhere_or_vouched_for(
    plant: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed() -> list[list[str]]:
        rows = json.loads(plant("iot", "ca", "list", PLANT, "-o", "json").out)
        return [[one["id"], one.get("proof", "-"), "yes" if one["counts"] else "no"] for one in rows]

    assert plant("iot", "ca", "list", PLANT).err == "there are no authorities\n"
    keys, trusted = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)], []
    times = "not-before: 2026-01-01T00:00:00Z, not-after: 2036-01-01T00:00:00Z"
    for number, key in enumerate(keys):
        public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        trusted.append(
            f"{{id: ca-{number}, subject-dn: CN={number}, public-key: {b64encode(public).decode()}, {times}}}"
        )
    useless = f"{{id: useless, subject-dn: no name, public-key: bm8ga2V5, {times}}}"
    (tmp_path / "tenant.yaml").write_text(f"trusted-ca: [{useless}]\n")
    assert plant("iot", "tenant", "update", PLANT, "-f", str(tmp_path / "tenant.yaml")).code == 0
    assert "nowhere" in plant("iot", "ca", "list", PLANT).out
    assert "its subject-dn is no name" in plant("iot", "ca", "prove", PLANT).err
    (tmp_path / "tenant.yaml").write_text(f"trusted-ca: [{', '.join(trusted)}]\n")
    assert plant("iot", "tenant", "update", PLANT, "-f", str(tmp_path / "tenant.yaml")).code == 0
    assert listed() == [[f"ca-{number}", "-", "no"] for number in range(3)]
    assert "with SNI" in plant("iot", "ca", "list", PLANT).out
    # The key tells which one is meant; it may be encrypted.
    sealed, wrong = tmp_path / "sealed.key", tmp_path / "wrong.key"
    sealed.write_bytes(
        keys[0].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"opensesame"))
    )
    wrong.write_text("no key")
    assert plant("iot", "ca", "prove", PLANT, "--key", str(wrong)).code == 2
    monkeypatch.setenv("ENMASSE_PASSWORD", "opensesame")
    proved = plant("iot", "ca", "prove", PLANT, "--key", str(sealed))
    assert (proved.code, proved.out) == (0, f"CN=0 is proved to be of tenant {PLANT}\n"), proved.err
    # Elsewhere, by openssl.
    assert plant("iot", "ca", "prove", PLANT).code == 2  # which one?
    nonce, signature, file = tmp_path / "nonce", tmp_path / "signature", tmp_path / "ca.key"
    nonce.write_text(plant("iot", "ca", "prove", PLANT, "ca-1").out)
    file.write_bytes(keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    subprocess.run(["openssl", "dgst", "-sha384", "-sign", file, "-out", signature, nonce], check=True)
    given = ("--nonce", str(nonce), "--signature", str(signature))
    assert plant("iot", "ca", "prove", PLANT, "ca-2", *given).code == 1
    assert plant("iot", "ca", "prove", PLANT, "ca-1", *given).code == 0
    assert plant("iot", "ca", "prove", PLANT, "ca-1", "--nonce", str(nonce)).code == 2
    assert plant("iot", "ca", "vouch", PLANT, "ca-2").code == 0
    assert listed() == [["ca-0", "signed", "yes"], ["ca-1", "signed", "yes"], ["ca-2", "vouched", "yes"]]
    assert plant("iot", "ca", "vouch", PLANT, "nothing").code == 3


def test_an_alias_is_granted(plant: Cli, tmp_path: Path) -> None:
    assert plant("iot", "tenant", "grant-alias", PLANT).code == 3
    (tmp_path / "tenant.yaml").write_text("alias: plant\n")
    assert plant("iot", "tenant", "update", PLANT, "-f", str(tmp_path / "tenant.yaml")).code == 0
    granted = plant("iot", "tenant", "grant-alias", PLANT)
    assert (granted.code, granted.out) == (0, f"tenant {PLANT} has the alias plant\n")


def test_a_project_is_applied_listed_and_explained(cli: Cli, api: str) -> None:
    examples = Path(__file__).parents[3] / "examples"
    done = cli("apply", "-f", str(examples / "01-first-address.yaml"), "-f", str(examples / "07-iot-project.yaml"))
    assert (done.code, "iotproject/plant created" in done.out) == (0, True), done.out + done.err
    assert cli("get", "iot").out.split()[:6] == ["NAME", "TENANT", "READY", "PHASE", "AGE", "plant"]
    assert "A space that is there." in cli("explain", "iotproject.spec.downstreamStrategy").out
    warned = cli("apply", "-f", "-", stdin=WITH_LIMITS).err
    assert "spec.configuration.minimumMessageSize has no effect: the device registry keeps" in warned
