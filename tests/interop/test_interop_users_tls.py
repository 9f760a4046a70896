"""Users over TLS: passwords that only the node can read, certificates instead of them, hosts that name spaces."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import ConnectionDeniedError, TlsOptions, blocking
from enmasse.drivers.authority import Authority
from tests.interop.test_interop_users import HERE, PASSWORD, PATIENCE_S, TOOLS, Place, declare, run_user
from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess
from tests.support.polling import until

pytestmark = pytest.mark.slow

HOSTS = ["127.0.0.1", "localhost", "shop.default", "factory.default", "open.default"]


class Certificates:
    """The node's own authority, and clients that it vouches for."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "tls")
        self.authority.keep_server_certificate("default", HOSTS)
        self._directory = directory

    @property
    def directory(self) -> Path:
        return self.authority.directory

    @property
    def ca(self) -> str:
        return str(self.authority.path)

    def client(self, name: str) -> tuple[str, str]:
        """Certificate and key of a client."""
        certificate, key = self.authority.issue_client(name).write(self._directory, name)
        return str(certificate), str(key)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Place]:
    """A node with TLS and users, one of whom has nothing but a certificate."""
    directory = tmp_path_factory.mktemp("secure")
    users = directory / "users.yaml"
    run_user("add", "jo", "--space", "shop", "--users", str(users), "--send", "stock", "--recv", "stock")
    run_user(
        "add", "card", "--space", "shop", "--users", str(users), "--no-password",
        "--certificate", "card.example.com", "--send", "stock", "--recv", "stock",
    )  # fmt: skip
    with NodeProcess(directory / "data", "--users", str(users), "--tls", str(certificates.directory)) as node:
        connection = blocking.connect(node.admin_url, timeout=30, patience=30)
        try:
            management = connection.management()
            declare(management)
            yield Place(node, users, management)
        finally:
            connection.close()
        assert "Traceback" not in node.log, node.log
        assert PASSWORD not in node.log


def proton_connect(
    place: Place, certificates: Certificates, host: str, client: tuple[str, str] | None, **options: Any
) -> Any:
    """Connect python-qpid-proton with TLS; ``host`` is what it names by SNI."""
    require("python-qpid-proton with SASL and TLS")
    from proton import SSLDomain
    from proton.utils import BlockingConnection

    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(certificates.ca)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME, certificates.ca)
    if client is not None:
        domain.set_credentials(*client, None)
    return BlockingConnection(place.url("amqps"), timeout=PATIENCE_S, ssl_domain=domain, virtual_host=host, **options)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_proton_shows_its_password_to_the_node_alone(
    secure: Place, certificates: Certificates, mechanism: str
) -> None:
    connection = proton_connect(
        secure, certificates, "shop.default", None, user="jo", password=PASSWORD, allowed_mechs=mechanism
    )
    try:
        assert "jo" in secure.connected_users()
    finally:
        connection.close()


def test_the_host_of_tls_names_the_space(secure: Place, certificates: Certificates) -> None:
    require("python-qpid-proton with SASL and TLS")
    from proton import ConnectionException

    with pytest.raises(ConnectionException, match="unauthorized-access"):
        proton_connect(secure, certificates, "factory.default", None, user="jo", password=PASSWORD)
    proton_connect(secure, certificates, "open.default", None, allowed_mechs="ANONYMOUS").close()


def test_proton_comes_in_by_its_certificate(secure: Place, certificates: Certificates) -> None:
    require("python-qpid-proton with SASL and TLS")
    from proton import ConnectionException

    mine = certificates.client("card.example.com")
    connection = proton_connect(secure, certificates, "shop.default", mine, allowed_mechs="EXTERNAL")
    try:
        assert "card" in secure.connected_users()
    finally:
        connection.close()
    for host, client in (
        ("factory.default", mine),
        ("shop.default", certificates.client("stranger.example.com")),
        ("shop.default", None),
    ):
        with pytest.raises(ConnectionException, match="unauthorized-access"):
            proton_connect(secure, certificates, host, client, allowed_mechs="EXTERNAL")


