"""Whoever guesses at a tenant's passwords gets few guesses, keeps nobody else out, and washes out no record."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.net.origins import SECURITY_HEADERS
from enmasse.wire.amqp.framing import SASL_HEADER, sasl_frame
from enmasse.wire.amqp.performatives import SaslChallenge, SaslInit, SaslOutcome, SaslResponse
from enmasse.wire.sasl.scram import Scram
from tests.support.polling import until
from tests.support.stranger import Stranger
from tests.tenancy.tenants import NAMESPACES, PASSWORDS, answer_to, path_of

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

pytestmark = pytest.mark.slow

MECHANISM = "SCRAM-SHA-256"
CAFE = "127.0.0.77"
"""An address that an attacker shares with honest clients of both tenants."""

_numbers = count()


class Login(Stranger):
    """A login by SCRAM that waits before it shows its proof."""

    def __init__(self, tenants: Tenants, who: str, user: str, password: str | None = None) -> None:
        super().__init__(int(tenants.amqp.rpartition(":")[2]), address=CAFE)
        self._has_password = password is not None
        self._scram = Scram(MECHANISM, user, password or "", lambda: f"nonce{next(_numbers)}")
        init = SaslInit(MECHANISM, self._scram.response(), f"{who}.{NAMESPACES[who]}")
        self.say_bytes(SASL_HEADER + sasl_frame(init))

    def outcome(self) -> int:
        """Show the proof, if it is asked for; how it ended: 0 is in, 1 refused, 4 not looked at."""
        while (heard := self.hear_frame()) is not None:
            if isinstance(heard[0], SaslChallenge):
                self.say_bytes(sasl_frame(SaslResponse(self._proof(heard[0].challenge))))
            elif isinstance(heard[0], SaslOutcome):
                return heard[0].code
        raise ConnectionError("there was no outcome")

    def _proof(self, challenge: bytes) -> bytes:
        if self._has_password:
            return self._scram.answer(challenge)
        # Any will do for one who guesses, and it need not be calculated.
        return b"c=biws,%b,p=%b" % (challenge.partition(b",")[0], b64encode(bytes(32)))


def test_guesses_that_are_begun_at_once_are_few_and_lock_nobody_else_out(tenants: Tenants) -> None:
    with ExitStack() as stack:

        def begin(who: str, user: str, password: str | None = None) -> Login:
            return stack.enter_context(Login(tenants, who, user, password))

        assert begin("blue", "keeper", PASSWORDS["blue"]).outcome() == 0
        begun = [begin("blue", "app") for _ in range(60)]
        begun.append(begin("blue", "app", PASSWORDS["blue"]))
        outcomes = [login.outcome() for login in begun]
        # While sixty wait for each other one more may be forgotten, and the last one is the right one.
        assert outcomes.count(0) <= outcomes.count(1) // 6
        assert 5 <= outcomes.count(1) <= 8
        begun = [begin("blue", f"nobody{number}") for number in range(40)]
        assert {login.outcome() for login in begun} <= {1, 4}
        assert begin("blue", "keeper", PASSWORDS["blue"]).outcome() == 0, "who came in from there lately"
        assert begin("red", "app", PASSWORDS["red"]).outcome() == 0, "another tenant"
    tenants.connect("blue").close()


def from_cafe(tenants: Tenants) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=tenants.api, transport=httpx.AsyncHTTPTransport(local_address=CAFE), timeout=30)


def test_so_it_is_at_the_api(tenants: Tenants) -> None:
    async def guess() -> None:
        async with from_cafe(tenants) as http:

            async def log_in(name: str, password: str) -> httpx.Response:
                return await http.post("/login", json={"username": name, "password": password})

            tried = await asyncio.gather(*(log_in("blue", f"guess {number}") for number in range(20)))
            codes = [answer.status_code for answer in tried]
            assert 1 <= codes.count(401) <= 9
            assert codes.count(429) == len(codes) - codes.count(401)
            assert {answer.headers["Retry-After"] for answer in tried if answer.status_code == 429} == {"6"}
            assert (await log_in("red", PASSWORDS["red"])).status_code == 200, "another tenant"

    asyncio.run(guess())


def test_nobody_washes_out_what_was_written_down(tenants: Tenants) -> None:
    async def flood() -> None:
        async with from_cafe(tenants) as http:
            name, agent = "x" * 20_000, {"User-Agent": "y" * 20_000}
            asked = [http.delete(path_of("secrets", "team-b", name), headers=agent) for _ in range(60)]
            assert {answer.status_code for answer in await asyncio.gather(*asked)} == {401}

    asyncio.run(flood())

    def lines(name: str) -> list[str]:
        return (tenants.data / name).read_text().splitlines()

    # A line is written after its answer.
    until(lambda: sum("xxx" in line for line in lines("audit-nobody.log")) >= 60, "not all are written down")
    known, nobodys = lines("audit.log"), lines("audit-nobody.log")
    assert any(json.loads(line)["user"] == "blue" for line in known)
    assert max(map(len, (*known, *nobodys))) < 2_000
    assert not [line for line in known if "xxx" in line]


PAGES: dict[str, dict[str, Any]] = {
    "a name that was turned to this machine": {"Host": "evil.example"},
    "our name with a dot": {"Host": "localhost."},
    "our name before another": {"Host": "localhost@evil.example"},
    "a page of another origin": {"Origin": "http://evil.example"},
    "a page of no origin": {"Origin": "null"},
    "a page of another port": {"Origin": "http://127.0.0.1:1"},
    "a frame of another site": {"Sec-Fetch-Site": "cross-site"},
}


def test_a_web_page_of_somebody_else_does_nothing_with_a_token_that_it_knows(tenants: Tenants) -> None:
    with tenants.http("red") as http:
        for words, headers in PAGES.items():
            answer = http.post(path_of("configmaps", "team-a"), json={}, headers=headers)
            assert answer.status_code == 403, words
            assert all(answer.headers[name] == value for name, value in SECURITY_HEADERS), words
        assert http.post(path_of("configmaps", "team-a"), json={}).status_code in (400, 422)
    host = tenants.api.rpartition("/")[2]
    for url in (tenants.api, tenants.amqp):
        for request in ("GET /healthz", "GET /nothing", "POST /healthz", "GET nonsense"):
            end = f" HTTP/1.1\r\nHost: {host}\r\nOrigin: http://evil.example\r\nConnection: close\r\n\r\n"
            head = answer_to(url, (request + end).encode()).partition(b"\r\n\r\n")[0].decode().lower()
            assert all(f"{name}: {value}".lower() in head for name, value in SECURITY_HEADERS), (url, request)
