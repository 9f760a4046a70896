"""The port by which control on another machine manages a node: certificates on both sides, and no others."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from enmasse.client import TlsOptions, connect
from enmasse.client.management import Management
from enmasse.drivers.authority import Authority
from enmasse.drivers.data_directory import Layout
from enmasse.drivers.embedded.node_admin import AmqpNodeAdmin, node_tls
from enmasse.errors import EnmasseError
from tests.support.node_process import NodeProcess
from tests.support.polling import until

pytestmark = pytest.mark.slow


@dataclass
class Place:
    layout: Layout
    authority: Authority
    tls: Path
    url: str


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A node that is managed from elsewhere; the installation that manages it has other files."""
    directory = tmp_path_factory.mktemp("management")
    layout, tls = Layout(directory / "control"), directory / "tls"
    authority = Authority(layout.tls)
    authority.issue_node(["localhost", "127.0.0.1"], tls)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    arguments = ("--management", f"127.0.0.1:{port}", "--management-tls", str(tls))
    with NodeProcess(directory / "node", *arguments):
        # The port is the last one that a node opens.
        until(lambda: is_open(port))
        yield Place(layout, authority, tls, f"amqps://127.0.0.1:{port}")


async def _manage(url: str, tls: TlsOptions, *, sasl: tuple[str, ...] | None = None) -> int:
    async with connect(url, tls=tls, reconnect=False, timeout=30, patience=5, sasl=sasl) as connection:
        return len(await Management(connection, timeout=30).query("io.enmasse.health"))


def test_control_manages_a_node_elsewhere_by_its_certificate(place: Place) -> None:
    async def body() -> bool:
        admin = AmqpNodeAdmin("node-0", place.url, jitter=lambda: 1.0, tls=node_tls(place.layout))
        async with asyncio.timeout(20):
            async for connected in admin.connections():
                if connected:
                    return bool((await admin.figures(())).health["ready"])
        return False

    assert asyncio.run(body())
    key = place.layout.api_tls / "management.key"
    assert key.stat().st_mode & 0o777 == 0o600


def test_another_certificate_of_the_same_authority_does_not_do(place: Place, tmp_path: Path) -> None:
    certificate, key = place.authority.issue_client("meter-1", groups=("system:masters",)).write(tmp_path, "meter")
    tls = TlsOptions(ca_file=place.authority.path, certificate=certificate, key=key)
    with pytest.raises(EnmasseError):
        asyncio.run(_manage(place.url, tls))


def test_who_shows_no_certificate_is_sent_away(place: Place) -> None:
    for sasl in (None, ("ANONYMOUS",)):
        with pytest.raises(EnmasseError):
            asyncio.run(_manage(place.url, TlsOptions(ca_file=place.authority.path), sasl=sasl))


def test_a_certificate_of_another_authority_ends_the_handshake(place: Place, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    certificate, key = other.issue_client("system:enmasse:control").write(tmp_path, "control")
    tls = TlsOptions(ca_file=place.authority.path, certificate=certificate, key=key)
    with pytest.raises(EnmasseError):
        asyncio.run(_manage(place.url, tls))


def test_control_does_not_talk_to_a_node_of_somebody_else(place: Place, tmp_path: Path) -> None:
    stranger = node_tls(Layout(tmp_path / "stranger"))()
    with pytest.raises(EnmasseError):
        asyncio.run(_manage(place.url, stranger))


def test_nothing_is_spoken_in_the_clear(place: Place) -> None:
    host, _, port = place.url.removeprefix("amqps://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"AMQP\x00\x01\x00\x00")
        try:
            answer = connection.recv(100)
        except ConnectionResetError:
            answer = b""
    assert not answer.startswith(b"AMQP\x00\x01")


def test_a_certificate_that_is_replaced_is_shown_without_a_restart(place: Place) -> None:
    host, _, port = place.url.removeprefix("amqps://").partition(":")
    context = ssl.create_default_context(cafile=str(place.authority.path))

    def shown() -> bytes | None:
        with (
            socket.create_connection((host, int(port)), timeout=30) as raw,
            context.wrap_socket(raw, server_hostname=host) as tls,
        ):
            return tls.getpeercert(binary_form=True)

    before = shown()
    place.authority.issue_node(["127.0.0.1"], place.tls)

    until(lambda: shown() != before)