def test_an_authority_that_is_taken_away_cuts_who_has_come_by_a_certificate_of_it(
    secure: Place, certificates: Certificates, tmp_path: Path
) -> None:
    mine = certificates.client("card.example.com")
    trusted = certificates.directory / "clients-ca.crt"
    before = trusted.read_bytes()
    connections = [
        proton_connect(secure, certificates, "shop.default", mine, allowed_mechs="EXTERNAL"),
        proton_connect(
            secure, certificates, "shop.default", None, user="jo", password=PASSWORD, allowed_mechs="PLAIN"
        ),
    ]
    try:
        assert {"card", "jo"} <= set(secure.connected_users())
        other = Authority(tmp_path / "other")
        other.keep_server_certificate("default", HOSTS)
        trusted.write_bytes(other.path.read_bytes())
        until(lambda: "card" not in secure.connected_users())
        assert "jo" in secure.connected_users()
    finally:
        trusted.write_bytes(before)
        for connection in connections:
            with suppress(Exception):  # of which one is closed already
                connection.close()
    until(lambda: can_come(secure, certificates, mine))


def can_come(secure: Place, certificates: Certificates, client: tuple[str, str]) -> bool:
    """Return whether a client comes in by its certificate."""
    from proton import ConnectionException

    try:
        proton_connect(secure, certificates, "shop.default", client, allowed_mechs="EXTERNAL").close()
    except ConnectionException:
        return False
    return True


@pytest.fixture(scope="module")
def rhea_login(secure: Place, certificates: Certificates) -> Callable[..., dict[str, Any]]:
    """Logs in with rhea over TLS; what it reports."""
    require("rhea")

    def login(client: tuple[str, str] | None = None, **options: Any) -> dict[str, Any]:
        tls: dict[str, Any] = {
            "transport": "tls",
            "ca": Path(certificates.ca).read_text(),
            "servername": "shop.default",
        }
        if client is not None:
            tls |= {"cert": Path(client[0]).read_text(), "key": Path(client[1]).read_text()}
        asked = {"port": secure.node.port, "address": "stock", "options": {**tls, **options}}
        done = subprocess.run(
            ["node", str(HERE / "rhea_login.js"), json.dumps(asked)],
            env={**os.environ, "NODE_PATH": str(TOOLS / "node_modules")},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    return login


def test_rhea_comes_in_by_password_or_certificate(
    rhea_login: Callable[..., dict[str, Any]], certificates: Certificates
) -> None:
    expected = {"opened": True, "outcome": "accepted", "received": "hello", "errors": [], "end": "closed"}
    assert rhea_login(username="jo", password=PASSWORD) == expected
    card = certificates.client("card.example.com")
    assert rhea_login(card, enable_sasl_external=True) == expected
    for refused in (
        rhea_login(username="jo", password="wrong"),
        rhea_login(certificates.client("stranger.example.com"), enable_sasl_external=True),
    ):
        assert not refused["opened"]


def test_the_python_client_comes_in_by_password_or_certificate(secure: Place, certificates: Certificates) -> None:
    certificate, key = certificates.client("card.example.com")
    tls = TlsOptions(ca_file=certificates.ca, certificate=certificate, key=key)
    for user, options in (
        ("jo", {"tls": TlsOptions(ca_file=certificates.ca), "user": "jo", "password": PASSWORD, "sasl": ["PLAIN"]}),
        ("card", {"tls": tls}),
    ):
        with blocking.connect(
            secure.url("amqps"), hostname="shop.default", timeout=PATIENCE_S, reconnect=False, **options
        ):
            assert user in secure.connected_users()
    with pytest.raises(ConnectionDeniedError):
        blocking.connect(
            secure.url("amqps"), hostname="factory.default", timeout=PATIENCE_S, reconnect=False, tls=tls
        )
