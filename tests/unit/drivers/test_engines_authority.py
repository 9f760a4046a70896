"""An installation's own certificate authority."""

from __future__ import annotations

import datetime as dt
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from enmasse.drivers.authority import Authority, keep_certificate
from enmasse.errors import ConfigError

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    Authority(tmp_path).keep_server_certificate("default", ("localhost",))
    keys = list(tmp_path.rglob("*.key"))
    assert len(keys) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}


def test_the_authority_is_made_once(tmp_path: Path) -> None:
    first = Authority(tmp_path).certificate()
    assert Authority(tmp_path).certificate() == first
    assert x509.load_pem_x509_certificate(first).extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_server_certificate_is_for_its_hosts_and_from_its_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    assert authority.keep_server_certificate("default", ("localhost", "127.0.0.1", "::1"))
    made = read(tmp_path / "default.crt")
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate()))
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_server_certificate_is_kept_until_it_ends_soon(tmp_path: Path) -> None:
    assert Authority(tmp_path, NOW).keep_server_certificate("default", ("localhost",))
    assert not Authority(tmp_path, NOW + dt.timedelta(days=200)).keep_server_certificate("default", ("localhost",))
    before = read(tmp_path / "default.crt").serial_number
    assert Authority(tmp_path, NOW + dt.timedelta(days=300)).keep_server_certificate("default", ("localhost",))
    assert read(tmp_path / "default.crt").serial_number != before


def test_a_new_host_brings_a_new_certificate(tmp_path: Path) -> None:
    assert Authority(tmp_path).keep_server_certificate("default", ("localhost",))
    assert Authority(tmp_path).keep_server_certificate("default", ("localhost", "new.example.org"))


def test_somebody_elses_certificate_is_left_alone(tmp_path: Path) -> None:
    Authority(tmp_path / "other").keep_server_certificate("default", ("shop.example.org",))
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("default.crt", "default.key"):
        (mine / name).write_bytes((tmp_path / "other" / name).read_bytes())
    assert not Authority(mine).keep_server_certificate("default", ("localhost",))
    assert (mine / "default.crt").read_bytes() == (tmp_path / "other" / "default.crt").read_bytes()


def test_an_authority_that_ends_is_made_anew_with_its_key(tmp_path: Path) -> None:
    Authority(tmp_path, NOW).keep_server_certificate("default", ("localhost",))
    first = read(tmp_path / "authority" / "ca.crt")
    later = Authority(tmp_path, NOW + dt.timedelta(days=3000))
    second = x509.load_pem_x509_certificate(later.certificate())
    assert second.not_valid_after_utc > first.not_valid_after_utc
    read(tmp_path / "default.crt").verify_directly_issued_by(second)


def test_a_client_is_certified_by_its_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    crt, key = authority.issue_client("meter-1@example.org").write(tmp_path, "meter")
    made = read(crt)
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate()))
    assert [name.value for name in made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [
        "meter-1@example.org"
    ]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with pytest.raises(x509.ExtensionNotFound):
        x509.load_pem_x509_certificate(
            authority.issue_client("meter-1").certificate
        ).extensions.get_extension_for_class(x509.SubjectAlternativeName)


@pytest.mark.parametrize("name", ["", " ", "x" * 65, "a\nb"])
def test_a_name_that_cannot_be_certified_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no name"):
        Authority(tmp_path).issue_client(name)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    Authority(tmp_path).certificate()
    (tmp_path / "authority" / "ca.key").write_text("nothing")
    with pytest.raises(ConfigError, match=r"ca\.key"):
        Authority(tmp_path).certificate()


def test_a_machine_is_known_by_the_interface_that_it_serves(tmp_path: Path) -> None:
    keep_certificate(tmp_path, "127.0.0.1")
    made = read(tmp_path / "default.crt")
    assert [name.value for name in made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["127.0.0.1"]
    before = (tmp_path / "default.crt").read_bytes()
    keep_certificate(tmp_path, "127.0.0.1")
    assert (tmp_path / "default.crt").read_bytes() == before
