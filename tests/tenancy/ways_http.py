"""Ways over HTTP: another space in the path, names that lead out of a space, and other people's names."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from tests.support.polling import until
from tests.tenancy.refusals import Way, forbidden
from tests.tenancy.tenants import PASSWORDS

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

__all__ = ["WAYS"]

ACTIONS = {
    "send to": ("POST", "messages"),
    "look at": ("GET", "messages"),
    "receive from": ("POST", "receive"),
    "hear the events of": ("GET", "events"),
    "settle what was received from": ("POST", "settle"),
    "ask": ("POST", "request"),
}
RED = ("app", PASSWORDS["red"])
NAMES = (
    "..%2F..%2Fblue.team-b%2Faddresses%2Fprivate", "../../../blue.team-b/addresses/private", "private",
    "blue.private", "blue::private", "team-b%2Fblue%2Fprivate", "private%00",
)  # fmt: skip


def _ask(
    tenants: Tenants, method: str, space: str, address: str, action: str, proof: tuple[str, str] | None
) -> httpx.Response:
    port = urlsplit(tenants.amqps).port
    trusted = ssl.create_default_context(cafile=str(tenants.data / "tls" / "authority" / "ca.crt"))
    with httpx.Client(trust_env=False, timeout=20, verify=trusted, auth=proof) as http:
        # As it is: nothing is to be put right on its way.
        path = f"/v1/spaces/{space}/addresses/{address}/{action}"
        url = httpx.URL(f"https://localhost:{port}").copy_with(raw_path=path.encode())
        return http.request(method, url, content=b'{"leases": []}' if action == "settle" else None)


def _elsewhere(method: str, action: str, proof: tuple[str, str] | None) -> Callable[[Tenants], None]:
    def attempt(tenants: Tenants) -> None:
        def asked(space: str) -> httpx.Response | None:
            found = _ask(tenants, method, space, "vault", action, proof)
            # Others guess from this machine, too: their failures have the next one wait.
            return None if found.status_code == 429 else found

        answers = [until(partial(asked, space), step=0.5) for space in ("blue.team-b", "none.team-b", "blue.none")]
        for answer in answers:
            forbidden(answer, 401)
        told = {answer.text.replace(str(answer.url).split("/")[5], "SPACE") for answer in answers}
        assert len(told) == 1, "it can be told which spaces there are"

    return attempt


def _led_out(name: str) -> Callable[[Tenants], None]:
    def attempt(tenants: Tenants) -> None:
        for method, action in (("POST", "messages"), ("POST", "receive"), ("GET", "messages")):
            answer = _ask(tenants, method, "red.team-a", name, action, RED)
            forbidden(answer, 404)

    return attempt


def _ways() -> Iterator[Way]:
    for words, (method, action) in ACTIONS.items():
        yield Way(f"{words} an address in blue's space by HTTP, without a password", _elsewhere(method, action, None))
    # Once, as who guesses more has to wait.
    yield Way("send to an address in blue's space by HTTP, with red's password", _elsewhere("POST", "messages", RED))
    for name in NAMES:
        yield Way(f"name {name} in red's own space by HTTP", _led_out(name))


WAYS = tuple(_ways())
