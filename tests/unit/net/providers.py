"""An OpenID provider on a port of this machine, which does as it is told."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import time
from base64 import b64decode, urlsafe_b64encode
from typing import Any, Self
from urllib.parse import parse_qs, unquote_plus

import h11
import jwt

from tests.unit.identity.tokens_of_tests import jwks, private_key


class Provider:
    """Gives keys, and tokens for passwords that are the user's name backwards.

    Attributes:
        keys: the names of the keys that it publishes; the first one signs.
        asked: the paths that it was asked for.
        forms: what came with passwords, and as whom.
        answers: path to what is answered in place of the usual.
        codes: what browsers came away with, and the challenges and nonces that these were given for.
        refreshes: what logins can be renewed with; empty: none is given.
        lasts_s: how long a token is good.
        changed: claims of ID tokens that are other than they should be.
        more: in its description of itself.
        names_keys: whether its keys have names.
        is_silent: whether it takes requests and says nothing.
        issuer: how it calls itself.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.keys = ["rsa"]
        self.asked: list[str] = []
        self.forms: list[tuple[dict[str, str], str]] = []
        self.answers: dict[str, tuple[int, Any]] = {}
        self.codes: dict[str, tuple[str, str]] = {}
        self.refreshes: list[str] = []
        self.lasts_s = 60.0
        self.changed: dict[str, Any] = {}
        self.more: dict[str, Any] = {}
        self.is_silent = False
        self.names_keys = True
        self.claims: dict[str, Any] = {}
        self.issuer = ""
        self._tls = tls
        self._port = 0
        self._server: asyncio.Server | None = None
        self._waiting: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Take requests, again on the same port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]
        scheme, host = ("https", "localhost") if self._tls else ("http", "127.0.0.1")
        self.issuer = f"{scheme}://{host}:{self._port}/realms/shop"

    async def stop(self) -> None:
        """Be gone."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._waiting):
                writer.close()
            await self._server.wait_closed()
            self._server = None

    def token(self, key: str | None = None, **changed: Any) -> str:
        """A token that it would give now."""
        name = key or self.keys[0]
        now = time.time()
        claims = {
            "iss": self.issuer, "aud": "messaging", "sub": "u-1", "preferred_username": "ida",
            "iat": now, "exp": now + self.lasts_s, **self.claims, **changed,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, private_key(name), "RS256", headers={"kid": name} if self.names_keys else {})

    def given(self, form: dict[str, str], nonce: str | None) -> dict[str, Any]:
        """What it gives for a code, or for what renews that."""
        found: dict[str, Any] = {"access_token": self.token(), "token_type": "Bearer"}
        client = form.get("client_id", "console")
        found["id_token"] = self.token(**{"aud": client, "nonce": nonce, "azp": client} | self.changed)
        if self.refreshes:
            found["refresh_token"] = self.refreshes[-1]
        return found

    def count(self, path: str) -> int:
        """How often a path was asked for."""
        return self.asked.count(path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER)
        body, path, as_whom = b"", "", ""
        self._waiting.add(writer)
        try:
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    data = await reader.read(65_536)
                    if not data:
                        return
                    http.receive_data(data)
                elif isinstance(event, h11.Request):
                    path = event.target.decode()
                    headers = dict(event.headers)
                    as_whom = headers.get(b"authorization", b"").decode()
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    break
            self.asked.append(path)
            if self.is_silent:
                await reader.read()
                return
            status, said = self.answers.get(path) or self._answer(path, body.decode(), as_whom)
            content = said if isinstance(said, bytes) else json.dumps(said).encode()
            head = h11.Response(
                status_code=status,
                headers=[("Content-Length", str(len(content))), ("Connection", "close"), ("Location", "/elsewhere")],
            )
            for part in (head, h11.Data(data=content), h11.EndOfMessage()):
                writer.write(http.send(part) or b"")
            await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            self._waiting.discard(writer)
            writer.close()

    def _answer(self, path: str, body: str, as_whom: str) -> tuple[int, Any]:
        if path.endswith("/.well-known/openid-configuration"):
            base = self.issuer
            return 200, {"issuer": base, "jwks_uri": f"{base}/certs", "token_endpoint": f"{base}/token"} | self.more
        if path.endswith("/certs"):
            found = jwks(*self.keys)
            if not self.names_keys:
                for key in found["keys"]:
                    del key["kid"]
            return 200, found
        if path.endswith("/token"):
            form = {name: values[0] for name, values in parse_qs(body).items()}
            if as_whom:
                as_whom = unquote_plus(b64decode(as_whom.removeprefix("Basic ")).decode())
            self.forms.append((form, as_whom))
            if form.get("grant_type") == "authorization_code":
                challenge, nonce = self.codes.pop(form.get("code", ""), ("", ""))
                digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
                if urlsafe_b64encode(digest).decode().rstrip("=") != challenge:
                    return 400, {"error": "invalid_grant", "error_description": "Code not valid"}
                return 200, self.given(form, nonce)
            if form.get("grant_type") == "refresh_token":
                if form.get("refresh_token") not in self.refreshes:
                    return 400, {"error": "invalid_grant", "error_description": "Token is not active"}
                return 200, self.given(form, None)
            if form.get("password") != form.get("username", "")[::-1]:
                return 401, {"error": "invalid_grant", "error_description": "Invalid user credentials"}
            return 200, {"access_token": self.token(preferred_username=form["username"]), "token_type": "Bearer"}
        return 404, {"error": "not found"}


CERTS, TOKEN = "/realms/shop/certs", "/realms/shop/token"

__all__ = ["CERTS", "TOKEN", "Provider"]
