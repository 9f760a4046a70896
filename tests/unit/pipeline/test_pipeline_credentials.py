from __future__ import annotations

import json
from pathlib import Path

import pytest

from enmasse.client import TlsOptions
from enmasse.pipeline.credentials import Arguments, Login, needs_tls
from enmasse.pipeline.errors import AccessError, OptionError
from enmasse.pipeline.running.planning.plans import Place


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENMASSE_CREDENTIALS", str(tmp_path))
    monkeypatch.setenv("ENMASSE_USER", "of the environment")
    monkeypatch.setenv("ENMASSE_PASSWORD", "p")
    return tmp_path


def credentials(name: str = "") -> Arguments:
    return Login.parse({"credentials": name}, "amqps://node").arguments()


def test_named_credentials_are_read_from_their_file_each_time(folder: Path) -> None:
    for password in ("first", "second"):
        (folder / "analyst.json").write_text(json.dumps({"user": "ann", "password": password}))
        assert credentials("analyst") == {"user": "ann", "password": password}


def test_without_a_name_the_environment_says_who(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert credentials() == {"user": "of the environment", "password": "p"}
    monkeypatch.delenv("ENMASSE_USER")
    monkeypatch.delenv("ENMASSE_PASSWORD")
    assert credentials() == {"user": None, "password": None}


def test_an_unknown_name_is_told_with_the_file_that_is_missing(folder: Path) -> None:
    with pytest.raises(AccessError, match=r"no credentials 'nobody'.*nobody\.json should hold"):
        credentials("nobody")


def test_a_name_needs_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENMASSE_CREDENTIALS")
    with pytest.raises(AccessError, match="ENMASSE_CREDENTIALS is not set"):
        credentials("analyst")


@pytest.mark.parametrize("name", ["../analyst", "a/b", ".analyst", "ann:secret", '{"user": "secret"}', "a" * 300])
def test_what_is_no_name_is_refused_and_not_repeated(folder: Path, name: str) -> None:
    with pytest.raises(OptionError, match="option credentials") as caught:
        credentials(name)
    assert name not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        '{"user": "ann", "password": "secret',
        '["secret"]',
        '{"password": "secret"}',
        '{"user": 5, "password": "secret"}',
        '{"user": "ann", "password": {"is": "secret"}}',
        '{"user": "ann", "password": "secret", "token": "secret"}',
        '{"token": ["secret"]}',
        '{"user": "ann", "password": "' + "secret" * 20_000 + '"}',
    ],
)
def test_a_damaged_file_is_named_and_not_repeated(folder: Path, content: str) -> None:
    (folder / "analyst.json").write_text(content)
    with pytest.raises(AccessError, match=r"analyst\.json should hold") as caught:
        credentials("analyst")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_named_credentials_may_be_a_token_or_a_certificate_beside_them(folder: Path) -> None:
    (folder / "job.json").write_text(json.dumps({"token": "ey.J\n"}))
    assert credentials("job") == {"user": None, "password": None, "token": "ey.J"}
    assert needs_tls("job")
    (folder / "job.json").write_text(json.dumps({"tlsCertificate": "job.pem"}))
    tls = TlsOptions(certificate=str(folder / "job.pem"))
    assert credentials("job") == {"user": None, "password": None, "tls": tls, "sasl": ("EXTERNAL",)}
    assert needs_tls("job")
    (folder / "job.json").write_text(json.dumps({"user": "ann", "password": "p"}))
    assert not needs_tls("job")


def test_a_token_is_read_from_its_file_each_time(folder: Path) -> None:
    login = Login.parse({"tokenFile": str(folder / "token"), "caFile": "ca.crt"}, "amqps://node")
    for token in ("first", "second"):
        (folder / "token").write_text(f"{token}\n")
        tls = TlsOptions(ca_file="ca.crt")
        assert login.arguments() == {"user": None, "password": None, "token": token, "tls": tls}
    for bad in ("", "sec ret", "secret\x01auth=", "sécret", "secret" * 20_000):
        (folder / "token").write_text(bad)
        with pytest.raises(AccessError, match=r"the token in .* is none") as caught:
            login.arguments()
        assert "secret" not in str(caught.value)
    (folder / "token").unlink()
    with pytest.raises(AccessError, match=r"option tokenFile: cannot read .*token \(No such file"):
        login.arguments()


@pytest.mark.parametrize(
    ("options", "url", "complaint"),
    [
        ({"tokenFile": "t", "credentials": "ann"}, "amqps://n", "credentials and tokenFile each say who"),
        ({"tokenFile": "t", "tlsCertificate": "c"}, "amqps://n", "tokenFile and tlsCertificate each say who"),
        ({"tlsKey": "k"}, "amqps://n", "tlsKey needs the certificate"),
        ({"tlsCertificate": "c"}, "amqp://n", "expected a url amqps://..., not amqp://"),
        ({"tlsCertificate": "c"}, "amqp+unix:///s", "expected a url amqps://"),
        ({"tokenFile": "t"}, "amqpws://n", "the network would see the token"),
    ],
)
def test_options_that_do_not_go_together_are_told(options: dict[str, str], url: str, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        Login.parse(options, url)


def test_a_runner_comes_over_tls_where_its_secret_is_a_token_or_a_certificate(folder: Path) -> None:
    place = Place("amqp://127.0.0.1:5672", "shop.default", Path("/space"))
    plain = {"url": "amqp://127.0.0.1:5672", "space": "shop.default"}
    assert place.options("") == plain
    (folder / "job.json").write_text(json.dumps({"user": "ann", "password": "p"}))
    assert place.options("job") == plain | {"credentials": "job"}
    secure = {"url": "amqps://127.0.0.1:5672", "caFile": "/space/credentials/_ca.crt", "credentials": "job"}
    for content in ({"token": "ey.J"}, {"tlsCertificate": "job.pem"}):
        (folder / "job.json").write_text(json.dumps(content))
        assert place.options("job") == plain | secure
