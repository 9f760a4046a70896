"""The API with TLS: what it shows, what it makes of client certificates, and renewal without a restart."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from enmasse.api.listeners import ApiAuth, ListenerSettings, open_listener, open_listeners, serve_http
from enmasse.api.tls import ApiCertificate, peer_of
from enmasse.drivers.authority import Authority
from enmasse.drivers.data_directory import Layout
from enmasse.errors import ConfigError


class Scene:
    def __init__(self, directory: Path, began: dt.datetime | None = None) -> None:
        self.directory = directory
        self.authority = Authority(directory / "tls")
        self.issue(began)
        self.files = directory / "api" / "api.crt", directory / "api" / "api.key"
        self.certificate = ApiCertificate(*self.files, self.authority.path)
        self.url = ""

    def issue(self, now: dt.datetime | None = None) -> bool:
        authority = Authority(self.directory / "tls", now)
        return authority.keep_server_certificate("api", ["localhost", "127.0.0.1"], self.directory / "api")

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        async def peer(request: Request) -> JSONResponse:
            return JSONResponse(list(getattr(request.state, "peer", None) or ()))

        app = Starlette(routes=[Route("/peer", peer)])
        listener = open_listener("127.0.0.1", 0, is_protected=True)
        self.url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(serve_http(app, listener, stop, self.certificate))
            try:
                yield
            finally:
                stop.set()

    async def ask(self, client: tuple[Path, Path] | None = None) -> tuple[list[Any], bytes]:
        """Return what the server makes of us, and the certificate that it shows."""
        context = ssl.create_default_context(cafile=str(self.authority.path))
        if client is not None:
            context.load_cert_chain(*client)
        async with httpx.AsyncClient(verify=context, trust_env=False) as http:
            response = await http.get(f"{self.url}/peer")
            tls = response.extensions["network_stream"].get_extra_info("ssl_object")
            return response.json(), tls.getpeercert(binary_form=True)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_client_certificate_with_a_group_tells_who_its_client_is(scene: Scene, tmp_path: Path) -> None:
    ops = scene.authority.issue_client("ops", groups=("system:masters", "night")).write(tmp_path, "ops")
    meter = scene.authority.issue_client("meter-1").write(tmp_path, "meter")
    stranger = Authority(tmp_path / "other").issue_client("ops", groups=("system:masters",)).write(tmp_path, "x")

    async def body() -> None:
        async with scene.serve():
            assert (await scene.ask(ops))[0] == ["ops", ["system:masters", "night"]]
            assert (await scene.ask(meter))[0] == []  # a client of messaging, and nobody here
            assert (await scene.ask())[0] == []
            with pytest.raises((httpx.TransportError, ssl.SSLError)):
                await scene.ask(stranger)

    asyncio.run(body())


def test_a_certificate_is_made_anew_in_time_and_shown_without_a_restart(tmp_path: Path) -> None:
    began = dt.datetime.now(dt.UTC) - dt.timedelta(days=246)
    scene = Scene(tmp_path, began)

    async def body() -> None:
        async with scene.serve():
            _, first = await scene.ask()
            assert not scene.issue(began + dt.timedelta(days=240))
            assert not scene.certificate.reload()
            assert scene.issue(began + dt.timedelta(days=246))
            assert scene.certificate.reload()
            _, second = await scene.ask()
            assert second != first
            assert x509.load_der_x509_certificate(second) == x509.load_pem_x509_certificate(
                scene.files[0].read_bytes()
            )

    asyncio.run(body())


def test_files_that_do_not_fit_together_change_nothing(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with scene.serve():
            _, first = await scene.ask()
            scene.files[1].write_bytes(Authority(scene.directory / "tls").issue_client("other").key)
            assert not scene.certificate.reload()
            assert (await scene.ask())[1] == first

    asyncio.run(body())
    assert "keeps its present certificate" in caplog.text


def test_who_is_certified_is_read_from_name_and_organisations_alone() -> None:
    subject = ((("organizationName", "a"),), (("organizationName", "b"),), (("commonName", "ann"),))
    assert peer_of({"subject": subject}) == ("ann", ("a", "b"))
    assert peer_of({"subject": subject[2:]}) is None
    assert peer_of({"subject": (*subject, (("commonName", "eve"),))}) is None
    assert peer_of(None) is None


def test_an_api_that_others_reach_needs_proofs_and_accounts(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data")
    wrong: list[tuple[ApiAuth, str]] = [
        ("token", "--api-auth required"),
        ("open", "--api-auth required"),
        ("required", "there are no accounts"),
    ]
    for auth, words in wrong:
        settings = ListenerSettings(port=0, tls_host="0.0.0.0", tls_port=0, auth=auth)
        with pytest.raises(ConfigError, match=words), open_listeners(settings, layout):
            pass
    with (
        pytest.raises(ConfigError, match="loopback"),
        open_listeners(ListenerSettings(host="0.0.0.0", port=0), layout),
    ):
        pass


def test_the_operators_token_is_kept_over_restarts_and_private(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data")
    seen: list[tuple[str, str]] = []
    for _ in range(2):
        with open_listeners(ListenerSettings(port=0), layout):
            seen.append((layout.operator_token.read_text(), layout.pipelines_token.read_text()))
            assert layout.operator_token.stat().st_mode & 0o777 == 0o600
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] != seen[1][1]
